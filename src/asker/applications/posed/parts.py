"""The final solution: sets of images with determined relative poses, each aligned with the start."""

from dataclasses import replace
from typing import Any

import numpy as np

from asker.applications.colmap.inliers import without_outliers
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.options import Refine
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.correspondences.tracks import Tracks
from asker.applications.posed.determined import determined_sets
from asker.applications.posed.image_table import Part
from asker.applications.posed.posed_images import PosedImages, with_cameras
from asker.applications.posed.scene import model_of
from asker.applications.posed.settle import Solution, rejoined, solved
from asker.geometry.gauge import Observed, gauge_correction, transformed


def determined_parts(
    start: PosedImages, matches: Matches, final: Solution, refine: Refine, **limits: Any
) -> list[Part]:
    """Return the sets of images that the inliers of a solution determine, each solved and aligned on its own.

    Parameters
    ----------
    start
        The images with the given poses.
    matches
        All matches.
    final
        A solution of all images.
    refine
        The free parameters besides points, as in `colmap.refine`.
    **limits
        Arguments of `asker.solve`.
    """
    tracks = final.tracks
    image = matches.of_feature[tracks.feature]
    p = min(1.0, 2 * final.limit / float(np.median(start.sizes[:, 1])))
    sets = determined_sets(image, tracks.point, final.inliers, len(start), p)
    everything = np.arange(len(matches.xys))
    if len(sets) == 1 and len(sets[0]) == len(start):
        return [aligned(start, matches, everything, sets[0], final)]
    parts = []
    for images in sets:
        some, features = matches.of_images(images)
        posed = final.posed.taken(images)
        number = np.full(len(matches.xys), -1)
        number[features] = np.arange(len(features))
        inside = number[tracks.feature] >= 0
        before = replace(final, posed=posed, tracks=Tracks(tracks.feature[inside], tracks.point[inside]))
        solution = solved(posed, some, rejoined(before, some), refine, **limits)
        parts.append(aligned(start.taken(images), some, features, images, solution))
    return parts


def aligned(start: PosedImages, matches: Matches, features: np.ndarray, images: np.ndarray, solution: Solution) -> Part:
    """Return a solution in the frame of the start."""
    tracks, poses, xyz = solution.tracks, solution.posed.poses, solution.outcome.model.points.xyz
    camera = matches.of_feature[tracks.feature]
    depth = np.einsum("ni,ni->n", poses[camera, 2, :3], xyz[tracks.point]) + poses[camera, 2, 3]
    observed, free = Observed(camera, tracks.point, depth), np.zeros(len(poses), dtype=bool)
    fit = gauge_correction(start.poses, poses, free, observed)
    poses, xyz = transformed(fit, poses, xyz, free, observed)
    scale = 1.0 if fit is None else abs(fit[0])
    errors = standard_errors(solution, scale)
    return Part(images, features, replace(solution.posed, poses=poses), xyz, errors, solution, matches)


def standard_errors(solution: Solution, scale: float) -> np.ndarray:
    """Return standard errors of centres, times a scale, and of rotations in degrees, (2, n); NaN if there are none."""
    try:
        arrays = solution.outcome.covariances.arrays
    except ValueError:  # the gauge is not determined, or there is no noise
        return np.full((2, len(solution.posed)), np.nan)
    variances = (np.einsum("nqq->n", C) for C in (arrays["centre_covariances"], arrays["pose_covariances"][:, 3:, 3:]))
    centre, rotation = (np.sqrt(np.maximum(x, 0.0)) for x in variances)
    return np.stack([scale * centre, np.degrees(rotation)])


def joined(start: PosedImages, matches: Matches, parts: list[Part]) -> tuple[PosedImages, ColmapModel]:
    """Return all images, with the refined poses of the parts, and their COLMAP model without outliers."""
    poses = start.poses.copy()
    models = [start.cameras.models[k] for k in start.of_image]
    params = [start.cameras.params[k] for k in start.of_image]
    for part in parts:
        poses[part.images] = part.posed.poses
        for k, camera in zip(part.images.tolist(), part.posed.of_image.tolist(), strict=True):
            params[k] = part.posed.cameras.params[camera]
    made = with_cameras(start.names, poses, models, start.sizes, params)
    refined = replace(start, poses=poses, cameras=made.cameras, of_image=made.of_image)
    feature, point, inliers, n = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0, bool)], 0
    for part in parts:
        feature.append(part.features[part.solution.tracks.feature])
        point.append(part.solution.tracks.point + n)
        inliers.append(part.solution.inliers)
        n += len(part.xyz)
    tracks = Tracks(np.concatenate(feature), np.concatenate(point))
    model = model_of(refined, matches, tracks, np.concatenate([np.zeros((0, 3)), *(part.xyz for part in parts)]))
    order = np.argsort(matches.of_feature[tracks.feature], kind="stable")
    return refined, without_outliers(model, np.concatenate(inliers)[order])
