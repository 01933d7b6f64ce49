"""Dense stereo in one call, as `asker stereo` runs it."""

from dataclasses import asdict, dataclass
from typing import Any

import asker
from asker.applications.outcome import Outcome, compilations, select_strategy, solve_record, solve_succeeded
from asker.applications.stereo.errors import error_record
from asker.applications.stereo.matching import Matching, Minima, match
from asker.applications.stereo.options import Cost, Start
from asker.applications.stereo.pairs import StereoPair
from asker.applications.stereo.problem import energy

ITERATIONS = 150
"""Default of `max_iterations`."""


@dataclass(frozen=True, eq=False, repr=False)
class StereoOutcome(Outcome):
    """Result of `refine`; `refined` is the disparity map."""

    minima: Minima


def largest_disparity(pair: StereoPair, requested: int | None) -> int:
    """Return the requested largest disparity, else that of a synthetic pair, else an eighth of the width."""
    return requested or pair.max_disparity or max(2, pair.left.shape[1] // 8)


def refine(
    pair: StereoPair,
    method: str | None = "asker",
    kernel: str | None = None,
    tau: float | None = None,
    *,
    max_disparity: int | None = None,
    start: Start = "constant",
    cost: Cost = "zncc",
    window: int = 7,
    n_minima: int = 2,
    eta: float = 4.0,
    seed: int = 0,
    max_iterations: int = ITERATIONS,
    **limits: Any,
) -> StereoOutcome:
    """Estimate the disparity of every pixel of a rectified pair.

    Parameters
    ----------
    pair
        Two rectified images.
    method
        One of `asker.METHODS`.
    kernel, tau
        One of `asker.KERNELS`, with parameters as in "barron:alpha=-2", and its width in pixels (1 by default); they
        apply to data and smoothness terms.
    max_disparity
        Largest disparity, in pixels; by default that of a synthetic pair, or an eighth of the width.
    cost, window, n_minima
        As in `Matching`.
    start, eta, seed
        As in `energy`.
    max_iterations
        Largest number of iterations.
    limits
        Further keyword arguments of `asker.solve`: tol, time_limit, on_iteration, engine, ...
    """
    tau = 1.0 if tau is None else tau
    kernel = kernel or "smooth-truncated"
    psi = asker.kernel_named(kernel, tau)
    method, strategy = select_strategy(method, convex=False)
    height, width = pair.left.shape
    matching = Matching(largest_disparity(pair, max_disparity), cost, window, n_minima)
    with compilations() as compiled:
        minima = match(pair.left, pair.right, matching)
        made = energy(minima, matching.max_disparity, start, eta, psi, psi, seed)
        result = asker.solve(made.problem, strategy, max_iterations=max_iterations, **limits)
    disparity = made.refined(result.values)
    settings = {"method": method, "kernel": kernel, "tau": tau, "eta": eta, "start": start, "seed": seed}
    record = {
        "width": width,
        "height": height,
        "n_residuals": made.problem.n_residuals,
        **asdict(matching),
        **settings,
        "compiled": len(compiled),
        **solve_record(result),
        "energy": result.cost,
        **error_record(disparity, minima.winner, pair),
    }
    return StereoOutcome(result, lambda: record, solve_succeeded(result), lambda: disparity, minima)
