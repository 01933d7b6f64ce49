"""Straight-line scalar programs: values, statements and algebraic simplification.

A program is a list of statements `t7 = t3 * t5`.  Common subexpressions are shared, constants are folded, 0·x and 1·x
are simplified, and dead statements are not printed.  A value is a Python number or a `Name`.
"""

import math
from collections import Counter
from typing import Any

import numpy as np


class Name:
    """The result of a statement, or an input."""

    __slots__ = ("index",)

    def __init__(self, index: int):
        self.index = index

    def __repr__(self) -> str:
        return f"t{self.index}"


Value = Any  # Name | float | int | bool

MAX_STATEMENTS = 4000
"""The maximum number of statements of a compiled program.  LLVM takes about 2 s for them, and superlinear time for
more; XLA compiles the original arrays and loops, and runs them about as fast."""
MAX_UNPRUNED_STATEMENTS = 4 * MAX_STATEMENTS
"""The same limit before dead statements are removed."""


class NotCompiled(TypeError):
    """A function cannot be translated to a scalar program, or to one that is small enough; XLA runs it instead."""


class TooManyStatements(NotCompiled):
    """A function needs more than `MAX_STATEMENTS` statements."""

    def __init__(self) -> None:
        super().__init__(f"it needs more than {MAX_STATEMENTS} operations, too many to compile; XLA runs it instead")


# operation -> template of its Python expression; every operand is a name or a literal
BITCASTS = {
    ("float64", "int64"): "float_as_int64",
    ("float64", "uint64"): "float_as_uint64",
    ("int64", "float64"): "int64_as_float",
    ("uint64", "float64"): "uint64_as_float",
}
TEMPLATES = (
    {op: f"np.{came}({{}}).view(np.{to})" for (came, to), op in BITCASTS.items()}
    | {
        "add": "{} + {}",
        "sub": "{} - {}",
        "mul": "{} * {}",
        "div": "{} / {}",
        "neg": "-{}",
        "pow": "{} ** {}",
        "max": "{0} if ({0} > {1}) | ({0} != {0}) else {1}",  # a NaN is propagated, as in JAX
        "min": "{0} if ({0} < {1}) | ({0} != {0}) else {1}",
        "eq": "{} == {}",
        "ne": "{} != {}",
        "lt": "{} < {}",
        "le": "{} <= {}",
        "gt": "{} > {}",
        "ge": "{} >= {}",
        "and": "{} & {}",
        "or": "{} | {}",
        "xor": "{} ^ {}",
        "not": "not {}",
        "select": "{1} if {0} else {2}",
        "abs": "abs({})",
        "sign": "1.0 if {0} > 0 else (-1.0 if {0} < 0 else {0})",
        "rem": "np.fmod({}, {})",
        "is_finite": "math.isfinite({})",
        "float": "float({})",
        "int": "int({})",
        "int64": "np.int64({})",
        "logistic": "1.0 / (1.0 + math.exp(-{}))",
        "rsqrt": "1.0 / math.sqrt({})",
        "round": "np.rint({})",
        "floor": "np.floor({})",
        "ceil": "np.ceil({})",
        "cbrt": "np.cbrt({})",
        "exp2": "2.0 ** {}",
        "atan2": "math.atan2({}, {})",
    }
    | {
        name: f"math.{name}({{}})"
        for name in (
            [
                "sqrt",
                "exp",
                "log",
                "log1p",
                "expm1",
                "sin",
                "cos",
                "tan",
                "asin",
                "acos",
                "atan",
                "sinh",
                "cosh",
                "tanh",
                "asinh",
                "acosh",
                "atanh",
                "erf",
                "erfc",
                "lgamma",
            ]
        )
    }
)


MAX_TRACKED_FACTORS = 32
_SIGNED = ("neg", "mul", "add", "sub", "div")


class Program:
    """A list of statements without duplicates."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, tuple[Value, ...]]] = []
        self._shared: dict[tuple, Name] = {}
        self._names: list[Name] = []
        self._products: list[list[int]] = []  # for each statement, the statements whose product it is

    def input(self, text: str) -> Name:
        """Declare an input, which is printed as `text`."""
        return self._append(("input", (text,)))

    def _append(self, statement: tuple[str, tuple[Value, ...]]) -> Name:
        key = _key(*statement)
        if key not in self._shared:
            if len(self.statements) == MAX_UNPRUNED_STATEMENTS:
                raise TooManyStatements
            self._shared[key] = Name(len(self.statements))
            self._names.append(self._shared[key])
            self._products.append(self._multiplied(*statement) or [len(self.statements)])
            self.statements.append(statement)
        return self._shared[key]

    def _multiplied(self, op: str, args: tuple[Value, ...]) -> list[int]:
        """Return the factors of a product, or an empty list if there are too many to search for common ones."""
        if op != "mul" or not all(isinstance(a, Name) for a in args):
            return []
        factors = self._products[args[0].index] + self._products[args[1].index]
        return factors if len(factors) <= MAX_TRACKED_FACTORS else []

    def emit(self, op: str, *args: Value) -> Value:
        """Return the value of an operation, simplified if possible, otherwise by a new or shared statement."""
        simpler = _simplify(op, args)
        if simpler is not None:
            return simpler[0]
        if not any(isinstance(a, Name) for a in args):
            return _evaluate(op, args)
        if op in _SIGNED:
            return getattr(self, f"_{op}")(*args)
        return self._append((op, args))

    # Signs move outwards, ab + ac becomes a(b + c), and quotients become products with a shared reciprocal.  This makes
    # more statements equal, and lets derivatives of matrix products reuse the products.

    def _neg(self, x: Name) -> Value:
        inner = self._unsigned(x)
        return inner if inner is not x else self._append(("neg", (x,)))

    def _unsigned(self, x: Value) -> Value:
        """Return y if x = −y, else x."""
        if isinstance(x, Name):
            op, args = self.statements[x.index]
            return args[0] if op == "neg" else x
        return -x if isinstance(x, float) and x < 0 else x

    def _signed(self, negative: bool, op: str, x: Value, y: Value) -> Value:
        return self.emit("neg", self.emit(op, x, y)) if negative else self.emit(op, x, y)

    def _mul(self, x: Value, y: Value) -> Value:
        p, q = self._unsigned(x), self._unsigned(y)
        if p is not x or q is not y:
            return self._signed((p is not x) != (q is not y), "mul", p, q)
        return self._append(("mul", (x, y) if _order(x) <= _order(y) else (y, x)))

    def _add(self, x: Value, y: Value) -> Value:
        p, q = self._unsigned(x), self._unsigned(y)
        if p is not x and q is not y:
            return self._signed(True, "add", p, q)
        if q is not y:
            return self.emit("sub", x, q)
        if p is not x:
            return self.emit("sub", y, p)
        if x is not y and (common := self._common_factors(x, y)):
            return self._factored("add", common, x, y)
        return self._append(("add", (x, y) if _order(x) <= _order(y) else (y, x)))

    def _sub(self, x: Value, y: Value) -> Value:
        if _is(x, 0):
            return self.emit("neg", y)
        p, q = self._unsigned(x), self._unsigned(y)
        if q is not y:
            return self.emit("add", x, q)
        if p is not x:
            return self._signed(True, "add", p, y)
        if common := self._common_factors(x, y):
            return self._factored("sub", common, x, y)
        if _order(x) > _order(y):
            return self._signed(True, "sub", y, x)
        return self._append(("sub", (x, y)))

    def _factors(self, x: Value) -> list[int]:
        """Return the statements whose product x is; x itself if it is not a product."""
        return self._products[x.index] if isinstance(x, Name) else []

    def _common_factors(self, x: Value, y: Value) -> list[int]:
        """Return the common factors of two products if both cofactors have been computed already, else none."""
        p, q = Counter(self._factors(x)), Counter(self._factors(y))
        common = p & q
        if common and self._exists(p - common) and self._exists(q - common):
            return list(common.elements())
        return []

    def _exists(self, factors: Counter) -> bool:
        """Return whether the product has been computed already."""
        first, *rest = sorted(factors.elements()) or [None]
        for index in rest:
            known = self._shared.get(_key("mul", (self._names[first], self._names[index])))
            if known is None:
                return False
            first = known.index
        return first is not None

    def _factored(self, op: str, common: list[int], x: Value, y: Value) -> Value:
        rests = [Counter(self._factors(v)) - Counter(common) for v in (x, y)]
        inner = self.emit(op, *[self._product(rest) for rest in rests])
        return self.emit("mul", self._product(Counter(common)), inner)

    def _product(self, factors: Counter) -> Value:
        product: Value = 1.0
        for index in sorted(factors.elements()):
            product = self.emit("mul", product, self._names[index])
        return product

    def _div(self, x: Value, y: Value) -> Value:
        p, q = self._unsigned(x), self._unsigned(y)
        if p is not x or q is not y:
            return self._signed((p is not x) != (q is not y), "div", p, q)
        if not isinstance(y, Name):
            return self._append(("div", (x, y)))
        return self.emit("mul", x, self._append(("div", (1.0, y))))

    def power(self, x: Value, exponent: int) -> Value:
        """Return xⁿ by repeated squaring."""
        if exponent < 0:
            return self.power(self.emit("div", 1.0, x), -exponent)
        result: Value = 1.0
        while exponent:
            if exponent & 1:
                result = self.emit("mul", result, x)
            x, exponent = self.emit("mul", x, x), exponent >> 1
        return result

    def sum(self, terms: Any) -> Value:
        """Return the sum of several values, from left to right."""
        total: Value = 0.0
        for term in terms:
            total = self.emit("add", total, term)
        return total

    def needed(self, outputs: list[Value]) -> list[tuple[int, str, tuple[Value, ...]]]:
        """Return the statements that `outputs` depend on, as (number, operation, operands).

        Raises `TooManyStatements` above the limit.
        """
        live, stack = set(), [v.index for v in outputs if isinstance(v, Name)]
        while stack:
            k = stack.pop()
            if k not in live:
                live.add(k)
                stack += [a.index for a in self.statements[k][1] if isinstance(a, Name)]
        if len(live) > MAX_STATEMENTS:
            raise TooManyStatements
        return [(k, *self.statements[k]) for k in sorted(live)]

    def lines(self, outputs: list[Value]) -> list[str]:
        """Return the statements that `outputs` depend on, as source lines."""
        return [f"t{k} = {_printed(operation, operands)}" for k, operation, operands in self.needed(outputs)]


def _key(op: str, args: tuple[Value, ...]) -> tuple:
    return (op, *[a.index if isinstance(a, Name) else (type(a).__name__, repr(a)) for a in args])


def literal(value: Value) -> str:
    """Return a value as source text."""
    if isinstance(value, Name):
        return repr(value)
    if isinstance(value, (bool, np.bool_)):
        return repr(bool(value))
    if isinstance(value, (int, np.integer)):
        return f"({int(value)})"
    x = float(value)
    if math.isnan(x):
        return "math.nan"
    if math.isinf(x):
        return "math.inf" if x > 0 else "(-math.inf)"
    return f"({x!r})" if x < 0 else repr(x)


def _printed(op: str, args: tuple[Value, ...]) -> str:
    return str(args[0]) if op == "input" else TEMPLATES[op].format(*map(literal, args))


def _is(x: Value, number: float) -> bool:
    return not isinstance(x, Name) and x == number


def _order(x: Value) -> int:
    return x.index if isinstance(x, Name) else -1


def _simplify(op: str, args: tuple[Value, ...]) -> tuple[Value] | None:
    """Return the value in a 1-tuple if it needs no new statement, else None."""
    if op == "select":
        which, yes, no = args
        if not isinstance(which, Name):
            return (yes if which else no,)
        return (yes,) if yes is no or (not isinstance(yes, Name) and _is(no, yes)) else None
    if len(args) != 2:
        return None
    x, y = args
    if op == "mul":
        if _is(x, 0) or _is(y, 0):
            return (0.0,)
        return (y,) if _is(x, 1) else (x,) if _is(y, 1) else None
    if op == "add":
        return (y,) if _is(x, 0) else (x,) if _is(y, 0) else None
    if op == "sub" and _is(y, 0):
        return (x,)
    if op == "div":
        return (0.0,) if _is(x, 0) and isinstance(y, Name) else (x,) if _is(y, 1) else None
    return None


def _evaluate(op: str, args: tuple[Value, ...]) -> Value:
    """Evaluate an operation on constants, by NumPy's rules (1/0 is infinity)."""
    scalars = [np.float64(a) if isinstance(a, (float, np.floating)) else a for a in args]
    names = {f"c{k}": a for k, a in enumerate(scalars)} | {"math": _NumpyAsMath, "np": np}
    with np.errstate(all="ignore"):
        value = eval(TEMPLATES[op].format(*[f"c{k}" for k in range(len(scalars))]), names)
    return value.item() if isinstance(value, np.generic) else value


class _NumpyAsMath:
    """The functions of `math`, by NumPy's rules."""

    def __getattr__(self, name: str) -> Any:
        other = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
        other |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "isfinite": "isfinite"}
        name = other.get(name, name)
        return getattr(np, name) if hasattr(np, name) else getattr(math, name)


_NumpyAsMath = _NumpyAsMath()  # type: ignore[assignment,misc]
