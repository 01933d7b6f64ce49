"""Laws that every solve obeys: each is a function of a trial that returns a fault in a sentence, or None.

    for name, fault in trials(seed=0, count=200): ...

Exact laws compare bits, or figures of the result with the same figures worked out in NumPy.  Laws of *equivalent
problems* (another order, weight 2 in place of a copy, other units, another engine) allow what rounding may do, which is
measured: the problem is solved NUDGES times with data that differ by NUDGE of their size, far more than rounding does,
and an equivalent problem must not differ by more than REACH times the largest difference among these.  A problem that
ends elsewhere after a nudge says nothing here (`Trial.is_stable`); the test counts them.
"""

import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

import asker
from asker.subsets import FEW as FEW_UNKNOWNS
from dense_derivatives import columns, jacobians, moved, open_unknowns
from random_problems import Group, RandomProblem, gathered, random_problem, strategy_named
from reference_kernels import omega, psi

EPS = float(np.finfo(float).eps)
NUDGE, NUDGES, REACH = 1e-10, 3, 10.0
UNSTABLE = 1e-4
"""The difference after a nudge, in units of the data, from which on a problem has several ends."""
OPERATIONS = 100.0
"""Roundings in a residual and its square, at most: a sum over 80 numbers."""
MARGIN, MARGIN_OF_MANY = 10.0, 1000.0
"""What one more step may gain, over what the last one may have gained: steps become shorter by a factor."""
LIKELIHOOD = 0.01
TOL = 1e-9
"""`tol` of `asker.solve`."""
UNIT = 2.0**12
"""A power of two: not even rounding differs."""
STEPS = 2
N_TURNS = 3
REJECTED = 1e-3
"""The part of the inliers that counts as outliers."""
NO_INTERVAL = (
    "there is no covariance",
    "the noise cannot be told",
    "which says nothing of their noise",
    "no observation is within the noise",
)
"""Refusals of an interval."""
Solver = Callable[..., asker.Result]
Law = Callable[["Trial"], str | None]


class Trial:
    """A random problem, its result, and how far the result moves with the data."""

    def __init__(self, problem: RandomProblem, solver: Solver = asker.solve):
        self.problem, self.solver = problem, solver
        self.rng = np.random.default_rng([3, problem.seed])

    def solve(self, problem: RandomProblem, **more: Any) -> asker.Result:
        """With the strategy and the options of the problem."""
        strategy = None if problem.strategy is None else strategy_named(problem.strategy)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "engine xla without a GPU")
            return self.solver(problem.build(), strategy, **({"engine": "cpu"} | problem.options | more))

    @cached_property
    def result(self) -> asker.Result:
        return self.solve(self.problem)

    @cached_property
    def units(self) -> list[float]:
        """The size of the data of each factor group, in units of its residual."""
        return [float(np.abs(g.data[-1]).max() * max(1.0, np.abs(g.y).max())) for g in self.problem.groups]

    @cached_property
    def references(self) -> list[np.ndarray]:
        """The residuals of each factor group by NumPy, at the solution."""
        return [g.reference(self.result.values) for g in self.problem.groups]

    def end(self, residuals: Sequence[np.ndarray], unit: float = 1.0) -> np.ndarray:
        """Residuals in units of the data: what the ends of equivalent problems are compared by."""
        return np.concatenate([r.ravel() / (unit * u) for r, u in zip(residuals, self.units, strict=True)])

    @cached_property
    def sensitivity(self) -> float:
        """How far the end moves after a nudge."""
        here, most = self.end(self.result.residuals), 0.0
        for _ in range(NUDGES):
            groups = [
                _with_y(g, g.y + NUDGE * max(1.0, np.abs(g.y).max()) * self.rng.uniform(-1, 1, g.y.shape))
                for g in self.problem.groups
            ]
            there = self.end(self.solve(self.problem.with_groups(groups)).residuals)
            most = max(most, float(np.abs(there - here).max(initial=0.0)))
        return max(most, NUDGE)

    @property
    def is_stable(self) -> bool:
        return self.sensitivity < UNSTABLE

    @property
    def cost_tolerance(self) -> float:
        """What the cost of an equivalent problem may differ by: Σ w·ω·‖r‖ of what residuals may differ by."""
        _, error = _cost(self, self.result.values)
        slope = 0.0
        for f, r, w, unit in zip(
            self.result.problem.factors, self.result.residuals, self.result.weights, self.units, strict=True
        ):
            weight = 1.0 if f.weight is None else f.weight
            off = REACH * self.sensitivity * unit * np.sqrt(r.shape[1])
            slope += float((weight * w * (np.linalg.norm(r, axis=1) + off) * off).sum())
        return error + slope

    def differs(self, residuals: Sequence[np.ndarray], unit: float = 1.0) -> str | None:
        """What is wrong with the residuals that an equivalent problem ended with."""
        off = np.abs(self.end(residuals, unit) - self.end(self.result.residuals)).max(initial=0.0)
        if off <= REACH * self.sensitivity:
            return None
        return f"residuals differ by {off:.2g} of the data, and by {self.sensitivity:.2g} after a nudge"


def _with_y(g: Group, y: np.ndarray) -> Group:
    return replace(g, data=(*g.data[:-2], y, g.data[-1]))


def _weight(g: Group) -> np.ndarray:
    return np.ones(g.n) if g.weight is None else g.weight


# ------------------------------------------------------------------ laws of one result


def cost_is_not_above_the_start(trial: Trial) -> str | None:
    """The best point is returned, and the start is one."""
    result = trial.result
    if not result.cost <= result.initial_cost:
        return f"the cost is {result.cost:.17g}, and {result.initial_cost:.17g} at the start"
    return None


def costs_are_those_of_the_residuals(trial: Trial) -> str | None:
    """The residuals are those of the reference at the solution, and both costs and all weights follow from it.

    A residual may be off by OPERATIONS·ε of the size of the data, which moves Ψ by Σ w·ω·‖r‖ of that.
    """
    result, problem = trial.result, trial.problem
    begun = [b.values for b in problem.blocks]
    for k, (f, r, unit) in enumerate(zip(result.problem.factors, result.residuals, trial.units, strict=True)):
        size = unit * max(1.0, _largest(result.values), np.abs(trial.references[k]).max(initial=0.0) / unit)
        if not np.abs(r - trial.references[k]).max(initial=0.0) <= OPERATIONS * EPS * size:
            return f"the residuals of {f.name} are not those at the solution"
        u = np.einsum("np,np->n", r, r)
        expected = np.where(_weight(trial.problem.groups[k]) > 0, omega(f.kernel, u / np.asarray(f.tau) ** 2), 0.0)
        if not np.allclose(result.weights[k], expected, rtol=1e-9, atol=1e-12):
            return f"the weights of {f.name} are not those of the residuals"
    for what, told, values in (("cost", result.cost, result.values), ("cost at the start", result.initial_cost, begun)):
        value, error = _cost(trial, values)
        if not abs(told - value) <= error:
            return f"the {what} is {told:.17g}, and by the residuals {value:.17g} ± {error:.1g}"
    return None


def _largest(values: Sequence[Any]) -> float:
    return max(float(np.abs(part).max()) for x in values for part in _parts(x))


def _parts(values: Any) -> tuple[np.ndarray, ...]:
    return values if isinstance(values, tuple) else (values,)


def _cost(trial: Trial, values: Sequence[Any]) -> tuple[float, float]:
    """Ψ by NumPy, and what rounding may do to it."""
    total, error = 0.0, 0.0
    assert trial.result.problem is not None
    for g, f, unit in zip(trial.problem.groups, trial.result.problem.factors, trial.units, strict=True):
        r = g.reference(values)
        u, tau = np.einsum("np,np->n", r, r), np.asarray(f.tau)
        w = np.ones(g.n) if f.weight is None else f.weight
        each = w * tau**2 * psi(f.kernel, u / tau**2)
        size = unit * max(1.0, _largest(values)) + np.sqrt(u)
        slope = w * omega(f.kernel, u / tau**2) * (np.sqrt(u) + OPERATIONS * EPS * size)
        total += float(each.sum())
        error += OPERATIONS * EPS * float((slope * size * np.sqrt(r.shape[1]) + each).sum())
    return total, error


def variables_stay_where_they_may_be(trial: Trial) -> str | None:
    """Held variables stay to the bit, and those that nothing touches but for the rounding of a step of 0; bounds are
    kept, and values are on their manifold."""
    for k, (block, x) in enumerate(zip(trial.problem.blocks, trial.result.values, strict=True)):
        touched = np.zeros(len(block), dtype=bool)
        for g in trial.problem.groups:
            for number, index in g.slots:
                if number == k:
                    touched[index] = True
        before = block.values if block.bounds else block.manifold.unpack(block.manifold.pack(block.values))
        for who, allowed in ((block.fixed, 0.0), (~touched, OPERATIONS * EPS)):
            pairs = zip(_parts(gathered(before, who)), _parts(gathered(x, who)), strict=True)
            if not all((abs(a - b) <= allowed * abs(a).max(initial=0.0)).all() for a, b in pairs):
                return f"held or untouched variables of block {k} moved"
        if block.bounds and ((x < block.bounds["lower"]) | (x > block.bounds["upper"])).any():
            return f"a number of block {k} is beyond its bounds"
        if not block.bounds:
            block.manifold.pack(x)  # refuses what is on no manifold
    return None


def masks_agree_with_shares(trial: Trial) -> str | None:
    """Inliers are those that docs/how-to/judge.md defines, and one share of them is told.

    Where the noise σ is known, w‖r‖² is at most σ² times the quantile of χ² with p degrees of freedom that REJECTED of
    the inliers exceed; where it is not, nearer residuals are inliers where farther ones are.  What is not possible or
    has weight 0 is none.
    """
    result, total, of = trial.result, 0, 0
    table = str(result)
    for g, f, mask, r, noise in zip(
        trial.problem.groups, result.problem.factors, result.inliers, result.residuals, result.noise, strict=True
    ):
        w, possible = _weight(g), g.is_possible(result.values)
        may_be, v = possible & (w > 0), w * np.einsum("np,np->n", r, r)
        n, n_informative = int(mask.sum()), int((w > 0).sum())
        total, of = total + n, of + n_informative
        if (mask & ~may_be).any():
            return f"{g.name}: inliers are not possible, or have weight 0"
        if noise.is_known and noise.sigma > 0:
            v = v / (noise.sigma**2 * chi2.isf(REJECTED, r.shape[1]))
            if (mask != may_be & (v <= 1))[abs(v - 1) > 1e-9].any():
                return f"{g.name}: inliers are not those by the noise {noise}"
        else:
            v = v if noise.is_known else v / (w if f.weight is not None else 1.0) / np.asarray(f.tau) ** 2
            if mask.any() and (v[may_be & ~mask] < (1 - 1e-9) * v[mask].max()).any():
                return f"{g.name}: an inlier has a larger residual than one that is none"
        share = n / n_informative if n_informative else noise.inlier_ratio
        if noise.inlier_ratio != share:
            return f"{g.name}: {n} of {n_informative} are inliers, and the noise says {noise.inlier_ratio}"
        if n_informative and f"{g.name} {n} of {n_informative} ({share:.1%})" not in table:
            return f"{g.name}: the table has another count than the mask, {n} of {n_informative}"
    return None if result.inlier_ratio == total / of else f"inlier_ratio is {result.inlier_ratio}, not {total / of}"


# ------------------------------------------------------------------ laws of derivatives


def converged_results_are_stationary(trial: Trial) -> str | None:
    """From a result that has converged without a doubt, no step of IRLS gains more than MARGIN·tol of the cost.

    Where the noise σ was estimated, a descent also ends where it gains LIKELIHOOD·σ², half as much in log-likelihood.
    Convergence is certified with few unknowns; with more, a common λ may shorten all steps because one is too long, and
    MARGIN_OF_MANY counts.

    The step is the shortest solution of the weighted linear least squares problem, by the dense derivatives, of what may
    move: numbers at a bound that the step would cross stay.  It is tried whole and in parts.
    """
    result, problem = trial.result, trial.problem
    if result.status is not asker.Status.CONVERGED or result.doubts or result.cost == 0:
        return None
    J, at = jacobians(problem, result.values), columns(problem)
    A, b = [], []
    for f, Jk, r, w in zip(result.problem.factors, J, trial.references, result.weights, strict=True):
        root = np.sqrt(w * (1.0 if f.weight is None else f.weight))
        A.append((root[:, None, None] * Jk).reshape(-1, Jk.shape[2]))
        b.append((root[:, None] * r).ravel())
    margin = MARGIN if sum(x.size for x in at) <= FEW_UNKNOWNS else MARGIN_OF_MANY
    enough = TOL * result.cost
    if problem.is_sought:
        enough = max(enough, LIKELIHOOD * min(noise.sigma**2 for noise in result.noise))
    step = _step(problem, result.values, np.concatenate(A), np.concatenate(b))
    cost, error = _cost(trial, result.values)
    for part in (1.0, 0.5, 0.1, 0.01):
        there = [
            _within(block, moved(block, x, part * step[i]))
            for block, x, i in zip(problem.blocks, result.values, at, strict=True)
        ]
        gain = cost - _cost(trial, there)[0]
        if gain > margin * enough + 2 * error:
            return f"converged, and a step of IRLS lowers the cost {cost:.6g} by {gain / cost:.2g} of it"
    return None


def _step(problem: RandomProblem, values: Sequence[Any], A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The shortest δ with the least ‖Aδ + b‖, without what is held or barred."""
    free, at_bound = np.ones(A.shape[1], dtype=bool), np.zeros((2, A.shape[1]), dtype=bool)
    for block, x, at in zip(problem.blocks, values, columns(problem), strict=True):
        free[at[block.fixed]] = False
        if block.bounds:
            at_bound[0, at.ravel()] = (x <= block.bounds["lower"]).ravel()
            at_bound[1, at.ravel()] = (x >= block.bounds["upper"]).ravel()
    g = A.T @ b
    free &= ~((at_bound[0] & (g > 0)) | (at_bound[1] & (g < 0)))
    norms = np.linalg.norm(A, axis=0)
    free &= norms > 0
    step = np.zeros(A.shape[1])
    step[free] = -np.linalg.lstsq(A[:, free] / norms[free], b, rcond=1e-7)[0] / norms[free]
    return step


def _within(block: Any, x: Any) -> Any:
    return np.clip(x, block.bounds["lower"], block.bounds["upper"]) if block.bounds else x


def intervals_agree_with_doubts(trial: Trial) -> str | None:
    """An interval is NaN exactly where the observations that count and have a weight ω leave a number open, 0 where it is
    held, and else positive.  There is a doubt where all that have a weight leave one open, and what it names is NaN.

    A problem of which the dense Jacobian does not say clearly what is open says nothing.
    """
    result, problem = trial.result, trial.problem
    J = jacobians(problem, result.values)
    held = np.concatenate([np.repeat(b.fixed, columns(problem)[k].shape[1]) for k, b in enumerate(problem.blocks)])

    def left_open(masks: Sequence[np.ndarray]) -> np.ndarray | None:
        rows = [Jk[mask].reshape(-1, Jk.shape[2]) for Jk, mask in zip(J, masks, strict=True)]
        found = open_unknowns(np.concatenate(rows)[:, ~held], max(trial.units))
        if found is None:
            return None
        every = np.zeros(len(held), dtype=bool)
        every[~held] = found.is_open
        return every

    pulls = [w * _weight(g) > 0 for w, g in zip(result.weights, problem.groups, strict=True)]
    is_open = left_open(pulls)
    has_doubt = any("the data do not determine" in doubt for doubt in result.doubts)
    if is_open is not None and (~held).sum() <= FEW_UNKNOWNS and has_doubt != is_open.any():
        return f"{is_open.sum()} numbers are open, and the doubts are {result.doubts}"
    try:
        told = np.concatenate([result.interval(f"block {k}").ravel() for k in range(len(problem.blocks))])
    except asker.ProblemError as error:
        return None if any(text in str(error) for text in NO_INTERVAL) else f"interval: {error}"
    counted = [mask.copy() for mask in result.informative]
    for mask, part in zip(counted, result.uncertainty().information, strict=True):
        mask[mask] = part.counted
    expected = left_open([a & b for a, b in zip(counted, pulls, strict=True)])
    if expected is not None and (np.isnan(told) != expected).any():
        wrong = np.isnan(told) != expected
        return f"{wrong.sum()} of {len(told)} intervals are {told[wrong][:3]}, and {expected.sum()} numbers are open"
    if (told[held] != 0).any() or not (np.isnan(told[~held]) | (told[~held] > 0)).all():
        return "an interval of a held number is not 0, or one of another number is not positive"
    return None


# ------------------------------------------------------------------ laws of the same problem


def saved_results_are_read_back(trial: Trial) -> str | None:
    """`Result.load` gives every number that `save` was given, and the same table."""
    result = trial.result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        result.save(path)
        again = asker.Result.load(path)
    fault = _same(result, again)
    if fault is None and str(result) != str(again):
        fault = "the table"
    return f"{fault} of a result that was read back is another" if fault else None


def _same(a: asker.Result, b: asker.Result) -> str | None:
    """What is not the same to the bit; times aside."""
    for name in ("cost", "initial_cost", "status", "doubts", "engine", "linear_solver", "found_noise"):
        x, y = getattr(a, name), getattr(b, name)
        if x != y and repr(x) != repr(y):  # NaN
            return name
    for name in ("residuals", "weights", "inliers", "values"):
        for x, y in zip(getattr(a, name), getattr(b, name), strict=True):
            if not all(np.array_equal(p, q) for p, q in zip(_parts(x), _parts(y), strict=True)):
                return name
    lines = [[replace(line, seconds=0.0) for line in x.history] for x in (a, b)]
    return None if repr(lines[0]) == repr(lines[1]) else "history"


def pickled_problems_solve_the_same(trial: Trial) -> str | None:
    """A problem that came through pickle has the same result, and so has a result that did."""
    problem = pickle.loads(pickle.dumps(trial.problem.build()))
    p = trial.problem
    strategy = None if p.strategy is None else strategy_named(p.strategy)
    again = trial.solver(problem, strategy, **({"engine": "cpu"} | p.options))
    for what, other in (("problem", again), ("result", pickle.loads(pickle.dumps(trial.result)))):
        if fault := _same(trial.result, other):
            return f"{fault} of a pickled {what} is another"
    return None


def threads_do_not_matter(trial: Trial) -> str | None:
    """One thread and two give the same bits."""
    results = [trial.solve(trial.problem, threads=n) for n in (1, 2)]
    fault = _same(*results)
    return f"{fault} differs between one thread and two" if fault else None


# ------------------------------------------------------------------ laws of equivalent problems


def order_does_not_matter(trial: Trial) -> str | None:
    """Observations in another order."""
    if trial.problem.is_sought or not trial.is_stable:
        return None
    orders = [trial.rng.permutation(g.n) for g in trial.problem.groups]
    groups = [g.taken(order) for g, order in zip(trial.problem.groups, orders, strict=True)]
    result = trial.solve(trial.problem.with_groups(groups))
    return trial.differs([r[np.argsort(order)] for r, order in zip(result.residuals, orders, strict=True)])


def weight_2_is_a_copy(trial: Trial) -> str | None:
    """Under kernels that are given, a second copy of an observation is the same as twice its weight.

    (ASKER's default mode is left out: its scales begin at a mean over the observations.)
    """
    problem = trial.problem
    if problem.is_sought or _begins_at_a_mean(trial.result.strategy):
        return None
    chosen = [np.flatnonzero(trial.rng.random(g.n) < 0.3) for g in problem.groups]
    heavy, copied = [], []
    for g, some in zip(problem.groups, chosen, strict=True):
        weight = _weight(g).copy()
        copied.append(replace(g, weight=weight).taken(np.concatenate([np.arange(g.n), some])))
        twice = weight.copy()
        twice[some] *= 2
        heavy.append(replace(g, weight=twice))
    base = Trial(problem.with_groups(heavy), trial.solver)
    if not base.is_stable:
        return None
    result = base.solve(problem.with_groups(copied))
    if fault := base.differs([r[: g.n] for r, g in zip(result.residuals, heavy, strict=True)]):
        return fault
    off = abs(result.cost - base.result.cost)
    return None if off <= base.cost_tolerance else f"the costs differ by {off:.2g} of {result.cost:.6g}"


def _begins_at_a_mean(strategy: Any) -> bool:
    method = strategy.method if isinstance(strategy, asker.WithMoves) else strategy
    return isinstance(method, asker.ASKER) and method.reach > 0


def weight_0_is_left_out(trial: Trial) -> str | None:
    """Under kernels that are given, observations of weight 0 change nothing that a result says of the others."""
    problem = trial.problem
    if problem.is_sought:
        return None
    kept = [trial.rng.random(g.n) < 0.7 if g.n > 4 else np.ones(g.n, dtype=bool) for g in problem.groups]
    without, light = [], []
    for g, mask in zip(problem.groups, kept, strict=True):
        weight = np.where(_weight(g) > 0, _weight(g), 1.0)
        without.append(replace(g, weight=weight).taken(mask))
        light.append(replace(g, weight=np.where(mask, weight, 0.0)))
    base = Trial(problem.with_groups(without), trial.solver)
    if not base.is_stable:
        return None
    result = base.solve(problem.with_groups(light))
    if fault := base.differs([r[mask] for r, mask in zip(result.residuals, kept, strict=True)]):
        return fault
    if abs(result.cost - base.result.cost) > base.cost_tolerance:
        return f"the cost is {result.cost:.10g}, and {base.result.cost:.10g} without them"
    return _other_statistics(base, result)


def _other_statistics(base: Trial, result: asker.Result) -> str | None:
    """Whether noise, doubts or intervals are not those of `base`."""
    if result.doubts != base.result.doubts:
        return f"the doubts are {result.doubts}, and {base.result.doubts} without them"
    close = {"rtol": 1e-6 + REACH * base.sensitivity, "equal_nan": True}
    for a, b in zip(result.noise, base.result.noise, strict=True):
        if not np.allclose([a.sigma, a.inlier_ratio, a.n_spare], [b.sigma, b.inlier_ratio, b.n_spare], **close):
            return f"the noise is {a}, and {b} without them"
    ends = []
    for other in (result, base.result):
        try:
            ends.append([other.interval(f"block {k}") for k in range(len(base.problem.blocks))])
        except asker.ProblemError as error:
            ends.append(str(error))
    if isinstance(ends[0], str) or isinstance(ends[1], str):
        return None if isinstance(ends[0], str) and isinstance(ends[1], str) else f"intervals: {ends}"
    return None if all(map(lambda a, b: np.allclose(a, b, **close), *ends)) else "the intervals are others without them"


def units_do_not_matter(trial: Trial) -> str | None:
    """Where functions are homogeneous: lengths, those of variables, data and kernels, that are UNIT times as large, or as
    small.  Derivatives stay as they are."""
    if not all(g.kind.is_homogeneous for g in trial.problem.groups):
        return None
    unit = UNIT ** trial.rng.choice([-1.0, 1.0])
    return _in_units(trial, of_variables=unit, of_data=unit, of_residuals=unit)


def units_of_residuals_do_not_matter(trial: Trial) -> str | None:
    """With damping relative to the diagonal, residuals and kernels that are UNIT times as large, or as small."""
    problem = replace(trial.problem, options=trial.problem.options | {"relative_damping": True})
    return _in_units(Trial(problem, trial.solver), of_residuals=UNIT ** trial.rng.choice([-1.0, 1.0]))


def units_of_variables_do_not_matter(trial: Trial) -> str | None:
    """The same for variables and data of homogeneous functions; residuals stay as they are."""
    if not all(g.kind.is_homogeneous for g in trial.problem.groups):
        return None
    problem = replace(trial.problem, options=trial.problem.options | {"relative_damping": True})
    unit = UNIT ** trial.rng.choice([-1.0, 1.0])
    return _in_units(Trial(problem, trial.solver), of_variables=unit, of_data=unit)


def _in_units(base: Trial, of_variables: float = 1.0, of_data: float = 1.0, of_residuals: float = 1.0) -> str | None:
    """What is wrong with the solution of the same problem in other units.

    Nothing is said where a number is in the user's unit: the kernel that a strategy takes by default is as wide as 1,
    and beside a noise that is estimated a group with a kernel counts in units of its own.
    """
    problem = base.problem
    unknown = [g.kernel is None for g in problem.groups]
    if any(unknown) and not (problem.is_sought and all(unknown)):
        return None
    if not base.is_stable:
        return None
    groups = [
        replace(
            g,
            data=(*g.data[:-2], g.y * of_data, g.data[-1] * (of_residuals / of_data)),
            kernel=None if g.kernel is None else _wider(g.kernel, of_residuals),
            tau=None if g.tau is None else g.tau * of_residuals,
        )
        for g in problem.groups
    ]
    blocks = [_block_in(block, of_variables) for block in problem.blocks] if of_variables != 1 else problem.blocks
    result = base.solve(replace(problem, groups=tuple(groups), blocks=tuple(blocks)))
    return base.differs(result.residuals, of_residuals)


def _wider(kernel: Any, unit: float) -> Any:
    if isinstance(kernel, asker.Scaled):
        return replace(kernel, kernel=_wider(kernel.kernel, unit))
    return replace(kernel, tau=kernel.tau * unit)


def _block_in(block: Any, unit: float) -> Any:
    bounds = {name: x if name == "unit" else x * unit for name, x in block.bounds.items()}
    return replace(block, values=block.values * unit, bounds=bounds)


def engines_agree(trial: Trial) -> str | None:
    """The CPU engine and XLA give the same residuals at the start and after STEPS steps, kernels given."""
    problem = trial.problem
    if problem.is_sought or any(g.kind.jacobian for g in problem.groups):
        return None
    few = {"max_iterations": STEPS, "linear_solver": "dense-cholesky"}
    base = Trial(replace(problem, options=problem.options | few), trial.solver)
    return base.differs(base.solve(base.problem, engine="xla").residuals) if base.is_stable else None


OF_ONE_RESULT: tuple[Law, ...] = (
    cost_is_not_above_the_start, costs_are_those_of_the_residuals, variables_stay_where_they_may_be,
    masks_agree_with_shares, converged_results_are_stationary, intervals_agree_with_doubts,
    saved_results_are_read_back,
)  # fmt: skip
"""Laws that ask for no other solve."""
OF_SEVERAL: tuple[Law, ...] = (
    pickled_problems_solve_the_same, threads_do_not_matter, order_does_not_matter, weight_2_is_a_copy,
    weight_0_is_left_out, units_do_not_matter, units_of_residuals_do_not_matter, units_of_variables_do_not_matter,
    engines_agree,
)  # fmt: skip
LAWS = (*OF_ONE_RESULT, *OF_SEVERAL)


def fault_of(law: Law, trial: Trial) -> str | None:
    """What the law says; an exception is a fault, too."""
    try:
        return law(trial)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def in_turn(seed: int) -> tuple[Law, ...]:
    """The laws of one result, and every N_TURNS-th of the others: they take many solves."""
    return (*OF_ONE_RESULT, *OF_SEVERAL[seed % N_TURNS :: N_TURNS])


def trials(
    seed: int, count: int, laws: Callable[[int], Sequence[Law]] = lambda seed: LAWS
) -> Iterator[tuple[str, str | None]]:
    """The names of laws, and what each says of `count` problems from `seed` on; the problem stands in every fault.

    `laws`: those of a seed; all when not given.
    """
    for number in range(seed, seed + count):
        trial = Trial(random_problem(number))
        for law in laws(number):
            fault = fault_of(law, trial)
            yield law.__name__.replace("_", " "), fault and f"{trial.problem}: {fault}"
