"""Moves: single variables solved almost globally, with all others held.

A point of a scene is a problem of its own once the cameras are held: three unknowns, a few observations, some of them
wrong.  Such a problem has poor minima, but so few unknowns that it can be solved from minimal subsets.  So it is for
any variables no two of which share a factor; others are done in turn, colour by colour.

Algorithm   for every variable that has something to gain: an outlier, and observations to spare; where the noise tells
            which k of its m observations are outliers: at another place fewer than k would be, so m − 2k inliers or
            more would be those of this place; where m − 2k > d/p, they determine it, and there is no other place
            (1) ⌈d/p⌉ of its observations: every such subset, or `trials` that are drawn where there are more; a few
                Gauss-Newton steps with these, from where it is, then a few robust ones with all of its observations
            (2) the trial that ends with the lowest robust cost of all of them
            (3) it is taken if that cost is lower than the present one
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point, omega
from asker.kernels.kernels import Quadratic
from asker.problem.problem import Problem
from asker.problem.variables import Variables
from asker.strategies.composite.batched_subproblems import Floats, Ints, Pairs, Trials, lowest, subsets_of

Mask = NDArray[np.bool_]
InliersAt = Callable[[Point], Sequence[Mask]]
FROM_AFAR, FROM_NEAR = (4, 3), (3, 2)
"""Steps of a subset, and of all observations."""
DOUBTFUL = 0.5
"""An observation with less of the full weight is an outlier."""
COLOURS = 32
"""Of a group, at most: others are too entangled to be done in turn."""
LESS = 1e-6
"""The part by which a cost must fall."""


@dataclass(frozen=True)
class Touching:
    """The observations that touch each variable of a group, one variable after the other."""

    ptr: Ints
    group: Ints
    """Which factor group an observation is of,"""
    slot: Ints
    """which of its arguments the variable is,"""
    observation: Ints
    """and its number there."""

    @cached_property
    def kinds(self) -> list[tuple[int, int]]:
        """The factor groups and their arguments that there are."""
        group, slot = np.divmod(np.unique(self.group << 32 | self.slot), 1 << 32)
        return list(zip(group.tolist(), slot.tolist(), strict=True))

    @staticmethod
    def of(problem: Problem, v: Variables) -> "Touching":
        parts = [
            (s.index, np.full(f.n, g), np.full(f.n, k), np.arange(f.n))
            for g, f in enumerate(problem.factors)
            for k, s in enumerate(f.slots)
            if s.variables is v
        ]
        owner, group, slot, observation = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(owner, kind="stable")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(v)))])
        return Touching(ptr, group[order], slot[order], observation[order])

    def pairs(self, entry: Ints, trial: Ints) -> list[Pairs]:
        """Those entries, each for a trial, by factor group and argument."""
        if len(self.kinds) == 1:
            return [Pairs(*self.kinds[0], trial, self.observation[entry])] if len(entry) else []
        group, slot = self.group[entry], self.slot[entry]
        masks = {kind: (group == kind[0]) & (slot == kind[1]) for kind in self.kinds}
        return [Pairs(*kind, trial[mask], self.observation[entry[mask]]) for kind, mask in masks.items() if mask.any()]

    def all_of(self, variables: Ints) -> tuple[Ints, Ints]:
        """Every entry of each of the variables, and which of them it belongs to."""
        counts = np.diff(self.ptr)[variables]
        first = np.cumsum(counts) - counts
        number = np.repeat(np.arange(len(variables)), counts)
        return self.ptr[variables][number] + np.arange(counts.sum()) - first[number], number


class Moves:
    """Moves of all variables that can be moved alone."""

    def __init__(self, problem: Problem, trials: int = 8, seed: int = 0, near: bool = False):
        """Where a process has a portion of the problem: of the variables that are dealt, whose observations it has.

        near  a method has brought most variables to their places: then steps have their full length, and only the group
              that has the most variables is moved, since any takes as long, and this one gains most
        """
        self.trials, self.rng, self.seed, self.n_calls = trials, np.random.default_rng(seed), seed, 0
        self.near, self.portion = near, problem.portion
        self.n_derivatives = 0
        """Of one observation with respect to one variable, so far."""
        alone = [v for v in problem.variables if v.is_free and np.count_nonzero(~v.fixed) > 1]
        if near and alone:
            alone = [max(alone, key=lambda v: np.count_nonzero(~v.fixed))]
        if self.portion:
            alone = [self.portion.variables]
        self.touching = {v: Touching.of(problem, v) for v in alone}
        self.colours = {v: list(colours(problem, v)) for v in alone}

    @property
    def drawn_so_far(self) -> Mapping[str, Any]:
        """Where the draws are, the same in all processes; with it others go on as these would have."""
        return {"n_calls": self.n_calls, "state": None if self.portion else self.rng.bit_generator.state}

    @drawn_so_far.setter
    def drawn_so_far(self, drawn: Mapping[str, Any]) -> None:
        self.n_calls = drawn["n_calls"]
        if drawn["state"] is not None:
            self.rng.bit_generator.state = drawn["state"]

    def iterations(self, engine: Engine) -> float:
        """How many have as many derivatives as the moves so far, of all processes."""
        problem = engine.problem
        moving = [sum(s.variables.is_free for s in f.slots) for f in problem.factors]
        (n,) = engine.sums.of(self.n_derivatives)
        return n / float(np.dot(moving, problem.n_observations))

    def __call__(self, engine: Engine, point: Point, inliers_at: InliersAt | None = None) -> tuple[Point, int]:
        """The point after the moves that pay, and how many these are.

        `inliers_at` gives those of each factor group at a point, in the user's order, where the noise tells them.
        """
        taken = 0
        self.n_calls += 1
        if self.portion:  # others draw otherwise
            self.rng = np.random.default_rng([self.seed, int(self.portion.numbers[:1].sum()), self.n_calls])
        for v, sets in self.colours.items():
            for members in sets:
                gaining = self._with_something_to_gain(engine, point, v, members, inliers_at)
                point, n = self._moved(engine, point, v, gaining)
                taken += n
        return point, taken

    def _moved(self, engine: Engine, point: Point, v: Variables, members: Ints) -> tuple[Point, int]:
        """The variables of one colour."""
        rows, n = self._moved_rows(engine, point, v, members)
        (n_all,) = engine.sums.of(n)
        if not n_all:
            return point, 0
        at = zip(engine.problem.variables, engine.rows_here(point), strict=True)
        return engine.evaluate_here(tuple(rows if w is v else x for w, x in at)), int(n_all)

    def _moved_rows(self, engine: Engine, point: Point, v: Variables, members: Ints) -> tuple[Floats, int]:
        """Rows of the group after the moves that pay, and how many these are."""
        touching, factors = self.touching[v], engine.problem.factors
        held = engine.rows_here(point)
        rows = held[engine.problem.variables.index(v)]
        if not len(members):
            return rows, 0
        size = -(-v.manifold.tangent // _smallest(engine.problem, v))
        kernels = [f.kernel for f in factors]
        number, subsets = subsets_of(self.rng, np.diff(touching.ptr)[members], size, self.trials)
        of = members[number]
        trials = Trials(engine, held, len(of), True)
        fitted, (first, then) = (trials.stepped, FROM_NEAR) if self.near else (trials.fitted, FROM_AFAR)
        some = touching.pairs((touching.ptr[of][:, None] + subsets).ravel(), np.repeat(np.arange(len(of)), size))
        found, _ = fitted({v: rows[of]}, some, [Quadratic(1.0) for _ in kernels], first)  # (1)
        entry, trial = touching.all_of(of)
        found, costs = fitted(found, touching.pairs(entry, trial), kernels, then)
        self.n_derivatives += first * subsets.size + then * len(entry)
        best = lowest(costs, number)  # (2)
        everything = touching.pairs(*touching.all_of(members))
        now = Trials(engine, held, len(members), True).costs({v: rows[members]}, everything, kernels)
        better = costs[best] < (1 - LESS) * now  # (3)
        moved = rows.copy()
        moved[members[better]] = found[v][best[better]]
        return moved, int(np.count_nonzero(better))

    def _with_something_to_gain(
        self, engine: Engine, point: Point, v: Variables, members: Ints, inliers_at: InliersAt | None
    ) -> Ints:
        touching, needed = self.touching[v], v.manifold.tangent / _smallest(engine.problem, v)
        outliers = [~inlier for inlier in inliers_at(point)] if inliers_at else _doubtful(engine, point)
        is_outlier = np.zeros(len(touching.group), dtype=bool)
        for g, own in enumerate(outliers):
            mask = touching.group == g
            is_outlier[mask] = own[touching.observation[mask]]
        m, k = np.diff(touching.ptr), np.diff(np.concatenate([[0], np.cumsum(is_outlier)])[touching.ptr])
        gains = (k > 0) & (m > needed) & ((m - 2 * k <= needed) | (inliers_at is None))
        return members[gains[members]]


def _doubtful(engine: Engine, point: Point) -> list[Mask]:
    """Observations that count less."""
    weights = engine.here(engine.each(omega, point))
    return [w < DOUBTFUL * engine.sums.largest(w) for w in weights]


def _smallest(problem: Problem, v: Variables) -> int:
    """The smallest p of the factor groups that touch the variables."""
    return min(f.residual_size for f in problem.factors if any(s.variables is v for s in f.slots))


def colours(problem: Problem, v: Variables) -> Iterator[NDArray]:
    """The free variables of a group in sets, no two of a set in one factor; nothing where that takes too many."""
    others = [
        np.stack([a.index, b.index])
        for f in problem.factors
        for k, a in enumerate(f.slots)
        for b in f.slots[k + 1 :]
        if a.variables is v and b.variables is v
    ]
    free = np.flatnonzero(~v.fixed)
    if not others:
        yield free
        return
    ends = np.concatenate([*others, *[x[::-1] for x in others]], axis=1)
    ends = ends[:, ~v.fixed[ends].any(axis=0) & (ends[0] != ends[1])]
    ends = ends[:, np.argsort(ends[0], kind="stable")]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(ends[0], minlength=len(v)))])
    colour = np.full(len(v), -1)
    for i in free[np.argsort(-np.diff(ptr)[free], kind="stable")]:
        used = set(colour[ends[1, ptr[i] : ptr[i + 1]]].tolist())
        colour[i] = next(c for c in range(len(v)) if c not in used)
    n = int(colour.max()) + 1
    if n <= COLOURS:
        yield from (np.flatnonzero(colour == c) for c in range(n))
