"""One likelihood, in which solutions with different noise can be compared.

    L = Σ −log(π (Q/σ)^(p·a) exp(u/2Q² − u/2σ²) + 1 − π)

It says how much likelier residuals are as a mixture, of noise σ with the share π and of everything else, Q, than as
everything else alone.  σ and π are free; a is what a fit has left of an observation (`asker.statistics.scale`).  This
                        is Laplace's
approximation of the probability of the data, the unknowns averaged out: around the best ones n inliers have the density
σ^(−pn), and d unknowns the volume σ^d, times what does not depend on σ.  So n inliers that d unknowns were fitted to
count as pn − d numbers, once: a tree, whose edges are exact, gains nothing whatever its σ, and choosing which k of n
agree costs n times the entropy of π, about log C(n, k): as much as the best choice among outliers gains by chance.

Q² is the same for all solutions: the lowest mean square of all of them, about that of least squares.  So L = 0 is "all
is noise around the least squares solution", and a solution is the better, the more observations it explains with the
less noise.  An outlier costs the same however far it is off.  (A density with a scale of the solution's own would
reward a fit that makes all residuals middling.)  Noise Q is denser near 0 than elsewhere, and so hits a small residual
by chance more often.  (With an even density of the same spread, a few points that meet some of their observations too
well outweigh that all are noise.)
"""

from collections.abc import Sequence
from math import exp, isnan, log

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point
from asker.problem.factors import Factors
from asker.problem.reductions import Sums
from asker.statistics.gaussian_mixture import DISTINCT, RAREST, SMALLEST, TELLING, TINY, leap
from asker.statistics.scale import Noise, fitted_shares, rounding_variance
from asker.tracing.array_namespace import dot

Floats = NDArray[np.float64]
ROUNDS, PAIRS, AT_REST = 5, 100, 1e-4
TIE = 1.0
"""By how much L may be raised where residuals are larger than need be: it decides where nothing else does."""


def mean_squares(engine: Engine, point: Point) -> list[float]:
    """The mean square of one number of a residual, for each factor group."""
    means = [(f, engine.sums.mean(u)) for f, u in zip(engine.problem.factors, engine.here(point.u), strict=True)]
    return [1.0 if isnan(mean) else max(mean / f.residual_size, 1e-300) for f, mean in means]


def likelihood(
    engine: Engine,
    point: Point,
    u: Sequence[Floats],
    noises: Sequence[Noise],
    broad: Sequence[float],
    factors: Sequence[Factors] | None = None,
) -> float:
    """L of a point, from its `squares` and the noise that was estimated there; `broad` is Q² of each group.

    `factors`: those that the squares are of, where not all of the engine's problem count.
    """
    factors, sums = engine.problem.factors if factors is None else factors, engine.sums
    least = [max(SMALLEST * Q, TINY, rounding_variance(n.rounding)) for n, Q in zip(noises, broad, strict=True)]
    apart = [Q / DISTINCT**2 for Q in broad]  # from Q no step leads away
    firsts = [min(n.sigma**2, Q) if n.is_known else Q for n, Q in zip(noises, apart, strict=True)]
    variances = [max(first, 1e-24 * Q, s) for first, Q, s in zip(firsts, broad, least, strict=True)]
    L, ratios = 0.0, [0.5] * len(factors)
    for _ in range(ROUNDS):
        left = fitted_shares(factors, u, variances, sums)
        groups = zip(factors, u, left, variances, ratios, broad, least, strict=True)
        each = [_likelihood(x, f.residual_size, a, s, pi, Q, sums, low) for f, x, a, s, pi, Q, low in groups]
        L, before, variances = sum(fit[0] for fit in each), variances, [fit[1] for fit in each]
        ratios = [fit[2] for fit in each]
        if np.allclose(variances, before, rtol=0.02, atol=0):
            break
    larger = [Q / max(mean, Q) for mean, Q in zip(mean_squares(engine, point), broad, strict=True)]
    return L + TIE * (1 - min(larger))


def _likelihood(
    u: Floats, p: int, a: Floats, variance: float, ratio: float, Q: float, sums: Sums, least: float
) -> tuple[float, float, float]:
    """The lowest L of a group, with its σ² and π, from the first ones and with no less σ² than `least`."""
    n = max(sums.of(float(len(u)))[0], 1.0)

    def odds(at: Floats) -> Floats:
        variance = exp(at[0])
        with np.errstate(over="ignore"):
            return np.clip(at[1] + p * a / 2 * log(Q / variance) - u / 2 * (1 / variance - 1 / Q), -700, 700)

    def step(at: Floats) -> tuple[Floats, float]:
        inlier = 1 / (1 + np.exp(-odds(at)))
        n_in, u_in, a_in = sums.of(float(inlier.sum()), dot(inlier, u), dot(inlier, a))
        variance = max(u_in, TINY) / max(p * a_in, TELLING)
        return bounded(np.log([variance, max(n_in, RAREST * n) / max(n - n_in, RAREST * n)])), p * a_in

    def bounded(at: Floats) -> Floats:
        return np.clip(at, [log(least), log(RAREST)], [log(Q), -log(RAREST)])

    at = np.log([variance, ratio / (1 - ratio)])
    for _ in range(PAIRS):
        one, _ = step(at)
        two, spare = step(one)
        if spare < TELLING:
            return 0.0, variance, ratio
        first, second = one - at, two - one
        at = bounded(leap(first[:, None], second[:, None], two[:, None])[:, 0])
        if np.abs(second).max() < AT_REST:
            break
    (gain,) = sums.of(float(np.sum(np.logaddexp(0.0, odds(at)) - log(1 + exp(at[1])))))
    return min(-gain, 0.0), exp(at[0]), 1 / (1 + exp(-at[1]))
