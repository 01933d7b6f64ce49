"""Bundle adjustment in one call, as `asker solve` does with a BAL file."""

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
from asker.applications.reconstruction import IndexedRecords, ReprojectionErrors, check_observations
from asker.geometry.gauge import Gauge
from asker.io.file_issues import FileIssues
from asker.io.files import FilePath
from asker.problem.by_group import Groups
from asker.problem.reductions import ALONE, Sums


@dataclass(frozen=True, eq=False, repr=False)
class BundleOutcome(Outcome):
    """The result of `refine`."""

    inliers: np.ndarray
    """(n_observations,): the mask of inliers."""
    errors: ReprojectionErrors
    """Reprojection errors before and after the solve."""


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
    """Refine the cameras and points of a bundle.

    If none of method, kernel and tau is given, the noise and with it the kernel are estimated.  Observations with
    residuals up to 3.7 σ are inliers, which one of 1000 correct observations exceeds (`asker.statistics.inliers`).

    Parameters
    ----------
    bundle
        The whole bundle, or the portion of one of several processes.
    method
        A key of `asker.METHODS`; the default is irls for a convex kernel, else asker.
    kernel
        A key of `asker.KERNELS`, with parameters as in "barron:alpha=-2"; the default is smooth-truncated.
    tau
        The width of the kernel in pixels; the default is 1.
    camera, dof, gauge
        As in `bundle_problem`.
    **limits
        Arguments of `asker.solve`: max_iterations, tol, time_limit, on_iteration, engine, ...

    Returns
    -------
    BundleOutcome
        The refined bundle, the inliers and the record.
    """
    request = MethodRequest(method, kernel, tau)
    psi = request.psi(1.0)
    with compilations() as compiled:
        made = bundle_problem(bundle, psi, camera, dof, gauge)
        result = asker.solve(made.problem, request.strategy(psi), **limits)
    used = {**request.record(result), "camera": camera, "dof": dof, "gauge": gauge, "compiled": len(compiled)}
    return _outcome(bundle, made, result, used)


def _outcome(
    bundle: Bundle | BundlePortion, made: BundleProblem, result: asker.Result, used: dict[str, Any]
) -> BundleOutcome:
    """Return the outcome of a solve; `used` has the settings for the record."""
    part = bundle if isinstance(bundle, BundlePortion) else None
    local = bundle.bundle if isinstance(bundle, BundlePortion) else bundle
    (radius,), inliers = inlier_radii(result), result.inliers[0]
    gathered = None if part and part.in_parts else part  # else statistics are sums over the processes
    sums = _sums(made, part)
    before, depths = (_gather(x, gathered) for x in reprojection_norms(local, used["camera"]))
    after = np.linalg.norm(result.residuals[0], axis=1)
    is_in_front = _in_front(made, result.values, gathered, sums)
    norms = np.where(depths > 0, before, np.inf), np.where(is_in_front, after, np.inf)
    errors = ReprojectionErrors.of(*norms, inliers, sums)
    record = {
        **_counts(local, part),
        "dirt": issues_of(bundle) if part is gathered else (),
        **used,
        "initial_inlier_ratio": sums.mean(np.isfinite(before) & (before <= radius)),
        "inlier_ratio": result.inlier_ratio,
        "inlier_radius": finite_or_none(radius),
        "reprojection_error": errors.record(),
        "noise": noise_record(result, sums),
        **solve_record(result),
    }
    refined_part = made.refined_part(result.values, part, sums) if part and part.in_parts else None

    def refined() -> Bundle | BundlePortion:
        return refined_part or made.refined(result.values, part.whole() if part else None)

    covariances = partial(data_covariances, made, result)
    return BundleOutcome(
        result, lambda: record, solve_succeeded(result), refined, inliers, errors, make_covariances=covariances
    )


def _counts(local: Bundle, part: BundlePortion | None) -> dict[str, int]:
    """Return the size of the whole bundle."""
    whole = part or local
    return {"n_cameras": local.n_cameras, "n_points": whole.n_points, "n_observations": whole.n_observations}


def issues_of(bundle: Bundle | BundlePortion, path: FilePath = "bundle", strict: bool = False) -> tuple[str, ...]:
    """Return descriptions of cameras and points without an observation, and of repeated observations.

    Parameters
    ----------
    bundle
        The whole bundle, or a portion of it; then the issues are those of the whole bundle, on every process.
    path
        The name of the data in an error.
    strict
        If True, raise a `FileError` about the first issue.
    """
    part = bundle if isinstance(bundle, BundlePortion) else None
    local = bundle.bundle if isinstance(bundle, BundlePortion) else bundle
    issues = FileIssues(path, strict)
    cameras = IndexedRecords("camera", np.arange(local.n_cameras), _gather(local.camera_index, part))
    numbers = np.arange(local.n_points) if part is None else part.points
    n = local.n_points if part is None else part.n_points
    check_observations(
        issues, cameras, IndexedRecords("point", np.arange(n), _gather(numbers[local.point_index], part))
    )
    return tuple(issues.descriptions)


def _sums(made: BundleProblem, part: BundlePortion | None) -> Sums:
    """Return sums over the observations of all processes if each keeps its part, else plain sums."""
    if part is None or not part.in_parts:
        return ALONE
    from asker.engines.xla import distributed

    return Sums(made.points, distributed.all_sum)


def _in_front(made: BundleProblem, values: Groups[Any], part: BundlePortion | None, sums: Sums) -> np.ndarray:
    """Return the mask of observations whose point is in front of its camera in the refined bundle."""
    depths = _gather(made.depths(values), part)
    behind, before = sums.of(np.count_nonzero(depths < 0), np.count_nonzero(depths > 0))
    return depths < 0 if behind > before and made.has_moved(values) else depths > 0


def _gather(x: np.ndarray, part: BundlePortion | None) -> np.ndarray:
    """Return the values of the observations of all processes, in the order of the file."""
    if part is None:
        return x
    from asker.engines.xla import distributed

    return distributed.gather_rows(x, part.observations, part.n_observations)
