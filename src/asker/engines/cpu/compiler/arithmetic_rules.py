"""The table of rules from JAX primitives to scalar statements, and the rules for arithmetic, sums and products."""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from asker.engines.cpu.compiler.scalars import BITCASTS, TEMPLATES, NotCompiled, Program
from asker.tracing.array_namespace import is_narrow
from asker.tracing.jax_compat import IGNORABLE_PARAMETERS
from asker.tracing.unsupported_primitives import cannot_compile

Values = np.ndarray  # an array of numbers if constant, else of dtype object with elements Name | number


class UnsupportedPrimitive(NotCompiled):
    """A residual function uses a primitive that the CPU engine cannot translate to scalar code."""

    def __init__(self, name: str, why: str = ""):
        super().__init__(cannot_compile(name, why))


class ReadsOutside(ValueError):
    """A function reads an array at a constant index that is out of bounds."""


RuleFunction = Callable[[Program, Any, list[Values]], list[Values]]
"""A function that maps (program, equation, arguments) to the list of outputs."""


class Rule(NamedTuple):
    """The translation of equations with one primitive to statements."""

    apply: RuleFunction
    uses: frozenset[str] = frozenset()
    """Parameters of the equation that the rule handles, in addition to `IGNORABLE_PARAMETERS`."""


RULES: dict[str, Rule] = {}

UNSUPPORTED_PARAMETERS = frozenset({"out_dtype"})
"""Parameters that are known; an equation that sets one is rejected."""


def rule(*names: str, uses: str = "") -> Callable[[RuleFunction], RuleFunction]:
    """Register a rule for some primitives, with the names of the parameters that it handles."""

    def register(function: RuleFunction) -> RuleFunction:
        RULES.update(dict.fromkeys(names, Rule(function, frozenset(uses.split()))))
        return function

    return register


def check_parameters(name: str, params: dict[str, Any], known: frozenset[str]) -> None:
    """Reject a parameter of a later version of JAX, which may change the result, unless its value is empty."""
    for key in params.keys() - known - IGNORABLE_PARAMETERS:
        if params[key] is not None and params[key] is not False and params[key] != ():
            raise UnsupportedPrimitive(name, f" with the parameter '{key}', which this version of asker does not know")


class Parameters(dict):
    """The parameters of an equation.  A missing one, which an unknown version of JAX may have renamed, is reported."""

    def __init__(self, name: str, params: dict[str, Any]):
        super().__init__(params)
        self.name = name

    def __missing__(self, key: str) -> Any:
        raise UnsupportedPrimitive(self.name, f" without the parameter '{key}', which this version of asker expects")


def each_element(function: Callable[..., Any], *arrays: Values) -> Values:
    """Apply `function` to each element of arrays of one shape (or scalars)."""
    arrays = tuple(np.broadcast_arrays(*arrays))
    out = np.empty(arrays[0].shape, dtype=object)
    for index in np.ndindex(out.shape):
        out[index] = function(*[a[index] for a in arrays])
    return out


def _elementwise(op: str) -> RuleFunction:
    return lambda program, eqn, args: [each_element(lambda *xs: program.emit(op, *xs), *args)]


for _name in TEMPLATES:
    if _name not in ("select", "float", "int", "int64", *BITCASTS.values()):
        RULES[_name] = Rule(_elementwise(_name))
RULES["add_any"] = RULES["add"]


@rule("div")
def _div(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    if eqn.outvars[0].aval.dtype.kind == "f":
        return [each_element(lambda x, y: program.emit("div", x, y), *args)]
    if any(a.dtype == object for a in args):
        raise UnsupportedPrimitive("div", " on integers")
    return [eqn.primitive.bind(*args, **eqn.params)]


@rule("rem")
def _rem(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    if eqn.outvars[0].aval.dtype.kind == "f":
        return [each_element(lambda x, y: program.emit("rem", x, y), *args)]
    as_floats = [each_element(lambda x: program.emit("float", x), a) for a in args]
    return [each_element(lambda x, y: program.emit("int", program.emit("rem", x, y)), *as_floats)]


@rule("not")
def _not(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    if eqn.outvars[0].aval.dtype.kind == "b":
        return [each_element(lambda x: program.emit("not", x), *args)]
    return [each_element(lambda x: program.emit("sub", -1, x), *args)]  # the bitwise complement of an integer


@rule("round", uses="rounding_method")
def _round(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    def half_away(x: Any) -> Any:
        size = program.emit("floor", program.emit("add", program.emit("abs", x), 0.5))
        return program.emit("mul", program.emit("sign", x), size)

    to_even = eqn.params["rounding_method"].name == "TO_NEAREST_EVEN"
    return [each_element((lambda x: program.emit("round", x)) if to_even else half_away, *args)]


@rule("square")
def _square(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [each_element(lambda x: program.emit("mul", x, x), *args)]


@rule("one_minus_square")
def _one_minus_square(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [each_element(lambda x: program.emit("sub", 1.0, program.emit("mul", x, x)), *args)]


@rule("log2")
def _log2(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [each_element(lambda x: program.emit("div", program.emit("log", x), float(np.log(2.0))), *args)]


@rule("polynomial")
def _polynomial(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    """Evaluate a polynomial; its coefficients follow the variable, the constant term first."""
    x, *coefficients = args

    def horner(x: Any, *c: Any) -> Any:
        total = c[-1]
        for k in reversed(c[:-1]):
            total = program.emit("add", program.emit("mul", total, x), k)
        return total

    return [each_element(horner, x, *coefficients)]


@rule("bitcast_convert_type", uses="new_dtype")
def _bitcast(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    to, came = np.dtype(eqn.params["new_dtype"]), np.dtype(eqn.invars[0].aval.dtype)
    if args[0].dtype != object:
        return [np.asarray(args[0], came).view(to)]
    op = BITCASTS.get((came.name, to.name))
    if op is None:
        raise UnsupportedPrimitive("bitcast_convert_type", f" from {came.name} to {to.name}")
    return [each_element(lambda x: program.emit(op, x), *args)]


@rule("integer_pow", uses="y")
def _integer_pow(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [each_element(lambda x: program.power(x, eqn.params["y"]), *args)]


@rule("clamp")
def _clamp(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [each_element(lambda lo, x, hi: program.emit("min", program.emit("max", x, lo), hi), *args)]


@rule("select_n")
def select_n(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    def choose(which: Any, *cases: Any) -> Any:
        if len(cases) == 2:
            return program.emit("select", which, cases[1], cases[0])
        chosen = cases[-1]
        for k in range(len(cases) - 2, -1, -1):
            chosen = program.emit("select", program.emit("eq", which, k), cases[k], chosen)
        return chosen

    return [each_element(choose, *args)]


@rule("convert_element_type", uses="new_dtype")
def _convert(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    to, came = np.dtype(eqn.params["new_dtype"]), eqn.invars[0].aval.dtype
    if args[0].dtype != object:
        return [args[0].astype(to)]
    if to.kind not in "fiub":
        raise UnsupportedPrimitive("convert_element_type", f" to {to.name}")
    if to.kind == came.kind and not is_narrow(came):
        return args
    if to.kind == "b":
        return [each_element(lambda x: program.emit("ne", x, 0), *args)]
    as_type = {"f": float, "i": int, "u": int}[to.kind]
    if came.kind == "b":
        return [each_element(lambda x: program.emit("select", x, as_type(1), as_type(0)), *args)]
    op = "int64" if came.kind == "u" and to.kind == "i" else as_type.__name__
    return [each_element(lambda x: program.emit(op, x), *args)]


@rule("copy", "name", "reduce_precision", "optimization_barrier", "stop_gradient", "pvary")
def _identity(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return args


def _reduce(op: str) -> RuleFunction:
    empty = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf, "and": True, "or": False}[op]

    def reduce(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
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
    RULES[f"reduce_{_name}"] = Rule(_reduce(_op), frozenset({"axes"}))


def _running(op: str) -> RuleFunction:
    def running(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
        axis, backwards = eqn.params["axis"], eqn.params["reverse"]
        x = np.moveaxis(args[0].astype(object), axis, 0)
        x = x[::-1] if backwards else x
        out = x.copy()
        for k in range(1, len(x)):
            out[k] = each_element(lambda a, b: program.emit(op, a, b), out[k - 1], x[k])[()]
        return [np.moveaxis(out[::-1] if backwards else out, 0, axis)]

    return running


for _name, _op in {"sum": "add", "prod": "mul", "max": "max", "min": "min"}.items():
    RULES[f"cum{_name}"] = Rule(_running(_op), frozenset({"axis", "reverse"}))


@rule("dot_general", uses="dimension_numbers")
def _dot_general(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]

    def arranged(a: Values, batch: Any, contract: Any) -> Values:  # (batch, free, contract), each flattened
        free = [k for k in range(a.ndim) if k not in batch and k not in contract]
        shape = [int(np.prod([a.shape[k] for k in ks])) for ks in (batch, free, contract)]
        return a.transpose(*batch, *free, *contract).reshape(shape)

    x, y = arranged(args[0], batch_x, contract_x), arranged(args[1], batch_y, contract_y)
    out = np.empty((x.shape[0], x.shape[1], y.shape[1]), dtype=object)
    for b, i, j in product(*map(range, out.shape)):
        out[b, i, j] = program.sum(program.emit("mul", p, q) for p, q in zip(x[b, i], y[b, j], strict=True))
    return [out]
