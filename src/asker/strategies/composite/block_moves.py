"""Moves: nearly global minimisation over single variables, with all others constant.

With constant cameras, a point of a scene is a separate problem: three unknowns and a few observations, some of them
outliers.  Such a problem has poor minima, but so few unknowns that it can be solved from minimal subsets.  The same
holds for any set of variables no two of which share a factor; other variables are processed in such sets, by colour.

Algorithm   for every variable with at least one outlier and redundant observations.  If the noise determines that k of
            its m observations are outliers, a better value would have fewer than k outliers, and at least m − 2k of
            its inliers would also be inliers of the current value; if m − 2k > d/p, these determine the variable, so
            there is no better value, and the variable is skipped
            (1) take subsets of ⌈d/p⌉ of its observations: all, or `trials` random ones if there are more; make a few
                Gauss-Newton steps with each subset from the current value, then a few robust steps with all of the
                observations of the variable
            (2) choose the trial with the lowest robust cost of all observations
            (3) accept it if this cost is lower than the current one
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
FAR_STEPS, NEAR_STEPS = (4, 3), (3, 2)
"""Numbers of steps with a subset and with all observations, for variables far from and near their true values."""
MAX_OUTLIER_WEIGHT = 0.5
"""Weight below which an observation is an outlier, as a share of the full weight."""
MAX_COLOURS = 32
"""Maximum number of colours of a variable group; a group that needs more is not moved."""
MIN_DECREASE = 1e-6
"""Relative decrease of the cost for which a move is accepted."""


@dataclass(frozen=True)
class Touching:
    """Observations of each variable of a group, sorted by variable."""

    ptr: Ints
    """Offset of the first entry of each variable, and the number of entries."""
    group: Ints
    """Number of the factor group of each entry."""
    slot: Ints
    """Number of the argument of the residual function that is the variable."""
    observation: Ints
    """Number of the observation in its factor group."""

    @cached_property
    def kinds(self) -> list[tuple[int, int]]:
        """Pairs of factor group and argument that occur."""
        group, slot = np.divmod(np.unique(self.group << 32 | self.slot), 1 << 32)
        return list(zip(group.tolist(), slot.tolist(), strict=True))

    @staticmethod
    def of(problem: Problem, v: Variables) -> "Touching":
        """Return the observations of each variable of a group of a problem."""
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
        """Return the entries, each assigned to a trial, by factor group and argument."""
        if len(self.kinds) == 1:
            return [Pairs(*self.kinds[0], trial, self.observation[entry])] if len(entry) else []
        group, slot = self.group[entry], self.slot[entry]
        masks = {kind: (group == kind[0]) & (slot == kind[1]) for kind in self.kinds}
        return [Pairs(*kind, trial[mask], self.observation[entry[mask]]) for kind, mask in masks.items() if mask.any()]

    def all_of(self, variables: Ints) -> tuple[Ints, Ints]:
        """Return all entries of the variables, and the position of the variable of each entry among them."""
        counts = np.diff(self.ptr)[variables]
        first = np.cumsum(counts) - counts
        number = np.repeat(np.arange(len(variables)), counts)
        return self.ptr[variables][number] + np.arange(counts.sum()) - first[number], number


class Moves:
    """Moves of all variables that can be moved separately."""

    def __init__(self, problem: Problem, trials: int = 8, seed: int = 0, near: bool = False):
        """
        Parameters
        ----------
        problem
            Problem whose variables are moved.  In a distributed problem only the partitioned variables are moved, each
            by the process that has its observations.
        trials
            Maximum number of subsets per variable.
        seed
            Seed of the random subsets.
        near
            Whether most variables are near their true values.  Then steps have full length, and only the group with the
            most variables is moved, since each group costs the same time and this one decreases Ψ the most.
        """
        self.trials, self.rng, self.seed, self.n_calls = trials, np.random.default_rng(seed), seed, 0
        self.near, self.portion = near, problem.portion
        self.n_derivatives = 0
        """Number of derivatives of one observation with respect to one variable that were evaluated so far."""
        alone = [v for v in problem.variables if v.is_free and np.count_nonzero(~v.fixed) > 1]
        if near and alone:
            alone = [max(alone, key=lambda v: np.count_nonzero(~v.fixed))]
        if self.portion:
            alone = [self.portion.variables]
        self.touching = {v: Touching.of(problem, v) for v in alone}
        self.colours = {v: list(colours(problem, v)) for v in alone}

    @property
    def drawn_so_far(self) -> Mapping[str, Any]:
        """State of the random number generator, the same in all processes; it reproduces all further draws."""
        return {"n_calls": self.n_calls, "state": None if self.portion else self.rng.bit_generator.state}

    @drawn_so_far.setter
    def drawn_so_far(self, drawn: Mapping[str, Any]) -> None:
        self.n_calls = drawn["n_calls"]
        if drawn["state"] is not None:
            self.rng.bit_generator.state = drawn["state"]

    def iterations(self, engine: Engine) -> float:
        """Return the work of all moves so far, in all processes, as a number of iterations with as many derivatives."""
        problem = engine.problem
        moving = [sum(s.variables.is_free for s in f.slots) for f in problem.factors]
        (n,) = engine.sums.of(self.n_derivatives)
        return n / float(np.dot(moving, problem.n_observations))

    def __call__(self, engine: Engine, point: Point, inliers_at: InliersAt | None = None) -> tuple[Point, int]:
        """Return the point after the accepted moves, and their number.

        `inliers_at` returns masks of the inliers of each factor group at a point, in the user's order, if the noise is
        known.
        """
        n_accepted = 0
        self.n_calls += 1
        if self.portion:  # each process draws other subsets
            self.rng = np.random.default_rng([self.seed, int(self.portion.numbers[:1].sum()), self.n_calls])
        for v, sets in self.colours.items():
            for members in sets:
                improvable = self._improvable(engine, point, v, members, inliers_at)
                point, n = self._moved(engine, point, v, improvable)
                n_accepted += n
        return point, n_accepted

    def _moved(self, engine: Engine, point: Point, v: Variables, members: Ints) -> tuple[Point, int]:
        """Return the point after moves of the variables of one colour, and the number of accepted moves."""
        rows, n = self._moved_rows(engine, point, v, members)
        (n_all,) = engine.sums.of(n)
        if not n_all:
            return point, 0
        at = zip(engine.problem.variables, engine.rows_here(point), strict=True)
        return engine.evaluate_here(tuple(rows if w is v else x for w, x in at)), int(n_all)

    def _moved_rows(self, engine: Engine, point: Point, v: Variables, members: Ints) -> tuple[Floats, int]:
        """Return the rows of the group after the accepted moves, and their number."""
        touching, factors = self.touching[v], engine.problem.factors
        constant = engine.rows_here(point)
        rows = constant[engine.problem.variables.index(v)]
        if not len(members):
            return rows, 0
        size = -(-v.manifold.tangent // _smallest(engine.problem, v))
        kernels = [f.kernel for f in factors]
        number, subsets = subsets_of(self.rng, np.diff(touching.ptr)[members], size, self.trials)
        of = members[number]
        trials = Trials(engine, constant, len(of), True)
        fitted, (first, then) = (trials.stepped, NEAR_STEPS) if self.near else (trials.fitted, FAR_STEPS)
        subset_pairs = touching.pairs(
            (touching.ptr[of][:, None] + subsets).ravel(), np.repeat(np.arange(len(of)), size)
        )
        fits, _ = fitted({v: rows[of]}, subset_pairs, [Quadratic(1.0) for _ in kernels], first)  # (1)
        entry, trial = touching.all_of(of)
        fits, costs = fitted(fits, touching.pairs(entry, trial), kernels, then)
        self.n_derivatives += first * subsets.size + then * len(entry)
        best = lowest(costs, number)  # (2)
        everything = touching.pairs(*touching.all_of(members))
        now = Trials(engine, constant, len(members), True).costs({v: rows[members]}, everything, kernels)
        better = costs[best] < (1 - MIN_DECREASE) * now  # (3)
        moved = rows.copy()
        moved[members[better]] = fits[v][best[better]]
        return moved, int(np.count_nonzero(better))

    def _improvable(
        self, engine: Engine, point: Point, v: Variables, members: Ints, inliers_at: InliersAt | None
    ) -> Ints:
        """Return those of the variables that have an outlier and may have a better value."""
        touching, needed = self.touching[v], v.manifold.tangent / _smallest(engine.problem, v)
        outliers = [~inlier for inlier in inliers_at(point)] if inliers_at else _outliers(engine, point)
        is_outlier = np.zeros(len(touching.group), dtype=bool)
        for g, own in enumerate(outliers):
            mask = touching.group == g
            is_outlier[mask] = own[touching.observation[mask]]
        m, k = np.diff(touching.ptr), np.diff(np.concatenate([[0], np.cumsum(is_outlier)])[touching.ptr])
        is_improvable = (k > 0) & (m > needed) & ((m - 2 * k <= needed) | (inliers_at is None))
        return members[is_improvable[members]]


def _outliers(engine: Engine, point: Point) -> list[Mask]:
    """Return masks of the observations with a small weight."""
    weights = engine.here(engine.each(omega, point))
    return [w < MAX_OUTLIER_WEIGHT * engine.sums.largest(w) for w in weights]


def _smallest(problem: Problem, v: Variables) -> int:
    """Return the smallest residual size p of the factor groups with these variables."""
    return min(f.residual_size for f in problem.factors if any(s.variables is v for s in f.slots))


def colours(problem: Problem, v: Variables) -> Iterator[NDArray]:
    """Return sets of the free variables of a group without a common factor, or no sets if too many are needed."""
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
    if n <= MAX_COLOURS:
        yield from (np.flatnonzero(colour == c) for c in range(n))
