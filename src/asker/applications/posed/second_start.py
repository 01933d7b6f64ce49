"""A start that depends on the given poses as little as possible: relative poses and rotation averaging.

(1) The relative rotations of the verified pairs are averaged robustly, with unknown noise.
(2) The rotations are aligned with the given ones as a whole; an image without a pair keeps its rotation.
(3) The points are triangulated, and positions and points are solved with constant rotations.
"""

from dataclasses import dataclass, replace

import numpy as np

import asker
from asker.applications.outcome import inlier_radii
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.posed_images import PosedImages
from asker.applications.rotation_averaging.files import RelativeRotations
from asker.applications.rotation_averaging.problem import averaging_problem, residual_norms
from asker.geometry.gauge import median_rotation

MIN_IMAGES = 3
"""Two images have one relative pose, which nothing confirms."""


@dataclass(frozen=True, eq=False)
class AveragedRotations:
    """Absolute rotations from relative rotations."""

    data: RelativeRotations
    pairs: np.ndarray
    """The indices of its pairs in the matches."""
    images: np.ndarray
    """The indices of the images that the pairs connect."""
    rotations: np.ndarray
    """(n, 3, 3): rotations of these images."""
    limit: float
    """Degrees; a pair with a smaller residual is an inlier."""

    def _explained(self, rotations: np.ndarray) -> np.ndarray:
        return residual_norms(self.data, rotations) <= self.limit

    def unexplained(self, rotations: np.ndarray) -> np.ndarray:
        """Return the mask of the pairs that the averaged rotations explain, but rotations of all images do not."""
        return self._explained(self.rotations) & ~self._explained(rotations[self.images])

    def share_explained(self, rotations: np.ndarray) -> float:
        """Return the share of the pairs that the averaged rotations explain which given rotations explain, too."""
        return 1 - float(self.unexplained(rotations).sum()) / max(int(self._explained(self.rotations).sum()), 1)

    def start(self, posed: PosedImages) -> PosedImages:
        """Return the images with averaged rotations and the given centres."""
        given = posed.poses[self.images, :, :3]
        R = posed.poses[:, :, :3].copy()
        R[self.images] = self.rotations @ median_rotation(given, self.rotations).T
        t = -np.einsum("nij,nj->ni", R, posed.centres)
        return replace(posed, poses=np.concatenate([R, t[:, :, None]], axis=2))


def averaged_rotations(posed: PosedImages, matches: Matches) -> AveragedRotations | None:
    """Return averaged rotations of the largest connected set of images; None without relative poses."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    known = np.isfinite(matches.relative_poses).all(axis=(1, 2))
    if not known.any():
        return None
    i, j = matches.pairs[known].T
    n = len(posed)
    label = connected_components(coo_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)[1]
    largest = np.bincount(label).argmax()
    images = np.flatnonzero(label == largest)
    if len(images) < MIN_IMAGES:
        return None
    number = np.full(n, -1)
    number[images] = np.arange(len(images))
    of = label[i] == largest
    data = RelativeRotations(
        tuple(posed.names[k] for k in images),
        number[i[of]],
        number[j[of]],
        matches.relative_poses[known][of][:, :, :3],
        np.ones(int(of.sum())),
    )
    made = averaging_problem(data)
    result = asker.solve(made.problem)
    (radius,) = inlier_radii(result)
    return AveragedRotations(data, np.flatnonzero(known)[of], images, result[made.rotations], radius)
