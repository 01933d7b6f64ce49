"""Bundle adjustment of a COLMAP model, as a `Problem`.

A pose takes a point from the world to the camera: P = R X + t.  Several images may share a camera, whose parameters
are then one variable.  The images of a frame share its pose; a sensor that is not the reference of its rig has another
pose in between.  There is one group of factors, and one group of intrinsics, for each camera model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from asker.applications.colmap import cameras
from asker.applications.colmap.cameras import parts_of, sees_behind
from asker.applications.colmap.constant_parameters import Held, held_of
from asker.applications.colmap.model import CAMERA_MODELS, ColmapModel, camera_poses, positions
from asker.applications.colmap.options import Refine
from asker.applications.colmap.reprojection_error import point_errors
from asker.applications.colmap.rigs import (
    Members,
    composed,
    frame_poses,
    is_reference,
    members,
    pose_fault,
    rigs_of,
    sensor_poses,
)
from asker.geometry.gauge import Gauge, Observed, gauge_correction, transformed
from asker.geometry.manifolds import SE3
from asker.geometry.rotations import quaternion_from_matrix
from asker.kernels.kernel import Kernel
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Problem, ProblemError, Slot, Variables


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
    """Of the frames; where there are no rigs, of the images."""
    points: Variables
    sensors: Variables | None
    """sensor_from_rig, where a rig has more than one camera."""
    members: Members
    """Where each image belongs."""
    intrinsics: dict[str, Intrinsics]
    """By camera model."""
    observations: tuple[np.ndarray, ...]
    """For each factor group, which observations of the model it has."""
    is_anchored: bool = False
    """Whether factors say where the whole is, so that it stays where it came out."""

    @cached_property
    def relative_damping(self) -> bool:
        """What to give `solve`: intrinsics have other units than poses."""
        return any(x.free_variables is not None for x in self.intrinsics.values())

    @property
    def has_scale(self) -> bool:
        """Whether cameras that are held apart in a rig say how large the whole is."""
        if self.sensors is None:
            return False
        used = np.unique(self.members.sensor)
        apart = sensor_poses(rigs_of(self.model))[used, :, 3].any(axis=1)
        return bool((self.sensors.fixed[used] & apart).any())

    @property
    def _start(self) -> np.ndarray:
        return self.poses.manifold.unpack(self.poses.rows)

    def refined(self, values: Groups[Any]) -> ColmapModel:
        """The model with the solved poses, points and parameters, in the start's frame; points have new errors."""
        images, points, known = self.model.images, self.model.points, self.model.cameras
        frames, sensors, xyz = self._put_back(values)
        (frame, sensor), rigs = self.members, self.model.rigs
        poses = composed(sensors[sensor], frames[frame])
        if rigs is not None:
            before = sensor_poses(rigs)
            still = (frames == self._start).all(axis=(1, 2))[frame] & (sensors == before).all(axis=(1, 2))[sensor]
            poses[still] = camera_poses(self.model)[still]
            qvecs, tvecs = _numbers(sensors, before, rigs.qvecs)
            rigs = replace(rigs, qvecs=qvecs, tvecs=tvecs)
        params = [p.copy() for p in known.params]
        for part in self.intrinsics.values():
            if part.free_variables is not None:
                for k, numbers in zip(part.cameras, values[part.free_variables], strict=True):
                    params[k][part.moving] = numbers
        qvecs, tvecs = _numbers(poses, camera_poses(self.model), images.qvecs)
        model = ColmapModel(
            replace(known, params=tuple(params)),
            replace(images, qvecs=qvecs, tvecs=tvecs),
            replace(points, xyz=xyz),
            rigs,
        )
        return replace(model, points=replace(model.points, errors=point_errors(model)))

    def _put_back(self, values: Groups[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Poses of frames and sensors, and points, in the start's frame."""
        poses, points = values[self.poses], values[self.points]
        sensors = sensor_poses(rigs_of(self.model)) if self.sensors is None else values[self.sensors].copy()
        if self.is_anchored or self.points.fixed.any():
            return poses, sensors, points
        _, image, camera, point = self.model.observations()
        whole = composed(sensors[self.members.sensor], poses[self.members.frame])
        depth = np.einsum("ni,ni->n", whole[image, 2, :3], points[point]) + whole[image, 2, 3]
        behind = np.array([sees_behind(name) for name in self.model.cameras.models])
        seen = Observed(self.members.frame[image], point, np.where(behind[camera], np.abs(depth), depth))
        turns = self.poses.manifold is SE3
        fit = gauge_correction(self._start, poses, self.poses.fixed, seen, turns=turns, scales=not self.has_scale)
        if fit is not None:
            sensors[:, :, 3] *= fit[0]
        frames, xyz = transformed(fit, poses, points, self.poses.fixed, seen)
        return frames, sensors, xyz


def _numbers(poses: np.ndarray, before: np.ndarray, qvecs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Poses as a model has them; the quaternions of those that have not moved stay, the signs of others too."""
    found = quaternion_from_matrix(poses[:, :, :3])
    found = np.where((found * qvecs).sum(axis=1, keepdims=True) < 0, -found, found)
    still = (poses == before).all(axis=(1, 2))
    found[still] = qvecs[still]
    return found, poses[:, :, 3].copy()


def colmap_problem(
    model: ColmapModel,
    kernel: Kernel | None = None,
    refine: Refine = "poses",
    gauge: Gauge = "free",
    hold: Sequence[str | int] | Held = (),
    principal_point: bool = False,
    refine_rigs: bool = False,
) -> ColmapProblem:
    """Reprojection errors in pixels under `kernel`.

    refine           poses moves poses and points, focal also the focal lengths, all also the distortions
    gauge            free leaves position, orientation and scale of the whole to the damping; fixed holds the pose of
                     the first image, which leaves the scale
    hold             what stays, as in "images=left/*", "cameras=3", "points", "rotations" or "k2" (`colmap.held`); a
                     number is the id of an image; one beside the first fixes the scale as well
    principal_point  with refine="all", whether the principal points move too
    refine_rigs      whether the poses of sensors in their rigs move; they stay when not asked for
    """
    _check_arguments(model, refine, gauge, principal_point)
    if fault := pose_fault(model, camera_poses(model)):
        raise ProblemError(f"{fault.what}; without its rigs (rigs=None) every image moves alone")
    held = hold if isinstance(hold, Held) else held_of(model, hold)
    where, rigs = members(model), rigs_of(model)
    fixed = np.zeros(len(rigs.frames), dtype=bool)
    fixed[where.frame[held.images]] = True
    fixed[where.frame[0]] |= gauge == "fixed"
    poses = Variables(frame_poses(model, camera_poses(model)), held.manifold(), fixed=fixed, name="poses")
    points = Variables(model.points.xyz, fixed=held.points, name="points")
    reference, sensors = is_reference(rigs), None
    if not reference[where.sensor].all():
        sensors = Variables(sensor_poses(rigs), SE3, fixed=reference | (not refine_rigs), name="sensors")
    elif refine_rigs:
        raise ProblemError("no rig of this model has images of two cameras: there is nothing in a rig to refine")
    seen = model.observations()
    model_of_camera = np.array(model.cameras.models)
    factors, intrinsics, observations = [], {}, []
    for name in dict.fromkeys(model_of_camera[seen.camera].tolist()):
        own = np.flatnonzero(model_of_camera[seen.camera] == name)
        part = _intrinsics(model, name, refine, principal_point, held)
        camera, image = positions(part.cameras, seen.camera[own]), seen.image[own]
        slots = [poses[where.frame[image]], points[seen.point[own]]]
        slots += [] if sensors is None else [sensors[where.sensor[image]]]
        slots += [v[camera] for v in (part.free_variables, part.held_variables) if v is not None]
        factors.append(_factors(name, part, sensors is not None, slots, model.images.xys[seen.feature[own]], kernel))
        intrinsics[name] = part
        observations.append(own)
    return ColmapProblem(model, Problem(*factors), poses, points, sensors, where, intrinsics, tuple(observations))


def _check_arguments(model: ColmapModel, refine: Refine, gauge: Gauge, principal_point: bool) -> None:
    if refine not in get_args(Refine):
        raise ValueError(f"refine must be 'poses', 'focal' or 'all', not {refine!r}")
    if gauge not in get_args(Gauge):
        raise ValueError(f"gauge must be 'free' or 'fixed', not {gauge!r}")
    if principal_point and refine != "all":
        raise ValueError(f"principal points move with refine='all' only, not with {refine!r}")
    if not model.n_observations:
        raise ProblemError("the model has no observations: nothing to fit")


def _intrinsics(model: ColmapModel, name: str, refine: Refine, principal_point: bool, held: Held) -> Intrinsics:
    of_model = np.flatnonzero(np.array(model.cameras.models) == name)
    params = np.stack([model.cameras.params[k] for k in of_model])
    asked = {"focal": refine != "poses", "principal-point": principal_point, "distortion": refine == "all"}
    named = zip(parts_of(name), CAMERA_MODELS[name].split(), strict=True)
    moves = np.array([asked.get(part, False) and not held.parameters & {part, one} for part, one in named])
    moves &= not held.cameras[of_model].all()
    moving, still = np.flatnonzero(moves), np.flatnonzero(~moves)
    free_variables = held_variables = None
    if moving.size:
        free_variables = Variables(params[:, moving], fixed=held.cameras[of_model], name=f"{name} intrinsics")
    if still.size:
        held_variables = Variables(params[:, still], fixed=True, name=f"{name} held")
    return Intrinsics(of_model, moving, still, free_variables, held_variables)


def _factors(
    name: str, part: Intrinsics, in_rig: bool, slots: list[Slot], uv: np.ndarray, kernel: Kernel | None
) -> Factors:
    place = np.argsort(np.concatenate([part.moving, part.held])).tolist()

    def seen_at(pose, point, *rest):
        """The parameters, and the point in the camera's frame."""
        P = pose.rotation @ point + pose.translation
        if in_rig:
            sensor, *rest = rest  # type: ignore[assignment]
            P = sensor.rotation @ P + sensor.translation
        values = [numbers[k] for numbers in rest for k in range(len(numbers))]  # the moving, then the held
        return [values[k] for k in place], P

    def reprojection(*arguments):
        params, P = seen_at(*arguments[:-1])
        return _stack(*cameras.reprojection(name, params, arguments[-1], P[0], P[1], P[2]))

    def in_front(*arguments):
        params, P = seen_at(*arguments[:-1])
        return cameras.depth(name, params, P[0], P[1], P[2])

    valid = in_front if kernel is None else None
    return Factors(reprojection, *slots, data=uv, kernel=kernel, valid=valid, name=name)


def _stack(u, v):
    import jax.numpy as jnp

    return jnp.stack([u, v])
