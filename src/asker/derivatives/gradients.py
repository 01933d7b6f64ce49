"""Gradients of a solution's functions that are returned, and tangents of a problem's parameters that are given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.derivatives.observation_cost import Observed
from asker.problem.by_group import Groups
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.tracing.array_namespace import real_numbers


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradient of a function of the solution with respect to everything that the problem was built from.

    Attributes are indexed by group, by its name or by its position, as those of a result.
    """

    data: Groups[Any]
    """Gradient with respect to the data of each factor group: a tuple of arrays, or nested as the data; 0 for integers
    and masks."""
    weight: Groups[np.ndarray]
    """Gradient with respect to the weight of each observation, (n,); as for weights of 1 if none are given."""
    tau: Groups[Any]
    """Gradient with respect to the kernel's width: a number, or (n,) if the factors have one for each observation."""
    fixed: Groups[Any]
    """Gradient with respect to the values of fixed variables, tangential to their manifold, in the shape of the values;
    0 for free variables, on whose initial values a solution does not depend."""

    def __repr__(self) -> str:
        names = ("data", "weight", "tau", "fixed")
        return "Gradients(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in names) + ")"


def by_group(what: str, given: Any, groups: Sequence[Any]) -> list[Any]:
    """Return the item for each group, from a mapping of groups or names, or from a single item for a single group."""
    if given is None:
        return [None] * len(groups)
    if not isinstance(given, Mapping):
        if len(groups) == 1:
            return [given]
        names = ", ".join(g.name for g in groups)
        raise ProblemError(f"{what} is {type(given).__name__}, expected a mapping from groups or names: {names}")
    places = Groups(range(len(groups)), [g.name for g in groups], groups)
    out: list[Any] = [None] * len(groups)
    for key, item in given.items():
        try:
            out[places[key]] = item
        except KeyError as error:
            raise ProblemError(f"{what}: {error.args[0]}") from None
    return out


def observed_tangents(problem: Problem, data: Any, weight: Any, tau: Any) -> list[Observed]:
    """Return the tangent of the parameters of each factor group, 0 where none is given."""
    given = [by_group(name, x, problem.factors) for name, x in (("data", data), ("weight", weight), ("tau", tau))]
    return [_observed_tangent(f, *each) for f, *each in zip(problem.factors, *given, strict=True)]


def _observed_tangent(f: Factors, data: Any, weight: Any, tau: Any) -> Observed:
    n = len(f.data)
    arrays = (None,) * n if data is None else f.data_layout.arrays(data, f"{f.name}: the tangent of the data")

    def tangent(k: int, x: Any) -> np.ndarray:
        shape = f.data[k].shape
        if x is not None and f.data[k].dtype.kind != "f" and np.any(x):
            raise ProblemError(f"{f.name}: {f.data_layout.names[k]} holds {f.data[k].dtype}, which has no tangent")
        return np.zeros(shape) if x is None else _shaped(f"{f.name}: the tangent of {f.data_layout.names[k]}", x, shape)

    def number(what: str, x: Any, is_single: bool) -> np.ndarray:
        if x is None:
            return np.zeros(f.n)
        array = real_numbers(f"{f.name}: the tangent of {what}", x)
        if array.shape != (() if is_single else (f.n,)):
            raise ProblemError(f"{f.name}: the tangent of {what} has shape {array.shape}, "
                               f"expected {() if is_single else (f.n,)}")  # fmt: skip
        return np.array(np.broadcast_to(array, f.n))

    w = number("weight", weight, False) * f.balance**2
    is_single = np.ndim(f.tau) == 0 or f.weight_is_precision
    return Observed(tuple(tangent(k, x) for k, x in enumerate(arrays)), w, number("tau", tau, is_single))


def _shaped(what: str, x: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = real_numbers(what, x)
    if array.shape != shape:
        raise ProblemError(f"{what} has shape {array.shape}, expected {shape}")
    return array


def observed_gradient(f: Factors, pulled: Observed) -> Observed:
    """Return the gradient with respect to the parameters of a factor group, from that of each observation."""
    is_single = np.ndim(f.tau) == 0 or f.weight_is_precision
    tau = float(pulled.tau.sum()) if is_single else pulled.tau
    return Observed(pulled.data, pulled.weight * f.balance**2, tau)
