"""Results of a problem for arrays in place of its parameters, cached between a solution and its derivatives."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from asker._solve import solve
from asker.derivatives.implicit import ImplicitDerivatives
from asker.io.log import log
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.solver.result import Result
from asker.tracing.trees import leaves_of, like
from asker.transforms.jax_primitive import Products
from asker.transforms.parameters import Floats, check_differentiable, parameters_of, with_arrays

MAX_CACHED = 8
"""Number of last results that are kept, with their factorisations, for the derivatives that may follow."""
TOL = 1e-12
"""Default of `tol`: the solution is a function of the arrays only as far as solves converge."""


class Solved:
    """One solution, and its derivatives if it has any."""

    def __init__(self, result: Result):
        self.result = result
        self.derivatives: ImplicitDerivatives | None = None
        self.reason = ""
        """Reason why there are no derivatives, "" if there are."""
        try:
            self.derivatives = ImplicitDerivatives(result)
        except ProblemError as error:
            self.reason = str(error)
            log.info("differentiable: %s", error)

    def values(self, names: Sequence[str]) -> list[Any]:
        """Return the values of groups, at the point to which Newton's method has refined the solution."""
        if self.derivatives is None:
            return [self.result[name] for name in names]
        return [self.derivatives.values[name] for name in names]

    def checked_derivatives(self) -> ImplicitDerivatives:
        """Return the derivatives; raise an error with the reason if there are none."""
        if self.derivatives is None:
            raise ProblemError(self.reason)
        return self.derivatives


class Solutions:
    """The solution of a problem as a function of some of its arrays."""

    def __init__(self, problem: Problem, wrt: Sequence[str], options: dict[str, Any]):
        if not isinstance(problem, Problem):
            raise ProblemError(f"the problem is {type(problem).__name__}, expected asker.Problem(factors)")
        self.problem, self.parameters = problem, parameters_of(problem, wrt)
        check_differentiable(problem)
        self.options = {"tol": TOL} | options
        self.names = [v.name for v in problem.variables if v.is_free]
        """Names of the groups of variables that are solved for."""
        starts = {v.name: v.manifold.unpack(v.rows) for v in problem.variables}
        self.shapes = [starts[name] for name in self.names]
        """Values of these groups, which have the shapes of the solution."""
        self._cached: OrderedDict[bytes, Solved] = OrderedDict()
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles and deep copies, without cached solutions."""
        return {"problem": self.problem, "wrt": [p.name for p in self.parameters], "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def at(self, arrays: Sequence[Any]) -> Solved:
        """Return the solution for arrays, from the cache if they were the arguments of one of the last calls."""
        given = [np.array(x, dtype=float, order="C") for x in arrays]
        key = hashlib.blake2b(b"".join(x.tobytes() for x in given)).digest()
        with self._lock:
            if key not in self._cached:
                problem = with_arrays(self.problem, self.parameters, given)
                self._cached[key] = Solved(solve(problem, **self.options))
            self._cached.move_to_end(key)
            while len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)
            return self._cached[key]

    def products(self) -> Products:
        """Return the function of arrays with flat outputs, and the products of its derivative."""
        return Products(
            lambda arrays: _flat(self.values(arrays)),
            lambda arrays, tangents: _flat(self.jvp(arrays, tangents)),
            lambda arrays, cotangents: self.vjp(arrays, self.like_values(cotangents)),
            [np.shape(p.start) for p in self.parameters],
            [np.shape(leaf) for leaf in _flat(self.shapes)],
        )

    def like_values(self, leaves: Sequence[Any]) -> list[Any]:
        """Return arrays in the structure of the values of all groups."""
        return list(like(tuple(self.shapes), leaves))

    def values(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the values of all groups that are solved for."""
        return self.at(arrays).values(self.names)

    def vjp(self, arrays: Sequence[Any], cotangents: Sequence[Any]) -> list[Floats]:
        """Return the gradient with respect to each array."""
        derivatives = self.at(arrays).checked_derivatives()
        with self._lock:
            gradients = derivatives.vjp(dict(zip(self.names, cotangents, strict=True)))
        return [p.gradient(gradients) for p in self.parameters]

    def jvp(self, arrays: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Return the change of the values of all groups that are solved for."""
        derivatives = self.at(arrays).checked_derivatives()
        given: dict[str, dict[str, Any]] = {"data": {}, "weight": {}, "tau": {}, "fixed": {}}
        for p, x in zip(self.parameters, tangents, strict=True):
            if p.what == "data":
                arrays = next(f for f in self.problem.factors if f.name == p.group).data
                each = given["data"].setdefault(p.group, [None] * len(arrays))
                each[p.number] = np.asarray(x, dtype=float)
            elif p.what == "fixed":
                fixed = next(v for v in self.problem.variables if v.name == p.group).fixed
                given["fixed"][p.group] = np.where(_along(fixed, np.ndim(x)), np.asarray(x, dtype=float), 0.0)
            else:
                given[p.what][p.group] = np.asarray(x, dtype=float)
        given["data"] = {name: tuple(each) for name, each in given["data"].items()}
        with self._lock:
            moved = derivatives.jvp(**given)
        return [moved[name] for name in self.names]


def _flat(values: Sequence[Any]) -> list[Any]:
    """Return all arrays of the values of several groups."""
    return leaves_of(tuple(values))


def _along(mask: Any, ndim: int) -> Any:
    return mask.reshape(-1, *[1] * (ndim - 1))
