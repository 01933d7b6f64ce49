"""Synthetic scenes with ground truth: cameras, points, noisy observations with outliers, and perturbed initial values.

    ring   cameras on a ring look inwards at one object; the camera graph is dense
    path   cameras follow a closed curve through a flat world and look to its left;
           only cameras close to each other on the path share points: the camera graph is a band

Cameras follow the BAL convention without distortion: P = R X + t, the camera looks along −z,
uv = −f (P_x, P_y) / P_z in pixels from the image centre.  A scene is generated in four steps:

    (1) generate the cameras
    (2) sample points in front of a central camera, and for each a track of cameras around it;
        keep observations in front of the camera and inside the image
    (3) add noise and outliers to the true pixels: gross, moderate ("near") or grouped ones
    (4) perturb cameras and points in fixed proportions; find the common size by bisection
        such that the median inlier residual has the requested value
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from asker.applications.bundle.bal import Bundle
from asker.geometry.rotations import angle_axis_from_matrix, matrix_from_angle_axis

Floats = NDArray[np.float64]
Rng = np.random.Generator

KINDS = ("ring", "path")
OUTLIER_KINDS = ("gross", "near", "grouped")
NOISE_LAWS = ("gaussian", "laplace", "student")
FOCAL = 800.0
HALF_IMAGE = np.array([800.0, 600.0])  # pixels from the centre to the border
RADIUS = 10.0  # of the ring; the path has one camera per unit of length
MAX_TRACK_SPAN = 48  # cameras between the ends of a track on the path
TRACK_LENGTH_SIGMA = 1.0  # standard deviation of the logarithm of track lengths
ROTATION_ERROR = 1.0  # proportions of initial errors: radians,
CENTRE_ERROR = 0.5  # fraction of the median depth,
POINT_ERROR = 1.0  # and fraction of the depth of the point
MIN_NEAR_ERROR, MAX_NEAR_ERROR = 3.0, 10.0  # of near outliers, in standard deviations of the noise
GROUP_SIZE, GROUP_CAMERAS = 30, 3  # approximate observations per group of outliers, and the adjacent cameras it spans
BATCH = 200_000  # points sampled, or observations projected, at a time, to limit the memory


@dataclass(frozen=True, eq=False)
class Scene:
    """A bundle adjustment problem with known ground truth."""

    start: Bundle
    """The initial bundle: perturbed cameras and points, with the observations."""
    truth: Bundle
    """True cameras and points, with the same observations, including noise and outliers."""
    outliers: NDArray[np.bool_]
    """(N,): the mask of outliers."""


def make_scene(
    n_cameras: int = 30,
    n_observations: int | None = None,
    *,
    kind: str = "ring",
    mean_track: float = 6.0,
    noise: float = 0.4,
    noise_law: str = "gaussian",
    outlier_ratio: float = 0.2,
    outlier_size: float = 150.0,
    outlier_kind: str = "gross",
    start_error: float = 5.0,
    seed: int = 0,
) -> Scene:
    """Generate a synthetic scene.

    Parameters
    ----------
    n_cameras
        The number of cameras.
    n_observations
        The exact number of observations; the default is 600 per camera.  The number of points follows from it.
    kind
        "ring" or "path" (see above).
    mean_track
        The approximate mean number of cameras per point.  Track lengths are heavy-tailed, and limited by the number of
        cameras.
    noise
        The standard deviation of each pixel coordinate.
    noise_law
        "gaussian", "laplace", or "student" with three degrees of freedom, the most heavy-tailed.
    outlier_ratio
        The fraction of observations that are outliers.
    outlier_size
        The largest error of gross and grouped outliers in pixels per coordinate.
    outlier_kind
        "gross": errors are uniform in ±outlier_size pixels.
        "near": errors have a norm of 3 to 10 times `noise`, in any direction.
        "grouped": as "gross", but about 30 observations in up to 3 adjacent cameras share one error, as if the points
        that these cameras observe had moved together.
    start_error
        The median residual norm of the inliers at the initial values, in pixels.
    seed
        The seed of the random numbers; equal arguments generate equal scenes.

    Returns
    -------
    Scene
        The initial bundle, the ground truth and the mask of outliers.

    Raises
    ------
    ValueError
        If an argument is out of range; the message has its name and the range.
    """
    N = 600 * n_cameras if n_observations is None else n_observations
    _check(n_cameras, N, kind, mean_track, noise, noise_law, outlier_ratio, outlier_size, outlier_kind, start_error)
    rng = np.random.default_rng(seed)
    cameras = _ring(n_cameras, rng) if kind == "ring" else _path(n_cameras, rng)  # (1)
    exact, depth = _observe(cameras, N, kind, mean_track, rng)  # (2)
    uv = exact.uv + noise * _noise(N, noise_law, rng)  # (3)
    n_outliers = int(outlier_ratio * N)
    if outlier_kind == "grouped":
        outliers, errors = _grouped(exact, n_outliers, outlier_size, rng)
        uv[outliers] += errors
    else:
        outliers = rng.permutation(N) < n_outliers
        if outlier_kind == "near":
            uv[outliers] = exact.uv[outliers] + noise * _near_errors(n_outliers, rng)
        else:
            uv[outliers] += rng.uniform(-outlier_size, outlier_size, (n_outliers, 2))
    truth = replace(exact, uv=uv)
    return Scene(_perturbed(truth, depth, ~outliers, start_error, rng), truth, outliers)  # (4)


def _check(
    n_cameras: int,
    N: int,
    kind: str,
    mean_track: float,
    noise: float,
    noise_law: str,
    outlier_ratio: float,
    outlier_size: float,
    outlier_kind: str,
    start_error: float,
) -> None:
    min_cameras = 20 if kind == "path" else 2
    min_start_error = 1.18 * noise  # the median norm of the noise
    for is_valid, rule in (
        (kind in KINDS, f'kind must be "ring" or "path", got {kind!r}'),
        (n_cameras >= min_cameras, f"n_cameras must be at least {min_cameras} on a {kind}, got {n_cameras}"),
        (50 * n_cameras <= N, f"n_observations must be at least 50 per camera, got {N}"),
        (n_cameras > 2 or N % 2 == 0, f"n_observations must be even for two cameras, got {N}"),
        (3 <= mean_track < np.inf, f"mean_track must be at least 3, got {mean_track}"),
        (0 <= noise < np.inf, f"noise must be finite and not negative, got {noise}"),
        (noise_law in NOISE_LAWS, f"noise_law must be one of {NOISE_LAWS}, got {noise_law!r}"),
        (0 <= outlier_ratio < 1, f"outlier_ratio must be in [0, 1), got {outlier_ratio}"),
        (0 <= outlier_size < np.inf, f"outlier_size must be finite and not negative, got {outlier_size}"),
        (outlier_kind in OUTLIER_KINDS, f"outlier_kind must be one of {OUTLIER_KINDS}, got {outlier_kind!r}"),
        (noise > 0 or outlier_kind != "near", f"noise must be positive for near outliers, got {noise}"),
        (
            start_error >= min_start_error,
            f"start_error must be at least 1.18 noise = {min_start_error:.3g}, got {start_error}",
        ),
    ):
        if not is_valid:
            raise ValueError(rule)


def _noise(n: int, law: str, rng: Rng) -> Floats:
    """Return noise of unit scale with the given distribution, (n, 2)."""
    if law == "laplace":
        return rng.laplace(size=(n, 2)) / np.sqrt(2)
    sample = rng.standard_normal((n, 2))
    return sample / np.sqrt(rng.chisquare(3, (n, 1))) if law == "student" else sample


def _near_errors(n: int, rng: Rng) -> Floats:
    """Return errors (n, 2) with uniform directions, and norms from MIN_NEAR_ERROR to MAX_NEAR_ERROR."""
    direction, length = rng.uniform(0, 2 * np.pi, n), rng.uniform(MIN_NEAR_ERROR, MAX_NEAR_ERROR, n)
    return length[:, None] * np.column_stack([np.cos(direction), np.sin(direction)])


def _grouped(exact: Bundle, n: int, size: float, rng: Rng) -> tuple[NDArray[np.bool_], Floats]:
    """Return the mask of n observations that form groups, the last one possibly incomplete, and their errors.

    A group has the observations of a random subset of the points in GROUP_CAMERAS adjacent cameras.
    """
    block = exact.camera_index // GROUP_CAMERAS
    n_subsets = max(1, exact.n_observations // (GROUP_SIZE * (block.max() + 1)))
    group = block * n_subsets + rng.integers(n_subsets, size=exact.n_points)[exact.point_index]
    place = rng.permutation(group.max() + 1)[group]  # groups become outliers in this order
    outliers = np.zeros(exact.n_observations, bool)
    outliers[np.argsort(place, kind="stable")[:n]] = True
    errors = rng.uniform(-size, size, (group.max() + 1, 2))
    return outliers, errors[group[outliers]]


def _ring(n: int, rng: Rng) -> Floats:
    phi = 2 * np.pi * (np.arange(n) + rng.uniform(-0.3, 0.3, n)) / n
    height = 0.15 * np.sin(3 * phi) + 0.05 * rng.standard_normal(n)
    centre = RADIUS * np.column_stack([np.cos(phi), np.sin(phi), height])
    return _cameras(centre, -centre, rng)


def _path(n: int, rng: Rng) -> Floats:
    """Return cameras on a closed curve with three leaves, of length n, that crosses its centre and turns left."""
    t = np.linspace(0, 2 * np.pi, 20_001)
    curve = np.column_stack([np.cos(t) + 2 * np.cos(2 * t), -np.sin(t) + 2 * np.sin(2 * t)])
    length = np.append(0, np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1)))
    fraction = (np.arange(n) + rng.uniform(-0.2, 0.2, n)) % n / n
    t = np.interp(fraction, length / length[-1], t)
    xy = np.column_stack([np.cos(t) + 2 * np.cos(2 * t), -np.sin(t) + 2 * np.sin(2 * t)]) * n / length[-1]
    ahead = np.column_stack([-np.sin(t) - 4 * np.sin(2 * t), -np.cos(t) + 4 * np.cos(2 * t)])
    left = np.column_stack([-ahead[:, 1], ahead[:, 0]])
    centre = np.column_stack([xy, 0.2 * rng.standard_normal(n)])
    return _cameras(centre, np.column_stack([left + 0.3 * ahead, np.zeros(n)]), rng)


def _cameras(centre: Floats, look: Floats, rng: Rng) -> Floats:
    """Return BAL cameras at `centre` with viewing direction `look`, upright up to a few degrees."""
    back = -look / np.linalg.norm(look, axis=1, keepdims=True)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    R = np.stack([right, np.cross(back, right), back], axis=1)
    R = matrix_from_angle_axis(0.04 * rng.standard_normal(centre.shape)) @ R
    intrinsics = [FOCAL, 0, 0] * rng.uniform(0.95, 1.05, (len(centre), 1))
    return np.column_stack([_pose(R, centre), intrinsics])


def _pose(R: Floats, centre: Floats) -> Floats:
    return np.column_stack([angle_axis_from_matrix(R), -np.einsum("nij,nj->ni", R, centre)])


def _centre(R: Floats, cameras: Floats) -> Floats:
    return -np.einsum("nji,nj->ni", R, cameras[:, 3:6])


def _observe(cameras: Floats, N: int, kind: str, mean_track: float, rng: Rng) -> tuple[Bundle, Floats]:
    """Return points, tracks and exact pixels for the cameras, and the depth at which each point was sampled."""
    batches, missing = [], N
    while missing > 0:
        n_points = min(BATCH, 100 + int(1.2 * missing / mean_track))
        batches.append(_batch(cameras, n_points, kind, mean_track, rng))
        missing -= len(batches[-1][-1])
    points, depth, length, camera, uv = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    keep = _first_observations(N, length)
    owner = np.repeat(np.arange(len(points), dtype=np.int32), length)[keep]
    n_points = owner[-1] + 1
    return Bundle(cameras, points[:n_points], camera[keep], owner, uv[keep]), depth[:n_points]


def _batch(cameras: Floats, n_points: int, kind: str, mean_track: float, rng: Rng) -> tuple[NDArray, ...]:
    """Sample points and tracks; keep visible observations, and points with at least two of them."""
    n = len(cameras)
    middle, window, owner, camera = _tracks(n_points, n, kind, mean_track, rng)
    if kind == "ring":
        depth = RADIUS * rng.uniform(0.5, 1.0, n_points)
    else:  # distant points have longer tracks, limited by the bend of the path
        depth = np.minimum(window + 1, 0.06 * n) * rng.uniform(0.8, 2.0, n_points)
    ray = np.column_stack([rng.uniform(-0.6, 0.6, (n_points, 2)) * HALF_IMAGE / FOCAL, -np.ones(n_points)])
    R = matrix_from_angle_axis(cameras[:, :3])
    points = _centre(R, cameras)[middle] + np.einsum("nji,nj->ni", R[middle], depth[:, None] * ray)
    uv, z = _project(cameras, points, camera, owner)
    is_visible = (z > 0.1 * depth[owner]) & np.all(np.abs(uv) < HALF_IMAGE, axis=1)
    length = np.bincount(owner[is_visible], minlength=n_points)
    keep = length >= 2
    is_visible &= keep[owner]
    return points[keep], depth[keep], length[keep], camera[is_visible], uv[is_visible]


def _tracks(n_points: int, n: int, kind: str, mean_track: float, rng: Rng) -> tuple[NDArray, ...]:
    """Sample for each point a window of cameras around a central one, and the cameras of the window that observe it.

    Returns the central camera and the window length of each point, and point and camera of each observation, sorted and
    without repeated pairs.
    """
    reach, wider = (n, n / 6) if kind == "ring" else (min(n, MAX_TRACK_SPAN), 0)
    tail = np.exp(
        np.log(mean_track - 1.5) - TRACK_LENGTH_SIGMA**2 / 2 + TRACK_LENGTH_SIGMA * rng.standard_normal(n_points)
    )
    length = 2 + np.minimum(tail, reach - 2).astype(int)
    window = length * rng.uniform(1, 2, n_points) + wider * rng.random(n_points)
    window = np.minimum(window, reach).astype(int)
    middle = rng.permutation(n_points) % n  # every camera equally often
    owner = np.repeat(np.arange(n_points), length)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    place = (rank * window[owner] + rng.integers(window)[owner]) // length[owner]  # distinct, below window
    camera = ((middle - window // 2)[owner] + place) % n
    owner, camera = np.divmod(np.sort(owner * n + camera), n)
    return middle, window, owner, camera.astype(np.int32)


def _first_observations(N: int, length: NDArray) -> NDArray[np.bool_]:
    """Return the mask of the first N observations, adjusted such that no track has a single one."""
    keep = np.arange(length.sum()) < N
    end = np.cumsum(length)
    last = np.searchsorted(end, N)
    if N - (end[last] - length[last]) == 1:  # move one observation from a longer track to the last one
        keep[N] = True
        keep[end[np.argmax(length[:last] > 2)] - 1] = False
    return keep


def _project(cameras: Floats, points: Floats, camera: NDArray, point: NDArray) -> tuple[Floats, Floats]:
    """Return pixels (N, 2) and depths (N,), positive in front of the camera."""
    R, t, f = matrix_from_angle_axis(cameras[:, :3]), cameras[:, 3:6], cameras[:, 6]
    uv, z = np.empty((len(camera), 2)), np.empty(len(camera))
    for first in range(0, len(camera), BATCH):
        part = slice(first, first + BATCH)
        i, j = camera[part], point[part]
        P = np.einsum("nij,nj->ni", R[i], points[j]) + t[i]
        z[part] = -P[:, 2]
        uv[part] = (f[i] / z[part])[:, None] * P[:, :2]
    return uv, z


def _perturbed(truth: Bundle, depth: Floats, inliers: NDArray[np.bool_], target: float, rng: Rng) -> Bundle:
    """Return the ground truth perturbed such that the median residual norm of the inliers is `target`."""
    R = matrix_from_angle_axis(truth.cameras[:, :3])
    centre = _centre(R, truth.cameras)
    turn = ROTATION_ERROR * rng.standard_normal(centre.shape)
    shift = CENTRE_ERROR * np.median(depth) * rng.standard_normal(centre.shape)
    move = POINT_ERROR * depth[:, None] * rng.standard_normal(truth.points.shape)
    sample = np.flatnonzero(inliers)
    sample = sample[:: 1 + len(sample) // BATCH]  # sufficient for a median
    camera, point, uv = truth.camera_index[sample], truth.point_index[sample], truth.uv[sample]

    def perturbed(size: float) -> tuple[Floats, Floats]:
        pose = _pose(matrix_from_angle_axis(size * turn) @ R, centre + size * shift)
        return np.column_stack([pose, truth.cameras[:, 6:]]), truth.points + size * move

    def error(size: float) -> float:
        return np.median(np.linalg.norm(_project(*perturbed(size), camera, point)[0] - uv, axis=1))

    low, high = 0.0, 0.5
    if not error(high) >= target:
        raise ValueError(f"start_error must be at most {error(high):.0f} for this scene, got {target}")
    while high - low > max(1e-3 * high, 1e-9):
        size = (low + high) / 2
        low, high = (size, high) if error(size) < target else (low, size)
    cameras, points = perturbed(high)
    return replace(truth, cameras=cameras, points=points)
