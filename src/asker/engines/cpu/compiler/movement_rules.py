"""Rules for primitives that move or select values: reshaping, sorting, slicing, gather and scatter."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from asker.engines.cpu.compiler.arithmetic_rules import ReadsOutside, UnsupportedPrimitive, Values, each_element, rule
from asker.engines.cpu.compiler.scalars import Program


@rule("reshape", "squeeze", uses="dimensions new_sizes")
def _reshape(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [args[0].reshape(eqn.outvars[0].aval.shape)]


@rule("transpose", uses="permutation")
def _transpose(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [args[0].transpose(eqn.params["permutation"])]


@rule("broadcast_in_dim", uses="shape broadcast_dimensions")
def _broadcast_in_dim(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    shape, dims = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for size, d in zip(args[0].shape, dims, strict=True):
        sizes[d] = size
    return [np.broadcast_to(args[0].reshape(sizes), shape)]


@rule("slice", uses="start_indices limit_indices strides")
def _slice(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    p = eqn.params
    strides = p["strides"] or (1,) * args[0].ndim
    return [args[0][tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]]


@rule("concatenate", uses="dimension")
def _concatenate(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [np.concatenate([a.astype(object) for a in args], axis=eqn.params["dimension"])]


@rule("stack", uses="axis")
def _stack(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [np.stack([a.astype(object) for a in args], axis=eqn.params["axis"])]


@rule("unstack", uses="axis")
def _unstack(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return list(np.moveaxis(args[0], eqn.params["axis"], 0))


@rule("tile", uses="reps")
def _tile(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [np.tile(args[0], eqn.params["reps"])]


@rule("split", uses="sizes axis")
def _split(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return np.split(args[0], np.cumsum(eqn.params["sizes"])[:-1], axis=eqn.params["axis"])


@rule("rev", uses="dimensions")
def _rev(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [np.flip(args[0], eqn.params["dimensions"])]


@rule("iota", uses="shape dimension dtype")
def _iota(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    p = eqn.params
    along = [1] * len(p["shape"])
    along[p["dimension"]] = -1
    return [np.broadcast_to(np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(along), p["shape"])]


@rule("pad", uses="padding_config")
def _pad(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    x, value = args
    out = np.full(eqn.outvars[0].aval.shape, value.item(), dtype=object)
    places = [
        lo + np.arange(n) * (inner + 1) for n, (lo, _, inner) in zip(x.shape, eqn.params["padding_config"], strict=True)
    ]
    inside = [(at >= 0) & (at < n) for at, n in zip(places, out.shape, strict=True)]
    out[np.ix_(*[at[ok] for at, ok in zip(places, inside, strict=True)])] = x[np.ix_(*inside)]
    return [out]


MAX_SORT_LENGTH = 12


@rule("sort", uses="dimension is_stable num_keys")
def _sort(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    """Sort by bubble sort, which is stable and needs no data-dependent control flow."""
    along, n_keys = eqn.params["dimension"], eqn.params["num_keys"]
    columns = [np.moveaxis(a.astype(object), along, 0) for a in args]
    n = len(columns[0])
    if n > MAX_SORT_LENGTH:
        raise UnsupportedPrimitive("sort", f" for {n} values (at most {MAX_SORT_LENGTH} are unrolled)")
    columns = [c.copy() for c in columns]
    for rest in np.ndindex(columns[0].shape[1:]):
        rows = [[c[k, *rest] for c in columns] for k in range(n)]
        for k in (k for end in range(n - 1, 0, -1) for k in range(end)):
            rows[k], rows[k + 1] = _in_order(program, n_keys, rows[k], rows[k + 1])
        for k, row in enumerate(rows):
            for column, value in zip(columns, row, strict=True):
                column[k, *rest] = value
    return [np.moveaxis(c, 0, along) for c in columns]


def _in_order(program: Program, n_keys: int, a: list[Any], b: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return two rows in ascending order; a NaN is the largest value."""
    emit = program.emit

    def above(x: Any, y: Any) -> Any:
        unordered = emit("and", emit("ne", x, x), emit("eq", y, y))
        return emit("or", emit("gt", x, y), unordered)

    swap: Any = False
    for x, y in reversed(list(zip(a[:n_keys], b[:n_keys], strict=True))):  # earlier keys take precedence
        swap = emit("select", above(x, y), True, emit("select", above(y, x), False, swap))
    first = [emit("select", swap, y, x) for x, y in zip(a, b, strict=True)]
    return first, [emit("select", swap, x, y) for x, y in zip(a, b, strict=True)]


# Indices.  A constant index moves values; a computed index selects among all its possible values.

SCATTERS = "dimension_numbers indices_are_sorted unique_indices mode update_jaxpr update_consts"
MAX_INDEX_TARGETS = 64
"""The maximum number of possible values of a computed index."""


def _dimensions(eqn: Any) -> dict[str, Any]:
    """Return the parameters that `lax.gather` and `lax.scatter` take in addition to the arrays."""
    return {k: eqn.params[k] for k in ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")}


def _places(eqn: Any, counts: list[int]) -> list[tuple[int, ...]]:
    """Return all possible values of an index with `counts` values per component."""
    if math.prod(counts) > MAX_INDEX_TARGETS:
        why = f" with a computed index of more than {MAX_INDEX_TARGETS} possible values"
        raise UnsupportedPrimitive(eqn.primitive.name, why)
    return list(product(*map(range, counts)))


def _is_at(program: Program, index: Any, place: tuple[int, ...]) -> Any:
    """Emit the comparison of an index, a row of scalars, with a constant."""
    here: Any = True
    for k, at in zip(index, place, strict=True):
        equal = program.emit("eq", k, at)
        here = equal if here is True else program.emit("and", here, equal)
    return here


def _clipped(program: Program, index: Values, counts: list[int]) -> Values:
    """Clamp the index to the bounds of the array."""
    limits = np.broadcast_to(np.array(counts) - 1, index.shape)
    return each_element(lambda k, most: program.emit("min", program.emit("max", k, 0), most), index, limits)


def _chosen(program: Program, rows: Any, places: list[tuple[int, ...]], cases: list[Values], default: Any) -> Values:
    """Select for each element the case whose place equals its index, or `default`; None if one place always matches."""
    out = np.empty(cases[0].shape, dtype=object)
    for at in np.ndindex(out.shape):
        value = cases[-1][at] if default is None else default
        for place, case in zip(places[:-1] if default is None else places, cases, strict=False):
            value = program.emit("select", _is_at(program, rows(at), place), case[at], value)
        out[at] = value
    return out


def _constant_start(starts: list[Values], sizes: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return a dynamic slice as a constant one.  An index out of bounds, which JAX would clamp, is an error."""
    first = [int(s) for s in starts]
    for k, size, n in zip(first, sizes, shape, strict=True):
        if not 0 <= k <= n - size:
            raise ReadsOutside(f"the function reads index {k} of an axis of size {n}")
    return tuple(slice(k, k + size) for k, size in zip(first, sizes, strict=True))


def _slices(program: Program, eqn: Any, starts: list[Values], sizes: Any, shape: tuple[int, ...]) -> Any:
    """Return the computed start of a slice, all its possible values, and the slice for each of them."""
    counts = [n - size + 1 for n, size in zip(shape, sizes, strict=True)]
    index = _clipped(program, np.array([s.item() for s in starts], dtype=object), counts)
    places = _places(eqn, counts)
    return index, places, [tuple(slice(k, k + m) for k, m in zip(p, sizes, strict=True)) for p in places]


@rule("dynamic_slice", uses="slice_sizes")
def _dynamic_slice(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    x, *starts = args
    sizes = eqn.params["slice_sizes"]
    if all(s.dtype != object for s in starts):
        return [x[_constant_start(starts, sizes, x.shape)]]
    index, places, slices = _slices(program, eqn, starts, sizes, x.shape)
    return [_chosen(program, lambda at: index, places, [x[s] for s in slices], None)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    x, update, *starts = args
    out = x.astype(object)
    if all(s.dtype != object for s in starts):
        out[_constant_start(starts, update.shape, x.shape)] = update
        return [out]
    index, places, slices = _slices(program, eqn, starts, update.shape, x.shape)
    cases = [out.copy() for _ in places]
    for case, where in zip(cases, slices, strict=True):
        case[where] = update
    return [_chosen(program, lambda at: index, places, cases, None)]


@rule("gather", uses="dimension_numbers slice_sizes indices_are_sorted unique_indices mode fill_value")
def _gather(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    x, index = args
    if index.dtype != object:
        return [_moved(eqn, [x, index], (0,))]
    d, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    counts = [x.shape[k] - sizes[k] + 1 for k in d.start_index_map]
    places = _places(eqn, counts)
    cases = [_moved(eqn, [x, np.broadcast_to(np.array(p, np.int64), index.shape)], (0,)) for p in places]
    fills = "FILL" in str(eqn.params["mode"])
    rows = index if fills else _clipped(program, index, counts)
    batch = [k for k in range(cases[0].ndim) if k not in d.offset_dims]
    row_of = lambda at: rows[tuple(at[k] for k in batch)]  # noqa: E731
    return [_chosen(program, row_of, places, cases, _fill_value(eqn) if fills else None)]


def _moved(eqn: Any, args: list[Values], moved: tuple[int, ...]) -> Values:
    """Apply the primitive to integer positions, then take the values at the resulting positions."""
    values = np.concatenate([args[k].astype(object).ravel() for k in moved])
    positions, start = list(args), 0
    for k in moved:
        positions[k] = np.arange(start, start + args[k].size).reshape(args[k].shape)
        start += args[k].size
    where = np.asarray(_rebound(eqn, positions))
    filled = (where < 0) | (where >= len(values))
    out = values[np.where(filled, 0, where)]
    return np.where(filled, _fill_value(eqn), out) if filled.any() else out


def _rebound(eqn: Any, args: list[np.ndarray]) -> Any:
    """Apply the equation's primitive to other arguments (integer positions in place of float values)."""
    from jax import lax

    if eqn.primitive.name == "scatter":
        operand, index, updates = args
        return lax.scatter(operand, index, updates, **_dimensions(eqn))
    return eqn.primitive.bind(*args, **eqn.params | {"fill_value": -1})


def _fill_value(eqn: Any) -> Any:
    """Return the value of `gather` for an index out of bounds; the default is NaN."""
    value = eqn.params.get("fill_value")
    return np.nan if value is None else value


@rule("scatter", uses=SCATTERS)
def _scatter(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    if args[1].dtype != object:
        return [_moved(eqn, args, (0, 2))]
    out = args[0].astype(object)
    for at, value, here in _computed_landings(program, eqn, *args):
        out[at] = program.emit("select", here, value, out[at])
    return [out]


@rule("scatter-add", uses=SCATTERS)
def _scatter_add(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    """Add each update to the element at its index."""
    operand, index, updates = args
    out = operand.astype(object)
    if index.dtype != object:
        for at, update in _landings(eqn, operand.shape, index, updates.shape):
            out[at] = program.emit("add", out[at], updates[update])
        return [out]
    for at, value, here in _computed_landings(program, eqn, *args):
        out[at] = program.emit("add", out[at], program.emit("select", here, value, 0.0))
    return [out]


def _computed_landings(program: Program, eqn: Any, operand: Values, index: Values, updates: Values) -> Iterator[Any]:
    """Yield each element that an update may be added to, with the update and the condition that it is."""
    d = eqn.params["dimension_numbers"]
    window = iter([updates.shape[k] for k in range(updates.ndim) if k in d.update_window_dims])
    dropped = (*d.inserted_window_dims, *d.operand_batching_dims)
    sizes = [1 if k in dropped else next(window) for k in range(operand.ndim)]
    counts = [operand.shape[k] - sizes[k] + 1 for k in d.scatter_dims_to_operand_dims]
    rows = _clipped(program, index, counts) if "CLIP" in str(eqn.params["mode"]) else index
    batch = [k for k in range(updates.ndim) if k not in d.update_window_dims]
    for place in _places(eqn, counts):
        constant = np.broadcast_to(np.array(place, np.int64), index.shape)
        for at, update in _landings(eqn, operand.shape, constant, updates.shape):
            yield at, updates[update], _is_at(program, rows[tuple(update[k] for k in batch)], place)


def _landings(eqn: Any, shape: tuple[int, ...], index: Values, updates: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield the position in the operand for each update, for a constant index."""
    from jax import lax

    for update in np.ndindex(updates):
        one = np.zeros(updates)
        one[update] = 1.0
        for at in zip(
            *np.nonzero(np.asarray(lax.scatter_add(np.zeros(shape), index, one, **_dimensions(eqn)))), strict=True
        ):
            yield at, update
