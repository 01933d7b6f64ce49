"""Refinement of a COLMAP model in one call, as `asker solve` does with its folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.constant_parameters import constant_parameters
from asker.applications.colmap.formats.from_pycolmap import from_pycolmap, is_reconstruction, to_pycolmap
from asker.applications.colmap.georegistration.alignment import Solved, TargetFrame, georegister
from asker.applications.colmap.georegistration.position_priors import Control, Positions
from asker.applications.colmap.inliers import InlierTable, inlier_tables, retained_observations, without_outliers
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.options import Refine
from asker.applications.colmap.problem import ColmapProblem, colmap_problem
from asker.applications.colmap.reprojection_error import reprojection_norms
from asker.applications.colmap.triangulation import retriangulated
from asker.applications.colmap.uncertainty import data_covariances
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
from asker.kernels.kernel import Kernel
from asker.statistics.noise import TAU_PER_SIGMA

Converter = Callable[[ColmapModel], Any]
"""Converts a model into the type that the user passed."""


@dataclass(frozen=True, eq=False, repr=False)
class ColmapOutcome(Outcome):
    """The result of `refine`."""

    inliers: np.ndarray
    """(n_observations,): the mask of inliers after the solve."""
    images: InlierTable
    """Inliers of each image."""
    points: InlierTable
    """Inliers of each point."""
    errors: ReprojectionErrors
    """Reprojection errors before and after the solve."""
    norms: np.ndarray
    """(n_observations,): errors after the solve in pixels; infinite for points behind their camera."""
    max_error: float | None
    """The largest error in pixels that `clean` keeps; None to keep the inliers."""
    min_angle: float
    """The smallest triangulation angle in degrees that `clean` keeps."""
    model: ColmapModel
    """The refined model; `refined` is the same in the type that the user passed."""
    convert: Converter
    """Converts a model into that type."""

    @cached_property
    def clean(self) -> Any:
        """The refined model without outliers, in the type that the user passed."""
        kept = self.inliers if self.max_error is None else self.norms <= self.max_error
        return self.convert(without_outliers(self.model, kept, self.min_angle))

    def dropped_ratio(self, max_error: float) -> float:
        """Return the fraction of the observations that `clean` would drop with another `max_error`."""
        return 1 - float(retained_observations(self.model, self.norms <= max_error, self.min_angle).mean())


def refine(
    model: ColmapModel | Any,
    method: str | None = None,
    kernel: str | None = None,
    tau: float | None = None,
    *,
    refine: Refine = "poses",
    gauge: Gauge = "free",
    hold: Sequence[str | int] = (),
    principal_point: bool = False,
    refine_rigs: bool = False,
    retriangulate: bool = False,
    priors: Positions | None = None,
    control: Control | None = None,
    max_error: float | None = None,
    min_angle: float = 0.0,
    **limits: Any,
) -> ColmapOutcome:
    """Refine a COLMAP model by robust bundle adjustment.

    If none of method, kernel and tau is given, the noise and with it the kernel are estimated.  Observations with
    residuals up to 3.7 σ are inliers, which one of 1000 correct observations exceeds (`asker.statistics.inliers`).

    Parameters
    ----------
    model
        A `ColmapModel` or a `pycolmap.Reconstruction`.
    method
        A key of `asker.METHODS`; the default is irls for a convex kernel, else asker.
    kernel
        A key of `asker.KERNELS`, with parameters as in "barron:alpha=-2"; the default is smooth-truncated.
    tau
        The width of the kernel in pixels; the default is 1.
    refine, gauge, hold, principal_point, refine_rigs
        As in `colmap_problem`.
    retriangulate
        True to triangulate the points from their observations first, with constant cameras.
    priors
        Known positions of images (`read_positions`), used as observations; the model is transformed into their frame.
    control
        Known positions of points with their pixels (`read_control`), used likewise.
    max_error
        The largest error in pixels that the `clean` model keeps; by default it keeps the inliers.
    min_angle
        The smallest triangulation angle in degrees that the `clean` model keeps.
    **limits
        Arguments of `asker.solve`: max_iterations, tol, time_limit, on_iteration, engine, ...

    Returns
    -------
    ColmapOutcome
        The refined model, the inliers and the record.
    """
    convert: Converter = to_pycolmap if is_reconstruction(model) else _unchanged
    model = from_pycolmap(model) if is_reconstruction(model) else model
    frame, request = TargetFrame(priors, control), MethodRequest(method, kernel, tau)
    _check(model, frame, gauge, hold, retriangulate, max_error, min_angle, limits)
    parts: dict[str, Any] = {"refine": refine, "principal_point": principal_point, "refine_rigs": refine_rigs}
    begin = perf_counter()
    with compilations() as compiled:
        initial = retriangulated(model, **_common_limits(limits)) if retriangulate else model
        used, solved = _solve(initial, request, frame, gauge, hold, parts, limits)
    solved = solved._replace(result=_in_front(solved.made, solved.result))
    used |= {"gauge": gauge, "hold": list(hold), **parts, "retriangulate": retriangulate}
    used |= {"max_error": max_error, "min_angle": min_angle, "compiled": len(compiled)}
    total = {"seconds": perf_counter() - begin} if retriangulate or frame.is_known else {}
    return _outcome(model, solved, used, total, convert)


def _check(
    model: ColmapModel,
    frame: TargetFrame,
    gauge: Gauge,
    hold: Sequence[str | int],
    retriangulate: bool,
    max_error: float | None,
    min_angle: float,
    limits: dict[str, Any],
) -> None:
    """Raise a ValueError for invalid or contradictory arguments, before any computation."""
    if max_error is not None and not 0 < max_error < np.inf:
        raise ValueError(f"max_error must be positive and finite, got {max_error}")
    if not 0 <= min_angle < 180:
        raise ValueError(f"min_angle must be from 0 to 180 degrees, got {min_angle}")
    if frame.is_known:
        frame.check(model, hold, gauge, limits.get("checkpoint"))
    if retriangulate and constant_parameters(model, hold).points.any():
        raise ValueError("constant points (hold) cannot be retriangulated")


def _outcome(
    model: ColmapModel,
    solved: Solved,
    used: dict[str, Any],
    total: dict[str, Any],
    convert: Converter,
) -> ColmapOutcome:
    """Return the outcome; `used` has the settings for the record, and `total` the entries that cover all solves."""
    made, result, refined, is_original, known = solved
    before, after = reprojection_norms(model), reprojection_norms(refined)
    radii = per_observation(made, inlier_radii(result))[is_original]
    inliers = per_observation(made, result.inliers)[is_original]
    initial_inliers = np.isfinite(before) & (before <= radii)
    errors = ReprojectionErrors.of(before, after, inliers)
    record = {
        "n_images": len(model.images),
        "n_cameras": len(model.cameras),
        "n_frames": len(made.poses),
        "n_points": len(model.points),
        "n_observations": model.n_observations,
        "dirt": issues_of(model),
        **used,
        "initial_inlier_ratio": initial_inliers.mean(),
        "inlier_ratio": inliers.mean(),
        "inlier_radius": finite_or_none(radii.max()),
        "reprojection_error": errors.record(),
        "known_positions": known,
        "noise": {name: noise for name, noise in noise_record(result).items() if name in made.intrinsics},
        **solve_record(result),
        **total,
    }
    images, points = inlier_tables(model, initial_inliers, inliers)
    return ColmapOutcome(
        result,
        lambda: record,
        solve_succeeded(result),
        lambda: convert(refined),
        inliers,
        images,
        points,
        errors,
        after,
        used["max_error"],
        used["min_angle"],
        refined,
        convert,
        make_covariances=partial(data_covariances, made, result, refined),
    )


def issues_of(model: ColmapModel, path: FilePath = "model", strict: bool = False) -> tuple[str, ...]:
    """Return descriptions of cameras, images and points without an observation, and of repeated observations.

    Parameters
    ----------
    model
        A COLMAP model.
    path
        The name of the data in an error.
    strict
        If True, raise a `FileError` about the first issue.
    """
    issues, o = FileIssues(path, strict), model.observations()
    images = IndexedRecords("image", model.images.ids, o.image)
    points = IndexedRecords("point", model.points.ids, o.point)
    check_observations(issues, images, points, IndexedRecords("camera", model.cameras.ids, o.camera))
    return tuple(issues.descriptions)


def _solve(
    model: ColmapModel,
    request: MethodRequest,
    frame: TargetFrame,
    gauge: Gauge,
    hold: Sequence[str | int],
    parts: dict[str, Any],
    limits: dict[str, Any],
) -> tuple[dict[str, Any], Solved]:
    """Return the settings for the record, and the solution."""
    psi = request.psi(1.0)
    made = colmap_problem(model, psi, gauge=gauge, hold=hold, **parts)
    result = asker.solve(made.problem, request.strategy(psi), relative_damping=made.relative_damping, **limits)
    refined, used = made.refined(result.values), request.record(result)
    if not frame.is_known:
        return used, Solved(made, result, refined, np.ones(model.n_observations, dtype=bool), {})
    kernels, sigma = _kernels_and_noise(result)
    return used, georegister(refined, frame, kernels, sigma, limits, hold=hold, **parts)


def _common_limits(limits: dict[str, Any]) -> dict[str, Any]:
    """Return the limits that apply to each of several solves."""
    return {name: limits[name] for name in ("time_limit", "on_iteration", "engine", "threads") if name in limits}


def _unchanged(model: ColmapModel) -> ColmapModel:
    return model


def _in_front(made: ColmapProblem, result: asker.Result) -> asker.Result:
    """Return the result with observations of points behind their camera marked as outliers, for every kernel."""
    if result.possible is not None:
        return result
    norms = reprojection_norms(made.refined(result.values))
    possible = [np.ones(len(r), dtype=bool) for r in result.residuals]
    for k, index in enumerate(made.observations):
        possible[k] = np.isfinite(norms[index])
    return replace(result, possible=tuple(possible))


def per_observation(made: ColmapProblem, each: Sequence[Any]) -> np.ndarray:
    """Return values of the factor groups, one for each camera model, in the order of the model's observations."""
    values = np.empty(made.model.n_observations, dtype=np.asarray(each[0]).dtype)
    for index, x in zip(made.observations, each, strict=False):  # later groups are known positions
        values[index] = x
    return values


def _kernels_and_noise(result: asker.Result) -> tuple[dict[str, Kernel], float]:
    """Return the kernels by camera model, and the noise of the largest group; from τ if it could not be estimated."""
    assert result.problem is not None
    factors = result.problem.factors
    largest = max(range(len(factors)), key=lambda k: factors[k].n)
    noise = result.noise[largest]
    sigma = noise.sigma if noise.is_known else float(np.max(factors[largest].tau)) / TAU_PER_SIGMA
    return {f.name: f.kernel for f in factors}, sigma
