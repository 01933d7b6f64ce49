"""Many small problems at once: copies of some variables, each fitted to some of its observations.

A *trial* moves copies of its own and holds everything else.  All trials together make a problem, no two of whose
trials share a factor, so an engine solves them in one pass: on any engine, by its verbs alone.

Algorithm   (1) one Gauss-Newton step for all trials, slightly damped, shortened by a factor of each trial's own
            (2) a trial whose cost falls takes its step; the step of any other is shortened
            (3) a trial whose cost falls no more at full length, or is next to 0, stays where it is
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
from asker.statistics.scale import EXACT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DAMPING, SLIGHT = 1e-3, 1e-6
"""Of the diagonal: where a trial may begin far away, and where it does not.  More than slight damping shortens steps in
directions that are hardly determined, as the depth of a point is by two near cameras."""
SHORTER, LONGER = 0.25, 2.0
LESS = 1e-6
"""The part of its cost by which a trial must fall to go on."""


class Pairs(NamedTuple):
    """Which observations of a factor group belong to which trial."""

    group: int
    """Number of the factor group."""
    slot: int | None
    """The argument whose variable the trial has a copy of; None where it has copies of all variables."""
    trial: Ints
    observation: Ints


Copies = dict[Variables, Floats]
"""Rows of the copies of each moving group: (trials · copies in each, ambient)."""


class Trials:
    """Copies of variables, one set for each trial; all other variables stay where a point has them."""

    def __init__(self, engine: Engine, held: Sequence[Floats], n: int, alone: bool):
        """
        held   rows of all variables of the engine's problem
        n      how many trials there are
        alone  whether each has a copy of a single variable, and not of all that can move
        """
        self.engine, self.n, self.alone = engine, n, alone
        self.held = {
            v: with_rows(v, rows, np.ones(len(v), bool)) for v, rows in zip(engine.problem.variables, held, strict=True)
        }

    def fitted(
        self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel], steps: int
    ) -> tuple[Copies, Floats]:
        """Where so many steps lead each trial, and its cost there."""
        pairs = [each for each in pairs if len(each.trial)]
        engine, moving = self._engine(copies, pairs, kernels)
        point, length = engine.start(), np.ones(self.n)
        first = costs = self._costs(engine, point, pairs)
        for _ in range(steps):
            w = engine.each(omega, point)
            user = zip(engine.in_user_order(w), pairs, strict=True)
            shortened = engine.in_own_order(tuple(x * length[each.trial] for x, each in user))
            step = engine.solve(point, Model(w, None, shortened), DAMPING)  # (1)
            if step is None:
                break
            to = engine.move(step)
            new = self._costs(engine, to, pairs)
            better = new < costs  # (2); a NaN is refused
            is_exact = np.isfinite(first) & (new <= EXACT**2 * first)
            at_rest = is_exact | (better & (length == 1) & (new > (1 - LESS) * costs))
            costs = np.where(better, new, costs)
            length = np.where(better, np.minimum(LONGER * length, 1.0), SHORTER * length)
            length[at_rest] = 0.0  # (3)
            point = engine.evaluate(self._chosen(engine, moving, better, to, point))
            if not length.any():
                break
        rows = dict(zip(engine.problem.variables, engine.rows(point), strict=True))
        return {v: rows.get(c, copies[v]) for v, c in moving.items()}, self._possible_costs(engine, point, pairs)

    def stepped(
        self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel], steps: int
    ) -> tuple[Copies, Floats]:
        """Where so many steps at full length lead each trial, whatever they cost on the way, and its cost there."""
        pairs = [each for each in pairs if len(each.trial)]
        engine, moving = self._engine(copies, pairs, kernels)
        point = engine.start()
        for _ in range(steps):
            w = engine.each(omega, point)
            step = engine.solve(point, Model(w, None, w), SLIGHT)
            if step is None:
                break
            to = engine.move(step)
            if not to.finite:  # trials that have run away stay where they were
                kept = np.isfinite(self._costs(engine, to, pairs))
                to = engine.evaluate(self._chosen(engine, moving, kept, to, point))
            point = to
        rows = dict(zip(engine.problem.variables, engine.rows(point), strict=True))
        return {v: rows.get(c, copies[v]) for v, c in moving.items()}, self._possible_costs(engine, point, pairs)

    def costs(self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel]) -> Floats:
        """Of each trial as it is."""
        pairs = [each for each in pairs if len(each.trial)]
        engine, _ = self._engine(copies, pairs, kernels)
        return self._possible_costs(engine, engine.start(), pairs)

    def squares(self, copies: Copies, pairs: Sequence[Pairs]) -> Sequence[Floats]:
        """‖r‖² of every pair."""
        engine, _ = self._engine(copies, pairs, [f.kernel for f in self.engine.problem.factors])
        return squares(engine, engine.start())

    def _engine(
        self, copies: Copies, pairs: Sequence[Pairs], kernels: Sequence[Kernel]
    ) -> tuple[Engine, dict[Variables, Variables]]:
        """An engine for the problem of all trials, and the variables that move in it."""
        moving = {v: self._moving(v, rows) for v, rows in copies.items()}
        factors = self.engine.problem.factors
        made = [self._factors(factors[p.group], p, moving).under(kernels[p.group]) for p in pairs]
        v, copied = next(iter(moving.items()))
        problem = Problem(*made)
        apart = len(moving) == 1 and (self.alone or len(v) == 1) and is_narrow(problem, copied)
        apart &= all(sum(s.variables is copied for s in f.slots) <= 1 for f in made)  # may be one variable, twice
        return self.engine.for_other(problem, copied if apart else True), moving

    def _moving(self, v: Variables, rows: Floats) -> Variables:
        fixed = np.zeros(len(rows), dtype=bool) if self.alone else np.tile(v.fixed, len(rows) // len(v))
        return with_rows(v, rows, fixed)

    def _factors(self, f: Factors, pairs: Pairs, moving: Mapping[Variables, Variables]) -> Factors:
        slots = []
        for k, slot in enumerate(f.slots):
            v, index = slot.variables, slot.index[pairs.observation]
            if v in moving and pairs.slot in (None, k):
                index = pairs.trial if self.alone else pairs.trial * len(v) + index
                slots.append(Slot(moving[v], index))
            else:
                slots.append(Slot(self.held[v], index))
        return f.on(slots, pairs.observation)

    def _costs(self, engine: Engine, point: Point, pairs: Sequence[Pairs]) -> Floats:
        """Ψ of each trial; NaN where a residual is not finite."""
        return self._sums(engine.in_user_order(engine.each(psi, point)), pairs)

    def _possible_costs(self, engine: Engine, point: Point, pairs: Sequence[Pairs]) -> Floats:
        """The same, where an observation that is not possible costs as much as the farthest of its group."""
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
        """Rows of all variables: those of `to` for the trials that are better there."""
        groups = zip(engine.problem.variables, engine.rows(to), engine.rows(point), strict=True)
        those = set(moving.values())
        return tuple(
            np.where(np.repeat(better, len(v) // self.n)[:, None], new, old) if v in those else old
            for v, new, old in groups
        )


def with_rows(v: Variables, rows: Floats, fixed: NDArray) -> Variables:
    """Variables of the same kind with other rows."""
    other = copy(v)
    other.rows, other.fixed = np.ascontiguousarray(rows), fixed
    return other


def drawn(rng: np.random.Generator, n: Ints, k: int) -> Ints:
    """(len(n), k): k distinct numbers below each n, which is k at least."""
    found = np.empty((len(n), 0), dtype=np.int64)
    for j in range(k):
        draw = (rng.random(len(n)) * (n - j)).astype(np.int64)
        for earlier in np.sort(found, axis=1).T:
            draw += draw >= earlier
        found = np.concatenate([found, draw[:, None]], axis=1)
    return found


def subsets_of(rng: np.random.Generator, n: Ints, k: int, most: int) -> tuple[Ints, Ints]:
    """Subsets of k numbers below each n, and which n each is of: all, or `most` that are drawn where there are more."""
    sizes, which = np.unique(n, return_inverse=True)
    few = np.array([comb(size, k) <= most for size in sizes.tolist()])
    draws = np.repeat(np.flatnonzero(~few[which]), most)
    of, found = [draws], [drawn(rng, n[draws], k)]
    for size in np.flatnonzero(few).tolist():
        those, every = np.flatnonzero(which == size), np.array(list(combinations(range(sizes[size]), k)))
        of.append(np.repeat(those, len(every)))
        found.append(np.tile(every, (len(those), 1)))
    order = np.argsort(np.concatenate(of), kind="stable")
    return np.concatenate(of)[order], np.concatenate(found)[order]


def lowest(costs: Floats, of: Ints) -> Ints:
    """Which cost is the lowest of each number; costs of one number lie together, and a NaN is no cost."""
    costs = np.where(np.isnan(costs), np.inf, costs)
    first = np.flatnonzero(np.diff(of, prepend=-1))
    at = np.flatnonzero(costs == np.repeat(np.minimum.reduceat(costs, first), np.diff(first, append=len(of))))
    return at[np.flatnonzero(np.diff(of[at], prepend=-1))]
