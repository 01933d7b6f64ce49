"""Changes of each image by the refinement, and the solutions of sets of images."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.applications.colmap.cameras import project
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.scene import norms_of, points_of
from asker.applications.posed.settle import Fit


@dataclass(frozen=True, eq=False)
class ImageTable:
    """One row for each image; arrays have the shape (n_images,)."""

    names: tuple[str, ...]
    determined: np.ndarray
    """The mask of the images with a refined pose."""
    n_observations: np.ndarray
    before: np.ndarray
    """Numbers of inliers with the start poses, from points triangulated with these."""
    after: np.ndarray
    """Numbers of inliers with the refined poses."""
    shift: np.ndarray
    """Median distance in pixels by which the refinement moves the projections of the image's points."""
    moved: np.ndarray
    """Distance between the camera centres before and after, in units of the world."""
    turned: np.ndarray
    """Angle between the rotations before and after, in degrees."""
    centre_error: np.ndarray
    """Standard error of the camera centre, in units of the world; NaN if it is unknown."""
    rotation_error: np.ndarray
    """Standard error of the rotation, in degrees."""
    prior: tuple[float, float] | None = None
    """The estimated errors of the given centres and rotations (degrees), if they were used as a prior."""

    @property
    def start_errors(self) -> tuple[float, float]:
        """The estimated errors of the given centres and rotations (degrees); NaN if they are unknown.

        A change has the variance of the start and that of the result; the median over the images of the difference of
        squared changes and squared standard errors estimates the former.
        """
        pairs = (self.moved, self.centre_error), (self.turned, self.rotation_error)
        squares = [(change**2 - error**2)[self.determined & np.isfinite(error)] for change, error in pairs]
        if self.prior is not None:
            return self.prior
        centre, rotation = (float(np.sqrt(max(np.median(x), 0.0))) if len(x) else float(np.nan) for x in squares)
        return centre, rotation

    @property
    def is_weak(self) -> np.ndarray:
        """(n_images,): the mask of the images with a larger standard error of the centre than the start has.

        With a prior, the standard error is smaller, and the data are as accurate as the start at 1/√2 of its error.
        """
        factor = 1.0 if self.prior is None else np.sqrt(0.5)
        return self.determined & (self.centre_error > factor * self.start_errors[0])

    @property
    def is_worse(self) -> bool:
        """True if most standard errors, of centres and of rotations, exceed the estimated errors of the start."""
        centre, rotation = self.start_errors
        of = self.determined
        return bool(
            self.prior is None
            and of.any()
            and np.median(self.centre_error[of]) > centre
            and np.median(self.rotation_error[of]) > rotation
        )

    def record(self) -> dict[str, Any]:
        """Return the columns for `report.json`."""
        return {
            "name": list(self.names),
            "determined": self.determined,
            "observations": self.n_observations,
            "inliers_before": self.before,
            "inliers_after": self.after,
            "shift_px": self.shift,
            "moved": self.moved,
            "turned_degrees": self.turned,
            "centre_standard_error": self.centre_error,
            "rotation_standard_error_degrees": self.rotation_error,
        }


def image_table(
    start: PosedImages, refined: PosedImages, parts: list["Part"], prior: tuple[float, float] | None = None
) -> ImageTable:
    """Return the table of all images from the parts of the solution."""
    n = len(start)
    determined = np.zeros(n, dtype=bool)
    counts = np.zeros((3, n), dtype=int)
    shift, errors = np.full(n, np.nan), np.full((2, n), np.nan)
    for part in parts:
        determined[part.images] = True
        counts[:, part.images] = part.counts(start)
        shift[part.images] = part.shifts(start)
        errors[:, part.images] = part.errors
    moved = np.linalg.norm(start.centres - refined.centres, axis=1)
    R = np.linalg.norm(start.poses[:, :, :3] - refined.poses[:, :, :3], axis=(1, 2))
    turned = np.degrees(2 * np.arcsin(np.minimum(R / np.sqrt(8), 1.0)))
    seen, before, after = counts
    return ImageTable(start.names, determined, seen, before, after, shift, moved, turned, errors[0], errors[1], prior)


@dataclass(frozen=True, eq=False)
class Part:
    """The solution of a set of images with determined relative poses, in the frame of the start."""

    images: np.ndarray
    """The indices of the images."""
    features: np.ndarray
    """The index of each feature of `matches` among those of all images."""
    posed: PosedImages
    """The images of the set with refined poses."""
    xyz: np.ndarray
    """(n_points, 3): the points of the tracks."""
    errors: np.ndarray
    """(2, n_images): standard errors of centres in world units and of rotations in degrees; NaN if unknown."""
    solution: Fit
    matches: Matches

    def counts(self, start: PosedImages) -> np.ndarray:
        """Return numbers of observations, and of inliers before and after, (3, n)."""
        tracks, n = self.solution.tracks, len(self.images)
        image = self.matches.of_feature[tracks.feature]
        given = start.taken(self.images)
        before = norms_of(given, self.matches, tracks, points_of(given, self.matches, tracks)) <= self.solution.limit
        masks = (slice(None), before, self.solution.inliers)
        return np.stack([np.bincount(image[mask], minlength=n) for mask in masks])

    def shifts(self, start: PosedImages) -> np.ndarray:
        """Return the median shift of the projections of the inliers of each image in pixels, (n,)."""
        tracks, given = self.solution.tracks, start.taken(self.images)
        image = self.matches.of_feature[tracks.feature][self.solution.inliers]
        points = self.xyz[tracks.point[self.solution.inliers]]
        out = np.full(len(self.images), np.nan)
        for k in range(len(self.images)):
            uv = [projections(posed, k, points[image == k]) for posed in (given, self.posed)]
            if len(uv[0]):
                distance = np.linalg.norm(uv[0] - uv[1], axis=1)
                out[k] = np.median(np.where(np.isfinite(distance), distance, np.inf))
        return out


def projections(posed: PosedImages, image: int, points: np.ndarray) -> np.ndarray:
    """Return the pixels (n, 2) of points in an image."""
    x, y, z = (points @ posed.poses[image, :, :3].T + posed.poses[image, :, 3]).T
    camera = posed.of_image[image]
    with np.errstate(all="ignore"):
        return np.stack(project(posed.cameras.models[camera], posed.cameras.params[camera], x, y, z), axis=1)
