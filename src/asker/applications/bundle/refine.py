"""Bundle adjustment in one call: what `asker solve` does with a BAL file."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.bundle.bal import Bundle, BundlePortion
from asker.applications.bundle.options import CameraModel, Dof
from asker.applications.bundle.problem import BundleProblem, bundle_problem, reprojection_norms
from asker.applications.bundle.uncertainty import data_covariances
from asker.applications.outcome import (
    MethodRequest,
    Outcome,
    compilations,
    finite_or_none,
    inlier_radii,
    noise_record,
    solve_record,
    solve_succeeded,
)
from asker.applications.reconstruction import Named, ReprojectionErrors, look_over
from asker.geometry.gauge import Gauge
from asker.io.file_issues import Dirt
from asker.io.files import FilePath
from asker.problem.by_group import Groups
from asker.problem.reductions import ALONE, Sums


@dataclass(frozen=True, eq=False, repr=False)
class BundleOutcome(Outcome):
    """What `refine` ends with."""

    inliers: np.ndarray
    """(n_observations,): a mask."""
    errors: ReprojectionErrors


def refine(
    bundle: Bundle | BundlePortion,
    method: str | None = None,
    kernel: str | None = None,
    tau: float | None = None,
    *,
    camera: CameraModel = "pixel",
    dof: Dof = 6,
    gauge: Gauge = "free",
    **limits: Any,
) -> BundleOutcome:
    """Refine cameras and points; `bundle` may be the part that one of several processes holds.

    With no method, kernel and tau the noise is found while solving, and the kernel with it.  Inliers are counted up to
    3.7 σ, which one of 1000 right observations exceeds (`asker.statistics.inliers`).

    method  one of `asker.METHODS`; when not given asker, or irls for a convex kernel
    kernel  one of `asker.KERNELS`, with parameters as in "barron:alpha=-2"
    tau     its width in pixels, 1 when not given
    camera, dof, gauge   as in `bundle_problem`
    limits  go to `asker.solve`: max_iterations, tol, time_limit, on_iteration, engine, ...
    """
    part = bundle if isinstance(bundle, BundlePortion) else None
    own = bundle.bundle if isinstance(bundle, BundlePortion) else bundle
    asked = MethodRequest(method, kernel, tau)
    psi = asked.psi(1.0)
    with compilations() as compiled:
        made = bundle_problem(bundle, psi, camera, dof, gauge)
        result = asker.solve(made.problem, asked.strategy(psi), **limits)
    (radius,), inliers = inlier_radii(result), result.inliers[0]
    told = None if part and part.in_parts else part  # by observations of all processes, or by sums over them
    sums = _sums(made, part)
    before, depths = (_of_all(x, told) for x in reprojection_norms(own, camera))
    after = np.linalg.norm(result.residuals[0], axis=1)
    is_in_front = _in_front(made, result.values, told, sums)
    seen = np.where(depths > 0, before, np.inf), np.where(is_in_front, after, np.inf)
    errors = ReprojectionErrors.of(*seen, inliers, sums)
    record = {
        **_counts(own, part),
        "dirt": issues_of(bundle) if part is told else (),
        **asked.record(result),
        "camera": camera,
        "dof": dof,
        "gauge": gauge,
        "initial_inlier_ratio": sums.mean(np.isfinite(before) & (before <= radius)),
        "inlier_ratio": result.inlier_ratio,
        "compiled": len(compiled),
        "inlier_radius": finite_or_none(radius),
        "reprojection_error": errors.record(),
        "noise": noise_record(result, sums),
        **solve_record(result),
    }

    alone = made.refined_part(result.values, part, sums) if part and part.in_parts else None

    def refined() -> Bundle | BundlePortion:
        return alone or made.refined(result.values, part.whole() if part else None)

    sure = partial(data_covariances, made, result)
    return BundleOutcome(
        result, lambda: record, solve_succeeded(result), refined, inliers, errors, make_covariances=sure
    )


def _counts(own: Bundle, part: BundlePortion | None) -> dict[str, int]:
    """How large the whole bundle is."""
    whole = part or own
    return {"n_cameras": own.n_cameras, "n_points": whole.n_points, "n_observations": whole.n_observations}


def issues_of(bundle: Bundle | BundlePortion, path: FilePath = "bundle", strict: bool = False) -> tuple[str, ...]:
    """What of a bundle nothing shows, and what is shown twice; with `strict` the first of it is a `FileError`.

    Of a portion: that of the whole, in every process the same.
    """
    part = bundle if isinstance(bundle, BundlePortion) else None
    own = bundle.bundle if isinstance(bundle, BundlePortion) else bundle
    dirt = Dirt(path, strict)
    cameras = Named("camera", np.arange(own.n_cameras), _of_all(own.camera_index, part))
    points = np.arange(own.n_points) if part is None else part.points
    n = own.n_points if part is None else part.n_points
    look_over(dirt, cameras, Named("point", np.arange(n), _of_all(points[own.point_index], part)))
    return tuple(dirt.told)


def _sums(made: BundleProblem, part: BundlePortion | None) -> Sums:
    """Over the observations of all processes, where each keeps its own."""
    if part is None or not part.in_parts:
        return ALONE
    from asker.engines.xla import distributed

    return Sums(made.points, distributed.added_up)


def _in_front(made: BundleProblem, values: Groups[Any], part: BundlePortion | None, sums: Sums) -> np.ndarray:
    """A mask of the observations whose point is in front of its camera in the refined bundle, over all processes."""
    depths = _of_all(made.depths(values), part)
    behind, before = sums.of(np.count_nonzero(depths < 0), np.count_nonzero(depths > 0))
    return depths < 0 if behind > before and made.has_moved(values) else depths > 0


def _of_all(own: np.ndarray, part: BundlePortion | None) -> np.ndarray:
    """What belongs to the observations, over all processes."""
    if part is None:
        return own
    from asker.engines.xla import distributed

    return distributed.whole(own, part.observations, part.n_observations)
