"""Bundle adjustment: cameras, points and their observations, as a `Problem`.

Cameras follow the BAL convention: P = R X + t, p = −P_xy/P_z, and a pixel is f·(1 + k1 ρ² + k2 ρ⁴)·p.
Two readings of k1, k2 are in use, and they give different costs for the same file:

    pixel   ρ = f‖p‖, in pixels: what the authors of the ASKER paper compute
    bal     ρ = ‖p‖, on the normalised point: what the BAL page says and Ceres computes
"""

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from asker.applications.bundle.bal import Bundle, BundlePortion
from asker.applications.bundle.options import CameraModel, Dof
from asker.geometry.gauge import Gauge, Observed, centres, restore_gauge
from asker.geometry.manifolds import SE3, Euclidean, Product
from asker.geometry.rotations import angle_axis_from_matrix, matrix_from_angle_axis
from asker.kernels.kernel import Kernel
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Portion, Problem, Variables
from asker.problem.reductions import Sums

BATCH = 1 << 18  # observations projected at a time: bounds the memory


def project(pose: Any, point: Any, focal: Any, k1: Any, k2: Any, camera: CameraModel) -> Any:
    """The pixel (2,) at which a camera sees a point."""
    P = pose.rotation @ point + pose.translation
    p = -P[:2] / P[2]
    rho2 = p @ p * (focal * focal if camera == "pixel" else 1.0)
    return focal * (1 + k1 * rho2 + k2 * rho2 * rho2) * p


@dataclass(frozen=True, eq=False)
class BundleProblem:
    """A bundle adjustment problem with the variables by name."""

    bundle: Bundle
    problem: Problem
    cameras: Variables
    points: Variables
    dof: Dof

    def refined(self, values: Groups[Any], whole: Bundle | None = None) -> Bundle:
        """The bundle with the solved cameras and points, in the frame of the start; `whole` if this is a part."""
        poses, free_intrinsics = self._cameras(values)
        bundle = self.bundle if whole is None else whole
        poses, points = self._restore_gauge(bundle, poses, values[self.points])
        return self._with(bundle, poses, free_intrinsics, points)

    def depths(self, values: Groups[Any]) -> np.ndarray:
        """How far in front of its camera each point is, for the own observations: of the variables as they are solved,
        which may be a mirror image of the scene."""
        portion, points = self.problem.portion, values[self.points]
        own = points[portion.numbers] if portion and not portion.in_parts else points
        return _depths(self.bundle, self._cameras(values)[0], own)

    def has_moved(self, values: Groups[Any]) -> bool:
        """Whether any camera has; if none has, `refined` leaves the frame alone."""
        return not np.array_equal(camera_poses(self.bundle), self._cameras(values)[0])

    def _cameras(self, values: Groups[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Poses, and the intrinsics that move."""
        parts = values[self.cameras]
        return (parts, np.zeros((len(parts), 0))) if self.dof == 6 else parts

    def refined_part(self, values: Groups[Any], part: BundlePortion, sums: Sums) -> BundlePortion:
        """The part of a bundle that this process has, with the solved cameras and points, where these are its own."""
        poses, free_intrinsics = self._cameras(values)
        bundle, depths = self.bundle, self.depths(values)
        counts = sums.by_variable(self.cameras, np.bincount(bundle.camera_index, minlength=len(poses)).astype(float))
        behind, before = sums.of(np.count_nonzero(depths < 0), np.count_nonzero(depths > 0))
        side = np.array([-1.0 if behind > before else 1.0])  # of the whole
        seen = Observed(np.flatnonzero(counts > 0), bundle.point_index, side)
        poses, points = restore_gauge(camera_poses(bundle), poses, values[self.points], self.cameras.fixed, seen)
        return replace(part, bundle=self._with(bundle, poses, free_intrinsics, points))

    def _with(self, bundle: Bundle, poses: np.ndarray, free_intrinsics: np.ndarray, points: np.ndarray) -> Bundle:
        cameras = bundle.cameras.copy()
        cameras[:, :3] = angle_axis_from_matrix(poses[:, :, :3])
        cameras[:, 3:6] = poses[:, :, 3]
        cameras[:, 6 : self.dof] = free_intrinsics
        return replace(bundle, cameras=cameras, points=points)

    def _restore_gauge(self, bundle: Bundle, poses: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
    """Reprojection errors in pixels under `kernel`.

    bundle  the whole, or the part of it that one of several processes holds (`read_bal_portion`)
    dof     6 moves poses and points, 7 also the focal lengths, 9 also the distortions
    gauge   free leaves position, orientation and scale of the whole to the damping; fixed holds the pose of the first
            camera, which leaves the scale; with dof = 6 only, since a camera that moves is one variable
    """
    part, bundle = (bundle, bundle.bundle) if isinstance(bundle, BundlePortion) else (None, bundle)
    if camera not in get_args(CameraModel):
        raise ValueError(f"camera must be 'pixel' or 'bal', not {camera!r}")
    if dof not in get_args(Dof):
        raise ValueError(f"dof must be 6, 7 or 9, not {dof!r}")
    if gauge not in get_args(Gauge):
        raise ValueError(f"gauge must be 'free' or 'fixed', not {gauge!r}")
    if gauge == "fixed" and dof != 6:
        raise ValueError(f"a fixed gauge holds the whole first camera: it needs dof 6, not {dof}")
    poses = camera_poses(bundle)
    intrinsics = bundle.cameras[:, 6:9]
    n_free = dof - 6
    points = Variables(bundle.points, name="points")
    held = Variables(intrinsics[:, n_free:], fixed=True, name="intrinsics")
    if n_free:
        manifold = Product(SE3, Euclidean(n_free))
        cameras = Variables((poses, intrinsics[:, :n_free]), manifold, name="cameras")
    else:
        first = np.arange(len(poses)) == 0
        cameras = Variables(poses, SE3, fixed=first & (gauge == "fixed"), name="cameras")

    def poses_move(pose, point, held, uv):
        return project(pose, point, held[0], held[1], held[2], camera) - uv

    def focal_lengths_too(parts, point, held, uv):
        pose, (focal,) = parts
        return project(pose, point, focal, held[0], held[1], camera) - uv

    def distortions_too(parts, point, uv):
        pose, (focal, k1, k2) = parts
        return project(pose, point, focal, k1, k2, camera) - uv

    reprojection: Any = {6: poses_move, 7: focal_lengths_too, 9: distortions_too}[dof]
    i, j = bundle.camera_index, bundle.point_index
    slots = [cameras[i], points[j]] + ([held[i]] if dof < 9 else [])
    side = _side(_depths(bundle, poses, bundle.points), part) if kernel is None else 1.0

    def in_front(camera, point, *_):
        pose = camera[0] if n_free else camera
        return -side * (pose.rotation[2] @ point + pose.translation[2])

    valid = in_front if kernel is None else None
    factors = Factors(reprojection, *slots, data=bundle.uv, kernel=kernel, valid=valid, name="reprojection")
    portion = None
    if part is not None:
        counts = part.n_points, (part.observations,), (part.n_observations,)
        portion = Portion(points, part.points, *counts, part.in_parts)
    return BundleProblem(bundle, Problem(factors, portion=portion), cameras, points, dof)


def _side(depths: np.ndarray, part: BundlePortion | None) -> float:
    """1 where most observations are in front of their cameras; −1 for a mirror image, where all are behind."""
    if part is None:
        return 1.0 if np.median(depths) > 0 else -1.0
    from asker.engines.xla import distributed

    (n_in_front,) = distributed.added_up(np.array([np.count_nonzero(depths > 0)]))
    return 1.0 if 2 * n_in_front > part.n_observations else -1.0


def camera_poses(bundle: Bundle) -> np.ndarray:
    """[R | t] of every camera, (n, 3, 4)."""
    return np.concatenate([matrix_from_angle_axis(bundle.cameras[:, :3]), bundle.cameras[:, 3:6, None]], axis=2)


def camera_centres(bundle: Bundle) -> np.ndarray:
    """Where the cameras stand, −Rᵀt, (n, 3)."""
    return centres(camera_poses(bundle))


def reprojection_norms(bundle: Bundle, camera: CameraModel) -> tuple[np.ndarray, np.ndarray]:
    """Residual norms (N,) in pixels, infinite where there is none, and depths (N,), positive in front.

    The same as `project`, without the solver: NumPy on batches of observations.
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
