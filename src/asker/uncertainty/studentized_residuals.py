"""Studentised residuals: each residual in units of its covariance after the fit.

Law     No two variables of the group share a factor, as the points of a scene.  In Gaussian noise σ, a single residual
        r has the covariance σ²C after the fit, with

            C = aI − J B⁻¹ Jᵀ,   B = ΣJᵀJ over the inliers of its variable,   a = 1 − leverage of all other variables

        so that rᵀC⁻¹r/σ² is χ² with p degrees of freedom, whatever the leverage of its variable.  All factor groups are
        assumed to have the same noise, as after balancing (`asker.search.group_weights`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.linearized_problem import LinearModel
from asker.engines.null_space import regularised
from asker.problem.problem import Problem
from asker.problem.variables import Slot, Variables
from asker.statistics.scale import spread
from asker.strategies.composite.batched_subproblems import with_rows

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
MAX_OBSERVATIONS = 2**18
"""Approximate number of observations that are linearised; of more, those of a sample of the variables."""
MIN_VARIANCE_SHARE = 0.5
"""Smallest eigenvalue of C in a residual that is evaluated."""


def studentised(
    problem: Problem,
    theta: Sequence[Floats],
    v: Variables,
    inliers: Sequence[Mask],
    a: Sequence[Floats],
    max_per_group: int,
) -> list[Floats]:
    """Return rᵀC⁻¹r of a sample of the inliers of each factor group, at the rows `theta` of all variables.

    Parameters
    ----------
    v
        The group of variables that is estimated together with each residual.
    a
        1 − leverage of all other variables, for every observation.
    max_per_group
        Approximate size of the sample of each factor group.
    """
    sample = _redundant_variables(problem, v, inliers)
    number = np.full(len(v), -1)
    number[sample] = np.arange(len(sample))
    numbers = [next((number[s.index] for s in f.slots if s.variables is v), np.full(f.n, -1)) for f in problem.factors]
    chosen = [np.flatnonzero(mask & (of_v >= 0)) for mask, of_v in zip(inliers, numbers, strict=True)]
    squares = [np.zeros(0) for _ in problem.factors]
    groups = [k for k, observations in enumerate(chosen) if len(observations)]
    if not groups:
        return squares
    rows = dict(zip(problem.variables, theta, strict=True))
    sampled = with_rows(v, rows[v][sample], v.fixed[sample])
    rows[sampled] = sampled.rows
    factors = []
    for k in groups:
        pairs = [
            (sampled, numbers[k]) if s.variables is v else (s.variables, s.index) for s in problem.factors[k].slots
        ]
        factors.append(problem.factors[k].on([Slot(x, index[chosen[k]]) for x, index in pairs], chosen[k]))
    part = Problem(*factors)
    linear = LinearModel(part, tuple(rows[x] for x in part.variables))
    B = linear.diagonal_blocks([np.ones(f.n) for f in factors])[sampled]
    inverse = np.linalg.inv(B + regularised(sampled, B).K)
    for k, derivatives in zip(groups, linear.derivatives_by(sampled), strict=True):
        if derivatives is not None:
            subset = spread(len(chosen[k]), max(len(chosen[k]) // max_per_group, 1))
            J, r, index = (x[subset] for x in derivatives)
            squares[k] = _mahalanobis_squares(J, r, inverse[index], a[k][chosen[k]][subset])
    return squares


def _redundant_variables(problem: Problem, v: Variables, inliers: Sequence[Mask]) -> NDArray[np.int64]:
    """Return variables with more residual components than unknowns; a sample if they have many observations."""
    components, observations = np.zeros((2, len(v)))
    for f, m in zip(problem.factors, inliers, strict=True):
        for slot in (slot for slot in f.slots if slot.variables is v):
            count = np.bincount(slot.index, m, minlength=len(v))
            components, observations = components + f.residual_size * count, observations + count
    redundant = np.flatnonzero((components > v.manifold.tangent) & ~v.fixed)
    return redundant[spread(len(redundant), max(int(observations[redundant].sum()) // MAX_OBSERVATIONS, 1))]


def _mahalanobis_squares(J: Floats, r: Floats, inverse: Floats, a: Floats) -> Floats:
    """Return rᵀC⁻¹r of the residuals r whose C has no eigenvalue below MIN_VARIANCE_SHARE.

    C = aI − JB⁻¹Jᵀ, with the derivatives J and the inverse B⁻¹ of each residual's variable.  For p > d components with
    d derivatives, C is aI in all but d directions: with [J r] = QR the first d rows of R replace J and r, and the rest
    of ‖r‖² is divided by a.
    """
    d, beyond = J.shape[2], np.zeros(len(r))
    if r.shape[1] > d:
        R = np.asarray(np.linalg.qr(np.concatenate([J, r[..., None]], axis=2), mode="r"))
        J, r, beyond = R[:, :d, :d], R[:, :d, d], R[:, d, d] ** 2 / a
    C = a[:, None, None] * np.eye(r.shape[1]) - J @ inverse @ np.swapaxes(J, 1, 2)
    C, r, beyond = (x[np.isfinite(C).all(axis=(1, 2))] for x in (C, r, beyond))
    ok = np.linalg.eigvalsh(C)[:, 0] > MIN_VARIANCE_SHARE
    return beyond[ok] + np.einsum("np,np->n", r[ok], np.linalg.solve(C[ok], r[ok][..., None])[..., 0])
