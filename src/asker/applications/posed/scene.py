"""Posed images, matches and tracks as a COLMAP model, and residuals of matches under given poses."""

from dataclasses import replace

import numpy as np

from asker.applications.colmap.model import NO_POINT, ColmapModel, Images, Points, camera_poses, starts_of
from asker.applications.colmap.reprojection_error import reprojection_norms
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.correspondences.tracks import Tracks
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.triangulation import triangulate
from asker.geometry.rotations import quaternion_from_matrix


def triangulated(posed: PosedImages, matches: Matches, tracks: Tracks) -> tuple[ColmapModel, Tracks]:
    """Return the model with the tracks that can be triangulated, and these tracks in the order of its points."""
    xyz = points_of(posed, matches, tracks)
    kept = tracks.taken(np.isfinite(xyz).all(axis=1)[tracks.point])
    return model_of(posed, matches, kept, xyz[np.isfinite(xyz).all(axis=1)]), kept


def points_of(posed: PosedImages, matches: Matches, tracks: Tracks) -> np.ndarray:
    """Return the points of tracks by robust triangulation, (n, 3); NaN where there is none."""
    image = matches.of_feature[tracks.feature]
    local = posed.rays(image, matches.xys[tracks.feature])
    rays = np.einsum("nji,nj->ni", posed.poses[image, :, :3], local)
    usable = np.isfinite(rays).all(axis=1)
    centres = posed.centres[image]
    guesses = _points_at_depth(posed, image, matches.xys[tracks.feature], local)
    if usable.all():
        return triangulate(tracks, centres, rays, guesses)
    rest = Tracks(tracks.feature[usable], tracks.point[usable])  # tracks without a ray have no point
    out = np.full((tracks.n, 3), np.nan)
    number, index = np.unique(rest.point, return_inverse=True)
    of = None if guesses is None else guesses[usable]
    out[number] = triangulate(Tracks(rest.feature, index), centres[usable], rays[usable], of)
    return out


def _points_at_depth(posed: PosedImages, image: np.ndarray, uv: np.ndarray, rays: np.ndarray) -> np.ndarray | None:
    """Return the positions (n, 3) of pixels by the depth maps of their images, NaN if unknown; None without maps."""
    if not posed.depths:
        return None
    out = np.full((len(uv), 3), np.nan)
    for k in np.unique(image).tolist():
        depth = posed.depths.get(posed.names[k])
        if depth is None:
            continue
        of = image == k
        at = np.floor(uv[of] * np.array(depth.shape[::-1]) / posed.sizes[k]).astype(int)
        x, y = (np.clip(at[:, axis], 0, depth.shape[1 - axis] - 1) for axis in (0, 1))
        z = np.maximum(rays[of, 2:], 1e-9)
        local = rays[of] / z * depth[y, x][:, None]
        out[of] = (local - posed.poses[k, :, 3]) @ posed.poses[k, :, :3]
    return out


def model_of(posed: PosedImages, matches: Matches, tracks: Tracks, xyz: np.ndarray) -> ColmapModel:
    """Return the COLMAP model of images and tracks; each feature of an image is an observation."""
    n = len(posed)
    image = matches.of_feature[tracks.feature]
    order = np.argsort(image, kind="stable")
    images = Images(
        ids=np.arange(1, n + 1),
        qvecs=quaternion_from_matrix(posed.poses[:, :, :3]),
        tvecs=posed.poses[:, :, 3].copy(),
        camera_ids=posed.cameras.ids[posed.of_image],
        names=posed.names,
        starts=starts_of(np.bincount(image, minlength=n)),
        xys=matches.xys[tracks.feature[order]],
        point_ids=tracks.point[order] + 1,
    )
    grey = np.full((len(xyz), 3), 128, np.uint8)
    points = Points(np.arange(1, len(xyz) + 1), xyz, grey, np.full(len(xyz), -1.0))
    return ColmapModel(posed.cameras, images, points)


def in_track_order(matches: Matches, tracks: Tracks, each: np.ndarray) -> np.ndarray:
    """Return values of the observations of `model_of` in the order of the tracks."""
    order = np.argsort(matches.of_feature[tracks.feature], kind="stable")
    out = np.empty_like(each)
    out[order] = each
    return out


def with_solution(posed: PosedImages, model: ColmapModel) -> PosedImages:
    """Return the images with the poses and intrinsics of a refined model."""
    return replace(posed, poses=camera_poses(model), cameras=model.cameras)


def norms_of(posed: PosedImages, matches: Matches, tracks: Tracks, xyz: np.ndarray) -> np.ndarray:
    """Return reprojection errors in pixels in the order of the tracks; infinite for points behind their camera."""
    safe = np.where(np.isfinite(xyz), xyz, 0.0)
    norms = in_track_order(matches, tracks, reprojection_norms(model_of(posed, matches, tracks, safe)))
    return np.where(np.isfinite(xyz).all(axis=1)[tracks.point], norms, np.inf)


def epipolar_distances(posed: PosedImages, matches: Matches, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return Sampson distances (n,) in pixels of pairs of features from the epipolar geometry of the poses.

    The distance is that of the rays as angles, times the focal length.  It is infinite for features without a ray.
    """
    image = matches.of_feature
    i, j = image[first], image[second]
    R, c = posed.poses[:, :, :3], posed.centres
    rays = [
        np.einsum("nji,nj->ni", R[k], posed.rays(k, matches.xys[feature])) for k, feature in ((i, first), (j, second))
    ]
    focal = focal_lengths(posed)
    return _sampson(rays[0], rays[1], c[j] - c[i], (focal[i] + focal[j]) / 2)


def relative_pose_distances(posed: PosedImages, matches: Matches) -> np.ndarray:
    """Return the distances of all matches as `epipolar_distances` does, for the relative poses of their pairs.

    They are 0 for pairs without a relative pose.
    """
    T, (i, j) = matches.relative_poses[matches.of_match], matches.of_feature[matches.features].T
    local = [posed.rays(k, matches.xys[feature]) for k, feature in zip((i, j), matches.features.T, strict=True)]
    focal = focal_lengths(posed)
    rotated = np.einsum("nij,nj->ni", T[:, :, :3], local[0])
    distance = _sampson(rotated, local[1], -T[:, :, 3], (focal[i] + focal[j]) / 2)
    return np.where(np.isfinite(T).all(axis=(1, 2)), distance, 0.0)


def _sampson(a: np.ndarray, b: np.ndarray, baseline: np.ndarray, focal: np.ndarray) -> np.ndarray:
    """Return Sampson distances (n,) in pixels of unit rays a and b in one frame with a given baseline."""
    length = np.linalg.norm(baseline, axis=1, keepdims=True)
    t = baseline / np.where(length > 0, length, 1.0)
    size = np.zeros(len(a))
    for g, d in ((np.cross(b, t), a), (np.cross(t, a), b)):
        size += (g * g).sum(axis=1) - (g * d).sum(axis=1) ** 2
    with np.errstate(all="ignore"):
        distance = np.abs((t * np.cross(a, b)).sum(axis=1)) / np.sqrt(size) * focal
    return np.where(np.isfinite(distance), distance, np.inf)


def focal_lengths(posed: PosedImages) -> np.ndarray:
    """Return the pixels per radian at the principal point of each image, (n_images,)."""
    per_camera = []
    for model, params in zip(posed.cameras.models, posed.cameras.params, strict=True):
        per_camera.append(params[0] / (2 * np.pi) if model == "EQUIRECTANGULAR" else params[0])
    return np.array(per_camera)[posed.of_image]


def without_points(model: ColmapModel, drop: np.ndarray) -> ColmapModel:
    """Return the model without some observations, given by a mask in the order of `model.observations()`."""
    point_ids = model.images.point_ids.copy()
    point_ids[model.observations().feature[drop]] = NO_POINT
    return replace(model, images=replace(model.images, point_ids=point_ids))
