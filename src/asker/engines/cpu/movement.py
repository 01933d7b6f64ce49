"""Rules for primitives that move values and compute nothing."""

from typing import Any

import numpy as np

from asker.engines.cpu.rules import UnsupportedPrimitive, Values, rule
from asker.problem import ProblemError


@rule("reshape", "squeeze", "expand_dims")
def _reshape(program, eqn, args):
    return [args[0].reshape(eqn.outvars[0].aval.shape)]


@rule("transpose")
def _transpose(program, eqn, args):
    return [args[0].transpose(eqn.params["permutation"])]


@rule("broadcast_in_dim")
def _broadcast_in_dim(program, eqn, args):
    shape, dims = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    kept = [1] * len(shape)
    for size, d in zip(args[0].shape, dims, strict=True):
        kept[d] = size
    return [np.broadcast_to(args[0].reshape(kept), shape)]


@rule("slice")
def _slice(program, eqn, args):
    p = eqn.params
    strides = p["strides"] or (1,) * args[0].ndim
    return [args[0][tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]]


@rule("concatenate")
def _concatenate(program, eqn, args):
    return [np.concatenate([a.astype(object) for a in args], axis=eqn.params["dimension"])]


@rule("stack")
def _stack(program, eqn, args):
    return [np.stack([a.astype(object) for a in args], axis=eqn.params["axis"])]


@rule("unstack")
def _unstack(program, eqn, args):
    return list(np.moveaxis(args[0], eqn.params["axis"], 0))


@rule("tile")
def _tile(program, eqn, args):
    return [np.tile(args[0], eqn.params["reps"])]


@rule("split")
def _split(program, eqn, args):
    return np.split(args[0], np.cumsum(eqn.params["sizes"])[:-1], axis=eqn.params["axis"])


@rule("rev")
def _rev(program, eqn, args):
    return [np.flip(args[0], eqn.params["dimensions"])]


@rule("iota")
def _iota(program, eqn, args):
    p = eqn.params
    along = [1] * len(p["shape"])
    along[p["dimension"]] = -1
    return [np.broadcast_to(np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(along), p["shape"])]


@rule("pad")
def _pad(program, eqn, args):
    x, value = args
    out = np.full(eqn.outvars[0].aval.shape, value.item(), dtype=object)
    places = [
        lo + np.arange(n) * (inner + 1) for n, (lo, _, inner) in zip(x.shape, eqn.params["padding_config"], strict=True)
    ]
    inside = [(at >= 0) & (at < n) for at, n in zip(places, out.shape, strict=True)]
    out[np.ix_(*[at[ok] for at, ok in zip(places, inside, strict=True)])] = x[np.ix_(*inside)]
    return [out]


def _constant_start(eqn: Any, starts: list[Values], sizes: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The slice of a dynamic slice.  JAX moves one that is outside into the array, which no user means."""
    if any(s.dtype == object for s in starts):
        raise UnsupportedPrimitive(eqn.primitive.name, " with an index that is not constant")
    first = [int(s) for s in starts]
    for k, size, n in zip(first, sizes, shape, strict=True):
        if not 0 <= k <= n - size:
            raise ProblemError(f"a function reads index {k} of an axis of size {n}")
    return tuple(slice(k, k + size) for k, size in zip(first, sizes, strict=True))


@rule("dynamic_slice")
def _dynamic_slice(program, eqn, args):
    x, *starts = args
    return [x[_constant_start(eqn, starts, eqn.params["slice_sizes"], x.shape)]]


@rule("dynamic_update_slice")
def _dynamic_update_slice(program, eqn, args):
    x, update, *starts = args
    out = x.astype(object)
    out[_constant_start(eqn, starts, update.shape, x.shape)] = update
    return [out]


@rule("gather", "scatter")
def _replay(program, eqn, args):
    """Run the primitive itself on integer positions, then put the values at those positions."""
    name = eqn.primitive.name
    moved = (0, 2) if name == "scatter" else (0,)
    if args[1].dtype == object:
        raise UnsupportedPrimitive(name, " with an index that is not constant")
    values = np.concatenate([args[k].astype(object).ravel() for k in moved])
    positions, start = list(args), 0
    for k in moved:
        positions[k] = np.arange(start, start + args[k].size).reshape(args[k].shape)
        start += args[k].size
    where = np.asarray(_rebound(eqn, positions))
    filled = (where < 0) | (where >= len(values))
    out = values[np.where(filled, 0, where)]
    return [np.where(filled, _fill_value(eqn), out) if filled.any() else out]


def _rebound(eqn: Any, args: list[np.ndarray]) -> Any:
    """The equation's primitive on other arguments (positions are integers, where the values were floats)."""
    from jax import lax

    p = eqn.params
    if eqn.primitive.name == "scatter":
        keep = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        operand, index, updates = args
        return lax.scatter(operand, index, updates, **{k: p[k] for k in keep})
    return eqn.primitive.bind(*args, **p | {"fill_value": -1})


def _fill_value(eqn: Any) -> Any:
    """What `gather` puts for an index out of bounds: NaN when JAX was not told."""
    given = eqn.params.get("fill_value")
    return np.nan if given is None else given


@rule("scatter-add", "scatter_add")
def _scatter_add(program, eqn, args):
    """Linear in the updates: find where each one lands."""
    from jax import lax

    operand, index, updates = args
    if index.dtype == object:
        raise UnsupportedPrimitive("scatter-add", " with an index that is not constant")
    keep = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    params = {k: eqn.params[k] for k in keep}
    out = operand.astype(object)
    for k, value in enumerate(updates.ravel()):
        one = np.zeros(updates.size)
        one[k] = 1.0
        lands = np.asarray(lax.scatter_add(np.zeros(operand.shape), index, one.reshape(updates.shape), **params))
        for at in zip(*np.nonzero(lands), strict=True):
            out[at] = program.emit("add", out[at], value)
    return [out]
