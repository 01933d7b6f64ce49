"""Dense stereo in one call: what `asker stereo` does with a pair."""

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


@dataclass(frozen=True, eq=False, repr=False)
class StereoOutcome(Outcome):
    """What `refine` ends with; `refined` is the disparity of every pixel."""

    minima: Minima


def largest_disparity(pair: StereoPair, asked: int | None) -> int:
    """What was asked for; else that of a made pair, or an eighth of the width."""
    return asked or pair.max_disparity or max(2, pair.left.shape[1] // 8)


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
    """Find the disparity of every pixel of a rectified pair.

    method         one of `asker.METHODS`
    kernel, tau    one of `asker.KERNELS`, with parameters as in "barron:alpha=-2", and its width in pixels, 1 when not
                   given; for the data and for neighbours
    max_disparity  in pixels; that of a made pair, or an eighth of the width, when not given
    cost, window, n_minima   as in `Matching`
    start, eta, seed   as in `energy`
    limits         go to `asker.solve`: tol, time_limit, on_iteration, engine, ...
    """
    tau = 1.0 if tau is None else tau
    kernel = kernel or "smooth-truncated"
    psi = asker.kernel_named(kernel, tau)
    method, strategy = select_strategy(method, plain=False)
    height, width = pair.left.shape
    matching = Matching(largest_disparity(pair, max_disparity), cost, window, n_minima)
    with compilations() as compiled:
        minima = match(pair.left, pair.right, matching)
        made = energy(minima, matching.max_disparity, start, eta, psi, psi, seed)
        result = asker.solve(made.problem, strategy, max_iterations=max_iterations, **limits)
    disparity = made.refined(result.values)
    how = {"method": method, "kernel": kernel, "tau": tau, "eta": eta, "start": start, "seed": seed}
    record = {
        "width": width,
        "height": height,
        "n_residuals": made.problem.n_residuals,
        **asdict(matching),
        **how,
        "compiled": len(compiled),
        **solve_record(result),
        "energy": result.cost,
        **error_record(disparity, minima.winner, pair),
    }
    return StereoOutcome(result, lambda: record, solve_succeeded(result), lambda: disparity, minima)
