"""Residuals one by one, in units of what a fit has left of each.

Law     No two variables of a group share a factor, as the points of a scene.  In Gaussian noise σ a single residual r
        has the covariance σ²C after the fit, with

            C = aI − J B⁻¹ Jᵀ,   B = ΣJᵀJ over the inliers of its variable, a: what all others have left of it

        so that rᵀC⁻¹r/σ² is χ² with p degrees of freedom, whatever its variable has used up.  Factor groups are taken
        to have the same noise, as they have once they are balanced (`asker.search.group_weights`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.linearized_problem import LinearModel
from asker.engines.null_space import held
from asker.problem.problem import Problem
from asker.problem.variables import Slot, Variables
from asker.statistics.scale import spread
from asker.strategies.composite.batched_subproblems import with_rows

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
ALL = 2**18
"""Observations that are linearised, about: of more those of some variables."""
LEFT = 0.5
"""What a fit leaves of every number of a residual that is looked at, at least."""


def studentised(
    problem: Problem, theta: Sequence[Floats], v: Variables, inliers: Sequence[Mask], left: Sequence[Floats], most: int
) -> list[Floats]:
    """rᵀC⁻¹r of inliers, about so many of each factor group at most, at these rows of all variables.

    left  a of every observation
    """
    some = _some(problem, v, inliers)
    number = np.full(len(v), -1)
    number[some] = np.arange(len(some))
    of = [next((number[s.index] for s in f.slots if s.variables is v), np.full(f.n, -1)) for f in problem.factors]
    chosen = [np.flatnonzero(m & (own >= 0)) for m, own in zip(inliers, of, strict=True)]
    found = [np.zeros(0) for _ in problem.factors]
    told = [k for k, own in enumerate(chosen) if len(own)]
    if not told:
        return found
    rows = dict(zip(problem.variables, theta, strict=True))
    own = with_rows(v, rows[v][some], v.fixed[some])
    rows[own] = own.rows
    made = []
    for k in told:
        pairs = [(own, of[k]) if s.variables is v else (s.variables, s.index) for s in problem.factors[k].slots]
        made.append(problem.factors[k].on([Slot(x, index[chosen[k]]) for x, index in pairs], chosen[k]))
    part = Problem(*made)
    linear = LinearModel(part, tuple(rows[x] for x in part.variables))
    B = linear.own_blocks([np.ones(f.n) for f in made])[own]
    inverse = np.linalg.inv(B + held(own, B).K)
    for k, at in zip(told, linear.derivatives_by(own), strict=True):
        if at is not None:
            seen = spread(len(chosen[k]), max(len(chosen[k]) // most, 1))
            J, r, index = (x[seen] for x in at)
            found[k] = _in_units(J, r, inverse[index], left[k][chosen[k]][seen])
    return found


def _some(problem: Problem, v: Variables, inliers: Sequence[Mask]) -> NDArray[np.int64]:
    """Variables with more numbers of inliers than unknowns; where these have many observations, some of them."""
    numbers, observations = np.zeros((2, len(v)))
    for f, m in zip(problem.factors, inliers, strict=True):
        for slot in (slot for slot in f.slots if slot.variables is v):
            count = np.bincount(slot.index, m, minlength=len(v))
            numbers, observations = numbers + f.residual_size * count, observations + count
    some = np.flatnonzero((numbers > v.manifold.tangent) & ~v.fixed)
    return some[spread(len(some), max(int(observations[some].sum()) // ALL, 1))]


def _in_units(J: Floats, r: Floats, inverse: Floats, left: Floats) -> Floats:
    """rᵀC⁻¹r of residuals r with derivatives J and B⁻¹ of their variables, where enough is left.

    C = left·I − JB⁻¹Jᵀ.  Of p numbers with p > d derivatives, C is left·I in all directions but d: with [J r] = QR the
    first d rows of R take the place of J and r, and the rest of ‖r‖² is divided by `left`.
    """
    d, beyond = J.shape[2], np.zeros(len(r))
    if r.shape[1] > d:
        R = np.asarray(np.linalg.qr(np.concatenate([J, r[..., None]], axis=2), mode="r"))
        J, r, beyond = R[:, :d, :d], R[:, :d, d], R[:, d, d] ** 2 / left
    C = left[:, None, None] * np.eye(r.shape[1]) - J @ inverse @ np.swapaxes(J, 1, 2)
    C, r, beyond = (x[np.isfinite(C).all(axis=(1, 2))] for x in (C, r, beyond))
    enough = np.linalg.eigvalsh(C)[:, 0] > LEFT
    return beyond[enough] + np.einsum("np,np->n", r[enough], np.linalg.solve(C[enough], r[enough][..., None])[..., 0])
