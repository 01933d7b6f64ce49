"""Formulas of every residual, for the observations of one device."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from asker.engines.point import Formula
from asker.engines.xla.blocks import AXIS
from asker.engines.xla.layout import Observations
from asker.engines.xla.residuals import used
from asker.kernels import Kernel

Widths = tuple[float | None, ...]
"""τ of each factor group; None where observations have widths of their own."""


def of_each(kernels: tuple[Kernel, ...], formula: Formula, summed: bool) -> Callable[..., Any]:
    """A function: the formula of every residual of a device, or the sums of it over all of them."""

    def run(layout, u, arrays, numbers, taus):
        outs = []
        for k, (kernel, o) in enumerate(zip(kernels, layout[0], strict=True)):
            values = _of_factors(kernel, taus[k], formula, o, u[k], [a[k] for a in arrays], numbers)
            outs.append([used(o, v) for v in values])
        if not summed:
            return tuple(map(tuple, outs))
        sums = [sum(jnp.sum(out[k]) for out in outs) for k in range(len(outs[0]))]
        return lax.psum(tuple(sums), AXIS)

    return run


def largest(kernels: tuple[Kernel, ...], formula: Formula) -> Callable[..., Any]:
    """A function: the largest value of a formula that is never negative, over all devices."""

    def run(layout, u, taus):
        groups = zip(kernels, taus, layout[0], u, strict=True)
        each = [_of_factors(kernel, tau, formula, o, v, [], {})[0] for kernel, tau, o, v in groups]
        parts = [jnp.max(used(o, values)) for o, values in zip(layout[0], each, strict=True)]
        return lax.pmax(jnp.max(jnp.stack(parts)), AXIS)

    return run


def _of_factors(
    kernel: Kernel,
    tau: float | None,
    formula: Formula,
    o: Observations[jax.Array],
    u: jax.Array,
    arrays: list,
    numbers: dict,
) -> tuple[jax.Array, ...]:
    def one(tau, u, *arrays):
        values = formula(replace(kernel, tau=tau), u, *arrays, **numbers)
        values = values if isinstance(values, tuple) else (values,)
        return tuple(jnp.asarray(v, dtype=float) for v in values)

    if tau is None:
        return jax.vmap(one)(o.tau, u, *arrays)
    if o.root_weight is None:
        return jax.vmap(lambda u, *arrays: one(tau, u, *arrays))(u, *arrays)
    return jax.vmap(one)(tau * jnp.where(o.root_weight > 0, o.root_weight, 1.0), u, *arrays)
