"""Bundle adjustment: made rings and paths whose cameras are known.

The noise is 0.1 to 3 px, the start 5 to 200 px off, 10 to 70 % of the observations are outliers: gross, near, or in
groups that agree (`make_scene`).  The intrinsics are known to all.  In the family `tails` the noise is Laplace's or
Student's, with up to 40 % outliers; there a method can be better than the oracle, which is least squares.

The error is the trimmed distance of the camera centres: a similarity aligns them so that the root mean square of the
best 95 % is smallest, and that is the error, in parts of the cameras' mean distance from their middle.  So one camera
in twenty may be badly determined or lost without a say; from the second one on, lost cameras decide.
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
from asker.geometry.gauge import Seen, centres, put_back
from families.design import balanced_cases, n_kept, peer, trimmed
from families.family import Condition, Instance

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
CONCENTRATIONS = 20
LOSSES = ("TRIVIAL", "SOFT_L1", "HUBER", "CAUCHY")


@dataclass(frozen=True)
class BundleFamily:
    """Made scenes, by the values that their conditions have."""

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
TAILED = BundleFamily("tails", TAILS, 12)


def centres_in_front(start: Bundle, poses: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(n, 3): the camera centres of a result, as `asker solve` returns it.

    A pixel is the same where the whole scene is behind its cameras: the scale of such a result is negative.
    """
    if not (np.isfinite(poses).all() and np.isfinite(points).all()):
        return np.full((len(poses), 3), np.nan)
    i, j = start.camera_index, start.point_index
    depth = -np.einsum("ni,ni->n", poses[i, 2, :3], points[j]) - poses[i, 2, 3]
    return centres(put_back(camera_poses(start), poses, points, np.zeros(len(poses), bool), Seen(i, j, depth))[0])


def camera_error(found: np.ndarray, truth: np.ndarray) -> float:
    """The root mean square of the smallest 95 % of the distances of camera centres (n, 3): see above.

    Concentration steps lead there from a least median fit: align the best ones, and choose the best ones anew.
    """
    if not np.isfinite(found).all():
        return np.inf
    n = n_kept(len(truth))
    fit = least_median_fit(found, truth)
    for _ in range(CONCENTRATIONS):
        best = np.argsort(distances(fit, found, truth), kind="stable")[:n]
        fit = similarity(found[best], truth[best])
    return trimmed(distances(fit, found, truth)) / extent(truth)


def oracle(scene: Scene) -> asker.Result:
    """Least squares from the truth, on the inliers of the points that have two."""
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
    """COLMAP's bundle adjuster with each of its losses; the scale of its own is 1 px."""
    ceres = peer("ceres")
    if ceres is None:
        return {}
    return {f"Ceres {loss.lower().replace('_', ' ')}": partial(_ceres, ceres, start, off, loss) for loss in LOSSES}


def _ceres(ceres: Any, start: Bundle, off: Callable[[np.ndarray], float], loss: str, scale: float | None) -> float:
    """With known intrinsics."""
    from pycolmap import create_default_ceres_bundle_adjuster as adjuster

    return off(adjusted(ceres.reconstruction(start), loss, scale, adjuster))


def adjusted(model: Any, loss: str, scale: float | None, adjuster: Callable[..., Any]) -> np.ndarray:
    """The camera centres (n, 3) of a `pycolmap.Reconstruction` that is adjusted, by adjuster(options, config, model).

    Everything is at its default but the loss and its scale, one thread, known intrinsics and rigs.  The gauge is free,
    as in asker: where COLMAP holds it, by a camera and a coordinate of another, a hundred iterations do not suffice
    from far starts.
    """
    from pycolmap import BundleAdjustmentConfig, BundleAdjustmentOptions, LossFunctionType, logging

    logging.minloglevel = 2  # a step that cannot be computed is tried again, damped more; Ceres warns each time
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
