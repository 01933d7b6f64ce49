"""Trial of a random problem: its result and the sensitivity of the result to the data."""

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
PERTURBATION, N_PERTURBATIONS = 1e-10, 3
"""Relative size and number of the random perturbations of the data."""
SENSITIVITY_FACTOR = 10.0
"""Tolerance of equivalent problems, as a multiple of the largest difference after a perturbation."""
UNSTABLE_DIFFERENCE = 1e-4
"""Difference after a perturbation, in units of the data, above which a problem counts as unstable."""
OPERATIONS = 100.0
"""Upper limit of the rounding errors in a residual and its square, in units of ε: a sum over 80 numbers."""
Solver = Callable[..., asker.Result]


class Trial:
    """Random problem with its result and the sensitivity of the result to the data."""

    def __init__(self, problem: RandomProblem, solver: Solver = asker.solve):
        self.problem, self.solver = problem, solver
        self.rng = np.random.default_rng([3, problem.seed])

    def solve(self, problem: RandomProblem, **more: Any) -> asker.Result:
        """Solve with the strategy and the options of the problem."""
        strategy = None if problem.strategy is None else strategy_named(problem.strategy)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "engine xla without a GPU")
            return self.solver(problem.build(), strategy, **({"engine": "cpu"} | problem.options | more))

    @cached_property
    def result(self) -> asker.Result:
        return self.solve(self.problem)

    @cached_property
    def units(self) -> list[float]:
        """Size of the data of each factor group, in units of its residual."""
        return [float(np.abs(g.data[-1]).max() * max(1.0, np.abs(g.y).max())) for g in self.problem.groups]

    @cached_property
    def references(self) -> list[np.ndarray]:
        """Residuals of each factor group at the solution, computed by NumPy."""
        return [g.reference(self.result.values) for g in self.problem.groups]

    def normalised(self, residuals: Sequence[np.ndarray], unit: float = 1.0) -> np.ndarray:
        """Return the residuals in units of the data, by which the solutions of equivalent problems are compared."""
        return np.concatenate([r.ravel() / (unit * u) for r, u in zip(residuals, self.units, strict=True)])

    @cached_property
    def sensitivity(self) -> float:
        """Largest change of the normalised residuals after a perturbation of the data."""
        here, most = self.normalised(self.result.residuals), 0.0
        for _ in range(N_PERTURBATIONS):
            groups = [
                _with_y(g, g.y + PERTURBATION * max(1.0, np.abs(g.y).max()) * self.rng.uniform(-1, 1, g.y.shape))
                for g in self.problem.groups
            ]
            there = self.normalised(self.solve(self.problem.with_groups(groups)).residuals)
            most = max(most, float(np.abs(there - here).max(initial=0.0)))
        return max(most, PERTURBATION)

    @property
    def is_stable(self) -> bool:
        return self.sensitivity < UNSTABLE_DIFFERENCE

    @property
    def cost_tolerance(self) -> float:
        """Tolerance of the cost of an equivalent problem: Σ w·ω·‖r‖ times the tolerance of the residuals."""
        _, error = cost_of(self, self.result.values)
        slope = 0.0
        for f, r, w, unit in zip(
            self.result.problem.factors, self.result.residuals, self.result.weights, self.units, strict=True
        ):
            weight = 1.0 if f.weight is None else f.weight
            off = SENSITIVITY_FACTOR * self.sensitivity * unit * np.sqrt(r.shape[1])
            slope += float((weight * w * (np.linalg.norm(r, axis=1) + off) * off).sum())
        return error + slope

    def differs(self, residuals: Sequence[np.ndarray], unit: float = 1.0) -> str | None:
        """Return the fault of the residuals of an equivalent problem, or None."""
        off = np.abs(self.normalised(residuals, unit) - self.normalised(self.result.residuals)).max(initial=0.0)
        if off <= SENSITIVITY_FACTOR * self.sensitivity:
            return None
        return f"residuals differ by {off:.2g} of the data, and by {self.sensitivity:.2g} after a perturbation"


def _with_y(g: Group, y: np.ndarray) -> Group:
    return replace(g, data=(*g.data[:-2], y, g.data[-1]))


def weight_of(g: Group) -> np.ndarray:
    """Return the weights of a factor group, by default 1."""
    return np.ones(g.n) if g.weight is None else g.weight


def largest_of(values: Sequence[Any]) -> float:
    """Return the largest absolute value of all variables."""
    return max(float(np.abs(part).max()) for x in values for part in parts_of(x))


def parts_of(values: Any) -> tuple[np.ndarray, ...]:
    """Return the arrays of a group of variables: one, or those of a product manifold."""
    return values if isinstance(values, tuple) else (values,)


def cost_of(trial: Trial, values: Sequence[Any]) -> tuple[float, float]:
    """Return Ψ computed by NumPy, and a bound of its rounding error."""
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
