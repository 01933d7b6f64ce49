"""Formulas of every residual, for the observations of one device."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asker.engines.interface import Formula
from asker.engines.xla.layout import Observations
from asker.engines.xla.residuals import used
from asker.kernels.kernel import Kernel

Widths = tuple[jax.Array | None, ...]
"""τ of each factor group; None where observations have widths of their own.  Where they have weights: τ, and 1 if it is
multiplied with the root of each weight, or 0."""


class Arguments(NamedTuple):
    """What a formula is given, for one factor group."""

    tau: jax.Array | None
    o: Observations[jax.Array]
    u: jax.Array
    arrays: list[jax.Array]
    numbers: dict[str, Any]


def of_each(
    kernels: tuple[Kernel, ...], formula: Formula, arguments: Sequence[Arguments]
) -> tuple[tuple[jax.Array, ...], ...]:
    """For each factor group the values of a formula, of every residual of a device; 0 for dummies."""
    pairs = zip(kernels, arguments, strict=True)
    return tuple(tuple(used(a.o, v) for v in _of_factors(kernel, formula, a)) for kernel, a in pairs)


def _of_factors(kernel: Kernel, formula: Formula, a: Arguments) -> tuple[jax.Array, ...]:
    def one(tau, u, *arrays):
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
