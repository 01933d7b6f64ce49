"""What the observations of a result say of the unknowns: how many count, and how much each.

An estimate that minimises Σψ moves with the noise as −A⁻¹g (Huber 1964).  With p numbers in a residual:

    A = Σ α JᵀJ,  α = E[ω + 2uω'/p]         the curvature;  in Gaussian noise E[ωu]/(pσ²), by Stein's lemma
    B = Σ β JᵀJ,  β = E[ω²u]/p              the spread of the gradient g
    C = A⁻¹ B A⁻¹                           the covariance;  (β/α²) (ΣJᵀJ)⁻¹ where α and β are the same for all

Counted     Under a kernel that gives observations up: the inliers (`asker.statistics.inliers`); α and β by the Gaussian
            with the noise σ.  Where the kernel is
            so narrow that α = 0, they do not count after all.  Under a convex kernel all of them, since all of them
            pull; without a given σ, α and β are means over them.
Noise       σ² = Σu / (spare numbers · m), over those that count, where m is the part of E[u] that lies below the
            quantile of inliers, over their own part: 0.988 for p = 1, nearer to 1 for more.  The fit has used up as
            many numbers as it has unknowns that are determined; several factor groups share these as
            `asker.statistics.scale` has it.  (Their exact leverages change σ by less than 1 % in made pose graphs.)  A
                                              group with fewer than FEW
            numbers to spare has the noise of all groups together: the estimate takes it to be the same, too.  Where the
            data were seen to be rounded, σ is that of rounding at least.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.solver.result import Result
from asker.statistics.inliers import inlier_radius
from asker.statistics.scale import FEW, kept_shares, rounding_variance

Floats = NDArray[np.float64]
QUANTILES = 2000
"""Of the χ² distribution, for means over Gaussian noise."""
SAME = 1e-9
"""By how much β/α of observations may differ to count as one."""
ALIKE = 1e4
"""By which factor it may differ in one central difference: rounding is ALIKE·ε/STEP of the smallest part."""
STRAIGHT = 1e-12
"""The curvature of a kernel over its weight, below which it is straight but for rounding."""
WIDTHS = 64
"""Widths of a kernel at which those are worked out, where every observation has its own."""


@dataclass(frozen=True, eq=False)
class Information:
    """One factor group's part, in the user's order."""

    sigma: float
    """The noise of each number of a residual, times `Factors.balance`; under a convex kernel √β/α of its own
    distribution."""
    counted: NDArray[np.bool_]
    alpha: Floats
    """α of every observation, 0 for those that do not count."""
    beta: Floats
    n_spare: float
    """How many numbers the fit has not used up."""
    n_behind: float = np.inf
    """How many spare numbers σ was found from; infinite where it was given."""

    @property
    def n_counted(self) -> int:
        return int(np.count_nonzero(self.counted))


def squares(result: Result) -> list[Floats]:
    """‖r‖² of every observation, weights included."""
    assert result.problem is not None
    each = zip(result.problem.factors, result.residuals, strict=True)
    return [np.einsum("np,np->n", r, r) * (1.0 if f.weight is None else f.weight) for f, r in each]


def counted(result: Result, given: Sequence[float | None]) -> list[NDArray[np.bool_]]:
    """Which observations count, for each factor group."""
    assert result.problem is not None
    masks = []
    for k, (f, u, sigma) in enumerate(zip(result.problem.factors, squares(result), given, strict=True)):
        possible = np.ones(f.n, dtype=bool) if result.possible is None else result.possible[k]
        if f.kernel.convex or not f.n:
            masks.append(possible)
        elif not sigma:
            masks.append(result.inliers[k])
        else:
            masks.append(possible & (u <= inlier_radius(f.residual_size, f.balance * sigma) ** 2))
    return some_of(masks)


def some_of(masks: list[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
    """The same masks, if any observation counts."""
    if not any(mask.any() for mask in masks):
        raise ProblemError("no observation is within the noise: nothing supports the result")
    return masks


def _cuts(result: Result, given: Sequence[float | None]) -> list[float | None]:
    """σ by which the observations of each group that count are told apart; None where the kernel does that."""
    assert result.problem is not None
    found: list[float | None] = []
    for k, (f, noise) in enumerate(zip(result.problem.factors, given, strict=True)):
        if f.kernel.convex or not f.n:
            found.append(None)
            continue
        sigma = result.noise[k].sigma if noise is None else noise
        found.append(f.balance * sigma if sigma > 0 else None)
    return found


def _within(p: int) -> float:
    """m"""
    from scipy.special import chdtr

    largest = inlier_radius(p, 1.0) ** 2
    return float(chdtr(p + 2, largest) / chdtr(p, largest))


def information(
    result: Result, masks: Sequence[NDArray[np.bool_]], n_determined: int, given: Sequence[float | None]
) -> list[Information]:
    """Of each factor group, where that many unknowns are determined by what counts."""
    problem = result.problem
    assert problem is not None
    spare, of = _spare(problem, masks, n_determined), squares(result)
    parts = [
        1.0 if cut is None else _within(f.residual_size)
        for f, cut in zip(problem.factors, _cuts(result, given), strict=True)
    ]
    found = result.estimated_noise
    grids = [noise.rounding for noise in found] if found else [0.0] * len(spare)
    least = [rounding_variance(f.balance * grid) for f, grid in zip(problem.factors, grids, strict=True)]
    given = [sigma and f.balance * sigma for f, sigma in zip(problem.factors, given, strict=True)]
    sums = [
        max(float(u[mask].sum()) / m, n * s) for u, mask, m, n, s in zip(of, masks, parts, spare, least, strict=True)
    ]
    few = [sigma is None and n < FEW and mask.any() for sigma, n, mask in zip(given, spare, masks, strict=True)]
    behind = [n if sigma is None else np.inf for sigma, n in zip(given, spare, strict=True)]
    if any(few):
        if sum(spare) < (1.0 if found and all(noise.is_known for noise in found) else FEW):
            names, n = ", ".join(f.name for f in problem.factors), sum(int(mask.sum()) for mask in masks)
            told = f"{n} inliers leave {max(round(sum(spare), 1), 0):g} numbers to spare"
            advice = "give it: result.interval(..., sigma=...)"
            raise ProblemError(f"{names}: the noise cannot be told: {told}; {advice}")
        together = sqrt(sum(sums) / sum(spare))
        given = [together if is_few else sigma for is_few, sigma in zip(few, given, strict=True)]
        behind = [sum(spare) if is_few else n for is_few, n in zip(few, behind, strict=True)]
    each = zip(problem.factors, of, masks, sums, spare, given, strict=True)
    exact = [noise.sigma == 0 for noise in found] if found else [False] * len(spare)
    of_groups = [
        _of_group(f, u, mask, total, n, sigma, fits)
        for (f, u, mask, total, n, sigma), fits in zip(each, exact, strict=True)
    ]
    return [replace(part, n_behind=n) for part, n in zip(of_groups, behind, strict=True)]


def one_factor(parts: Sequence[Information]) -> float | None:
    """β/α² where α and β are the same for all that counts."""
    alpha = np.concatenate([of.alpha[of.counted] for of in parts])
    beta = np.concatenate([of.beta[of.counted] for of in parts])
    if np.ptp(alpha) <= SAME * alpha[0] and np.ptp(beta) <= SAME * beta[0]:
        return float(beta[0] / alpha[0] ** 2)
    return None


def alike(alpha: Sequence[Floats], beta: Sequence[Floats]) -> list[list[Floats]]:
    """Return β of all factor groups in parts that add up to it, in each of which β/α differs by ALIKE at most."""
    counts = [(a > 0) & (b > 0) for a, b in zip(alpha, beta, strict=True)]
    ratios = [np.where(some, b, 1.0) / np.where(some, a, 1.0) for a, b, some in zip(alpha, beta, counts, strict=True)]
    largest = max(float(ratio[some].max(initial=0.0)) for ratio, some in zip(ratios, counts, strict=True))
    steps = [np.where(some, np.log(largest / r) // np.log(ALIKE), -1) for r, some in zip(ratios, counts, strict=True)]
    return [
        [np.where(of == step, b, 0.0) for b, of in zip(beta, steps, strict=True)]
        for step in np.unique(np.concatenate(steps))
        if step >= 0
    ]


def _spare(problem: Problem, masks: Sequence[NDArray[np.bool_]], n_determined: int) -> list[float]:
    """Numbers of each group that the fit has not used up."""
    shares = kept_shares(problem.factors, [mask.astype(float) for mask in masks])
    sizes = [f.residual_size for f in problem.factors]
    numbers = np.array([p * float(np.count_nonzero(mask)) for p, mask in zip(sizes, masks, strict=True)])
    used = np.array([p * float((1 - a)[mask].sum()) for p, a, mask in zip(sizes, shares, masks, strict=True)])
    used *= n_determined / max(used.sum(), 1e-300)
    return (numbers - used).tolist()


def _of_group(
    f: Factors, u: Floats, mask: NDArray[np.bool_], total: float, n_spare: float, given: float | None, exact: bool
) -> Information:
    """`exact`: the inliers fit exactly, under a kernel of no width; then a noise that is given is that of least squares
    on them."""
    p, width = f.residual_size, np.broadcast_to(f.tau, f.n) * _root_weight(f)
    if not mask.any():
        return Information(float("nan"), mask, np.zeros(f.n), np.zeros(f.n), 0.0)
    if given is None and f.kernel.convex:
        v = u / width**2
        omega = f.kernel.unit_omega(v)
        slope = float(np.mean((omega + 2 * v * f.kernel.unit_domega(v) / p)[mask]))
        spread = float((omega**2 * u)[mask].sum()) / n_spare
        if not slope > STRAIGHT * float(np.mean(omega[mask])):
            told = "all residuals are where the kernel is straight, which says nothing of their noise"
            raise ProblemError(f"{f.name}: {told}: give it: result.interval(..., sigma=...)")
        sigma = sqrt(spread) / slope
        _check_positive(f, sigma)
        return Information(sigma, mask, np.where(mask, slope, 0.0), np.where(mask, spread, 0.0), n_spare)
    sigma = sqrt(total / n_spare) if given is None else given
    _check_positive(f, sigma)
    alpha, beta = (1.0, 1.0) if exact and given else expected(f.kernel, p, width / sigma)
    return Information(sigma, mask, np.where(mask, alpha, 0.0), np.where(mask, beta * sigma**2, 0.0), n_spare)


def _check_positive(f: Factors, sigma: float) -> None:
    if not sigma > 0:
        told = "all inliers fit exactly, which says nothing of their noise"
        raise ProblemError(f"{f.name}: {told}: give it: result.interval(..., sigma=...)")


def _root_weight(f: Factors) -> Any:
    return 1.0 if f.weight is None else np.sqrt(f.weight)


def expected(kernel: Any, p: int, width: Floats) -> tuple[Floats, Floats]:
    """α and β of a kernel in Gaussian noise with σ = 1, for each of its widths τ."""
    from scipy.special import gammaincinv

    low, high = float(width.min()), float(width.max())
    widths = np.array([low]) if low == high else np.geomspace(low, high, WIDTHS)
    u = 2 * gammaincinv(p / 2, (np.arange(QUANTILES) + 0.5) / QUANTILES)  # χ² with p degrees of freedom
    u *= p / u.mean()
    omega = np.array([kernel.unit_omega(u / w**2) * np.ones(QUANTILES) for w in widths])
    alpha, beta = (omega * u).mean(axis=1) / p, (omega**2 * u).mean(axis=1) / p
    return tuple(np.interp(np.log(width), np.log(widths), x) for x in (alpha, beta))  # type: ignore[return-value]
