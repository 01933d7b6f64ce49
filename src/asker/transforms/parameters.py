"""Arrays of a problem by name, and the same problem with other arrays in their place."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.derivatives.gradients import Gradients
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables
from asker.tracing.trees import is_tree, leaves_of

Floats = NDArray[np.float64]
PATTERN = re.compile(r"(?P<group>.+?)\.(?P<what>data|weight|tau|fixed)(?P<leaf>(\[.+|\..+)?)")


@dataclass(frozen=True, eq=False)
class Parameter:
    """One array of a problem: data, weights or widths of a factor group, or the values of fixed variables."""

    name: str
    """Name such as "edges.data[1]"."""
    group: str
    what: str
    number: int
    """Number of the array of data; 0 for all others."""
    start: Any
    """Its values in the problem."""

    def gradient(self, gradients: Gradients) -> Floats:
        """Return the gradient with respect to this array."""
        of_group = getattr(gradients, self.what)[self.group]
        return np.asarray(leaves_of(of_group)[self.number] if self.what == "data" else of_group, dtype=float)


def parameters_of(problem: Problem, names: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the named arrays of a problem."""
    if isinstance(names, str) or not names:
        raise ProblemError(f"wrt is {names!r}, expected a list of names such as ['{problem.factors[0].name}.data']")
    parameters = tuple(_parameter(problem, name) for name in names)
    if len({(p.group, p.what, p.number) for p in parameters}) < len(parameters):
        raise ProblemError(f"wrt names an array twice: {', '.join(names)}")
    return parameters


def _parameter(problem: Problem, name: Any) -> Parameter:
    match = PATTERN.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        kinds = "GROUP.data, GROUP.data[1], GROUP.weight, GROUP.tau or VARIABLES.fixed"
        raise ProblemError(f"wrt: {name!r} does not name an array: expected {kinds}")
    group, what, leaf = match["group"], match["what"], match["leaf"]
    groups = [g for g in (problem.variables if what == "fixed" else problem.factors) if g.name == group]
    if len(groups) != 1:
        known = ", ".join(repr(g.name) for g in (problem.variables if what == "fixed" else problem.factors))
        raise ProblemError(f"wrt: {name!r}: {len(groups)} groups are called {group!r}; there are {known}")
    if leaf and what != "data":
        raise ProblemError(f"wrt: {name!r}: only data have several arrays")
    chosen: Any = groups[0]
    if what == "data":
        number = _number_of(chosen, name, f"data{leaf}")
        return Parameter(name, group, what, number, chosen.data[number])
    return Parameter(name, group, what, 0, _start_of(chosen, name, what))


def _number_of(f: Factors, name: str, leaf: str) -> int:
    """Return the number of an array of data."""
    names = f.data_layout.names
    if leaf != "data" and leaf not in names:
        raise ProblemError(f"wrt: {name!r}: there are {', '.join(f'{f.name}.{each}' for each in names)}")
    if leaf == "data" and len(names) != 1:
        raise ProblemError(
            f"wrt: {name!r}: there are several arrays: name {' or '.join(f'{f.name}.{x}' for x in names)}"
        )
    k = 0 if leaf == "data" else names.index(leaf)
    if f.data[k].dtype.kind != "f":
        raise ProblemError(f"wrt: {name!r} holds {f.data[k].dtype}, which has no derivative")
    return k


def _start_of(group: Any, name: str, what: str) -> Any:
    """Return the values of an array in the problem."""
    if what == "fixed":
        if not group.fixed.any():
            raise ProblemError(f"wrt: {name!r}: no variable of this group is fixed")
        values = group.manifold.unpack(group.rows)
        if isinstance(values, tuple) or is_tree(values):
            raise ProblemError(f"wrt: {name!r}: the values are several arrays")
        return np.array(values)
    if what == "weight":
        return np.ones(group.n) if group.weight is None else group.weight
    return np.asarray(group.tau, dtype=float)


def check_differentiable(problem: Problem) -> None:
    """Raise an error if the noise scale of a factor group is unknown, or a name is not unique."""
    for f in problem.factors:
        if f.n and not f.noise_is_known:
            raise ProblemError(
                f"{f.name}: the noise scale is unknown, and an estimated one has no derivative: give a kernel or tau"
            )
    for groups in (problem.factors, problem.variables):
        names = [g.name for g in groups]
        for name in names:
            if names.count(name) > 1:
                raise ProblemError(f"{names.count(name)} groups are called {name!r}: give them different names")


def with_arrays(problem: Problem, parameters: Sequence[Parameter], arrays: Sequence[Floats]) -> Problem:
    """Return the same problem with other arrays in place of its parameters."""
    given = dict(zip(parameters, arrays, strict=True))
    variables = {v: _variables_with(v, given) for v in problem.variables}
    return Problem(*(_factors_with(f, given).with_variables(variables) for f in problem.factors))


def _variables_with(v: Variables, given: dict[Parameter, Floats]) -> Variables:
    for p, values in given.items():
        if p.what == "fixed" and p.group == v.name:
            return v.at(np.where(_along(v.fixed, values), values, v.manifold.unpack(v.rows)))
    return v


def _along(mask: NDArray[np.bool_], values: Floats) -> NDArray[np.bool_]:
    return mask.reshape(-1, *[1] * (values.ndim - 1))


def _factors_with(f: Factors, given: dict[Parameter, Floats]) -> Factors:
    mine = {(p.what, p.number): (p, x) for p, x in given.items() if p.group == f.name and p.what != "fixed"}
    if any(what == "data" for what, _ in mine):
        f = f.with_data(tuple(mine[key][1] if (key := ("data", k)) in mine else d for k, d in enumerate(f.data)))
    if ("weight", 0) in mine:
        f = f.with_weight(mine["weight", 0][1])
    if ("tau", 0) in mine:
        f = f.with_tau(mine["tau", 0][1])
    return f
