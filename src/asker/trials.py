"""Many small problems at once: copies of some variables, each fitted to some of its observations.

A *trial* moves copies of its own and holds everything else.  All trials together make a problem, no two of whose
trials share a factor, so an engine solves them in one pass: on any engine, by its verbs alone.

Algorithm   (1) one Gauss-Newton step for all trials, slightly damped, shortened by a factor of each trial's own
            (2) a trial whose cost falls takes its step; the step of any other is shortened
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.engines.point import Engine, Model, Point
from asker.factors import Factors, Slot, Variables
from asker.kernels import Kernel
from asker.problem import Problem
from asker.strategies.strategy import omega, psi

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DAMPING = 1e-3
"""Of the diagonal."""
SHORTER, LONGER = 0.25, 2.0


class Pairs(NamedTuple):
    """Which observations of a factor group belong to which trial."""

    trial: Ints
    observation: Ints


class Rows(NamedTuple):
    """The copies of a group of variables."""

    values: Floats
    """(trials · per_trial, ambient)"""
    which: Ints | None
    """The variable that each trial has a copy of; None where each has a copy of all."""


class Trials:
    """Copies of variables, one set for each trial; all other variables stay where a point has them."""

    def __init__(self, engine: Engine, held: Sequence[Floats], n: int):
        """
        held  rows of all variables of the engine's problem
        n     how many trials there are
        """
        self.engine, self.n = engine, n
        self.held = {v: _copied(v, rows, True) for v, rows in zip(engine.problem.variables, held, strict=True)}

    def fitted(
        self, moved: Mapping[Variables, Rows], pairs: Sequence[Pairs], kernels: Sequence[Kernel], steps: int
    ) -> tuple[dict[Variables, Rows], Floats]:
        """Where so many steps lead each trial, and its cost there."""
        engine, copies, kept = self._engine(moved, pairs, kernels)
        pairs = [pairs[k] for k in kept]
        point, length = engine.start(), np.ones(self.n)
        costs = self._costs(engine, point, pairs)
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
            costs, length = np.where(better, new, costs), np.where(better, np.minimum(LONGER * length, 1), SHORTER * length)
            point = engine.evaluate(self._chosen(engine, copies, better, to, point))
        rows = dict(zip(engine.problem.variables, engine.rows(point), strict=True))
        return {v: Rows(rows[c], moved[v].which) for v, c in copies.items()}, costs

    def squares(self, moved: Mapping[Variables, Rows], pairs: Sequence[Pairs]) -> list[Floats]:
        """‖r‖² of every pair, for each factor group."""
        kernels = [f.kernel for f in self.engine.problem.factors]
        engine, _, kept = self._engine(moved, pairs, kernels)
        u = dict(zip(kept, engine.in_user_order(engine.start().u), strict=True))
        return [u.get(k, np.zeros(0)) for k in range(len(pairs))]

    def _engine(
        self, moved: Mapping[Variables, Rows], pairs: Sequence[Pairs], kernels: Sequence[Kernel]
    ) -> tuple[Engine, dict[Variables, Variables], list[int]]:
        """An engine for the problem of all trials, the copies of each group, and which factor groups it has."""
        copies = {v: _copied(v, rows.values, rows.which) for v, rows in moved.items()}
        factors = self.engine.problem.factors
        kept = [k for k, each in enumerate(pairs) if len(each.trial)]
        made = [self._factors(factors[k], pairs[k], moved, copies).under(kernels[k]) for k in kept]
        first = max(copies.values(), key=lambda v: len(v) * v.manifold.tangent)
        of_engine: Any = type(self.engine)
        return of_engine(Problem(*made), "auto", first if len(copies) == 1 else True, True), copies, kept

    def _factors(
        self, f: Factors, pairs: Pairs, moved: Mapping[Variables, Rows], copies: Mapping[Variables, Variables]
    ) -> Factors:
        slots = []
        for slot in f.slots:
            index = slot.index[pairs.observation]
            if slot.variables in moved:
                alone = moved[slot.variables].which is not None
                index = pairs.trial if alone else pairs.trial * len(slot.variables) + index
            slots.append(Slot(copies.get(slot.variables, self.held[slot.variables]), index))
        return f.on(slots, pairs.observation)

    def _costs(self, engine: Engine, point: Point, pairs: Sequence[Pairs]) -> Floats:
        """Ψ of each trial; NaN where a residual is not finite."""
        each = engine.in_user_order(engine.each(psi, point))
        return np.sum([np.bincount(p.trial, x, self.n) for x, p in zip(each, pairs, strict=True)], axis=0)

    def _chosen(
        self, engine: Engine, copies: Mapping[Variables, Variables], better: NDArray, to: Point, point: Point
    ) -> tuple[Floats, ...]:
        """Rows of all variables: those of `to` for the trials that are better there."""
        groups = zip(engine.problem.variables, engine.rows(to), engine.rows(point), strict=True)
        moving = set(copies.values())
        return tuple(
            np.where(np.repeat(better, len(v) // self.n)[:, None], new, old) if v in moving else old
            for v, new, old in groups
        )


def _copied(v: Variables, rows: Floats, which: Any) -> Variables:
    """The same variables with other rows; `which` is True for rows that stay as they are."""
    other = copy(v)
    other.rows = np.ascontiguousarray(rows)
    if which is True:
        other.fixed = np.ones(len(rows), dtype=bool)
    else:
        other.fixed = np.zeros(len(rows), dtype=bool) if which is not None else np.tile(v.fixed, len(rows) // len(v))
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
