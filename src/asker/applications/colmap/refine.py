"""The refinement of a COLMAP model in one call: what `asker solve` does with its folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.constant_parameters import held_of
from asker.applications.colmap.formats.from_pycolmap import from_pycolmap, is_reconstruction, to_pycolmap
from asker.applications.colmap.georegistration.alignment import Frame, Solved, anchored
from asker.applications.colmap.georegistration.position_priors import Control, Positions
from asker.applications.colmap.inliers import InlierTable, inlier_tables, left_of, without_outliers
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
from asker.applications.reconstruction import Named, ReprojectionErrors, look_over
from asker.geometry.gauge import Gauge
from asker.io.file_issues import Dirt
from asker.io.files import FilePath
from asker.kernels.kernel import Kernel
from asker.statistics.scale import REACH

GivenAs = Callable[[ColmapModel], Any]
"""Makes of a model what the user gave."""


@dataclass(frozen=True, eq=False, repr=False)
class ColmapOutcome(Outcome):
    """What `refine` ends with."""

    inliers: np.ndarray
    """(n_observations,): a mask, after the solve."""
    images: InlierTable
    points: InlierTable
    errors: ReprojectionErrors
    norms: np.ndarray
    """(n_observations,): errors after the solve in pixels, infinite for a point behind its camera."""
    max_error: float | None
    """Pixels; where given, it alone says what `clean` keeps."""
    min_angle: float
    """Degrees; points that are seen under a smaller angle are not in `clean`."""
    model: ColmapModel
    """The refined one; `refined` is the same as the user gave it, such as a `pycolmap.Reconstruction`."""
    given_as: GivenAs
    """Makes that of a model."""

    @cached_property
    def clean(self) -> Any:
        """The refined model without its outliers, as the user gave it."""
        kept = self.inliers if self.max_error is None else self.norms <= self.max_error
        return self.given_as(without_outliers(self.model, kept, self.min_angle))

    def dropped_ratio(self, max_error: float) -> float:
        """The part of the observations that `clean` would lack with another limit."""
        return 1 - float(left_of(self.model, self.norms <= max_error, self.min_angle).mean())


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
    """Refine a model, or a `pycolmap.Reconstruction`, and count what became of its images and points.

    With no method, kernel and tau the noise is found while solving, and the kernel with it.  Inliers are counted up to
    3.7 σ, which one of 1000 right observations exceeds (`asker.statistics.inliers`).

    method  one of `asker.METHODS`; when not given asker, or irls for a convex kernel
    kernel  one of `asker.KERNELS`, with parameters as in "barron:alpha=-2"
    tau     its width in pixels, 1 when not given
    refine, gauge, hold, principal_point, refine_rigs   as in `colmap_problem`
    retriangulate  whether points are found again from their observations first, with the cameras as they are
    priors     known positions of images (`read_positions`); the model is moved into their frame, and they take part
    control    known positions of points with their pixels (`read_control`); the same
    max_error  the largest error in pixels that the `clean` model keeps, in place of the inliers
    min_angle  degrees: points that no two images see under so large an angle are not in the `clean` model
    limits  go to `asker.solve`: max_iterations, tol, time_limit, on_iteration, engine, ...
    """
    given_as: GivenAs = to_pycolmap if is_reconstruction(model) else _as_it_is
    model = from_pycolmap(model) if is_reconstruction(model) else model
    frame, asked = Frame(priors, control), MethodRequest(method, kernel, tau)
    _check(model, frame, gauge, hold, retriangulate, max_error, min_angle, limits)
    parts: dict[str, Any] = {"refine": refine, "principal_point": principal_point, "refine_rigs": refine_rigs}
    begin = perf_counter()
    with compilations() as compiled:
        start = retriangulated(model, **_shared(limits)) if retriangulate else model
        used, solved = _solved(start, asked, frame, gauge, hold, parts, limits)
    solved = solved._replace(result=_in_front(solved.made, solved.result))
    used |= {"gauge": gauge, "hold": list(hold), **parts, "retriangulate": retriangulate}
    used |= {"max_error": max_error, "min_angle": min_angle, "compiled": len(compiled)}
    several = {"seconds": perf_counter() - begin} if retriangulate or frame.is_known else {}
    return _outcome(model, solved, used, several, given_as)


def _check(
    model: ColmapModel,
    frame: Frame,
    gauge: Gauge,
    hold: Sequence[str | int],
    retriangulate: bool,
    max_error: float | None,
    min_angle: float,
    limits: dict[str, Any],
) -> None:
    """Refuse what cannot be, before the work."""
    if max_error is not None and not 0 < max_error < np.inf:
        raise ValueError(f"max_error must be positive and finite, got {max_error}")
    if not 0 <= min_angle < 180:
        raise ValueError(f"min_angle must be from 0 to 180 degrees, got {min_angle}")
    if frame.is_known:
        frame.check(model, hold, gauge, limits.get("checkpoint"))
    if retriangulate and held_of(model, hold).points.any():
        raise ValueError("points that are held cannot be triangulated again")


def _outcome(
    model: ColmapModel,
    solved: Solved,
    used: dict[str, Any],
    several: dict[str, Any],
    given_as: GivenAs,
) -> ColmapOutcome:
    """What became of a model; of the record, `used` is known before, and `several` is of several solves together."""
    made, result, refined, is_own, known = solved
    before, after = reprojection_norms(model), reprojection_norms(refined)
    radii = per_observation(made, inlier_radii(result))[is_own]
    inliers = per_observation(made, result.inliers)[is_own]
    begun = np.isfinite(before) & (before <= radii)
    errors = ReprojectionErrors.of(before, after, inliers)
    record = {
        "n_images": len(model.images),
        "n_cameras": len(model.cameras),
        "n_frames": len(made.poses),
        "n_points": len(model.points),
        "n_observations": model.n_observations,
        "dirt": issues_of(model),
        **used,
        "initial_inlier_ratio": begun.mean(),
        "inlier_ratio": inliers.mean(),
        "inlier_radius": finite_or_none(radii.max()),
        "reprojection_error": errors.record(),
        "known_positions": known,
        "noise": {name: noise for name, noise in noise_record(result).items() if name in made.intrinsics},
        **solve_record(result),
        **several,
    }
    tables = inlier_tables(model, begun, inliers)
    told = inliers, *tables, errors, after, used["max_error"], used["min_angle"]
    sure, fell = partial(data_covariances, made, result, refined), solve_succeeded(result)
    return ColmapOutcome(
        result, lambda: record, fell, lambda: given_as(refined), *told, refined, given_as, make_covariances=sure
    )


def issues_of(model: ColmapModel, path: FilePath = "model", strict: bool = False) -> tuple[str, ...]:
    """What of a model nothing shows, and what is shown twice; with `strict` the first of it is a `FileError`."""
    dirt, seen = Dirt(path, strict), model.observations()
    images, points = Named("image", model.images.ids, seen.image), Named("point", model.points.ids, seen.point)
    look_over(dirt, images, points, Named("camera", model.cameras.ids, seen.camera))
    return tuple(dirt.told)


def _solved(
    model: ColmapModel,
    asked: MethodRequest,
    frame: Frame,
    gauge: Gauge,
    hold: Sequence[str | int],
    parts: dict[str, Any],
    limits: dict[str, Any],
) -> tuple[dict[str, Any], Solved]:
    """What was used, for the record, and what came of it."""
    psi = asked.psi(1.0)
    made = colmap_problem(model, psi, gauge=gauge, hold=hold, **parts)
    result = asker.solve(made.problem, asked.strategy(psi), relative_damping=made.relative_damping, **limits)
    refined, used = made.refined(result.values), asked.record(result)
    if not frame.is_known:
        return used, Solved(made, result, refined, np.ones(model.n_observations, dtype=bool), {})
    kernels, sigma = _found(result)
    return used, anchored(refined, frame, kernels, sigma, limits, hold=hold, **parts)


def _shared(limits: dict[str, Any]) -> dict[str, Any]:
    """What of the limits is for every solve of several."""
    return {name: limits[name] for name in ("time_limit", "on_iteration", "engine", "threads") if name in limits}


def _as_it_is(model: ColmapModel) -> ColmapModel:
    return model


def _in_front(made: ColmapProblem, result: asker.Result) -> asker.Result:
    """Return the result in which an observation of a point behind its camera is no inlier, whatever the kernel."""
    if result.possible is not None:
        return result
    norms = reprojection_norms(made.refined(result.values))
    possible = [np.ones(len(r), dtype=bool) for r in result.residuals]
    for k, own in enumerate(made.observations):
        possible[k] = np.isfinite(norms[own])
    return replace(result, possible=tuple(possible))


def per_observation(made: ColmapProblem, each: Sequence[Any]) -> np.ndarray:
    """Return what belongs to the factor groups, one for each camera model, in the order of the model's observations."""
    found = np.empty(made.model.n_observations, dtype=np.asarray(each[0]).dtype)
    for own, numbers in zip(made.observations, each, strict=False):  # known positions follow
        found[own] = numbers
    return found


def _found(result: asker.Result) -> tuple[dict[str, Kernel], float]:
    """The kernels, by camera model, and the noise of pixels where most observations are; by τ if it cannot be told."""
    assert result.problem is not None
    factors = result.problem.factors
    most = max(range(len(factors)), key=lambda k: factors[k].n)
    noise = result.noise[most]
    sigma = noise.sigma if noise.is_known else float(np.max(factors[most].tau)) / REACH
    return {f.name: f.kernel for f in factors}, sigma
