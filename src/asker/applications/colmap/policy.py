"""The refinement of a COLMAP model in one call: what `asker solve` does with its folder."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.inliers import InlierTable, inlier_tables, without_outliers
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.options import Refine
from asker.applications.colmap.problem import colmap_problem, reprojection_norms
from asker.applications.outcome import (
    INLIER,
    Outcome,
    check_estimated,
    compilations,
    cost_fell,
    noise_record,
    solve_record,
    strategy_of,
    width_of,
)
from asker.geometry.gauge import Gauge


@dataclass(frozen=True, eq=False, repr=False)
class ColmapOutcome(Outcome):
    """What `refine` ends with."""

    inliers: np.ndarray
    """(n_observations,): a mask, after the solve."""
    images: InlierTable
    points: InlierTable

    @cached_property
    def clean(self) -> ColmapModel:
        """The refined model without its outliers."""
        return without_outliers(self.refined, self.inliers)


def refine(
    model: ColmapModel,
    method: str | None = None,
    kernel: str = "smooth-truncated",
    tau: float | None = None,
    *,
    refine: Refine = "poses",
    gauge: Gauge = "free",
    estimate_noise: bool = False,
    **limits: Any,
) -> ColmapOutcome:
    """Refine a model and count what became of its images and points.

    method  one of `asker.METHODS`; when not given asker, or irls for a convex kernel
    kernel  one of `asker.KERNELS`, with parameters as in "barron:alpha=-2"
    tau     its width in pixels, 1 when not given; inliers count up to τ/√3
    refine, gauge   as in `colmap_problem`
    estimate_noise  find the noise while solving, and τ with it, in place of `kernel` and `tau`
    limits  go to `asker.solve`: max_iterations, tol, time_limit, on_iteration, engine, ...
    """
    check_estimated(estimate_noise, kernel, tau)
    tau = 1.0 if tau is None else tau
    psi, noise = asker.kernel_named(kernel, tau), "estimated" if estimate_noise else "given"
    method, strategy = strategy_of(method, psi.convex)
    with compilations() as compiled:
        made = colmap_problem(model, psi, refine, gauge)
        damping = made.relative_damping
        result = asker.solve(made.problem, strategy, relative_damping=damping, noise=noise, **limits)  # type: ignore[arg-type]
        tau = width_of(result) if estimate_noise else tau
        radius = INLIER * tau
        before = reprojection_norms(model) <= radius
    refined = made.refined(result.values)
    after = reprojection_norms(refined) <= radius
    record = {
        "n_images": len(model.images),
        "n_cameras": len(model.cameras),
        "n_points": len(model.points),
        "n_observations": model.n_observations,
        "method": method,
        "kernel": kernel,
        "tau": tau,
        "gauge": gauge,
        "refine": refine,
        "initial_inlier_ratio": before.mean(),
        "inlier_ratio": after.mean(),
        "inlier_radius": radius,
        "estimate_noise": estimate_noise,
        "noise": noise_record(result),
        **solve_record(result),
        "compiled": len(compiled),
    }
    tables = inlier_tables(model, before, after)
    return ColmapOutcome(result, record, cost_fell(result), lambda: refined, after, *tables)
