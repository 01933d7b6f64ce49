"""A loaded result together with its problem, which files do not contain, for covariances and derivatives."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from asker.kernels import kernels
from asker.kernels.kernel import Kernel
from asker.problem.by_group import Groups, count
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.solver.holdout import residuals_of
from asker.solver.result import PER_OBSERVATION, Result
from asker.solver.status import registered_analysis

RESIDUAL_RTOL = 1e-6
"""Largest difference between saved and computed residuals, relative to the largest saved residual of the group."""
KernelRecord = tuple[str, dict[str, float], float]
"""Class name of a kernel of asker, its fields, and the balance of its factor group."""


def kernel_records(problem: Problem) -> list[KernelRecord]:
    """Return the kernels of the factor groups that were estimated together with the noise, for a file."""
    records = []
    for f in problem.factors:
        numbers = {x.name: float(getattr(f.kernel, x.name)) for x in fields(f.kernel)}
        records.append((type(f.kernel).__name__, numbers, float(f.balance)))
    return records


def kernel_of(record: KernelRecord) -> Kernel:
    """Return the kernel of a record; raise a `ProblemError` if it is not one of asker."""
    name, numbers, _ = record
    kind = getattr(kernels, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Kernel)):
        raise ProblemError(f"the result was computed with the kernel {name}, which asker does not have")
    return kind(**numbers)


def attached(result: Result, problem: Any) -> Result:
    """Return a loaded result with its problem, after checks that it is the same."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"attach expects the asker.Problem of the result, not {type(problem).__name__}")
    _check_names("variables", list(result.values.names), [v.name for v in problem.variables])
    _check_names("factors", list(result.residuals.names), [f.name for f in problem.factors])
    if result.fitted_kernels:
        fitted = zip(problem.factors, result.fitted_kernels, strict=True)
        factors = [(f if r[2] == f.balance else f.balanced(r[2])).under(kernel_of(r)) for f, r in fitted]
        problem = problem.with_factors(factors)
    values, rows = [], {}
    for v, x in zip(problem.variables, result.values, strict=True):
        if count(x) != len(v):
            raise ProblemError(f"{v.name}: the result has {count(x)} variables, and the problem {len(v)}")
        rows[v] = v.at(x).rows
        values.append(v.manifold.unpack(rows[v]))
    for f, r, mask in zip(problem.factors, result.residuals, result.informative, strict=True):
        _check_residuals(f, r, mask, rows)

    def by_factor(items: Groups[Any]) -> Groups[Any]:
        return Groups(list(items), items.names, problem.factors)

    changes: dict[str, Any] = {name: by_factor(getattr(result, name)) for name in PER_OBSERVATION}
    groups = Groups(values, result.values.names, problem.variables)
    return replace(result, problem=problem, analysis=registered_analysis(), values=groups, **changes)


def _check_names(what: str, saved: list[str], given: list[str]) -> None:
    if saved != given:
        raise ProblemError(f"the result has the {what} {', '.join(saved)}, and the problem has {', '.join(given)}")


def _check_residuals(f: Any, saved: np.ndarray, informative: np.ndarray, rows: dict[Any, np.ndarray]) -> None:
    if saved.shape != (f.n, f.residual_size):
        raise ProblemError(f"{f.name}: the result has residuals {saved.shape}, the problem {(f.n, f.residual_size)}")
    if not np.array_equal(informative, f.is_informative):
        raise ProblemError(f"{f.name}: the weights of 0 in the result are those of other observations")
    r = residuals_of(f, [rows[slot.variables] for slot in f.slots])
    scale = np.abs(saved[np.isfinite(saved)]).max(initial=0.0)
    differs = ~(np.abs(r - saved) <= RESIDUAL_RTOL * max(scale, 1e-12)) & np.isfinite(saved)
    if differs.any():
        k = int(np.flatnonzero(differs.any(axis=1))[0])
        raise ProblemError(
            f"{f.name}: the residual of observation {k} is {r[k]}, and {saved[k]} in the result: this is another "
            "problem, with other data or functions"
        )
