"""Fisher information of the observations of a result: the inliers, their noise and their expected curvature.

An estimate that minimises Σψ moves with the noise as −A⁻¹g (Huber 1964).  With p numbers in a residual:

    A = Σ α JᵀJ,  α = E[ω + 2uω'/p]         the curvature;  in Gaussian noise E[ωu]/(pσ²), by Stein's lemma
    B = Σ β JᵀJ,  β = E[ω²u]/p              the spread of the gradient g
    C = A⁻¹ B A⁻¹                           the covariance;  (β/α²) (ΣJᵀJ)⁻¹ where α and β are the same for all

Counted     The observations that enter A and B.  Under a non-convex kernel these are the inliers
            (`asker.statistics.inliers`), with α and β in Gaussian noise σ; observations with zero expected curvature
            (α = 0, for a kernel far narrower than the noise) are dropped.  Under a convex kernel these are all
            observations, since all influence the estimate; if σ is not stated, α and β are means over them.
Noise       σ² = Σu / (m · degrees of freedom), over the counted observations, where m corrects for the truncation at
            the inlier quantile: E[u | inlier] = m p σ², with m = 0.988 for p = 1, nearer to 1 for larger p.  The fit
            uses one degree of freedom per determined unknown; `asker.statistics.leverage` distributes them over the
            factor groups (exact leverages change σ by less than 1 % in synthetic pose graphs).  A group with fewer
            than FEW degrees of freedom gets the pooled noise of all groups, as in the estimate.  If the data are
            quantized, σ is at least the quantization noise.
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
from asker.statistics.leverage import remaining_fractions
from asker.statistics.noise import FEW, rounding_variance

Floats = NDArray[np.float64]
N_QUANTILES = 2000
"""Number of quantiles of the χ² distribution in averages over Gaussian noise."""
EQUALITY_RTOL = 1e-9
"""Relative difference of α or β between observations, up to which they count as equal."""
MAX_RATIO_RANGE = 1e4
"""Range of β/α in one central difference; rounding is MAX_RATIO_RANGE·ε/RELATIVE_STEP of the smallest part."""
MIN_RELATIVE_CURVATURE = 1e-12
"""Curvature of a kernel over its weight, below which the kernel is linear up to rounding."""
N_WIDTHS = 64
"""Number of kernel widths at which α and β are evaluated if every observation has a different width."""


SIGMA_ADVICE = "set it with sigma=..., as in result.interval(..., sigma=...)"


@dataclass(frozen=True, eq=False)
class Information:
    """Information of one factor group, in the user's order of observations."""

    sigma: float
    """Noise scale of each component of a residual, times `Factors.balance`; under a convex kernel √β/α of the observed
    distribution."""
    counted: NDArray[np.bool_]
    """True for observations that enter A and B."""
    alpha: Floats
    """α of every observation, 0 for those that are not counted."""
    beta: Floats
    n_degrees_of_freedom: float
    """Degrees of freedom of the group's residuals after the fit."""
    sigma_degrees_of_freedom: float = np.inf
    """Degrees of freedom that σ was estimated from; infinite if σ was stated."""

    @property
    def n_counted(self) -> int:
        return int(np.count_nonzero(self.counted))


def squared_norms(result: Result) -> list[Floats]:
    """Return ‖r‖² of every observation, times its weight."""
    assert result.problem is not None
    each = zip(result.problem.factors, result.residuals, strict=True)
    return [np.einsum("np,np->n", r, r) * (1.0 if f.weight is None else f.weight) for f, r in each]


def inlier_masks(result: Result, stated: Sequence[float | None]) -> list[NDArray[np.bool_]]:
    """Return the mask of counted observations of each factor group, given the stated noise scales."""
    assert result.problem is not None
    masks = []
    for k, (f, u, sigma) in enumerate(zip(result.problem.factors, squared_norms(result), stated, strict=True)):
        possible = np.ones(f.n, dtype=bool) if result.possible is None else result.possible[k]
        if f.kernel.convex or not f.n:
            masks.append(possible)
        elif not sigma:
            masks.append(result.inliers[k])
        else:
            masks.append(possible & (u <= inlier_radius(f.residual_size, f.balance * sigma) ** 2))
    return require_an_observation(masks)


def require_an_observation(masks: list[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
    """Return the masks unchanged; raise a `ProblemError` if they are all empty."""
    if not any(mask.any() for mask in masks):
        raise ProblemError("no observation is within the noise: nothing supports the result")
    return masks


def _inlier_thresholds(result: Result, stated: Sequence[float | None]) -> list[float | None]:
    """Return the σ that the inlier threshold of each group is based on; None if every observation is counted."""
    assert result.problem is not None
    sigmas: list[float | None] = []
    for k, (f, noise) in enumerate(zip(result.problem.factors, stated, strict=True)):
        if f.kernel.convex or not f.n:
            sigmas.append(None)
            continue
        sigma = result.noise[k].sigma if noise is None else noise
        sigmas.append(f.balance * sigma if sigma > 0 else None)
    return sigmas


def _truncation_correction(p: int) -> float:
    """Return m, the mean of u/(pσ²) below the inlier threshold."""
    from scipy.special import chdtr

    largest = inlier_radius(p, 1.0) ** 2
    return float(chdtr(p + 2, largest) / chdtr(p, largest))


def information(
    result: Result, masks: Sequence[NDArray[np.bool_]], n_determined: int, stated: Sequence[float | None]
) -> list[Information]:
    """Return the information of each factor group.

    Parameters
    ----------
    masks
        The counted observations of each group.
    n_determined
        Number of unknowns that the counted observations determine.
    stated
        The noise scale of each group, or None to estimate it.
    """
    problem = result.problem
    assert problem is not None
    dof, norms = _degrees_of_freedom(problem, masks, n_determined), squared_norms(result)
    corrections = [
        1.0 if threshold is None else _truncation_correction(f.residual_size)
        for f, threshold in zip(problem.factors, _inlier_thresholds(result, stated), strict=True)
    ]
    estimated = result.estimated_noise
    grids = [noise.rounding for noise in estimated] if estimated else [0.0] * len(dof)
    least = [rounding_variance(f.balance * grid) for f, grid in zip(problem.factors, grids, strict=True)]
    scales = [sigma and f.balance * sigma for f, sigma in zip(problem.factors, stated, strict=True)]
    sums = [
        max(float(u[mask].sum()) / m, n * s)
        for u, mask, m, n, s in zip(norms, masks, corrections, dof, least, strict=True)
    ]
    few = [sigma is None and n < FEW and mask.any() for sigma, n, mask in zip(scales, dof, masks, strict=True)]
    sigma_dof = [n if sigma is None else np.inf for sigma, n in zip(scales, dof, strict=True)]
    if any(few):
        if sum(dof) < (1.0 if estimated and all(noise.is_known for noise in estimated) else FEW):
            names, n = ", ".join(f.name for f in problem.factors), sum(int(mask.sum()) for mask in masks)
            raise ProblemError(
                f"{names}: the noise cannot be estimated: {n} inliers leave {max(round(sum(dof), 1), 0):g} degrees of "
                f"freedom; {SIGMA_ADVICE}"
            )
        pooled = sqrt(sum(sums) / sum(dof))
        scales = [pooled if is_few else sigma for is_few, sigma in zip(few, scales, strict=True)]
        sigma_dof = [sum(dof) if is_few else n for is_few, n in zip(few, sigma_dof, strict=True)]
    each = zip(problem.factors, norms, masks, sums, dof, scales, strict=True)
    exact = [noise.sigma == 0 for noise in estimated] if estimated else [False] * len(dof)
    of_groups = [
        _of_group(f, u, mask, total, n, sigma, fits)
        for (f, u, mask, total, n, sigma), fits in zip(each, exact, strict=True)
    ]
    return [replace(part, sigma_degrees_of_freedom=n) for part, n in zip(of_groups, sigma_dof, strict=True)]


def common_factor(parts: Sequence[Information]) -> float | None:
    """Return β/α² if α and β are the same for all counted observations, else None."""
    alpha = np.concatenate([of.alpha[of.counted] for of in parts])
    beta = np.concatenate([of.beta[of.counted] for of in parts])
    if np.ptp(alpha) <= EQUALITY_RTOL * alpha[0] and np.ptp(beta) <= EQUALITY_RTOL * beta[0]:
        return float(beta[0] / alpha[0] ** 2)
    return None


def similar_ratio_parts(alpha: Sequence[Floats], beta: Sequence[Floats]) -> list[list[Floats]]:
    """Split β of all factor groups into summands, in each of which β/α spans at most a factor of MAX_RATIO_RANGE."""
    positive = [(a > 0) & (b > 0) for a, b in zip(alpha, beta, strict=True)]
    ratios = [np.where(ok, b, 1.0) / np.where(ok, a, 1.0) for a, b, ok in zip(alpha, beta, positive, strict=True)]
    largest = max(float(ratio[ok].max(initial=0.0)) for ratio, ok in zip(ratios, positive, strict=True))
    log_range = np.log(MAX_RATIO_RANGE)
    steps = [np.where(ok, np.log(largest / r) // log_range, -1) for r, ok in zip(ratios, positive, strict=True)]
    return [
        [np.where(of == step, b, 0.0) for b, of in zip(beta, steps, strict=True)]
        for step in np.unique(np.concatenate(steps))
        if step >= 0
    ]


def _degrees_of_freedom(problem: Problem, masks: Sequence[NDArray[np.bool_]], n_determined: int) -> list[float]:
    """Return the degrees of freedom of the residuals of each group after the fit."""
    shares = remaining_fractions(problem.factors, [mask.astype(float) for mask in masks])
    sizes = [f.residual_size for f in problem.factors]
    numbers = np.array([p * float(np.count_nonzero(mask)) for p, mask in zip(sizes, masks, strict=True)])
    used = np.array([p * float((1 - a)[mask].sum()) for p, a, mask in zip(sizes, shares, masks, strict=True)])
    used *= n_determined / max(used.sum(), 1e-300)
    return (numbers - used).tolist()


def _of_group(
    f: Factors, u: Floats, mask: NDArray[np.bool_], total: float, n: float, stated: float | None, exact: bool
) -> Information:
    """Return the information of a factor group with n degrees of freedom.

    `exact` is True if the inliers fit exactly, so that the kernel has no width; a stated noise is then that of least
    squares on the inliers.
    """
    p, width = f.residual_size, np.broadcast_to(f.tau, f.n) * _root_weight(f)
    if not mask.any():
        return Information(float("nan"), mask, np.zeros(f.n), np.zeros(f.n), 0.0)
    if stated is None and f.kernel.convex:
        v = u / width**2
        omega = f.kernel.unit_omega(v)
        slope = float(np.mean((omega + 2 * v * f.kernel.unit_domega(v) / p)[mask]))
        spread = float((omega**2 * u)[mask].sum()) / n
        if not slope > MIN_RELATIVE_CURVATURE * float(np.mean(omega[mask])):
            raise ProblemError(
                f"{f.name}: the noise cannot be estimated: the kernel is linear at all residuals; {SIGMA_ADVICE}"
            )
        sigma = sqrt(spread) / slope
        _check_positive(f, sigma)
        return Information(sigma, mask, np.where(mask, slope, 0.0), np.where(mask, spread, 0.0), n)
    sigma = sqrt(total / n) if stated is None else stated
    _check_positive(f, sigma)
    alpha, beta = (1.0, 1.0) if exact and stated else expected(f.kernel, p, width / sigma)
    return Information(sigma, mask, np.where(mask, alpha, 0.0), np.where(mask, beta * sigma**2, 0.0), n)


def _check_positive(f: Factors, sigma: float) -> None:
    if not sigma > 0:
        raise ProblemError(f"{f.name}: the noise cannot be estimated: all inliers fit exactly; {SIGMA_ADVICE}")


def _root_weight(f: Factors) -> float | Floats:
    """Return the square root of the weights; 1 without weights."""
    return 1.0 if f.weight is None else np.sqrt(f.weight)


def expected(kernel: Any, p: int, width: Floats) -> tuple[Floats, Floats]:
    """Return α and β of a kernel in Gaussian noise with σ = 1, for each of its widths τ."""
    from scipy.special import gammaincinv

    low, high = float(width.min()), float(width.max())
    widths = np.array([low]) if low == high else np.geomspace(low, high, N_WIDTHS)
    u = 2 * gammaincinv(p / 2, (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES)  # χ² with p degrees of freedom
    u *= p / u.mean()
    omega = np.array([kernel.unit_omega(u / w**2) * np.ones(N_QUANTILES) for w in widths])
    alpha, beta = (omega * u).mean(axis=1) / p, (omega**2 * u).mean(axis=1) / p
    return tuple(np.interp(np.log(width), np.log(widths), x) for x in (alpha, beta))  # type: ignore[return-value]
