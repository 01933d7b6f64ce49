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
from asker.factors import Factors


def of_each(factors: tuple[Factors, ...], formula: Formula, summed: bool) -> Callable[..., Any]:
    """A function: the formula of every residual of a device, or the sums of it over all of them."""

    def run(layout, u, arrays, numbers):
        outs = []
        for k, (f, o) in enumerate(zip(factors, layout[0], strict=True)):
            values = _of_factors(f, formula, o, u[k], [a[k] for a in arrays], numbers)
            outs.append([used(o, v) for v in values])
        if not summed:
            return tuple(map(tuple, outs))
        sums = [sum(jnp.sum(out[k]) for out in outs) for k in range(len(outs[0]))]
        return lax.psum(tuple(sums), AXIS)

    return run


def largest(factors: tuple[Factors, ...], formula: Formula) -> Callable[..., Any]:
    """A function: the largest value of a formula that is never negative, over all devices."""

    def run(layout, u):
        each = [_of_factors(f, formula, o, v, [], {})[0] for f, o, v in zip(factors, layout[0], u, strict=True)]
        parts = [jnp.max(used(o, values)) for o, values in zip(layout[0], each, strict=True)]
        return lax.pmax(jnp.max(jnp.stack(parts)), AXIS)

    return run


def _of_factors(
    factors: Factors, formula: Formula, o: Observations[jax.Array], u: jax.Array, arrays: list, numbers: dict
) -> tuple[jax.Array, ...]:
    def one(tau, u, *arrays):
        values = formula(replace(factors.kernel, tau=tau), u, *arrays, **numbers)
        values = values if isinstance(values, tuple) else (values,)
        return tuple(jnp.asarray(v, dtype=float) for v in values)

    if o.tau is None:
        return jax.vmap(lambda u, *arrays: one(factors.tau, u, *arrays))(u, *arrays)
    return jax.vmap(one)(o.tau, u, *arrays)
