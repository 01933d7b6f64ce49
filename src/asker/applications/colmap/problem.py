"""Bundle adjustment of a COLMAP model, as a `Problem`.

A pose takes a point from the world to the camera: P = R X + t.  Several images may share a camera, whose parameters
are then one variable.  There is one group of factors, and one group of intrinsics, for each camera model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from asker.applications.colmap.cameras import DISTORTIONS, n_focal, project
from asker.applications.colmap.model import ColmapModel, positions
from asker.applications.colmap.options import Refine
from asker.geometry.gauge import Gauge, Seen, centres, put_back
from asker.groups import Groups
from asker.kernels import Kernel
from asker.manifolds import SE3
from asker.problem import Factors, Problem, ProblemError, Slot, Variables
from asker.rotations import matrix_from_quaternion, quaternion_from_matrix

BATCH = 1 << 18  # observations projected at a time: bounds the memory


@dataclass(frozen=True, eq=False)
class Intrinsics:
    """The cameras of one camera model: what of their parameters moves, and what is held."""

    cameras: np.ndarray
    """Their indices in the model."""
    moving: np.ndarray
    """Which parameters move."""
    held: np.ndarray
    free_variables: Variables | None
    held_variables: Variables | None


@dataclass(frozen=True, eq=False)
class ColmapProblem:
    """A bundle adjustment problem with the variables by name."""

    model: ColmapModel
    problem: Problem
    poses: Variables
    points: Variables
    intrinsics: dict[str, Intrinsics]
    """By camera model."""
    observations: tuple[np.ndarray, ...]
    """For each factor group, which observations of the model it has."""

    @cached_property
    def relative_damping(self) -> bool:
        """What to give `solve`: intrinsics have other units than poses."""
        return any(x.free_variables is not None for x in self.intrinsics.values())

    def refined(self, values: Groups[Any]) -> ColmapModel:
        """The model with the solved poses, points and parameters, in the start's frame; points have new errors."""
        images, points, cameras = self.model.images, self.model.points, self.model.cameras
        poses, xyz = self._put_back(values[self.poses], values[self.points])
        qvecs = quaternion_from_matrix(poses[:, :, :3])
        qvecs = np.where((qvecs * images.qvecs).sum(axis=1, keepdims=True) < 0, -qvecs, qvecs)
        still = (poses == camera_poses(self.model)).all(axis=(1, 2))
        qvecs[still] = images.qvecs[still]
        params = [p.copy() for p in cameras.params]
        for part in self.intrinsics.values():
            if part.free_variables is not None:
                for k, numbers in zip(part.cameras, values[part.free_variables], strict=True):
                    params[k][part.moving] = numbers
        model = ColmapModel(
            replace(cameras, params=tuple(params)),
            replace(images, qvecs=qvecs, tvecs=poses[:, :, 3].copy()),
            replace(points, xyz=xyz),
        )
        return replace(model, points=replace(model.points, errors=point_errors(model)))

    def _put_back(self, poses: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, image, _, point = self.model.observations()
        depth = np.einsum("ni,ni->n", poses[image, 2, :3], points[point]) + poses[image, 2, 3]
        if "OPENCV_FISHEYE" in self.model.cameras.models:  # it sees the difference, so nothing came out behind
            depth = np.abs(depth)
        return put_back(camera_poses(self.model), poses, points, self.poses.fixed, Seen(image, point, depth))


def colmap_problem(
    model: ColmapModel,
    kernel: Kernel | None = None,
    refine: Refine = "poses",
    gauge: Gauge = "free",
    hold: Sequence[int] = (),
    principal_point: bool = False,
) -> ColmapProblem:
    """Reprojection errors in pixels under `kernel`.

    refine           poses moves poses and points, focal also the focal lengths, all also the distortions
    gauge            free leaves position, orientation and scale of the whole to the damping; fixed holds the pose of
                     the first image, which leaves the scale
    hold             ids of more images whose poses stay; one beside the first fixes the scale as well
    principal_point  with refine="all", whether the principal points move too
    """
    if refine not in get_args(Refine):
        raise ValueError(f"refine must be 'poses', 'focal' or 'all', not {refine!r}")
    if gauge not in get_args(Gauge):
        raise ValueError(f"gauge must be 'free' or 'fixed', not {gauge!r}")
    if principal_point and refine != "all":
        raise ValueError(f"principal points move with refine='all' only, not with {refine!r}")
    if not model.n_observations:
        raise ProblemError("the model has no observations: nothing to fit")
    poses = Variables(camera_poses(model), SE3, fixed=_held_images(model, gauge, hold), name="poses")
    points = Variables(model.points.xyz, name="points")
    seen = model.observations()
    model_of_camera = np.array(model.cameras.models)
    factors, intrinsics, observations = [], {}, []
    for name in dict.fromkeys(model_of_camera[seen.camera].tolist()):
        own = np.flatnonzero(model_of_camera[seen.camera] == name)
        part = _intrinsics(model, name, refine, principal_point)
        camera = positions(part.cameras, seen.camera[own])
        slots = [v[camera] for v in (part.free_variables, part.held_variables) if v is not None]
        slots = [poses[seen.image[own]], points[seen.point[own]], *slots]
        factors.append(_factors(name, part, slots, model.images.xys[seen.feature[own]], kernel))
        intrinsics[name] = part
        observations.append(own)
    return ColmapProblem(model, Problem(*factors), poses, points, intrinsics, tuple(observations))


def _held_images(model: ColmapModel, gauge: Gauge, hold: Sequence[int]) -> np.ndarray:
    held = np.zeros(len(model.images), dtype=bool)
    held[0] = gauge == "fixed"
    where = positions(model.images.ids, np.array(hold, np.int64))
    for k in np.flatnonzero(where < 0)[:1]:
        raise ValueError(f"there is no image {hold[k]} to hold")
    held[where] = True
    return held


def _intrinsics(model: ColmapModel, name: str, refine: Refine, principal_point: bool) -> Intrinsics:
    _check_known(name)
    cameras = np.flatnonzero(np.array(model.cameras.models) == name)
    params = np.stack([model.cameras.params[k] for k in cameras])
    n = n_focal(name)
    moves = np.zeros(params.shape[1], dtype=bool)
    moves[:n] = refine != "poses"
    moves[n : n + 2] = principal_point
    moves[n + 2 :] = refine == "all"
    moving, held = np.flatnonzero(moves), np.flatnonzero(~moves)
    free_variables = Variables(params[:, moving], name=f"{name} intrinsics") if moving.size else None
    held_variables = Variables(params[:, held], fixed=True, name=f"{name} held") if held.size else None
    return Intrinsics(cameras, moving, held, free_variables, held_variables)


def _factors(name: str, part: Intrinsics, slots: list[Slot], uv: np.ndarray, kernel: Kernel | None) -> Factors:
    place = np.argsort(np.concatenate([part.moving, part.held])).tolist()

    def reprojection(pose, point, *rest):
        *parts, uv = rest
        values = [part[k] for part in parts for k in range(len(part))]  # the moving, then the held
        P = pose.rotation @ point + pose.translation
        u, v = project(name, [values[k] for k in place], P[0], P[1], P[2])
        return _stack(u - uv[0], v - uv[1])

    def in_front(pose, point, *_):
        return pose.rotation[2] @ point + pose.translation[2]

    valid = in_front if kernel is None else None
    return Factors(reprojection, *slots, data=uv, kernel=kernel, valid=valid, name=name)


def _stack(u, v):
    import jax.numpy as jnp

    return jnp.stack([u, v])


def _check_known(name: str) -> None:
    if name not in DISTORTIONS:
        raise ProblemError(f"no projection for {name} cameras; there are {', '.join(DISTORTIONS)}")


def camera_poses(model: ColmapModel) -> np.ndarray:
    """[R | t] of every image, (n, 3, 4)."""
    return np.concatenate([matrix_from_quaternion(model.images.qvecs), model.images.tvecs[:, :, None]], axis=2)


def camera_centres(model: ColmapModel) -> np.ndarray:
    """Where the images were taken, −Rᵀt, (n, 3)."""
    return centres(camera_poses(model))


def reprojection_norms(model: ColmapModel) -> np.ndarray:
    """Residual norms (n_observations,) in pixels; infinite where a point is not in front of its camera."""
    seen, poses = model.observations(), camera_poses(model)
    norms = np.empty(len(seen.feature))
    model_of_camera = np.array(model.cameras.models)
    for name in sorted(set(model_of_camera[seen.camera].tolist())):
        _check_known(name)
        cameras = np.flatnonzero(model_of_camera == name)
        params = np.stack([model.cameras.params[k] for k in cameras], axis=1)
        own = np.flatnonzero(model_of_camera[seen.camera] == name)
        for first in range(0, len(own), BATCH):
            k = own[first : first + BATCH]
            R, t = poses[seen.image[k], :, :3], poses[seen.image[k], :, 3]
            with np.errstate(all="ignore"):
                x, y, z = (np.einsum("nij,nj->ni", R, model.points.xyz[seen.point[k]]) + t).T
                u, v = project(name, params[:, positions(cameras, seen.camera[k])], x, y, z)
                r = np.hypot(*(np.stack([u, v], axis=1) - model.images.xys[seen.feature[k]]).T)
            norms[k] = np.where((z > 0) & np.isfinite(r), r, np.inf)
    return norms


def point_errors(model: ColmapModel) -> np.ndarray:
    """The mean residual of each point, over the observations that have one; −1 where none has."""
    r, point = reprojection_norms(model), model.observations().point
    good = np.isfinite(r)
    n = np.bincount(point[good], minlength=len(model.points))
    total = np.bincount(point[good], r[good], minlength=len(model.points))
    return np.where(n > 0, total / np.maximum(n, 1), -1.0)
