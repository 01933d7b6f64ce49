"""Held-out observations: a judge of results where the truth is not known.

    training, judge = asker.holdout(problem, share=0.1, seed=0)
    print(judge(asker.solve(training)))

Some observations are taken away, the rest is solved, and the judge says how well the result predicts those that it has
not seen.  What is taken away is drawn at random, so that every variable stays determined:

(1) the factors of a random spanning forest stay, so that what was connected, or tied to something known, remains so;
(2) each variable keeps at least as many numbers as it has unknowns: a point in space two observations in images;
(3) so does the whole.

The draw looks at who observes whom, never at values.  A start that was made from all observations, as that of a
reconstruction is, still knows something of those that are held out: compare results from the same start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker._arguments import check_positive
from asker.geometry.spanning import spanning_forest
from asker.problem.by_group import Groups
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.solver.result import Result
from asker.tracing.array_namespace import float64

CAP = 4.0
"""Norms above this many units count as this many in a score."""
LIMITS = (1, 2, 4)
"""Units, for the ratios of norms below them."""
BATCH = 1 << 18
"""Observations evaluated at a time: bounds the memory."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Prediction:
    """How well held-out observations are predicted."""

    norms: NDArray[np.float64]
    """‖r‖ of each, in units; infinite where there is none.  (Applications give none to a point behind its camera.)"""
    cap: float = CAP

    @property
    def n_lost(self) -> int:
        """Those that have no residual."""
        return int(np.count_nonzero(~np.isfinite(self.norms)))

    @property
    def score(self) -> float:
        """mean(min(‖r‖, cap))/cap: 0 is perfect, 1 is lost."""
        return float(np.minimum(self.norms, self.cap).mean() / self.cap)

    @property
    def median(self) -> float:
        """Infinite where half of them have no residual."""
        return float(np.median(self.norms))

    @property
    def mean(self) -> float:
        """The mean norm of those that have a residual; NaN if none has."""
        good = self.norms[np.isfinite(self.norms)]
        return float(good.mean()) if good.size else float("nan")

    def below(self, limit: float) -> float:
        """The ratio of norms up to a limit."""
        return float(np.mean(self.norms <= limit))

    def as_dict(self) -> dict[str, float]:
        """The figures, for a record."""
        ratios = {f"below_{limit}": self.below(limit) for limit in LIMITS}
        plain = {"score": self.score, "median": self.median, "mean": self.mean}
        return {"n": len(self.norms), **plain, **ratios, "n_lost": self.n_lost}

    def __str__(self) -> str:
        ratios = ", ".join(f"{100 * self.below(limit):.1f} % below {limit}" for limit in LIMITS)
        lost = f", {self.n_lost} without a residual" if self.n_lost else ""
        told = f"score {self.score:.4f}, median {self.median:.3g}, mean {self.mean:.3g}, {ratios}{lost}"
        return f"{len(self.norms)} held out: {told}"


@dataclass(frozen=True, eq=False)
class Judge:
    """Says how well a result predicts the observations that were held out."""

    factors: tuple[Factors, ...]
    """The held-out ones; a group that lost none is left out."""
    unit: float = 1.0
    cap: float = CAP

    def __call__(self, result: Result | Groups[Any]) -> Prediction:
        """The prediction of a result, or of its values."""
        values = result.values if isinstance(result, Result) else result
        if not isinstance(values, Groups):
            given = type(values).__name__
            raise TypeError(f"a judge takes the result of `asker.solve`, or its `values`, not {given}")
        norms = [
            _norms(f, [np.asarray(s.variables.manifold.pack(values[s.variables])) for s in f.slots])
            for f in self.factors
        ]
        return Prediction(np.concatenate(norms) / self.unit, self.cap)

    @property
    def start(self) -> Prediction:
        """The prediction of the start."""
        norms = [_norms(f, [s.variables.rows for s in f.slots]) for f in self.factors]
        return Prediction(np.concatenate(norms) / self.unit, self.cap)


class Holdout(NamedTuple):
    """What `holdout` returns."""

    problem: Problem
    """Without the held-out observations, on the same variables."""
    judge: Judge


def holdout(
    problem: Problem,
    share: float = 0.1,
    seed: int = 0,
    *,
    among: Sequence[Mask | None] | None = None,
    unit: float = 1.0,
    cap: float = CAP,
) -> Holdout:
    """Take observations away, and make a judge of them.

    share  of the observations that may be taken; fewer where variables would no longer be determined
    seed   the same one takes the same observations
    among  for each factor group a mask of those that may be taken; None: all of the group
    unit   of the norms: what a good residual has, about
    cap    of the score, in units
    """
    for what, number in (("unit", unit), ("cap", cap)):
        check_positive(what, number)
    masks = held_out_masks(problem, share, seed, among)
    training = Problem(*(f.taken(~mask) for f, mask in zip(problem.factors, masks, strict=True)))
    taken = tuple(f.taken(mask) for f, mask in zip(problem.factors, masks, strict=True) if mask.any())
    return Holdout(training, Judge(taken, unit, cap))


def held_out_masks(
    problem: Problem, share: float = 0.1, seed: int = 0, among: Sequence[Mask | None] | None = None
) -> tuple[Mask, ...]:
    """The observations to hold out, a mask for each factor group; the arguments are those of `holdout`."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"the first argument of holdout is {type(problem).__name__}, expected an asker.Problem")
    if not (isinstance(share, int | float | np.number) and 0 < share < 1):
        raise ValueError(f"the share of observations to hold out must lie strictly between 0 and 1, got {share!r}")
    if not (isinstance(seed, int | np.integer) and seed >= 0):
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    if problem.portion is not None:
        raise ProblemError("observations can be held out of a whole problem only, and this is a portion of one")
    whole, problem = problem, problem.informative
    may = _may_be_taken(whole, among)
    wanted = round(share * np.count_nonzero(may))
    if not may.any():
        raise ProblemError(f"of {problem.n_residuals} observations none may be held out")
    if not wanted:
        raise ProblemError(f"a share of {share:g} of {np.count_nonzero(may)} observations is less than one")
    order = np.random.default_rng(seed).permutation(len(may))  # the first ones go first
    touched = _touched(problem)
    can = _spare(problem, touched, order, may, np.zeros(len(may), bool))
    may &= ~_spanning(problem, touched, np.where(can, order, order + len(order)))  # (1); what cannot go spans first
    taken = np.zeros(len(may), bool)
    while (missing := wanted - np.count_nonzero(taken)) > 0:
        free = np.flatnonzero(_spare(problem, touched, order, may & ~taken, taken))  # (2)
        chosen = free[np.argsort(order[free])[:missing]]
        chosen = chosen[np.cumsum(_numbers(problem)[chosen]) <= _spare_numbers(problem, touched, taken)]  # (3)
        if not chosen.size:
            break
        taken[chosen] = True
    if not taken.any():
        raise ProblemError(
            f"of {problem.n_residuals} observations none can be held out: the variables need each of them"
        )
    all_taken = np.concatenate([f.is_informative for f in whole.factors])
    all_taken[all_taken] = taken
    return tuple(np.split(all_taken, np.cumsum([f.n for f in whole.factors])[:-1]))


def _spare_numbers(problem: Problem, touched: "_Touched", taken: Mask) -> int:
    """How many numbers are left beyond what the unknowns of the whole need.

    Where nothing ties them to what is known, the place of the whole is free: at least a variable less.
    """
    free = [v for v in problem.variables if v.is_free]
    unknowns = sum(v.manifold.tangent * int(np.count_nonzero(~v.fixed)) for v in free)
    alone = np.bincount(touched.observation) == 1
    is_tied = not touched.is_free.all() or bool(alone.any())
    gauge = 0 if is_tied else min(v.manifold.tangent for v in free)
    return int(_numbers(problem)[~taken].sum()) - unknowns + gauge


class _Touched(NamedTuple):
    """All pairs of an observation and a variable that it touches, each once; both are numbered over all groups."""

    observation: NDArray[np.int64]
    variable: NDArray[np.int64]
    is_free: Mask
    """Whether that variable can move."""


def _touched(problem: Problem) -> _Touched:
    first = dict(zip(problem.variables, np.cumsum([0, *map(len, problem.variables)]).tolist(), strict=False))
    begin, observations, variables, free = 0, [], [], []
    for f in problem.factors:
        for k, slot in enumerate(f.slots):
            v = slot.variables
            once = np.ones(f.n, bool)
            for earlier in f.slots[:k]:
                once &= (earlier.variables is not v) | (earlier.index != slot.index)
            index = slot.index[once].astype(np.int64)
            observations.append(begin + np.flatnonzero(once))
            variables.append(first[v] + index)
            free.append(~v.fixed[index] & (v.manifold.tangent > 0))
        begin += f.n
    return _Touched(np.concatenate(observations), np.concatenate(variables), np.concatenate(free))


def _may_be_taken(problem: Problem, among: Sequence[Mask | None] | None) -> Mask:
    """A mask of the observations of positive weight."""
    among = [None] * len(problem.factors) if among is None else list(among)
    if len(among) != len(problem.factors):
        raise ValueError(f"among has {len(among)} masks for {len(problem.factors)} factor groups")
    masks = []
    for f, mask in zip(problem.factors, among, strict=True):
        own = np.ones(f.n, bool) if mask is None else np.asarray(mask)
        if own.shape != (f.n,) or own.dtype != bool:
            raise ValueError(f"{f.name}: among is {own.dtype} {own.shape}, expected a mask: bool ({f.n},)")
        masks.append(own[f.is_informative])
    return np.concatenate(masks)


def _numbers(problem: Problem) -> NDArray[np.int64]:
    """How many numbers each observation gives."""
    return np.concatenate([np.full(f.n, f.residual_size) for f in problem.factors]).astype(np.int64)


def _spanning(problem: Problem, touched: _Touched, order: NDArray[np.int64]) -> Mask:
    """The observations of a random spanning forest of the free variables, and of one with what is known.

    In the second one all fixed variables are one node, and an observation of a single free variable ties it to that.
    """
    n = sum(map(len, problem.variables))
    stay = np.zeros(len(order), bool)
    for with_known in (False, True):
        chosen = np.flatnonzero(touched.is_free | with_known)
        observation = touched.observation[chosen]
        node = np.where(touched.is_free[chosen], touched.variable[chosen], n)
        if with_known:
            alone = np.flatnonzero(np.bincount(observation, minlength=len(order)) == 1)
            observation = np.concatenate([observation, alone])
            node = np.concatenate([node, np.full(len(alone), n)])
        by = np.argsort(observation, kind="stable")
        observation, node = observation[by], node[by]
        edge = (observation[1:] == observation[:-1]) & (node[1:] != node[:-1])  # of several variables a chain
        price = 2.0 + 2 * len(order) - order[observation[1:][edge]]  # what would go last is cheap
        used = spanning_forest(node[:-1][edge], node[1:][edge], price, n + 1)
        stay[observation[1:][edge][used]] = True
    return stay


def _spare(problem: Problem, touched: _Touched, order: NDArray[np.int64], may: Mask, taken: Mask) -> Mask:
    """Those that can be taken all at once: in its order each variable gives away what it can spare."""
    numbers = _numbers(problem)
    n = sum(map(len, problem.variables))
    needed = np.concatenate([np.full(len(v), v.manifold.tangent) for v in problem.variables])
    observation, variable, _ = (part[touched.is_free] for part in touched)
    left = np.bincount(variable, numbers[observation] * ~taken[observation], minlength=n)
    asked = may[observation]
    observation, variable = observation[asked], variable[asked]
    by = np.lexsort((order[observation], variable))
    observation, variable = observation[by], variable[by]
    total = np.cumsum(numbers[observation])
    first = np.searchsorted(variable, variable)  # where the own variable's run begins
    before = np.concatenate([[0], total])[first]
    spared = total - before <= (left - needed)[variable]
    fine = may.copy()
    fine[observation[~spared]] = False
    return fine


def _norms(factors: Factors, rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """‖r‖ of every observation; infinite where that is no number."""
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(_residuals(factors, rows), axis=1)
    return np.where(np.isfinite(norms), norms, np.inf)


def _residuals(factors: Factors, rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    if factors.jacobian is not None:
        r = factors.residual(*factors.gather(rows), *factors.data)
        return np.asarray(r, dtype=float).reshape(factors.n, factors.residual_size)
    import jax

    parts = []
    with float64():
        each = jax.jit(jax.vmap(factors.residual_at))
        for begin in range(0, factors.n, BATCH):
            part = slice(begin, begin + BATCH)
            gathered = [x[slot.index[part]] for slot, x in zip(factors.slots, rows, strict=True)]
            parts.append(np.asarray(each(gathered, [d[part] for d in factors.data])))
    return np.concatenate(parts)
