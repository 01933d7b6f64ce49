"""The model of residuals whose noise scale is unknown: a scale mixture of inliers and outliers.

Observation  u = w‖r‖² of p numbers, of which m = p − h are left if the fit uses up h (the leverage).  So d fitted
             numbers gain nothing by themselves (Laplace: they have the volume sᵈ).
Inlier       With probability π: Gaussian of scale s, or Student's t with ν degrees of freedom for heavy tails.
Outlier      Its density must not depend on the unknowns, since an outlier knows nothing of the model.  It is the
             density of the observation in the best explanation that takes *all* observations for noise (`background`):
             b = the density at the least-squares residual.  It is proper, has no width to choose, is invariant to the
             unit, and makes clean data and their background the same, so that structure has to be shown.
Evidence     in nats, relative to "all observations are background":

                 L = Σ log(π f(u; m, s) / bᵐ + (1 − π) κ⁻ᵐ) − ½ log n · (number of parameters beyond the scale)

             Three hypotheses on the outliers (`Outliers`): there are none (π = 1); they lie where the data lie (κ = 1,
             clutter); each is spread over a region that is wider by a factor of its own.  With the scale-free prior
             1/k² for k ≥ 1 the latter averages to E[k⁻ᵐ] = 1/(m + 1).
Majority     An inlier ratio below a half has a prior probability of exp(−`minority_nats`).
Fit          EM for (s, π), accelerated by SQUAREM (Varadhan and Roland 2008); ν by the evidence.

Lange, Little, Taylor: Robust Statistical Modeling Using the t Distribution, JASA 1989.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import exp, inf, isinf, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from asker.problem.reductions import ALONE, Sums

Floats = NDArray[np.float64]
TINY = 1e-300
"""Lower bound of variances, against division by 0."""
LOGIT_RANGE = 700.0
"""Range of log odds in which exp neither overflows nor underflows."""
MAX_EXTRAPOLATION = 4.0
"""Maximum step length of SQUAREM, in steps of the iteration."""
MINORITY_NATS = 5.0
"""Price of an inlier ratio below a half: odds of 150, "very strong" evidence (Kass and Raftery, JASA 1995)."""
MIN_DEGREES_OF_FREEDOM = 1e-9
"""Lower bound of sums of degrees of freedom, against division by 0."""


class Outliers(Enum):
    """Hypothesis on the outliers of a factor group; the value describes it."""

    NONE = "no outliers"
    SPARSE = "single outliers, each in a wider region than the data"
    CLUTTER = "outliers in the region of the data"


@dataclass(frozen=True)
class ScaleMixture:
    """Parameters of the model of one factor group."""

    variance: float
    """s², of each number of an inlier's residual."""
    inlier_ratio: float
    """π"""
    dof: float = inf
    """ν: infinite for Gaussian inliers."""
    outliers: Outliers = Outliers.CLUTTER


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of one factor group, as far as the model needs them."""

    u: Floats
    """w‖r‖²; infinite for an observation that is impossible: it is background, whatever the model."""
    m: Floats
    """Degrees of freedom that the fit leaves of each observation."""
    log_background: Floats
    """Logarithm of the density b of an outlier, per number."""
    least_variance: float = TINY
    """Lower bound of s², such as the variance of rounding."""
    sums: Sums = ALONE
    """Sums over all processes."""

    @property
    def n(self) -> float:
        """Number of observations in all processes."""
        return max(self.sums.of(len(self.u))[0], 1.0)

    def only(self, chosen: NDArray | slice) -> "Residuals":
        """Return some of the observations."""
        return replace(self, u=self.u[chosen], m=self.m[chosen], log_background=self.log_background[chosen])


def log_density(u: Floats, m: Floats | float, variance: float, dof: float) -> Floats:
    """Return the log density of m numbers with sum of squares u: Gaussian, or Student's t."""
    if isinf(dof):
        return -0.5 * m * log(2 * pi * variance) - 0.5 * u / variance
    from scipy.special import gammaln

    constant = gammaln((dof + m) / 2) - gammaln(dof / 2) - 0.5 * m * log(pi * dof * variance)
    return constant - 0.5 * (dof + m) * np.log1p(u / (dof * variance))


def posterior(model: ScaleMixture, of: Residuals) -> Floats:
    """Return the probability of each observation to be an inlier."""
    if model.outliers is Outliers.NONE:
        return np.isfinite(of.u).astype(float)
    inlier, outlier = _log_parts(model, of)
    q = 1 / (1 + np.exp(np.clip(outlier - inlier, -LOGIT_RANGE, LOGIT_RANGE)))
    return np.where(np.isfinite(of.u), q, 0.0)


def weights(model: ScaleMixture, of: Residuals) -> Floats:
    """Return the weight of each residual in the solve: −2 d/du of the log likelihood, posterior · tail / s²."""
    return posterior(model, of) * _tail(model, of) / model.variance


def log_likelihoods(model: ScaleMixture, of: Residuals) -> Floats:
    """Return the log likelihood of each observation, relative to that of the background."""
    if model.outliers is Outliers.NONE:
        found = log_density(of.u, of.m, model.variance, model.dof) - of.m * of.log_background
    else:
        found = np.logaddexp(*_log_parts(model, of))
    return np.where(np.isfinite(of.u), np.maximum(found, -LOGIT_RANGE), 0.0)


def evidence(model: ScaleMixture, of: Residuals, minority_nats: float) -> float:
    """Return L in nats; `minority_nats` is the price of an inlier ratio below a half."""
    (total,) = of.sums.of(float(log_likelihoods(model, of).sum()))
    has_outliers = model.outliers is not Outliers.NONE
    price = 0.5 * log(of.n) * (has_outliers + (model.dof < inf))
    return total - price - minority_nats * (has_outliers and model.inlier_ratio < 0.5)


def _log_parts(model: ScaleMixture, of: Residuals) -> tuple[Floats, Floats]:
    """Return the log of both summands of the likelihood over bᵐ: inlier and outlier."""
    inlier = log(model.inlier_ratio) + log_density(of.u, of.m, model.variance, model.dof) - of.m * of.log_background
    wider = np.log1p(of.m) if model.outliers is Outliers.SPARSE else 0.0
    return inlier, np.log1p(-model.inlier_ratio) - wider + np.zeros(len(of.u))


def _tail(model: ScaleMixture, of: Residuals) -> Floats | float:
    """Return the weight of an inlier in its own noise: 1 for Gaussian noise."""
    return 1.0 if isinf(model.dof) else (model.dof + of.m) / (model.dof + of.u / model.variance)


def fit(of: Residuals, first: ScaleMixture, rtol: float, max_steps: int) -> ScaleMixture:
    """Return the maximum of the likelihood near `first` by EM with SQUAREM extrapolation.

    Parameters
    ----------
    of
        Residuals of the group.
    first
        Initial parameters, with the degrees of freedom and the hypothesis that stay.
    rtol
        Relative change of s² and the odds of π at which the iteration ends.
    max_steps
        Maximum number of EM steps.
    """
    n, u = max(*of.sums.of(np.count_nonzero(np.isfinite(of.u))), 1.0), np.where(np.isfinite(of.u), of.u, 0.0)
    has_outliers, most = first.outliers is not Outliers.NONE, log(2 * n)

    def bounded(at: Floats) -> Floats:
        return np.array([min(max(at[0], log(max(of.least_variance, TINY))), LOGIT_RANGE), min(max(at[1], -most), most)])

    def model_at(at: Floats) -> ScaleMixture:
        ratio = 1 / (1 + exp(-at[1])) if has_outliers else 1.0
        return replace(first, variance=exp(at[0]), inlier_ratio=ratio)

    def step(at: Floats) -> Floats:
        model = model_at(at)
        q = posterior(model, of)
        total, counted, n_in = of.sums.of(float(np.sum(q * _tail(model, of) * u)), float(q @ of.m), float(q.sum()))
        variance = max(total, TINY) / max(counted, MIN_DEGREES_OF_FREEDOM)
        return bounded(np.array([log(variance), log(max(n_in, TINY) / max(n - n_in, TINY)) if has_outliers else 0.0]))

    odds = log(first.inlier_ratio / (1 - first.inlier_ratio)) if has_outliers else 0.0
    at = bounded(np.array([log(max(first.variance, TINY)), odds]))
    for _ in range(0, max_steps, 3):
        one = step(at)
        two = step(one)
        if np.abs(two - one).max() < rtol:
            return model_at(two)
        at = step(bounded(squarem(at, one, two)))
    return model_at(at)


def squarem(x: Floats, one: Floats, two: Floats) -> Floats:
    """Return the extrapolation of two steps of a fixed-point iteration from x, of at most four times their length."""
    r, v = one - x, two - 2 * one + x
    length = min(sqrt(float(r @ r) / max(float(v @ v), TINY)), MAX_EXTRAPOLATION)
    return x + 2 * max(length, 1.0) * r + max(length, 1.0) ** 2 * v


def best_fit(
    of: Residuals, firsts: Sequence[ScaleMixture], dofs: Sequence[float], rtol: float, max_steps: int, price: float
) -> ScaleMixture:
    """Return the fit of highest evidence from several first parameters, each of them then with other tails."""
    fits = [fit(of, first, rtol, max_steps) for first in firsts]
    best = max(fits, key=lambda model: evidence(model, of, price))
    tails = [fit(of, replace(best, dof=dof), rtol, max_steps) for dof in dofs if dof != best.dof]
    return max([best, *tails], key=lambda model: evidence(model, of, price))


def background(u: Floats, h: Floats, p: int, dofs: Sequence[float], sums: Sums = ALONE) -> Floats:
    """Return the log density per number of each observation, if all of them are noise of one kind.

    Parameters
    ----------
    u
        w‖r‖² of the observations at the least-squares solution.
    h
        Leverage of the observations there.
    p
        Number of residual components.
    dofs
        Degrees of freedom among which the best is chosen: heavy tails must not widen the background of all others.
    sums
        Sums over all processes.
    """
    least = max(0.05 * p, MIN_DEGREES_OF_FREEDOM)
    studentised = Residuals(u * p / np.maximum(p - h, least), np.full(len(u), float(p)), np.zeros(len(u)), sums=sums)
    mean = max(sums.of(float(studentised.u.sum()))[0] / (studentised.n * p), TINY)
    firsts = [ScaleMixture(mean, 1.0, dof, Outliers.NONE) for dof in dofs]
    fits = [fit(studentised, first, 1e-6, 300) for first in firsts]
    model = max(fits, key=lambda each: evidence(each, studentised, 0.0))
    return log_density(studentised.u, float(p), model.variance, model.dof) / p
