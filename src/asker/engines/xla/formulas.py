"""Evaluation of per-residual formulas for the observations of one device."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asker.engines.interface import Formula
from asker.engines.xla.layout import Observations
from asker.engines.xla.residuals import used
from asker.kernels.kernel import Kernel
from asker.problem.factors import Factors

Widths = tuple[jax.Array | None, ...]
"""τ of each factor group; None if τ differs between observations.  For weighted observations: τ, and 1 if it is
multiplied by the square root of each weight, else 0."""


def width(f: Factors) -> np.ndarray | None:
    """Return τ of a factor group in the format of `Widths`."""
    if np.ndim(f.tau) and not f.weight_is_precision:
        return None
    tau = float(f.kernel.tau) if f.weight_is_precision else float(f.tau)
    return np.array(tau if f.weight is None else [tau, not f.weight_is_precision], dtype=float)


def of_unit_width(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Return the kernels with τ = 1: a program is compiled once for all values of τ."""
    return tuple(replace(kernel, tau=1.0) for kernel in kernels)


class Arguments(NamedTuple):
    """The arguments of a formula for one factor group."""

    tau: jax.Array | None
    o: Observations[jax.Array]
    u: jax.Array
    arrays: list[jax.Array]
    numbers: dict[str, Any]


def of_each(
    kernels: tuple[Kernel, ...], formula: Formula, arguments: Sequence[Arguments]
) -> tuple[tuple[jax.Array, ...], ...]:
    """Return the values of a formula for every residual of a device, by factor group; 0 for dummies."""
    pairs = zip(kernels, arguments, strict=True)
    return tuple(tuple(used(a.o, v) for v in _of_factors(kernel, formula, a)) for kernel, a in pairs)


def _of_factors(kernel: Kernel, formula: Formula, a: Arguments) -> tuple[jax.Array, ...]:
    def one(tau: Any, u: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        values = formula(replace(kernel, tau=tau), u, *arrays, **a.numbers)
        values = values if isinstance(values, tuple) else (values,)
        return tuple(jnp.asarray(v, dtype=float) for v in values)

    if a.tau is None:
        return jax.vmap(one)(a.o.tau, a.u, *a.arrays)
    if a.o.root_weight is None:
        return jax.vmap(lambda u, *arrays: one(a.tau, u, *arrays))(a.u, *a.arrays)
    tau, is_multiplied = a.tau
    root = jnp.where((is_multiplied > 0) & (a.o.root_weight > 0), a.o.root_weight, 1.0)
    return jax.vmap(one)(tau * root, a.u, *a.arrays)
