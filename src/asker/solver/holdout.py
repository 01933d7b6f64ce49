"""Hold-out validation: evaluation of results without a known truth.

    training, judge = asker.holdout(problem, share=0.1, seed=0)
    print(judge(asker.solve(training)))

Some observations are held out, the others are solved, and the judge evaluates how well the result predicts those that
were held out.  They are drawn at random under conditions that keep every variable determined:

(1) the factors of a random spanning forest are kept, which preserves connections between variables and to known ones;
(2) each variable keeps at least as many residuals as it has degrees of freedom: a point two observations in images;
(3) so does the whole problem.

The draw depends on the graph of factors and variables, never on values.  A start that was computed from all
observations, as that of a reconstruction, depends on those that are held out: compare results from the same start.
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
"""Largest norm in a score, in units; larger norms are reduced to it."""
LIMITS = (1, 2, 4)
"""Norms, in units, for which the ratio of smaller norms is reported."""
BATCH_SIZE = 1 << 18
"""Number of observations that are evaluated at a time, which bounds the memory."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Prediction errors of held-out observations."""

    norms: NDArray[np.float64]
    """Norm ‖r‖ of each residual, in units; infinite for observations without a residual (behind the camera)."""
    cap: float = CAP

    @property
    def n_lost(self) -> int:
        """Number of observations without a finite residual."""
        return int(np.count_nonzero(~np.isfinite(self.norms)))

    @property
    def score(self) -> float:
        """Mean of min(‖r‖, cap)/cap: 0 for a perfect prediction, 1 for the worst."""
        return float(np.minimum(self.norms, self.cap).mean() / self.cap)

    @property
    def median(self) -> float:
        """Median norm; infinite if half of the observations have no residual."""
        return float(np.median(self.norms))

    @property
    def mean(self) -> float:
        """Mean norm of the observations with a residual; NaN if there are none."""
        good = self.norms[np.isfinite(self.norms)]
        return float(good.mean()) if good.size else float("nan")

    def below(self, limit: float) -> float:
        """Return the ratio of norms up to a limit."""
        return float(np.mean(self.norms <= limit))

    def as_dict(self) -> dict[str, float]:
        """Return all statistics in a dictionary."""
        ratios = {f"below_{limit}": self.below(limit) for limit in LIMITS}
        plain = {"score": self.score, "median": self.median, "mean": self.mean}
        return {"n": len(self.norms), **plain, **ratios, "n_lost": self.n_lost}

    def __str__(self) -> str:
        ratios = ", ".join(f"{100 * self.below(limit):.1f} % below {limit}" for limit in LIMITS)
        lost = f", {self.n_lost} without a residual" if self.n_lost else ""
        statistics = f"score {self.score:.4f}, median {self.median:.3g}, mean {self.mean:.3g}, {ratios}{lost}"
        return f"{len(self.norms)} held out: {statistics}"


@dataclass(frozen=True, eq=False)
class Judge:
    """Evaluates how well a result predicts the held-out observations."""

    factors: tuple[Factors, ...]
    """Factors with the held-out observations; groups without any are omitted."""
    unit: float = 1.0
    """Unit of the norms."""
    cap: float = CAP
    """Largest norm in the score, in units."""

    def __call__(self, result: Result | Groups[Any]) -> Prediction:
        """Return the prediction errors of a result, or of its values."""
        values = result.values if isinstance(result, Result) else result
        if not isinstance(values, Groups):
            kind = type(values).__name__
            raise TypeError(f"a judge takes the result of `asker.solve`, or its `values`, not {kind}")
        norms = [
            _norms(f, [np.asarray(s.variables.manifold.pack(values[s.variables])) for s in f.slots])
            for f in self.factors
        ]
        return Prediction(np.concatenate(norms) / self.unit, self.cap)

    @property
    def start(self) -> Prediction:
        """Prediction errors of the initial values."""
        norms = [_norms(f, [s.variables.rows for s in f.slots]) for f in self.factors]
        return Prediction(np.concatenate(norms) / self.unit, self.cap)


class Holdout(NamedTuple):
    """Return value of `holdout`."""

    problem: Problem
    """Problem without the held-out observations, on the same variables."""
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
    """Hold out observations for validation.

    Parameters
    ----------
    problem
        Whole problem, not a portion of a distributed one.
    share
        Share of the candidate observations to hold out.  Fewer are held out if variables would otherwise become
        undetermined.
    seed
        Seed of the random draw.
    among
        For each factor group a mask of the candidates, or None for the whole group.  By default all observations are
        candidates.
    unit
        Unit of the norms: the typical norm of an inlier's residual.
    cap
        Largest norm in the score, in units.

    Returns
    -------
    problem, judge
        Problem without the held-out observations, and the judge of its results.

    Raises
    ------
    ProblemError
        If no observation can be held out.

    Examples
    --------
    >>> training, judge = asker.holdout(problem, share=0.1, seed=0)
    >>> print(judge(asker.solve(training)))
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
    """Return a mask of the observations to hold out for each factor group, with the parameters of `holdout`."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"the first argument of holdout is {type(problem).__name__}, expected an asker.Problem")
    if not (isinstance(share, int | float | np.number) and 0 < share < 1):
        raise ValueError(f"the share of observations to hold out must lie strictly between 0 and 1, got {share!r}")
    if not (isinstance(seed, int | np.integer) and seed >= 0):
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    if problem.portion is not None:
        raise ProblemError(
            "observations can only be held out of a whole problem, not of a portion of a distributed one"
        )
    whole, problem = problem, problem.informative
    candidates = _candidates(whole, among)
    wanted = round(share * np.count_nonzero(candidates))
    if not candidates.any():
        raise ProblemError(f"none of {problem.n_residuals} observations may be held out: `among` excludes all of them")
    if not wanted:
        raise ProblemError(f"a share of {share:g} of {np.count_nonzero(candidates)} observations is less than one")
    order = np.random.default_rng(seed).permutation(len(candidates))  # candidates in this order
    touched = _touched(problem)
    removable = _removable(problem, touched, order, candidates, np.zeros(len(candidates), bool))
    preference = np.where(removable, order, order + len(order))  # edges that must be kept come first in the forest
    candidates &= ~_spanning(problem, touched, preference)  # (1)
    taken = np.zeros(len(candidates), bool)
    while (missing := wanted - np.count_nonzero(taken)) > 0:
        free = np.flatnonzero(_removable(problem, touched, order, candidates & ~taken, taken))  # (2)
        chosen = free[np.argsort(order[free])[:missing]]
        chosen = chosen[np.cumsum(_sizes(problem)[chosen]) <= _redundancy(problem, touched, taken)]  # (3)
        if not chosen.size:
            break
        taken[chosen] = True
    if not taken.any():
        raise ProblemError(
            f"none of {problem.n_residuals} observations can be held out: the variables need each of them"
        )
    all_taken = np.concatenate([f.is_informative for f in whole.factors])
    all_taken[all_taken] = taken
    return tuple(np.split(all_taken, np.cumsum([f.n for f in whole.factors])[:-1]))


def _redundancy(problem: Problem, touched: "_Touched", taken: Mask) -> int:
    """Return the degrees of freedom of the whole problem without the taken observations.

    Without fixed variables and priors the problem has a gauge, with at least as many directions as a variable.
    """
    free = [v for v in problem.variables if v.is_free]
    unknowns = sum(v.manifold.tangent * int(np.count_nonzero(~v.fixed)) for v in free)
    single = np.bincount(touched.observation) == 1
    is_anchored = not touched.is_free.all() or bool(single.any())
    gauge = 0 if is_anchored else min(v.manifold.tangent for v in free)
    return int(_sizes(problem)[~taken].sum()) - unknowns + gauge


class _Touched(NamedTuple):
    """Distinct pairs of an observation and a variable that it depends on, both numbered over all groups."""

    observation: NDArray[np.int64]
    variable: NDArray[np.int64]
    is_free: Mask
    """True if the variable is free."""


def _touched(problem: Problem) -> _Touched:
    """Return the pairs of an observation and a variable that it depends on, and whether the variable is free."""
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


def _candidates(problem: Problem, among: Sequence[Mask | None] | None) -> Mask:
    """Return a mask of the candidates among the observations of positive weight."""
    among = [None] * len(problem.factors) if among is None else list(among)
    if len(among) != len(problem.factors):
        raise ValueError(f"among has {len(among)} masks for {len(problem.factors)} factor groups")
    masks = []
    for f, mask in zip(problem.factors, among, strict=True):
        allowed = np.ones(f.n, bool) if mask is None else np.asarray(mask)
        if allowed.shape != (f.n,) or allowed.dtype != bool:
            raise ValueError(f"{f.name}: among is {allowed.dtype} {allowed.shape}, expected a mask: bool ({f.n},)")
        masks.append(allowed[f.is_informative])
    return np.concatenate(masks)


def _sizes(problem: Problem) -> NDArray[np.int64]:
    """Return the number of residuals of each observation."""
    return np.concatenate([np.full(f.n, f.residual_size) for f in problem.factors]).astype(np.int64)


def _spanning(problem: Problem, touched: _Touched, order: NDArray[np.int64]) -> Mask:
    """Return a mask of the observations of two random spanning forests: of the free variables, and with known ones.

    In the second forest all fixed variables are a single node, and an observation of a single free variable is an edge
    to this node.
    """
    n = sum(map(len, problem.variables))
    kept = np.zeros(len(order), bool)
    for with_known in (False, True):
        chosen = np.flatnonzero(touched.is_free | with_known)
        observation = touched.observation[chosen]
        node = np.where(touched.is_free[chosen], touched.variable[chosen], n)
        if with_known:
            single = np.flatnonzero(np.bincount(observation, minlength=len(order)) == 1)
            observation = np.concatenate([observation, single])
            node = np.concatenate([node, np.full(len(single), n)])
        by = np.argsort(observation, kind="stable")
        observation, node = observation[by], node[by]
        edge = (observation[1:] == observation[:-1]) & (
            node[1:] != node[:-1]
        )  # a chain over the variables of an observation
        cost = 2.0 + 2 * len(order) - order[observation[1:][edge]]  # last in the order is cheapest
        used = spanning_forest(node[:-1][edge], node[1:][edge], cost, n + 1)
        kept[observation[1:][edge][used]] = True
    return kept


def _removable(problem: Problem, touched: _Touched, order: NDArray[np.int64], candidates: Mask, taken: Mask) -> Mask:
    """Return a mask of candidates that can be taken together, by the redundancy of each variable, in its order."""
    sizes = _sizes(problem)
    n = sum(map(len, problem.variables))
    needed = np.concatenate([np.full(len(v), v.manifold.tangent) for v in problem.variables])
    observation, variable, _ = (part[touched.is_free] for part in touched)
    left = np.bincount(variable, sizes[observation] * ~taken[observation], minlength=n)
    is_candidate = candidates[observation]
    observation, variable = observation[is_candidate], variable[is_candidate]
    by = np.lexsort((order[observation], variable))
    observation, variable = observation[by], variable[by]
    total = np.cumsum(sizes[observation])
    first = np.searchsorted(variable, variable)  # start of the run of each variable
    before = np.concatenate([[0], total])[first]
    is_redundant = total - before <= (left - needed)[variable]
    removable = candidates.copy()
    removable[observation[~is_redundant]] = False
    return removable


def _norms(factors: Factors, rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return ‖r‖ of every observation; infinite if it is not finite."""
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(residuals_of(factors, rows), axis=1)
    return np.where(np.isfinite(norms), norms, np.inf)


def residuals_of(factors: Factors, rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the residuals (n, p) of all observations, from the rows of the variables of each slot."""
    if factors.jacobian is not None:
        r = factors.residual(*factors.all_arguments(rows))
        return np.asarray(r, dtype=float).reshape(factors.n, factors.residual_size)
    import jax

    parts = []
    with float64():
        each = jax.jit(jax.vmap(factors.residual_at))
        for begin in range(0, factors.n, BATCH_SIZE):
            part = slice(begin, begin + BATCH_SIZE)
            gathered = [x[slot.index[part]] for slot, x in zip(factors.slots, rows, strict=True)]
            parts.append(np.asarray(each(gathered, [d[part] for d in factors.data])))
    return np.concatenate(parts)
