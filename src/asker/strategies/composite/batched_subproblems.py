"""Batches of small problems, in which copies of some variables are fitted to some of the observations.

A *trial* estimates its own copies of variables and keeps all other variables constant.  No two trials share a factor,
so any engine solves all trials as one problem.

Algorithm   (1) make one Gauss-Newton step for all trials, slightly damped, shortened by a factor of each trial
            (2) accept the step of each trial whose cost decreases; shorten the next step of any other
            (3) end a trial whose cost no longer decreases at full step length, or is nearly 0
"""

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Model, Point, omega, psi
from asker.engines.sparsity import is_narrow
from asker.engines.validity import Conditions, squares
from asker.kernels.kernel import Kernel
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import Slot, Variables
from asker.statistics.noise import EXACT_RATIO

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FAR_DAMPING, NEAR_DAMPING = 1e-3, 1e-6
"""λ relative to the diagonal of the Hessian, for trials that start far from and near the solution.  More than the
latter shortens steps in poorly determined directions, such as the depth of a point that two near cameras observe."""
SHORTER, LONGER = 0.25, 2.0
"""Factors of the step length after a rejected and an accepted step."""
MIN_DECREASE = 1e-6
"""Relative decrease of the cost of a trial below which it has converged."""


class Pairs(NamedTuple):
    """Assignment of observations of a factor group to trials."""

    group: int
    """Number of the factor group."""
    slot: int | None
    """Number of the argument whose variable is copied; None if all variables are."""
    trial: Ints
    """Number of the trial of each pair."""
    observation: Ints
    """Number of the observation of each pair."""


Copies = dict[Variables, Floats]
"""Rows of the copies of each moving group: (trials · copies in each, ambient)."""


class Trials:
    """Trials with one set of copied variables each; all other variables are constant."""

    def __init__(self, engine: Engine, rows: Sequence[Floats], n: int, alone: bool):
        """
        Parameters
        ----------
        engine
            Engine of the original problem.
        rows
            Rows of all variables of this problem.
        n
            Number of trials.
        alone
            Whether each trial has a copy of a single variable instead of all free variables.
        """
        self.engine, self.n, self.alone = engine, n, alone
        self.constant = {
            v: with_rows(v, x, np.ones(len(v), bool)) for v, x in zip(engine.problem.variables, rows, strict=True)
        }

    def fitted(
        self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel], steps: int
    ) -> tuple[Copies, Floats]:
        """Return the copies after at most so many steps of each trial, and the cost of each trial there."""
        pairs = [each for each in pairs if len(each.trial)]
        engine, moving = self._engine(copies, pairs, kernels)
        point, length = engine.start(), np.ones(self.n)
        first = costs = self._costs(engine, point, pairs)
        for _ in range(steps):
            w = engine.each(omega, point)
            user = zip(engine.in_user_order(w), pairs, strict=True)
            shortened = engine.in_own_order(tuple(x * length[each.trial] for x, each in user))
            step = engine.solve(point, Model(w, None, shortened), FAR_DAMPING)  # (1)
            if step is None:
                break
            to = engine.move(step)
            new = self._costs(engine, to, pairs)
            better = new < costs  # (2); NaN is rejected
            is_exact = np.isfinite(first) & (new <= EXACT_RATIO**2 * first)
            has_converged = is_exact | (better & (length == 1) & (new > (1 - MIN_DECREASE) * costs))
            costs = np.where(better, new, costs)
            length = np.where(better, np.minimum(LONGER * length, 1.0), SHORTER * length)
            length[has_converged] = 0.0  # (3)
            point = engine.evaluate(self._chosen(engine, moving, better, to, point))
            if not length.any():
                break
        rows = dict(zip(engine.problem.variables, engine.rows(point), strict=True))
        return {v: rows.get(c, copies[v]) for v, c in moving.items()}, self._possible_costs(engine, point, pairs)

    def stepped(
        self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel], steps: int
    ) -> tuple[Copies, Floats]:
        """Return the copies after so many steps of full length, even if costs increase, and the cost of each trial."""
        pairs = [each for each in pairs if len(each.trial)]
        engine, moving = self._engine(copies, pairs, kernels)
        point = engine.start()
        for _ in range(steps):
            w = engine.each(omega, point)
            step = engine.solve(point, Model(w, None, w), NEAR_DAMPING)
            if step is None:
                break
            to = engine.move(step)
            if not to.finite:  # diverged trials keep their last values
                kept = np.isfinite(self._costs(engine, to, pairs))
                to = engine.evaluate(self._chosen(engine, moving, kept, to, point))
            point = to
        rows = dict(zip(engine.problem.variables, engine.rows(point), strict=True))
        return {v: rows.get(c, copies[v]) for v, c in moving.items()}, self._possible_costs(engine, point, pairs)

    def costs(self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel]) -> Floats:
        """Return the cost of each trial with these copies."""
        pairs = [each for each in pairs if len(each.trial)]
        engine, _ = self._engine(copies, pairs, kernels)
        return self._possible_costs(engine, engine.start(), pairs)

    def squares(self, copies: Copies, pairs: Sequence[Pairs]) -> Sequence[Floats]:
        """Return ‖r‖² of every pair."""
        engine, _ = self._engine(copies, pairs, [f.kernel for f in self.engine.problem.factors])
        return squares(engine, engine.start())

    def _engine(
        self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel]
    ) -> tuple[Engine, dict[Variables, Variables]]:
        """Return an engine for the problem of all trials, and the copied variables in it."""
        moving = {v: self._moving(v, rows) for v, rows in copies.items()}
        factors = self.engine.problem.factors
        copied_factors = [self._factors(factors[p.group], p, moving).under(kernels[p.group]) for p in pairs]
        v, copied = next(iter(moving.items()))
        problem = Problem(*copied_factors)
        apart = len(moving) == 1 and (self.alone or len(v) == 1) and is_narrow(problem, copied)
        apart &= all(
            sum(s.variables is copied for s in f.slots) <= 1 for f in copied_factors
        )  # an observation may have the same variable twice
        return self.engine.for_other(problem, copied if apart else True), moving

    def _moving(self, v: Variables, rows: Floats) -> Variables:
        """Return the copies of a variable group in all trials."""
        fixed = np.zeros(len(rows), dtype=bool) if self.alone else np.tile(v.fixed, len(rows) // len(v))
        return with_rows(v, rows, fixed)

    def _factors(self, f: Factors, pairs: Pairs, moving: Mapping[Variables, Variables]) -> Factors:
        """Return factors of the assigned observations on the copied variables."""
        slots = []
        for k, slot in enumerate(f.slots):
            v, index = slot.variables, slot.index[pairs.observation]
            if v in moving and pairs.slot in (None, k):
                index = pairs.trial if self.alone else pairs.trial * len(v) + index
                slots.append(Slot(moving[v], index))
            else:
                slots.append(Slot(self.constant[v], index))
        return f.on(slots, pairs.observation)

    def _costs(self, engine: Engine, point: Point, pairs: Sequence[Pairs]) -> Floats:
        """Return Ψ of each trial; NaN if a residual is not finite."""
        return self._sums(engine.in_user_order(engine.each(psi, point)), pairs)

    def _possible_costs(self, engine: Engine, point: Point, pairs: Sequence[Pairs]) -> Floats:
        """Return Ψ of each trial; an observation that `valid=` excludes costs as much as the largest of its group."""
        if all(f.valid is None for f in engine.problem.factors):
            return self._costs(engine, point, pairs)
        each = engine.in_user_order(engine.each(psi, point))
        impossible = Conditions(engine).impossible(engine.rows(point))
        return self._sums([np.where(no, np.nanmax(x), x) for no, x in zip(impossible, each, strict=True)], pairs)

    def _sums(self, each: Sequence[Floats], pairs: Sequence[Pairs]) -> Floats:
        return np.sum([np.bincount(p.trial, x, self.n) for x, p in zip(each, pairs, strict=True)], axis=0)

    def _chosen(
        self, engine: Engine, moving: Mapping[Variables, Variables], better: NDArray, to: Point, point: Point
    ) -> tuple[Floats, ...]:
        """Return the rows of all variables: those of `to` for trials that are better there, else those of `point`."""
        groups = zip(engine.problem.variables, engine.rows(to), engine.rows(point), strict=True)
        those = set(moving.values())
        return tuple(
            np.where(np.repeat(better, len(v) // self.n)[:, None], new, old) if v in those else old
            for v, new, old in groups
        )


def with_rows(v: Variables, rows: Floats, fixed: NDArray) -> Variables:
    """Return variables of the same kind with other rows."""
    other = copy(v)
    other.rows, other.fixed = np.ascontiguousarray(rows), fixed
    return other


def drawn(rng: np.random.Generator, n: Ints, k: int) -> Ints:
    """Return k distinct random numbers below each n ≥ k, (len(n), k)."""
    out = np.empty((len(n), 0), dtype=np.int64)
    for j in range(k):
        draw = (rng.random(len(n)) * (n - j)).astype(np.int64)
        for earlier in np.sort(out, axis=1).T:
            draw += draw >= earlier
        out = np.concatenate([out, draw[:, None]], axis=1)
    return out


def subsets_of(rng: np.random.Generator, n: Ints, k: int, most: int) -> tuple[Ints, Ints]:
    """Return the position of n of each subset, and subsets of k numbers below each n: all, or `most` random ones."""
    sizes, which = np.unique(n, return_inverse=True)
    few = np.array([comb(size, k) <= most for size in sizes.tolist()])
    draws = np.repeat(np.flatnonzero(~few[which]), most)
    of, subsets = [draws], [drawn(rng, n[draws], k)]
    for size in np.flatnonzero(few).tolist():
        those, every = np.flatnonzero(which == size), np.array(list(combinations(range(sizes[size]), k)))
        of.append(np.repeat(those, len(every)))
        subsets.append(np.tile(every, (len(those), 1)))
    order = np.argsort(np.concatenate(of), kind="stable")
    return np.concatenate(of)[order], np.concatenate(subsets)[order]


def lowest(costs: Floats, of: Ints) -> Ints:
    """Return the position of the lowest cost of each group; `of` is the group of each cost, sorted.  NaN is ignored."""
    costs = np.where(np.isnan(costs), np.inf, costs)
    first = np.flatnonzero(np.diff(of, prepend=-1))
    at = np.flatnonzero(costs == np.repeat(np.minimum.reduceat(costs, first), np.diff(first, append=len(of))))
    return at[np.flatnonzero(np.diff(of[at], prepend=-1))]
