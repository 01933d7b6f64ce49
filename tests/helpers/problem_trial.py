"""A trial: a random problem, its result, and how far the result moves with the data."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

import asker
from random_problems import Group, RandomProblem, strategy_named
from reference_kernels import omega, psi

EPS = float(np.finfo(float).eps)
NUDGE, NUDGES, REACH = 1e-10, 3, 10.0
UNSTABLE = 1e-4
"""The difference after a nudge, in units of the data, from which on a problem has several ends."""
OPERATIONS = 100.0
"""Roundings in a residual and its square, at most: a sum over 80 numbers."""
Solver = Callable[..., asker.Result]


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
        _, error = cost_of(self, self.result.values)
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


def weight_of(g: Group) -> np.ndarray:
    """The weights of the user, 1 where none are given."""
    return np.ones(g.n) if g.weight is None else g.weight


def largest_of(values: Sequence[Any]) -> float:
    """The largest number of all variables."""
    return max(float(np.abs(part).max()) for x in values for part in parts_of(x))


def parts_of(values: Any) -> tuple[np.ndarray, ...]:
    """The arrays of a group of variables: one, or those of a product."""
    return values if isinstance(values, tuple) else (values,)


def cost_of(trial: Trial, values: Sequence[Any]) -> tuple[float, float]:
    """Ψ by NumPy, and what rounding may do to it."""
    total, error = 0.0, 0.0
    assert trial.result.problem is not None
    for g, f, unit in zip(trial.problem.groups, trial.result.problem.factors, trial.units, strict=True):
        r = g.reference(values)
        u, tau = np.einsum("np,np->n", r, r), np.asarray(f.tau)
        w = np.ones(g.n) if f.weight is None else f.weight
        each = w * tau**2 * psi(f.kernel, u / tau**2)
        size = unit * max(1.0, largest_of(values)) + np.sqrt(u)
        slope = w * omega(f.kernel, u / tau**2) * (np.sqrt(u) + OPERATIONS * EPS * size)
        total += float(each.sum())
        error += OPERATIONS * EPS * float((slope * size * np.sqrt(r.shape[1]) + each).sum())
    return total, error
