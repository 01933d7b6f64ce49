"""Scenes with a known truth: cameras, points, noisy observations with outliers, and a perturbed start.

    ring   cameras on a ring look inwards at one object; the camera graph is dense
    path   cameras follow a closed curve through a flat world and look to its left;
           only cameras near each other on the path share points, so the camera graph is a band

Cameras follow the BAL convention without distortion: P = R X + t, the camera looks along −z,
uv = −f (P_x, P_y) / P_z in pixels from the image centre.  A scene is made in four steps:

    (1) place the cameras
    (2) draw points in front of a middle camera, and for each a track: some of the cameras around it;
        keep what is in front of the camera and inside the image
    (3) add noise and outliers to the true pixels: gross ones anywhere, near ones, or groups that agree
    (4) perturb cameras and points in fixed proportions; bisect their common size
        until the median inlier residual is the one asked for
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
REACH = 48  # cameras that a track on the path can span
TAIL = 1.0  # log-normal spread of the track lengths
TURN, SHIFT, MOVE = 1.0, 0.5, 1.0  # start errors: radians, part of the median depth, part of a point's depth
NEAREST, FARTHEST = 3.0, 10.0  # near outliers, in standard deviations of the noise
GROUP, WIDE = 30, 3  # observations in a group of outliers, about, and the neighbouring cameras that it spans
BATCH = 200_000  # points drawn at a time, observations projected at a time: bounds the memory


@dataclass(frozen=True, eq=False)
class Scene:
    """A bundle adjustment problem whose answer is known."""

    start: Bundle
    """Perturbed cameras and points, with the observations."""
    truth: Bundle
    """True cameras and points, with the same observations: noisy, and some of them outliers."""
    outliers: NDArray[np.bool_]
    """(N,): True where an observation was made an outlier."""


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
    """Make a scene; the same arguments give the same scene.

    n_observations   exact; 600 per camera by default.  The number of points follows from it
    kind             "ring" or "path", see above
    mean_track       how many cameras see a point, about, with a long tail; less where few cameras can see it
    noise            standard deviation of each pixel coordinate
    noise_law        "gaussian"; "laplace"; "student", with three degrees of freedom: tails that are heavier
    outlier_ratio    part of the observations that are outliers
    outlier_kind     "gross": each gets an error uniform in ±outlier_size pixels
                     "near": each lies 3 to 10 times `noise` from its true pixel, in any direction
                     "grouped": as "gross", but some 30 observations in up to 3 neighbouring cameras share one error;
                     the points that several of them see have moved together
    start_error      median residual norm of the inliers at the start, in pixels
    """
    N = 600 * n_cameras if n_observations is None else n_observations
    _check(n_cameras, N, kind, mean_track, noise, noise_law, outlier_ratio, outlier_size, outlier_kind, start_error)
    rng = np.random.default_rng(seed)
    cameras = _ring(n_cameras, rng) if kind == "ring" else _path(n_cameras, rng)  # (1)
    exact, depth = _observe(cameras, N, kind, mean_track, rng)  # (2)
    uv = exact.uv + noise * _noise(N, noise_law, rng)  # (3)
    n_outliers = int(outlier_ratio * N)
    if outlier_kind == "grouped":
        outliers, off = _grouped(exact, n_outliers, outlier_size, rng)
        uv[outliers] += off
    else:
        outliers = rng.permutation(N) < n_outliers
        if outlier_kind == "near":
            uv[outliers] = exact.uv[outliers] + noise * _near(n_outliers, rng)
        else:
            uv[outliers] += rng.uniform(-outlier_size, outlier_size, (n_outliers, 2))
    truth = replace(exact, uv=uv)
    return Scene(_perturbed(truth, depth, ~outliers, start_error, rng), truth, outliers)  # (4)


def _check(
    n_cameras, N, kind, mean_track, noise, noise_law, outlier_ratio, outlier_size, outlier_kind, start_error
) -> None:
    fewest = 20 if kind == "path" else 2
    floor = 1.18 * noise  # the median norm of the noise itself
    for holds, law in (
        (kind in KINDS, f'kind must be "ring" or "path", got {kind!r}'),
        (n_cameras >= fewest, f"n_cameras must be at least {fewest} on a {kind}, got {n_cameras}"),
        (50 * n_cameras <= N, f"n_observations must be at least 50 per camera, got {N}"),
        (n_cameras > 2 or N % 2 == 0, f"n_observations must be even for two cameras, got {N}"),
        (3 <= mean_track < np.inf, f"mean_track must be at least 3, got {mean_track}"),
        (0 <= noise < np.inf, f"noise must be finite and not negative, got {noise}"),
        (noise_law in NOISE_LAWS, f"noise_law must be one of {NOISE_LAWS}, got {noise_law!r}"),
        (0 <= outlier_ratio < 1, f"outlier_ratio must be in [0, 1), got {outlier_ratio}"),
        (0 <= outlier_size < np.inf, f"outlier_size must be finite and not negative, got {outlier_size}"),
        (outlier_kind in OUTLIER_KINDS, f"outlier_kind must be one of {OUTLIER_KINDS}, got {outlier_kind!r}"),
        (noise > 0 or outlier_kind != "near", f"noise must be positive where outliers are near, got {noise}"),
        (start_error >= floor, f"start_error must be at least 1.18 noise = {floor:.3g}, got {start_error}"),
    ):
        if not holds:
            raise ValueError(law)


def _noise(n: int, law: str, rng: Rng) -> Floats:
    """Noise of variance 1 by this law, (n, 2)."""
    if law == "laplace":
        return rng.laplace(size=(n, 2)) / np.sqrt(2)
    drawn = rng.standard_normal((n, 2))
    return drawn / np.sqrt(rng.chisquare(3, (n, 1))) if law == "student" else drawn


def _near(n: int, rng: Rng) -> Floats:
    """(n, 2): in any direction, NEAREST to FARTHEST long."""
    direction, length = rng.uniform(0, 2 * np.pi, n), rng.uniform(NEAREST, FARTHEST, n)
    return length[:, None] * np.column_stack([np.cos(direction), np.sin(direction)])


def _grouped(exact: Bundle, n: int, size: float, rng: Rng) -> tuple[NDArray[np.bool_], Floats]:
    """A mask of n observations in whole groups, but for the last one, and the error of each of them.

    A group is a share of the points, as WIDE neighbouring cameras see them.
    """
    block = exact.camera_index // WIDE
    n_shares = max(1, exact.n_observations // (GROUP * (block.max() + 1)))
    group = block * n_shares + rng.integers(n_shares, size=exact.n_points)[exact.point_index]
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
    """A three-leaved closed curve that crosses its middle, turns left, and is n units long."""
    t = np.linspace(0, 2 * np.pi, 20_001)
    curve = np.column_stack([np.cos(t) + 2 * np.cos(2 * t), -np.sin(t) + 2 * np.sin(2 * t)])
    length = np.append(0, np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1)))
    part = (np.arange(n) + rng.uniform(-0.2, 0.2, n)) % n / n
    t = np.interp(part, length / length[-1], t)
    xy = np.column_stack([np.cos(t) + 2 * np.cos(2 * t), -np.sin(t) + 2 * np.sin(2 * t)]) * n / length[-1]
    ahead = np.column_stack([-np.sin(t) - 4 * np.sin(2 * t), -np.cos(t) + 4 * np.cos(2 * t)])
    left = np.column_stack([-ahead[:, 1], ahead[:, 0]])
    centre = np.column_stack([xy, 0.2 * rng.standard_normal(n)])
    return _cameras(centre, np.column_stack([left + 0.3 * ahead, np.zeros(n)]), rng)


def _cameras(centre: Floats, look: Floats, rng: Rng) -> Floats:
    """BAL cameras at `centre` that look along `look`, upright but for a few degrees."""
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
    """Points, tracks and exact pixels for the cameras, and the depth at which each point was drawn."""
    batches, missing = [], N
    while missing > 0:
        n_points = min(BATCH, 100 + int(1.2 * missing / mean_track))
        batches.append(_batch(cameras, n_points, kind, mean_track, rng))
        missing -= len(batches[-1][-1])
    points, depth, length, camera, uv = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    keep = _exactly(N, length)
    owner = np.repeat(np.arange(len(points), dtype=np.int32), length)[keep]
    n_points = owner[-1] + 1
    return Bundle(cameras, points[:n_points], camera[keep], owner, uv[keep]), depth[:n_points]


def _batch(cameras: Floats, n_points: int, kind: str, mean_track: float, rng: Rng) -> tuple[NDArray, ...]:
    """Draw points and tracks; keep what the cameras see and the points that two of them see."""
    n = len(cameras)
    middle, window, owner, camera = _tracks(n_points, n, kind, mean_track, rng)
    if kind == "ring":
        depth = RADIUS * rng.uniform(0.5, 1.0, n_points)
    else:  # what is far is seen for longer, but not from beyond the bend of the path
        depth = np.minimum(window + 1, 0.06 * n) * rng.uniform(0.8, 2.0, n_points)
    ray = np.column_stack([rng.uniform(-0.6, 0.6, (n_points, 2)) * HALF_IMAGE / FOCAL, -np.ones(n_points)])
    R = matrix_from_angle_axis(cameras[:, :3])
    points = _centre(R, cameras)[middle] + np.einsum("nji,nj->ni", R[middle], depth[:, None] * ray)
    uv, z = _project(cameras, points, camera, owner)
    seen = (z > 0.1 * depth[owner]) & np.all(np.abs(uv) < HALF_IMAGE, axis=1)
    length = np.bincount(owner[seen], minlength=n_points)
    good = length >= 2
    seen &= good[owner]
    return points[good], depth[good], length[good], camera[seen], uv[seen]


def _tracks(n_points: int, n: int, kind: str, mean_track: float, rng: Rng) -> tuple[NDArray, ...]:
    """For each point a window of cameras around a middle one, and the cameras of the window that look.

    Returns middle and window per point, owner and camera per observation, sorted and no pair twice.
    """
    reach, wider = (n, n / 6) if kind == "ring" else (min(n, REACH), 0)
    tail = np.exp(np.log(mean_track - 1.5) - TAIL**2 / 2 + TAIL * rng.standard_normal(n_points))
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


def _exactly(N: int, length: NDArray) -> NDArray[np.bool_]:
    """A mask of N observations of the first tracks that leaves no track with one."""
    keep = np.arange(length.sum()) < N
    end = np.cumsum(length)
    last = np.searchsorted(end, N)
    if N - (end[last] - length[last]) == 1:  # a second one for the last track, in exchange for a third one
        keep[N] = True
        keep[end[np.argmax(length[:last] > 2)] - 1] = False
    return keep


def _project(cameras: Floats, points: Floats, camera: NDArray, point: NDArray) -> tuple[Floats, Floats]:
    """Pixels (N, 2), and depths (N,) that are positive in front of the camera."""
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
    """The truth, disturbed so that the median residual of the inliers is `target`."""
    R = matrix_from_angle_axis(truth.cameras[:, :3])
    centre = _centre(R, truth.cameras)
    turn = TURN * rng.standard_normal(centre.shape)
    shift = SHIFT * np.median(depth) * rng.standard_normal(centre.shape)
    move = MOVE * depth[:, None] * rng.standard_normal(truth.points.shape)
    some = np.flatnonzero(inliers)
    some = some[:: 1 + len(some) // BATCH]  # enough for a median
    camera, point, uv = truth.camera_index[some], truth.point_index[some], truth.uv[some]

    def disturbed(size: float) -> tuple[Floats, Floats]:
        pose = _pose(matrix_from_angle_axis(size * turn) @ R, centre + size * shift)
        return np.column_stack([pose, truth.cameras[:, 6:]]), truth.points + size * move

    def error(size: float) -> float:
        return np.median(np.linalg.norm(_project(*disturbed(size), camera, point)[0] - uv, axis=1))

    low, high = 0.0, 0.5
    if not error(high) >= target:
        raise ValueError(f"start_error must be at most {error(high):.0f} for this scene, got {target}")
    while high - low > max(1e-3 * high, 1e-9):
        size = (low + high) / 2
        low, high = (size, high) if error(size) < target else (low, size)
    cameras, points = disturbed(high)
    return replace(truth, cameras=cameras, points=points)
