"""Translation of a function in the Python subset to LLVM IR.

The subset: numbers and arrays as arguments; assignments, `for` over `range` or an array, `while`, `if`, `break`,
`continue`, `return`; arithmetic, comparisons, conversions and functions of `math`; subarrays, `len`, `reshape`.
`vector(row, first, n)` is a SIMD vector of n contiguous numbers of a row; it supports arithmetic and can be stored to
a slice of a row.  `for` over `lanes` processes several items at once (vectorize.py).  For synchronisation between
threads, `next_task(counter)` atomically returns `counter[0]` and increments it; `store_release(array, k, x)` writes
array[k], and a thread that reads this value by `load_acquire(array, k)` also sees everything written before it;
`yield_thread()` yields the processor.  Nothing is allocated.

A source text defines one function, or several of which the last one calls the others, and named numbers.  Calls are
inlined, so that types follow from the arguments, statement by statement (statements.py, expressions.py).  The type of a
name does not change; a name that is assigned once is a value, any other name is a stack slot, which LLVM promotes to a
register.

Arrays are passed as NumPy objects.  Their class, dtype and contiguity are checked before any element is read; the
compiled function returns `BAD_ARGUMENTS` if one of them is not as it was compiled for.
"""

import ast

from asker.engines.cpu.compiler.expressions import CONTRACT, Kind, Value
from asker.engines.cpu.compiler.statements import Statements

CLASS, DATA, NDIM, SHAPE, TYPE, FLAGS = -8, 0, 8, 16, 40, 48
"""Offsets in bytes of the fields of a NumPy array behind the header of a Python object, which ends with its class."""
CONTIGUOUS = 1
BAD_ARGUMENTS = -(2**63)


def to_llvm(source: str, symbol: str, kinds: tuple[Kind, ...], head: int, fast: str = CONTRACT, lanes: int = 2) -> str:
    """Return the LLVM IR of the last function of a source, for arguments of these kinds.

    symbol  name of the function in the IR
    head    size of the header of a Python object in bytes
    fast    fast-math flags of LLVM
    lanes   numbers in a SIMD vector
    """
    body = ast.parse(source).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    numbers = {node.targets[0].id: node.value for node in body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    return _Function(functions, numbers, kinds, head, fast, lanes).text(symbol)


class _Function(Statements):
    """The function that is called from Python, with its argument checks."""

    def __init__(
        self,
        functions: dict[str, ast.FunctionDef],
        numbers: dict[str, ast.expr],
        kinds: tuple[Kind, ...],
        head: int,
        fast: str,
        lanes: int,
    ):
        *_, self.function = functions.values()
        super().__init__(self.function, functions, numbers, fast, lanes)
        self.kinds, self.head = kinds, head

    def text(self, symbol: str) -> str:
        """Return the IR of the whole function."""
        parameters = []
        for k, (argument, kind) in enumerate(zip(self.function.args.args, self.kinds, strict=True)):
            parameters.append(f"{kind.llvm} %a{k}")
            if not kind.ndim:
                self.assign(argument.arg, Value(kind, f"%a{k}"))
        self._arrays()
        self._suite(self.function.body)
        body = "\n".join(["entry:", *self.slots, "br label %start", "start:", *self.lines, "ret i64 0", "}"])
        signature = ", ".join(["ptr %types", *parameters])
        return "\n".join([*sorted(self.declared), f'define i64 @"{symbol}"({signature}) {{', body])

    def _arrays(self) -> None:
        """Check each array argument, then read its data pointer, shape and strides."""
        arrays = [(k, argument.arg, kind) for k, (argument, kind) in enumerate(
            zip(self.function.args.args, self.kinds, strict=True)
        ) if kind.ndim]  # fmt: skip
        is_array = self._type(0)
        self._reject_if([self.new(f"icmp ne ptr {self._field(k, CLASS, 'ptr')}, {is_array}") for k, *_ in arrays])
        wrong = []
        for n, (k, _, kind) in enumerate(arrays):
            wrong.append(self.new(f"icmp ne ptr {self._field(k, TYPE, 'ptr')}, {self._type(n + 1)}"))
            wrong.append(self.new(f"icmp ne i32 {self._field(k, NDIM, 'i32')}, {kind.ndim}"))
            flag = self.new(f"and i32 {self._field(k, FLAGS, 'i32')}, {CONTIGUOUS}")
            wrong.append(self.new(f"icmp eq i32 {flag}, 0"))
        self._reject_if(wrong)
        for k, name, kind in arrays:
            lengths = self._field(k, SHAPE, "ptr")
            places = [self.new(f"getelementptr i64, ptr {lengths}, i64 {axis}") for axis in range(kind.ndim)]
            shape = tuple(self.new(f"load i64, ptr {place}") for place in places)
            strides: list[str] = ["1"]
            for length in reversed(shape[1:]):
                strides.insert(0, length if strides[0] == "1" else self.new(f"mul i64 {length}, {strides[0]}"))
            self.known[name] = Value(kind, self._field(k, DATA, "ptr"), tuple(strides), shape)

    def _reject_if(self, wrong: list[str]) -> None:
        """Return `BAD_ARGUMENTS` if any of these conditions is true."""
        any_wrong = "false"
        for bad in wrong:
            any_wrong = self.new(f"or i1 {any_wrong}, {bad}")
        valid, rejected = self._label(), self._label()
        self.lines += [f"br i1 {any_wrong}, label %{rejected}, label %{valid}", f"{rejected}:"]
        self.lines += [f"ret i64 {BAD_ARGUMENTS}", f"{valid}:"]

    def _type(self, n: int) -> str:
        return self.new(f"load ptr, ptr {self.new(f'getelementptr ptr, ptr %types, i64 {n}')}")

    def _field(self, k: int, offset: int, llvm: str) -> str:
        place = self.new(f"getelementptr i8, ptr %a{k}, i64 {self.head + offset}")
        return self.new(f"load {llvm}, ptr {place}")
