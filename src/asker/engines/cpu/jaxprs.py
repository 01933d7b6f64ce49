"""From a traced JAX function to a scalar program.

`scalarise` walks a jaxpr whose arrays are arrays of scalar values.  Elementwise primitives become one statement per
scalar, data movement moves the values, sums and products unroll, and nested calls are walked in place.  Constants
are NumPy arrays; whatever depends on constants alone is folded.  The rules stand in one table.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from asker.engines.cpu.scalars import TEMPLATES, Name, Program

Values = np.ndarray  # numbers when constant, else dtype object: Name | number


class UnsupportedPrimitive(TypeError):
    """A residual function uses an operation that the CPU engine cannot turn into scalar code."""

    def __init__(self, name: str, why: str = ""):
        super().__init__(
            f"the CPU engine cannot compile the JAX primitive '{name}'{why}; write the function without it, "
            "or pass batched NumPy functions `residual` and `jacobian`"
        )


def scalarise(program: Program, closed_jaxpr: Any, inputs: list[Values]) -> list[Values]:
    """Walk a ClosedJaxpr; the outputs as arrays of values."""
    return _walk(program, closed_jaxpr.jaxpr, [np.asarray(c) for c in closed_jaxpr.consts], inputs)


def _walk(program: Program, jaxpr: Any, consts: list[Values], inputs: list[Values]) -> list[Values]:
    env: dict[Any, Values] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom):
        return np.asarray(atom.val) if hasattr(atom, "val") else env[atom]

    for eqn in jaxpr.eqns:
        args = [read(v) for v in eqn.invars]
        rule = RULES.get(eqn.primitive.name)
        if rule is not None:
            outs = rule(program, eqn, args)
        elif any(a.dtype == object for a in args):
            raise UnsupportedPrimitive(eqn.primitive.name)
        else:
            outs = eqn.primitive.bind(*args, **eqn.params)
            outs = outs if eqn.primitive.multiple_results else [outs]
        for var, out in zip(eqn.outvars, outs, strict=True):
            env[var] = _settled(out, var.aval)
    return [read(v) for v in jaxpr.outvars]


def _settled(x: Values, aval: Any) -> Values:
    """With the shape that JAX promises, and as plain numbers once no name is left in it."""
    x = np.asarray(x).reshape(aval.shape)
    if x.dtype == object and not any(isinstance(v, Name) for v in x.flat):
        return x.astype(aval.dtype)
    return x


def _map(function: Callable[..., Any], *arrays: Values) -> Values:
    """`function` on each element of arrays of one shape (or scalars)."""
    arrays = tuple(np.broadcast_arrays(*arrays))
    out = np.empty(arrays[0].shape, dtype=object)
    for index in np.ndindex(out.shape):
        out[index] = function(*[a[index] for a in arrays])
    return out


# Each rule takes (program, equation, arguments) and returns the list of outputs.
RULES: dict[str, Callable[[Program, Any, list[Values]], list[Values]]] = {}


def rule(*names: str):
    def register(function):
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


# ---------------------------------------------------------------- elementwise


def _elementwise(op: str):
    return lambda program, eqn, args: [_map(lambda *xs: program.emit(op, *xs), *args)]


for _name in TEMPLATES:
    if _name not in ("select", "float", "int"):
        RULES[_name] = _elementwise(_name)
RULES["add_any"] = RULES["add"]


@rule("div")
def _div(program, eqn, args):
    if eqn.outvars[0].aval.dtype.kind == "f":
        return [_map(lambda x, y: program.emit("div", x, y), *args)]
    if any(a.dtype == object for a in args):
        raise UnsupportedPrimitive("div", " on integers")
    return [eqn.primitive.bind(*args, **eqn.params)]


@rule("rem")
def _rem(program, eqn, args):
    if eqn.outvars[0].aval.dtype.kind == "f":
        return [_map(lambda x, y: program.emit("rem", x, y), *args)]
    as_floats = [_map(lambda x: program.emit("float", x), a) for a in args]  # Numba's fmod knows no sign of integers
    return [_map(lambda x, y: program.emit("int", program.emit("rem", x, y)), *as_floats)]


@rule("not")
def _not(program, eqn, args):
    if eqn.outvars[0].aval.dtype.kind == "b":
        return [_map(lambda x: program.emit("not", x), *args)]
    return [_map(lambda x: program.emit("sub", -1, x), *args)]  # all bits of an integer


@rule("round")
def _round(program, eqn, args):
    def half_away(x):
        size = program.emit("floor", program.emit("add", program.emit("abs", x), 0.5))
        return program.emit("mul", program.emit("sign", x), size)

    to_even = eqn.params["rounding_method"].name == "TO_NEAREST_EVEN"
    return [_map((lambda x: program.emit("round", x)) if to_even else half_away, *args)]


@rule("square")
def _square(program, eqn, args):
    return [_map(lambda x: program.emit("mul", x, x), *args)]


@rule("integer_pow")
def _integer_pow(program, eqn, args):
    return [_map(lambda x: program.power(x, eqn.params["y"]), *args)]


@rule("clamp")
def _clamp(program, eqn, args):
    return [_map(lambda lo, x, hi: program.emit("min", program.emit("max", x, lo), hi), *args)]


@rule("select_n")
def _select_n(program, eqn, args):
    def choose(which, *cases):
        if len(cases) == 2:
            return program.emit("select", which, cases[1], cases[0])
        chosen = cases[-1]
        for k in range(len(cases) - 2, -1, -1):
            chosen = program.emit("select", program.emit("eq", which, k), cases[k], chosen)
        return chosen

    return [_map(choose, *args)]


@rule("convert_element_type")
def _convert(program, eqn, args):
    to, came = np.dtype(eqn.params["new_dtype"]), eqn.invars[0].aval.dtype
    if args[0].dtype != object:
        return [args[0].astype(to)]
    if to.kind == came.kind:
        return args
    if to.kind == "b":
        return [_map(lambda x: program.emit("ne", x, 0), *args)]
    as_type = {"f": float, "i": int, "u": int}[to.kind]
    if came.kind == "b":
        return [_map(lambda x: program.emit("select", x, as_type(1), as_type(0)), *args)]
    return [_map(lambda x: program.emit(as_type.__name__, x), *args)]


@rule("copy", "copy_p", "reduce_precision", "optimization_barrier", "stop_gradient", "pvary")
def _identity(program, eqn, args):
    return args


# ---------------------------------------------------------------- data movement


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
    """The slice of a dynamic slice, moved inside the array as JAX does."""
    if any(s.dtype == object for s in starts):
        raise UnsupportedPrimitive(eqn.primitive.name, " with an index that is not constant")
    first = [int(np.clip(s, 0, n - size)) for s, size, n in zip(starts, sizes, shape, strict=True)]
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


# ---------------------------------------------------------------- sums and products


def _reduce(op: str):
    empty = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf, "and": True, "or": False}[op]

    def reduce(program, eqn, args):
        axes = eqn.params["axes"]
        rest = [k for k in range(args[0].ndim) if k not in axes]
        shape = [args[0].shape[k] for k in rest]
        x = args[0].transpose(*rest, *axes).reshape(*shape, int(np.prod([args[0].shape[k] for k in axes])))
        out = np.empty(shape, dtype=object)
        for index in np.ndindex(out.shape):
            total, *terms = x[index] if x.shape[-1] else [empty]
            for term in terms:
                total = program.emit(op, total, term)
            out[index] = total
        return [out]

    return reduce


for _name, _op in dict(sum="add", prod="mul", max="max", min="min", **{"and": "and", "or": "or"}).items():
    RULES[f"reduce_{_name}"] = _reduce(_op)


@rule("cumsum")
def _cumsum(program, eqn, args):
    axis = eqn.params["axis"]
    x = np.moveaxis(args[0].astype(object), axis, 0)
    x = x[::-1] if eqn.params["reverse"] else x
    out = x.copy()
    for k in range(1, len(x)):
        out[k] = _map(lambda a, b: program.emit("add", a, b), out[k - 1], x[k])[()]
    return [np.moveaxis(out[::-1] if eqn.params["reverse"] else out, 0, axis)]


@rule("dot_general")
def _dot_general(program, eqn, args):
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]

    def arranged(a, batch, contract):  # (batch, free, contract), each flattened
        free = [k for k in range(a.ndim) if k not in batch and k not in contract]
        shape = [int(np.prod([a.shape[k] for k in ks])) for ks in (batch, free, contract)]
        return a.transpose(*batch, *free, *contract).reshape(shape)

    x, y = arranged(args[0], batch_x, contract_x), arranged(args[1], batch_y, contract_y)
    out = np.empty((x.shape[0], x.shape[1], y.shape[1]), dtype=object)
    for b, i, j in product(*map(range, out.shape)):
        out[b, i, j] = program.sum(program.emit("mul", p, q) for p, q in zip(x[b, i], y[b, j], strict=True))
    return [out]


# ---------------------------------------------------------------- calls and loops


@rule("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
@rule("remat", "remat2", "checkpoint")
def _call(program, eqn, args):
    inner = next(eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params)
    if hasattr(inner, "consts"):
        return scalarise(program, inner, args)
    return _walk(program, inner, [], args)


@rule("cond")
def _cond(program, eqn, args):
    which, *operands = args
    branches = eqn.params["branches"]
    if which.dtype != object:
        return scalarise(program, branches[int(np.clip(which, 0, len(branches) - 1))], operands)
    results = [scalarise(program, b, operands) for b in branches]  # all are computed, one is chosen
    return [_select_n(program, eqn, [which, *cases])[0] for cases in zip(*results, strict=True)]


@rule("scan")
def _scan(program, eqn, args):
    p = eqn.params
    n_consts, n_carry = p["num_consts"], p["num_carry"]
    consts, carry, sequences = args[:n_consts], args[n_consts : n_consts + n_carry], args[n_consts + n_carry :]
    stacked: list[list[Values]] = []
    steps = range(p["length"])
    for k in reversed(steps) if p["reverse"] else steps:
        outs = scalarise(program, p["jaxpr"], [*consts, *carry, *[s[k] for s in sequences]])
        carry = outs[:n_carry]
        stacked.append(outs[n_carry:])
    if p["reverse"]:
        stacked.reverse()
    columns = [np.stack([o.astype(object) for o in column]) for column in zip(*stacked, strict=True)]
    return [*carry, *columns]
