"""Bundle adjustment of BAL files as an `asker.Problem`.

Cameras follow the BAL convention: P = R X + t, p = −P_xy/P_z, and the pixel is f·(1 + k1 ρ² + k2 ρ⁴)·p.
Two conventions of k1, k2 are in use, with different costs for the same file:

    pixel   ρ = f‖p‖, in pixels, as the authors of the ASKER paper compute
    bal     ρ = ‖p‖, on the normalised point, as the BAL page defines and Ceres computes
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from asker.applications.bundle.bal import Bundle, BundlePortion
from asker.applications.bundle.options import CameraModel, Dof
from asker.geometry.gauge import Gauge, Observed, centres, restore_gauge
from asker.geometry.manifolds import SE3, Euclidean, Pose, Product
from asker.geometry.rotations import angle_axis_from_matrix, matrix_from_angle_axis
from asker.kernels.kernel import Kernel
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Portion, Problem, Variables
from asker.problem.reductions import Sums

BATCH = 1 << 18  # observations projected at a time, to limit the memory


def project(pose: Any, point: Any, focal: Any, k1: Any, k2: Any, camera: CameraModel) -> Any:
    """Return the pixel (2,) of a point in a camera."""
    P = pose.rotation @ point + pose.translation
    p = -P[:2] / P[2]
    rho2 = p @ p * (focal * focal if camera == "pixel" else 1.0)
    return focal * (1 + k1 * rho2 + k2 * rho2 * rho2) * p


@dataclass(frozen=True, eq=False)
class BundleProblem:
    """A bundle adjustment problem and its groups of variables."""

    bundle: Bundle
    problem: Problem
    cameras: Variables
    points: Variables
    dof: Dof

    def refined(self, values: Groups[Any], whole: Bundle | None = None) -> Bundle:
        """Return the bundle with the solved cameras and points, aligned with the initial frame.

        `whole` is the bundle of the whole file if this problem has a portion of it.
        """
        poses, free_intrinsics = self._cameras(values)
        bundle = self.bundle if whole is None else whole
        poses, points = self._aligned(bundle, poses, values[self.points])
        return self._with(bundle, poses, free_intrinsics, points)

    def depths(self, values: Groups[Any]) -> np.ndarray:
        """Return the depth of each local observation's point in its camera, before alignment.

        All depths may be negative, since a mirrored scene has the same reprojections.
        """
        portion, points = self.problem.portion, values[self.points]
        local = points[portion.numbers] if portion and not portion.in_parts else points
        return _depths(self.bundle, self._cameras(values)[0], local)

    def has_moved(self, values: Groups[Any]) -> bool:
        """Return True if any camera has moved; otherwise `refined` does not align the frame."""
        return not np.array_equal(camera_poses(self.bundle), self._cameras(values)[0])

    def _cameras(self, values: Groups[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return the poses and the free intrinsics."""
        parts = values[self.cameras]
        return (parts, np.zeros((len(parts), 0))) if self.dof == 6 else parts

    def refined_part(self, values: Groups[Any], part: BundlePortion, sums: Sums) -> BundlePortion:
        """Return the part of this process with the solved cameras and points, if each process keeps its part."""
        poses, free_intrinsics = self._cameras(values)
        bundle, depths = self.bundle, self.depths(values)
        counts = sums.by_variable(self.cameras, np.bincount(bundle.camera_index, minlength=len(poses)).astype(float))
        behind, before = sums.of(np.count_nonzero(depths < 0), np.count_nonzero(depths > 0))
        sign = np.array([-1.0 if behind > before else 1.0])  # over all processes
        seen = Observed(np.flatnonzero(counts > 0), bundle.point_index, sign)
        poses, points = restore_gauge(camera_poses(bundle), poses, values[self.points], self.cameras.fixed, seen)
        return replace(part, bundle=self._with(bundle, poses, free_intrinsics, points))

    def _with(self, bundle: Bundle, poses: np.ndarray, free_intrinsics: np.ndarray, points: np.ndarray) -> Bundle:
        cameras = bundle.cameras.copy()
        cameras[:, :3] = angle_axis_from_matrix(poses[:, :, :3])
        cameras[:, 3:6] = poses[:, :, 3]
        cameras[:, 6 : self.dof] = free_intrinsics
        return replace(bundle, cameras=cameras, points=points)

    def _aligned(self, bundle: Bundle, poses: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen = Observed(bundle.camera_index, bundle.point_index, _depths(bundle, poses, points))
        return restore_gauge(camera_poses(bundle), poses, points, self.cameras.fixed, seen)


def _depths(bundle: Bundle, poses: np.ndarray, points: np.ndarray) -> np.ndarray:
    i, j = bundle.camera_index, bundle.point_index
    return -np.einsum("ni,ni->n", poses[i, 2, :3], points[j]) - poses[i, 2, 3]


def bundle_problem(
    bundle: Bundle | BundlePortion,
    kernel: Kernel | None = None,
    camera: CameraModel = "pixel",
    dof: Dof = 6,
    gauge: Gauge = "free",
) -> BundleProblem:
    """Return the problem of minimising reprojection errors in pixels.

    Parameters
    ----------
    bundle
        The whole bundle, or the portion of one of several processes (`read_bal_portion`).
    kernel
        The robust kernel; None if it is to be estimated.
    camera
        The distortion convention, "pixel" or "bal" (see above).
    dof
        The free parameters per camera: 6 for the pose, 7 also the focal length, 9 also the distortion.
    gauge
        "free" leaves position, orientation and scale of the scene to the damping.  "fixed" keeps the pose of the first
        camera constant, which leaves the scale; it requires dof = 6.

    Returns
    -------
    BundleProblem
        The problem with its groups of variables.

    Raises
    ------
    ValueError
        If an option has an unknown value, or the gauge is fixed with dof > 6.
    """
    part, bundle = (bundle, bundle.bundle) if isinstance(bundle, BundlePortion) else (None, bundle)
    _check_options(camera, dof, gauge)
    poses = camera_poses(bundle)
    points = Variables(bundle.points, name="points")
    cameras, constants = _camera_variables(bundle, poses, dof, gauge)
    i, j = bundle.camera_index, bundle.point_index
    slots = [cameras[i], points[j]] + ([constants[i]] if dof < 9 else [])
    valid = None
    if kernel is None:
        valid = _cheirality(_sign_of_depths(_depths(bundle, poses, bundle.points), part), dof)
    residual = _residual(camera, dof)
    factors = Factors(residual, *slots, data=bundle.uv, kernel=kernel, valid=valid, name="reprojection")
    portion = None
    if part is not None:
        counts = part.n_points, (part.observations,), (part.n_observations,)
        portion = Portion(points, part.points, *counts, part.in_parts)
    return BundleProblem(bundle, Problem(factors, portion=portion), cameras, points, dof)


def _check_options(camera: CameraModel, dof: Dof, gauge: Gauge) -> None:
    if camera not in get_args(CameraModel):
        raise ValueError(f"camera must be 'pixel' or 'bal', not {camera!r}")
    if dof not in get_args(Dof):
        raise ValueError(f"dof must be 6, 7 or 9, not {dof!r}")
    if gauge not in get_args(Gauge):
        raise ValueError(f"gauge must be 'free' or 'fixed', not {gauge!r}")
    if gauge == "fixed" and dof != 6:
        raise ValueError(f"a fixed gauge keeps all parameters of the first camera constant: it needs dof 6, not {dof}")


def _camera_variables(bundle: Bundle, poses: np.ndarray, dof: Dof, gauge: Gauge) -> tuple[Variables, Variables]:
    """Return the variables of the cameras, and their constant intrinsics."""
    intrinsics = bundle.cameras[:, 6:9]
    n_free = dof - 6
    constants = Variables(intrinsics[:, n_free:], fixed=True, name="intrinsics")
    if n_free:
        manifold = Product(SE3, Euclidean(n_free))
        return Variables((poses, intrinsics[:, :n_free]), manifold, name="cameras"), constants
    is_first = np.arange(len(poses)) == 0
    return Variables(poses, SE3, fixed=is_first & (gauge == "fixed"), name="cameras"), constants


def _residual(camera: CameraModel, dof: Dof) -> Callable[..., Any]:
    """Return the residual function of an observation."""

    def free_pose(pose: Pose, point: Any, constants: Any, uv: Any) -> Any:
        return project(pose, point, constants[0], constants[1], constants[2], camera) - uv

    def free_focal_length(parts: Any, point: Any, constants: Any, uv: Any) -> Any:
        pose, (focal,) = parts
        return project(pose, point, focal, constants[0], constants[1], camera) - uv

    def free_distortion(parts: Any, point: Any, uv: Any) -> Any:
        pose, (focal, k1, k2) = parts
        return project(pose, point, focal, k1, k2, camera) - uv

    functions: dict[Dof, Callable[..., Any]] = {6: free_pose, 7: free_focal_length, 9: free_distortion}
    return functions[dof]


def _cheirality(sign: float, dof: Dof) -> Callable[..., Any]:
    """Return the function that is positive if a point is in front of its camera; `sign` is −1 for a mirrored scene."""

    def in_front(camera: Any, point: Any, *_: Any) -> Any:
        pose = camera[0] if dof > 6 else camera
        return -sign * (pose.rotation[2] @ point + pose.translation[2])

    return in_front


def _sign_of_depths(depths: np.ndarray, part: BundlePortion | None) -> float:
    """Return 1 if most points are in front of their cameras, and −1 for a mirrored scene."""
    if part is None:
        return 1.0 if np.median(depths) > 0 else -1.0
    from asker.engines.xla import distributed

    (n_in_front,) = distributed.all_sum(np.array([np.count_nonzero(depths > 0)]))
    return 1.0 if 2 * n_in_front > part.n_observations else -1.0


def camera_poses(bundle: Bundle) -> np.ndarray:
    """Return the poses [R | t] of the cameras, (n, 3, 4)."""
    return np.concatenate([matrix_from_angle_axis(bundle.cameras[:, :3]), bundle.cameras[:, 3:6, None]], axis=2)


def camera_centres(bundle: Bundle) -> np.ndarray:
    """Return the camera centres −Rᵀt, (n, 3)."""
    return centres(camera_poses(bundle))


def reprojection_norms(bundle: Bundle, camera: CameraModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the reprojection errors of all observations, computed with NumPy.

    Parameters
    ----------
    bundle
        Cameras, points and observations.
    camera
        The distortion convention, "pixel" or "bal".

    Returns
    -------
    norms
        (N,): residual norms in pixels; infinite if undefined.
    depths
        (N,): depths of the points, positive in front of the camera.
    """
    poses = camera_poses(bundle)
    norms, depths = np.empty(bundle.n_observations), np.empty(bundle.n_observations)
    for first in range(0, bundle.n_observations, BATCH):
        part = slice(first, first + BATCH)
        i, j = bundle.camera_index[part], bundle.point_index[part]
        f, k1, k2 = bundle.cameras[i, 6:9].T
        with np.errstate(all="ignore"):
            P = np.einsum("nij,nj->ni", poses[i, :, :3], bundle.points[j]) + poses[i, :, 3]
            p = -P[:, :2] / P[:, 2:]
            rho2 = (p * p).sum(axis=1) * (f * f if camera == "pixel" else 1.0)
            uv = (f * (1 + k1 * rho2 + k2 * rho2 * rho2))[:, None] * p
            r = np.hypot(*(uv - bundle.uv[part]).T)
        norms[part] = np.where(np.isnan(r), np.inf, r)
        depths[part] = -P[:, 2]
    return norms, depths
