"""Translation of the expressions of the Python subset to LLVM IR.

Types follow NumPy's rules for 64-bit scalars: integers are added as integers, a signed and an unsigned one as floats,
and any number with a float as floats.
"""

import ast
import os
import struct
from dataclasses import dataclass, replace
from typing import Any

TYPES = {
    "float64": "double", "float32": "float", "bool": "i1",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
FLOAT_OPERATIONS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
INTEGER_OPERATIONS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
BIT_OPERATIONS = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
INTRINSICS = {f"math.{name}": name for name in ("sqrt", "sin", "cos", "exp", "log")}
INTRINSICS |= {f"np.{name}": name for name in ("floor", "ceil", "rint")}
LIBM_NAMES = [
    "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "log1p", "expm1", "erf",
    "erfc", "lgamma",
]  # fmt: skip
LIBM = {f"math.{name}": name for name in LIBM_NAMES} | {"np.cbrt": "cbrt", "np.fmod": "fmod"}
YIELD = "SwitchToThread" if os.name == "nt" else "sched_yield"
CONVERSIONS = {"float": "float64", "int": "int64"} | {f"np.{name}": name for name in TYPES}

# A NaN must stay a NaN.  The only fast-math flags are therefore fused multiply-add and, where requested, reassociation
# of sums.
CONTRACT, REASSOCIATE = "contract ", "reassoc "


@dataclass(frozen=True)
class Kind:
    """The type of a scalar, of an array (`ndim` > 0) or of a SIMD vector (`lanes` > 1)."""

    dtype: str
    ndim: int = 0
    lanes: int = 1
    """Numbers in a SIMD vector; 1 for a scalar."""

    @property
    def llvm(self) -> str:
        if self.lanes > 1:
            return f"<{self.lanes} x {TYPES[self.dtype]}>"
        return "ptr" if self.ndim else TYPES[self.dtype]

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    @property
    def is_signed(self) -> bool:
        return not self.dtype.startswith(("u", "bool"))

    @property
    def stored(self) -> str:
        return "i8" if self.dtype == "bool" else TYPES[self.dtype]


UNKNOWN = "unknown"
"""The length of a name that is assigned arrays of different lengths."""
FLOAT, WORD, UNSIGNED, BOOL = Kind("float64"), Kind("int64"), Kind("uint64"), Kind("bool")


@dataclass(frozen=True)
class Value:
    """A number or an array; `strides` (in numbers) and `shape` are names of values in the IR."""

    kind: Kind
    name: str
    strides: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()


class UnsupportedSyntax(Exception):
    """A printed loop contains syntax outside of the Python subset, which is a bug in asker."""


class Expressions:
    """LLVM IR under construction: instructions, one per line, and the values of the names in scope."""

    def __init__(self, in_memory: set[str], fast: str = CONTRACT):
        self.fast = fast
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.count = 0
        self.known: dict[str, Value] = {}  # values, or pointers to stack slots
        self.in_memory = in_memory

    def new(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def value(self, node: ast.expr) -> Value:
        value: Value = getattr(self, f"_{type(node).__name__}", self.unknown)(node)
        return value

    def unknown(self, node: ast.AST) -> Any:
        raise UnsupportedSyntax(ast.unparse(node))

    def _Constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bool):
            return Value(BOOL, str(node.value).lower())
        if isinstance(node.value, int):
            return Value(WORD, str(node.value))
        assert isinstance(node.value, float)
        return Value(FLOAT, number(node.value))

    def _Name(self, node: ast.Name) -> Value:
        if node.id not in self.known:
            raise UnsupportedSyntax(f"{node.id} has no value here")
        known = self.known[node.id]
        if node.id not in self.in_memory:
            return known
        return replace(known, name=self.new(f"load {known.kind.llvm}, ptr {known.name}"))

    def _Attribute(self, node: ast.Attribute) -> Value:
        known = {"math.nan": float("nan"), "math.inf": float("inf")}
        return Value(FLOAT, number(known[ast.unparse(node)]))

    def _Subscript(self, node: ast.Subscript) -> Value:
        part = self.part(node)
        return part if part.kind.ndim else self.loaded(part)

    def loaded(self, place: Value) -> Value:
        """Load the number at an address."""
        name = self.new(f"load {place.kind.stored}, ptr {place.name}")
        return Value(place.kind, self.new(f"icmp ne i8 {name}, 0") if place.kind == BOOL else name)

    def part(self, node: ast.Subscript) -> Value:
        """Return the subarray that indices and slices select, or the address of a number if every axis has an index."""
        array = self.value(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not array.kind.ndim or len(indices) > array.kind.ndim:
            self.unknown(node)
        at, strides, shape = "", [], []
        for index, stride, length in zip(indices, array.strides, array.shape, strict=False):
            if isinstance(index, ast.Slice):
                if index.step is not None:
                    self.unknown(node)
                first = "0" if index.lower is None else self.index(index.lower)
                end = self.known_length(length) if index.upper is None else self.index(index.upper)
                strides.append(stride)
                shape.append(end if first == "0" else self.new(f"sub i64 {end}, {first}"))
            else:
                first = self.index(index)
            term = first if stride == "1" else self.new(f"mul i64 {first}, {stride}")
            at = self.new(f"add i64 {at}, {term}") if at else term
        n = len(indices)
        kind = Kind(array.kind.dtype, len(strides) + array.kind.ndim - n)
        name = self.new(f"getelementptr {kind.stored}, ptr {array.name}, i64 {at}")
        return Value(kind, name, (*strides, *array.strides[n:]), (*shape, *array.shape[n:]))

    def known_length(self, length: str) -> str:
        if length == UNKNOWN:
            raise UnsupportedSyntax("the length of a name that is assigned several arrays")
        return length

    def index(self, node: ast.expr) -> str:
        """Return an index as a 64-bit integer."""
        value = self.value(node)
        if value.kind.is_float or value.kind.ndim:
            raise UnsupportedSyntax(f"the index {ast.unparse(node)} is not an integer")
        return self.converted(value, WORD if value.kind.is_signed else UNSIGNED).name

    def _BinOp(self, node: ast.BinOp) -> Value:
        x, y, op = self.value(node.left), self.value(node.right), type(node.op)
        if op is ast.Pow:
            return self._function("pow", [self.converted(v, FLOAT) for v in (x, y)], intrinsic=True)
        if op in BIT_OPERATIONS:
            kind = BOOL if x.kind == y.kind == BOOL else WORD if x.kind.is_signed or y.kind.is_signed else UNSIGNED
            text = BIT_OPERATIONS[op]
        elif op is ast.FloorDiv:
            return self._floor_division(self.converted(x, WORD).name, self.converted(y, WORD).name)
        else:
            kind = FLOAT if op is ast.Div and not common(x.kind, y.kind).is_float else common(x.kind, y.kind)
            text = FLOAT_OPERATIONS[op] + " " + self.fast if kind.is_float else INTEGER_OPERATIONS[op]
        names = [self.converted(v, kind).name for v in (x, y)]
        return Value(kind, self.new(f"{text} {kind.llvm} {names[0]}, {names[1]}"))

    def _floor_division(self, x: str, y: str) -> Value:
        """Divide as Python does, rounding towards minus infinity."""
        quotient, rest = self.new(f"sdiv i64 {x}, {y}"), self.new(f"srem i64 {x}, {y}")
        signs = self.new(f"icmp slt i64 {self.new(f'xor i64 {rest}, {y}')}, 0")
        below = self.new(f"and i1 {signs}, {self.new(f'icmp ne i64 {rest}, 0')}")
        return Value(WORD, self.new(f"sub i64 {quotient}, {self.new(f'zext i1 {below} to i64')}"))

    def _UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
            assert isinstance(node.operand.value, float | int)
            return self._Constant(ast.Constant(-node.operand.value))
        x = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return Value(BOOL, self.new(f"xor i1 {self.converted(x, BOOL).name}, true"))
        if x.kind.is_float:
            return Value(x.kind, self.new(f"fneg {self.fast}{x.kind.llvm} {x.name}"))
        return Value(WORD, self.new(f"sub i64 0, {self.converted(x, WORD).name}"))

    def _Compare(self, node: ast.Compare) -> Value:
        ((op, right),) = zip(node.ops, node.comparators, strict=True)
        x, y = self.value(node.left), self.value(right)
        kind = common(x.kind, y.kind)
        a, b = self.converted(x, kind).name, self.converted(y, kind).name
        name = COMPARISONS[type(op)]
        if kind.is_float:
            return Value(BOOL, self.new(f"fcmp {'u' if name == 'ne' else 'o'}{name} {kind.llvm} {a}, {b}"))
        sign = "" if name in ("eq", "ne") else "s" if kind.is_signed else "u"
        return Value(BOOL, self.new(f"icmp {sign}{name} {kind.llvm} {a}, {b}"))

    def _IfExp(self, node: ast.IfExp) -> Value:
        test = self.converted(self.value(node.test), BOOL).name
        x, y = self.value(node.body), self.value(node.orelse)
        kind = x.kind if x.kind == y.kind else common(x.kind, y.kind)
        a, b = self.converted(x, kind).name, self.converted(y, kind).name
        return Value(kind, self.new(f"select i1 {test}, {kind.llvm} {a}, {kind.llvm} {b}"))

    def _Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "reshape":
            array, shape = self.value(node.func.value), tuple(self.index(length) for length in node.args)
            if array.strides != ("1",) or len(shape) != 2:
                self.unknown(node)
            return Value(replace(array.kind, ndim=2), array.name, (shape[1], "1"), shape)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "view":
            x, kind = self.value(node.func.value), Kind(ast.unparse(node.args[0]).removeprefix("np."))
            same = x.kind.llvm == kind.llvm
            return Value(kind, x.name if same else self.new(f"bitcast {x.kind.llvm} {x.name} to {kind.llvm}"))
        called, args = ast.unparse(node.func), [self.value(a) for a in node.args]
        if called in CONVERSIONS:
            return self.converted(args[0], Kind(CONVERSIONS[called]))
        if called == "abs" and not args[0].kind.is_float:
            x = self.converted(args[0], WORD)
            return Value(
                WORD, self.new(f"call i64 @{self.declare('llvm.abs.i64', 'i64', 'i64, i1')}(i64 {x.name}, i1 0)")
            )
        if called == "len" and args[0].kind.ndim:
            return Value(WORD, self.known_length(args[0].shape[0]))
        if called == "next_task" and args[0].kind == Kind("int64", 1):
            return Value(WORD, self.new(f"atomicrmw add ptr {args[0].name}, i64 1 monotonic"))
        if called == "vector" and args[0].kind.ndim == 1:
            return self._vector(args[0], args[1], ast.literal_eval(node.args[2]))
        if called in ("load_acquire", "store_release") and args[0].kind == Kind("int64", 1):
            return self._atomic(called, *args)
        if called == "yield_thread":
            return Value(Kind("int32"), self.new(f"call i32 @{self.declare(YIELD, 'i32', '')}()"))
        if called in ("max", "min"):
            return self._extreme(called, *args)
        floats = [self.converted(x, FLOAT) for x in args]
        if called == "math.isfinite":
            size = self._function("fabs", floats, intrinsic=True).name
            return Value(BOOL, self.new(f"fcmp olt double {size}, {number(float('inf'))}"))
        if called == "abs":
            return self._function("fabs", floats, intrinsic=True)
        if called in INTRINSICS:
            return self._function(INTRINSICS[called], floats, intrinsic=True)
        if called in LIBM:
            return self._function(LIBM[called], floats)
        return self.unknown(node)

    def _vector(self, row: Value, first: Value, n: int) -> Value:
        """Load n contiguous numbers of a row as a SIMD vector."""
        at, kind = self.converted(first, WORD).name, Kind(row.kind.dtype, lanes=n)
        place = self.new(f"getelementptr {row.kind.stored}, ptr {row.name}, i64 {at}")
        return Value(kind, self.new(f"load {kind.llvm}, ptr {place}, align 8"))

    def _atomic(self, called: str, array: Value, at: Value, *stored: Value) -> Value:
        """Load a number with acquire semantics, or store one with release semantics."""
        place = self.new(f"getelementptr i64, ptr {array.name}, i64 {self.converted(at, WORD).name}")
        if called == "load_acquire":
            return Value(WORD, self.new(f"load atomic i64, ptr {place} acquire, align 8"))
        (value,) = (self.converted(x, WORD) for x in stored)
        self.lines.append(f"store atomic i64 {value.name}, ptr {place} release, align 8")
        return value

    def _extreme(self, called: str, x: Value, y: Value) -> Value:
        kind = common(x.kind, y.kind)
        a, b = self.converted(x, kind).name, self.converted(y, kind).name
        how = ("o" if kind.is_float else "s" if kind.is_signed else "u") + {"max": "gt", "min": "lt"}[called]
        first = self.new(f"{'fcmp' if kind.is_float else 'icmp'} {how} {kind.llvm} {a}, {b}")
        return Value(kind, self.new(f"select i1 {first}, {kind.llvm} {a}, {kind.llvm} {b}"))

    def _function(self, name: str, args: list[Value], intrinsic: bool = False) -> Value:
        full = self.declare(f"llvm.{name}.f64" if intrinsic else name, "double", ", ".join(["double"] * len(args)))
        operands = ", ".join(f"double {x.name}" for x in args)
        return Value(FLOAT, self.new(f"call double @{full}({operands})"))

    def declare(self, name: str, result: str, arguments: str) -> str:
        self.declared.add(f"declare {result} @{name}({arguments})")
        return name

    def converted(self, x: Value, kind: Kind) -> Value:
        """Convert a number to another type, or broadcast it to a vector."""
        if x.kind == kind:
            return x
        if x.kind.ndim or kind.ndim:
            raise UnsupportedSyntax(f"an array of {x.kind} as {kind}")
        if kind.lanes > 1 and x.kind.lanes == 1:
            one = self.converted(x, replace(kind, lanes=1)).name
            first = self.new(f"insertelement {kind.llvm} poison, {TYPES[kind.dtype]} {one}, i64 0")
            all_ = f"<{kind.lanes} x i32> zeroinitializer"
            return Value(kind, self.new(f"shufflevector {kind.llvm} {first}, {kind.llvm} poison, {all_}"))
        if x.kind.lanes > 1:
            raise UnsupportedSyntax(f"a vector of {x.kind} as {kind}")
        a, b = x.kind.llvm, kind.llvm
        if kind == BOOL:
            text = f"fcmp une {a} {x.name}, 0.0" if x.kind.is_float else f"icmp ne {a} {x.name}, 0"
            return Value(kind, self.new(text))
        if a == b:
            return Value(kind, x.name)
        if x.kind.is_float and kind.is_float:
            how = "fpext" if b == "double" else "fptrunc"
        elif x.kind.is_float:
            how = "fptosi" if kind.is_signed else "fptoui"
        elif kind.is_float:
            how = "sitofp" if x.kind.is_signed else "uitofp"
        else:
            wider = int(b[1:]) > int(a[1:])
            how = ("sext" if x.kind.is_signed else "zext") if wider else "trunc"
        return Value(kind, self.new(f"{how} {a} {x.name} to {b}"))


def common(x: Kind, y: Kind) -> Kind:
    """Return the type in which two numbers are added or compared: 64 bits for integers, a vector if one is a vector."""
    if x.lanes != y.lanes:
        vector = max(x, y, key=lambda kind: kind.lanes)
        if not vector.is_float:
            raise TypeError("only vectors of floats take numbers")
        return vector
    if x.is_float and y.is_float:
        return x if x == y else FLOAT
    if x.is_float or y.is_float:
        return FLOAT
    if x.is_signed or y.is_signed or x == y == BOOL:
        return FLOAT if UNSIGNED in (x, y) else WORD
    return UNSIGNED


def number(x: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"
