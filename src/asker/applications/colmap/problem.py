"""Bundle adjustment of a COLMAP model as an `asker.Problem`.

A pose maps a point from world to camera coordinates: P = R X + t.  The parameters of a camera are one variable, which
several images may share.  The images of a frame share its pose; for a sensor other than the reference of its rig, the
sensor pose is applied as well.  Each camera model has one group of factors and one group of intrinsics.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from asker.applications.colmap import cameras
from asker.applications.colmap.cameras import parts_of, sees_behind
from asker.applications.colmap.constant_parameters import ConstantParameters, constant_parameters
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
from asker.geometry.manifolds import SE3, Pose
from asker.geometry.rotations import quaternion_from_matrix
from asker.kernels.kernel import Kernel
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Problem, ProblemError, Slot, Variables


@dataclass(frozen=True, eq=False)
class Intrinsics:
    """The cameras of one camera model, with their free and their constant parameters."""

    cameras: np.ndarray
    """(n,): the indices of the cameras in the model."""
    free: np.ndarray
    """The indices of free parameters."""
    constant: np.ndarray
    """The indices of constant parameters."""
    free_variables: Variables | None
    """The free parameters; None if there are none."""
    constant_variables: Variables | None
    """The constant parameters; None if there are none."""


@dataclass(frozen=True, eq=False)
class ColmapProblem:
    """A bundle adjustment problem and its groups of variables."""

    model: ColmapModel
    problem: Problem
    poses: Variables
    """The poses of the frames; without rigs, of the images."""
    points: Variables
    sensors: Variables | None
    """sensor_from_rig; None if every rig has a single camera."""
    members: Members
    """The frame and the sensor of each image."""
    intrinsics: dict[str, Intrinsics]
    """The intrinsics by camera model."""
    observations: tuple[np.ndarray, ...]
    """The indices of the observations of each factor group."""
    is_georeferenced: bool = False
    """True if factors determine the frame, so that the result is not aligned with the initial frame."""

    @cached_property
    def relative_damping(self) -> bool:
        """`relative_damping` for `asker.solve`: True if intrinsics are free, whose units differ from those of poses."""
        return any(x.free_variables is not None for x in self.intrinsics.values())

    @property
    def has_scale(self) -> bool:
        """True if constant distances between the cameras of a rig determine the scale."""
        if self.sensors is None:
            return False
        used = np.unique(self.members.sensor)
        has_baseline = sensor_poses(rigs_of(self.model))[used, :, 3].any(axis=1)
        return bool((self.sensors.fixed[used] & has_baseline).any())

    @property
    def _initial_poses(self) -> np.ndarray:
        return self.poses.manifold.unpack(self.poses.rows)

    def refined(self, values: Groups[Any]) -> ColmapModel:
        """Return the model with the solved poses, points and parameters, aligned with the initial frame."""
        images, points, cameras = self.model.images, self.model.points, self.model.cameras
        frames, sensors, xyz = self._aligned(values)
        (frame, sensor), rigs = self.members, self.model.rigs
        poses = composed(sensors[sensor], frames[frame])
        if rigs is not None:
            before = sensor_poses(rigs)
            same_frame = (frames == self._initial_poses).all(axis=(1, 2))[frame]
            unchanged = same_frame & (sensors == before).all(axis=(1, 2))[sensor]
            poses[unchanged] = camera_poses(self.model)[unchanged]
            qvecs, tvecs = _quaternions_and_translations(sensors, before, rigs.qvecs)
            rigs = replace(rigs, qvecs=qvecs, tvecs=tvecs)
        params = [p.copy() for p in cameras.params]
        for part in self.intrinsics.values():
            if part.free_variables is not None:
                for k, numbers in zip(part.cameras, values[part.free_variables], strict=True):
                    params[k][part.free] = numbers
        qvecs, tvecs = _quaternions_and_translations(poses, camera_poses(self.model), images.qvecs)
        model = ColmapModel(
            replace(cameras, params=tuple(params)),
            replace(images, qvecs=qvecs, tvecs=tvecs),
            replace(points, xyz=xyz),
            rigs,
        )
        return replace(model, points=replace(model.points, errors=point_errors(model)))

    def _aligned(self, values: Groups[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the poses of frames and of sensors, and the points, aligned with the initial frame."""
        poses, points = values[self.poses], values[self.points]
        sensors = sensor_poses(rigs_of(self.model)) if self.sensors is None else values[self.sensors].copy()
        if self.is_georeferenced or self.points.fixed.any():
            return poses, sensors, points
        _, image, camera, point = self.model.observations()
        image_poses = composed(sensors[self.members.sensor], poses[self.members.frame])
        depth = np.einsum("ni,ni->n", image_poses[image, 2, :3], points[point]) + image_poses[image, 2, 3]
        no_mirror = np.array([sees_behind(name) for name in self.model.cameras.models])
        seen = Observed(self.members.frame[image], point, np.where(no_mirror[camera], np.abs(depth), depth))
        turns = self.poses.manifold is SE3
        fit = gauge_correction(
            self._initial_poses, poses, self.poses.fixed, seen, turns=turns, scales=not self.has_scale
        )
        if fit is not None:
            sensors[:, :, 3] *= fit[0]
        frames, xyz = transformed(fit, poses, points, self.poses.fixed, seen)
        return frames, sensors, xyz


def _quaternions_and_translations(
    poses: np.ndarray, before: np.ndarray, qvecs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return poses as quaternions with the signs of `qvecs`, and translations; copy quaternions of unchanged poses."""
    new = quaternion_from_matrix(poses[:, :, :3])
    new = np.where((new * qvecs).sum(axis=1, keepdims=True) < 0, -new, new)
    unchanged = (poses == before).all(axis=(1, 2))
    new[unchanged] = qvecs[unchanged]
    return new, poses[:, :, 3].copy()


def colmap_problem(
    model: ColmapModel,
    kernel: Kernel | None = None,
    refine: Refine = "poses",
    gauge: Gauge = "free",
    hold: Sequence[str | int] | ConstantParameters = (),
    principal_point: bool = False,
    refine_rigs: bool = False,
) -> ColmapProblem:
    """Return the problem of minimising reprojection errors in pixels.

    Parameters
    ----------
    model
        A COLMAP model.
    kernel
        The robust kernel; None if it is to be estimated.
    refine
        The free parameters besides points: "poses", "focal" for poses and focal lengths, or "all" for distortions, too.
    gauge
        "free" leaves position, orientation and scale of the scene to the damping; "fixed" keeps the pose of the first
        image constant, which leaves the scale.
    hold
        Constant parameters, as in "images=left/*", "cameras=3", "points", "rotations" or "k2"
        (`asker.applications.colmap.constant_parameters`); a number is the id of an image.
    principal_point
        True if principal points are free; requires refine="all".
    refine_rigs
        True if the poses of sensors within their rigs are free.

    Returns
    -------
    ColmapProblem
        The problem with its groups of variables.

    Raises
    ------
    ValueError
        If an option has an unknown value, or a word of `hold` matches nothing.
    asker.ProblemError
        If the model has no observations, an image pose disagrees with its rig, or there is no rig to refine.
    """
    _check_arguments(model, refine, gauge, principal_point)
    if fault := pose_fault(model, camera_poses(model)):
        raise ProblemError(f"{fault.what}; use rigs=None for independent image poses")
    constants = hold if isinstance(hold, ConstantParameters) else constant_parameters(model, hold)
    where, rigs = members(model), rigs_of(model)
    fixed = np.zeros(len(rigs.frames), dtype=bool)
    fixed[where.frame[constants.images]] = True
    fixed[where.frame[0]] |= gauge == "fixed"
    poses = Variables(frame_poses(model, camera_poses(model)), constants.manifold(), fixed=fixed, name="poses")
    points = Variables(model.points.xyz, fixed=constants.points, name="points")
    reference, sensors = is_reference(rigs), None
    if not reference[where.sensor].all():
        sensors = Variables(sensor_poses(rigs), SE3, fixed=reference | (not refine_rigs), name="sensors")
    elif refine_rigs:
        raise ProblemError("no rig of this model has images of two cameras: there are no sensor poses to refine")
    o = model.observations()
    model_of_camera = np.array(model.cameras.models)
    factors, intrinsics, observations = [], {}, []
    for name in dict.fromkeys(model_of_camera[o.camera].tolist()):
        index = np.flatnonzero(model_of_camera[o.camera] == name)
        part = _intrinsics(model, name, refine, principal_point, constants)
        camera, image = positions(part.cameras, o.camera[index]), o.image[index]
        slots = [poses[where.frame[image]], points[o.point[index]]]
        slots += [] if sensors is None else [sensors[where.sensor[image]]]
        slots += [v[camera] for v in (part.free_variables, part.constant_variables) if v is not None]
        factors.append(_factors(name, part, sensors is not None, slots, model.images.xys[o.feature[index]], kernel))
        intrinsics[name] = part
        observations.append(index)
    return ColmapProblem(model, Problem(*factors), poses, points, sensors, where, intrinsics, tuple(observations))


def _check_arguments(model: ColmapModel, refine: Refine, gauge: Gauge, principal_point: bool) -> None:
    if refine not in get_args(Refine):
        raise ValueError(f"refine must be 'poses', 'focal' or 'all', not {refine!r}")
    if gauge not in get_args(Gauge):
        raise ValueError(f"gauge must be 'free' or 'fixed', not {gauge!r}")
    if principal_point and refine != "all":
        raise ValueError(f"principal_point=True requires refine='all', not {refine!r}")
    if not model.n_observations:
        raise ProblemError("the model has no observations")


def _intrinsics(
    model: ColmapModel, name: str, refine: Refine, principal_point: bool, constants: ConstantParameters
) -> Intrinsics:
    """Return the intrinsics of the cameras of one camera model."""
    index = np.flatnonzero(np.array(model.cameras.models) == name)
    params = np.stack([model.cameras.params[k] for k in index])
    refined = {"focal": refine != "poses", "principal-point": principal_point, "distortion": refine == "all"}
    named = zip(parts_of(name), CAMERA_MODELS[name].split(), strict=True)
    is_free = np.array([refined.get(part, False) and not constants.parameters & {part, p} for part, p in named])
    is_free &= not constants.cameras[index].all()
    free, constant = np.flatnonzero(is_free), np.flatnonzero(~is_free)
    free_variables = constant_variables = None
    if free.size:
        free_variables = Variables(params[:, free], fixed=constants.cameras[index], name=f"{name} intrinsics")
    if constant.size:
        constant_variables = Variables(params[:, constant], fixed=True, name=f"{name} held")
    return Intrinsics(index, free, constant, free_variables, constant_variables)


def _factors(
    name: str, part: Intrinsics, in_rig: bool, slots: list[Slot], uv: np.ndarray, kernel: Kernel | None
) -> Factors:
    """Return the factors of the observations in cameras of one camera model."""
    order = np.argsort(np.concatenate([part.free, part.constant])).tolist()

    def in_camera_frame(pose: Pose, point: Any, *rest: Any) -> tuple[list[Any], Any]:
        """Return the parameters, and the point in the camera frame."""
        P = pose.rotation @ point + pose.translation
        if in_rig:
            sensor, *rest = rest  # type: ignore[assignment]
            P = sensor.rotation @ P + sensor.translation
        values = [numbers[k] for numbers in rest for k in range(len(numbers))]  # the free, then the constant ones
        return [values[k] for k in order], P

    def reprojection(*arguments: Any) -> Any:
        params, P = in_camera_frame(*arguments[:-1])
        return _stack(*cameras.reprojection(name, params, arguments[-1], P[0], P[1], P[2]))

    def in_front(*arguments: Any) -> Any:
        params, P = in_camera_frame(*arguments[:-1])
        return cameras.depth(name, params, P[0], P[1], P[2])

    valid = in_front if kernel is None else None
    return Factors(reprojection, *slots, data=uv, kernel=kernel, valid=valid, name=name)


def _stack(u: Any, v: Any) -> Any:
    import jax.numpy as jnp

    return jnp.stack([u, v])
