"""Bundle adjustment: synthetic rings and paths of cameras with known poses.

The noise is 0.1 to 3 px, the initial error 5 to 200 px, and 10 to 70 % of the observations are outliers: gross,
moderate, or in mutually consistent groups (`make_scene`).  All methods know the intrinsics.  In the family `tails` the
noise is Laplacian or Student's t, with up to 40 % outliers; there a method can be more accurate than the oracle, which
is least squares.

The error is the trimmed RMSE of the camera centres, relative to their mean distance from the centroid: a similarity
aligns the centres such that the RMSE of the best 95 % is smallest.  One camera in twenty may therefore be poorly
determined or lost without effect on the error, but not two.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.bundle.bal import Bundle
from asker.applications.bundle.problem import bundle_problem, camera_centres, camera_poses
from asker.applications.bundle.synthetic import Scene, make_scene
from asker.applications.bundle.truth_errors import extent, least_median_fit
from asker.geometry.alignment import distances, similarity
from asker.geometry.gauge import Observed, centres, restore_gauge
from families.data_and_peers import peer
from families.factorial_design import balanced_cases
from families.family import Condition, Instance
from families.trimmed_error import n_kept, trimmed

N_CAMERAS, N_OBSERVATIONS = 20, 6000
LEVELS: dict[str, tuple[Any, ...]] = {
    "kind": ("ring", "path"),
    "outlier_kind": ("gross", "near", "grouped"),
    "noise": (0.1, 0.2, 0.4, 1.0, 1.5, 3.0),
    "start_error": (5.0, 12.0, 24.0, 60.0, 120.0, 200.0),
    "outlier_ratio": (0.1, 0.2, 0.3, 0.5, 0.6, 0.7),
}
TAILS: dict[str, tuple[Any, ...]] = {
    "kind": ("ring", "path"),
    "noise_law": ("laplace", "student"),
    "outlier_kind": ("gross", "grouped"),
    "noise": (0.2, 0.5, 1.0),
    "start_error": (6.0, 12.0, 40.0),
    "outlier_ratio": (0.0, 0.2, 0.4),
}
SEEDS = (0,)
CONCENTRATION_STEPS = 20
LOSSES = ("TRIVIAL", "SOFT_L1", "HUBER", "CAUCHY")


@dataclass(frozen=True)
class BundleFamily:
    """Synthetic scenes whose conditions combine the values in `levels`."""

    name: str
    levels: dict[str, tuple[Any, ...]]
    n_conditions: int
    n_oracles: int = 8
    sweep: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 15.0)
    methods: None = None

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        return balanced_cases(self.levels, self.n_conditions, SEEDS, quick)

    def make(self, condition: Condition, seed: int) -> Instance:
        scene = make_scene(N_CAMERAS, N_OBSERVATIONS, seed=seed, **condition)
        off = partial(camera_error, truth=camera_centres(scene.truth))

        def error(result: asker.Result) -> float:
            return off(centres_in_front(scene.start, result["cameras"], result["points"]))

        return Instance(
            problem=lambda kernel: bundle_problem(scene.start, kernel).problem,
            error=error,
            oracle=off(centres(oracle(scene)["cameras"])),
            number=1.0,
            at_truth=lambda: bundle_problem(scene.truth, None).problem,
            peers=ceres_peers(scene.start, off),
            without_number=frozenset({"Ceres trivial"}),
        )


FAMILY = BundleFamily("bundle", LEVELS, 24)
TAILS_FAMILY = BundleFamily("tails", TAILS, 12)


def centres_in_front(start: Bundle, poses: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(n, 3): the camera centres of a result, as `asker solve` returns it.

    A pixel is the same where the whole scene is behind its cameras: the scale of such a result is negative.
    """
    if not (np.isfinite(poses).all() and np.isfinite(points).all()):
        return np.full((len(poses), 3), np.nan)
    i, j = start.camera_index, start.point_index
    depth = -np.einsum("ni,ni->n", poses[i, 2, :3], points[j]) - poses[i, 2, 3]
    return centres(
        restore_gauge(camera_poses(start), poses, points, np.zeros(len(poses), bool), Observed(i, j, depth))[0]
    )


def camera_error(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Return the trimmed RMSE of camera centres (n, 3), see above.

    The trimmed alignment starts from a least median fit and is refined by concentration steps: align the best 95 %,
    then select the best 95 % again.
    """
    if not np.isfinite(estimate).all():
        return np.inf
    n = n_kept(len(truth))
    fit = least_median_fit(estimate, truth)
    for _ in range(CONCENTRATION_STEPS):
        best = np.argsort(distances(fit, estimate, truth), kind="stable")[:n]
        fit = similarity(estimate[best], truth[best])
    return trimmed(distances(fit, estimate, truth)) / extent(truth)


def oracle(scene: Scene) -> asker.Result:
    """Return least squares on the true inliers, started at the truth, without points that have fewer than two."""
    good = ~scene.outliers
    n = np.bincount(scene.truth.point_index[good], minlength=scene.truth.n_points)
    good &= n[scene.truth.point_index] >= 2
    points, index = np.unique(scene.truth.point_index[good], return_inverse=True)
    inliers = replace(
        scene.truth,
        points=scene.truth.points[points],
        camera_index=scene.truth.camera_index[good],
        point_index=index.astype(np.int32),
        uv=scene.truth.uv[good],
    )
    return asker.solve(bundle_problem(inliers, asker.Quadratic()).problem, asker.IRLS(), tol=1e-12)


def ceres_peers(start: Bundle, off: Callable[[np.ndarray], float]) -> dict[str, Any]:
    """Return COLMAP's bundle adjuster (Ceres) with each of its losses; the default scale is 1 px."""
    ceres = peer("ceres")
    if ceres is None:
        return {}
    return {f"Ceres {loss.lower().replace('_', ' ')}": partial(_ceres, ceres, start, off, loss) for loss in LOSSES}


def _ceres(ceres: Any, start: Bundle, off: Callable[[np.ndarray], float], loss: str, scale: float | None) -> float:
    """Return the error of Ceres with known intrinsics."""
    from pycolmap import create_default_ceres_bundle_adjuster as adjuster

    return off(adjusted(ceres.reconstruction(start), loss, scale, adjuster))


def adjusted(model: Any, loss: str, scale: float | None, adjuster: Callable[..., Any]) -> np.ndarray:
    """Adjust a `pycolmap.Reconstruction` with adjuster(options, config, model); return the camera centres (n, 3).

    All options have their defaults except the loss and its scale, one thread, and constant intrinsics and rigs.  The
    gauge is free, as in asker: if COLMAP fixes it, by a camera and a coordinate of another, a hundred iterations do not
    suffice from poor initial guesses.
    """
    from pycolmap import BundleAdjustmentConfig, BundleAdjustmentOptions, LossFunctionType, logging

    logging.minloglevel = 2  # Ceres warns of each failed linear solve, after which it increases the damping
    options = BundleAdjustmentOptions()
    options.refine_focal_length = options.refine_extra_params = options.print_summary = False
    options.refine_sensor_from_rig = False
    options.ceres.loss_function_type = getattr(LossFunctionType, loss)
    if scale is not None:
        options.ceres.loss_function_scale = scale
    options.ceres.solver_options.num_threads = 1
    options.ceres.solver_options.max_num_iterations = 100
    config = BundleAdjustmentConfig()
    for image in model.images:
        config.add_image(image)
    adjuster(options, config, model).solve()
    return np.array([model.images[i].projection_center() for i in sorted(model.images)])
