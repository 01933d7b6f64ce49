"""Vectorisation of straight-line statements: several items at once, one in each SIMD lane.

    for k in lanes(start, stop):
        statements

The statements are those of one item: names are assigned once, `array[k]` or `array[j, 3]` with an integer j of the item
is read or written, and outer names are incremented.  The rows of the items are loaded and stored as vectors and
transposed in registers, so that a vector contains one number of each item.  Vectors contain 64-bit floats or booleans;
other values are computed item by item.

Each item is computed by the same operations as it would be alone, and sums are accumulated in order; LLVM may fuse
other products and sums.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from asker.engines.cpu.compiler.expressions import (
    BIT_OPERATIONS,
    BOOL,
    COMPARISONS,
    FLOAT,
    FLOAT_OPERATIONS,
    INTRINSICS,
    Kind,
    Value,
    number,
)


class _NotVectorised(Exception):
    """An expression has no vector form."""


class Lanes:
    """The vector code of some items; `outside` contains the names that do not depend on the item."""

    def __init__(self, outside: Any, counter: str, items: list[Value], body: list[ast.stmt]):
        self.outside, self.counter, self.n = outside, counter, len(items)
        self.floats, self.truths = f"<{self.n} x double>", f"<{self.n} x i1>"
        self.single: dict[str, list[Value]] = {counter: items}
        """The value of each item, for names that are not vectors."""
        self.wide: dict[str, Value] = {}
        """Vectors, with the kind of their elements."""
        self.columns = _columns_read(body)
        self.read: dict[tuple[str, str, int], Value] = {}
        self.written: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
        for statement in body:
            getattr(self, f"_{type(statement).__name__}", outside.unknown)(statement)
        self._write_rows()

    def _new(self, text: str) -> str:
        return str(self.outside.new(text))

    # ------------------------------------------------------------ statements

    def _Pass(self, _: ast.Pass) -> None:
        pass

    def _Assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        if isinstance(target, ast.Subscript):
            self._store(target, self._vector(statement.value, FLOAT))
            return
        assert isinstance(target, ast.Name)
        try:
            self.wide[target.id] = self._value(statement.value)
        except _NotVectorised:
            values = list(self._one_by_one(statement.value))
            if values[0].kind in (FLOAT, BOOL):
                self.wide[target.id] = self._joined(values)
            else:
                self.single[target.id] = values

    def _AugAssign(self, statement: ast.AugAssign) -> None:
        assert isinstance(statement.target, ast.Name)
        vector = self._vector(statement.value, FLOAT)
        for lane in range(self.n):
            sum_ = ast.BinOp(ast.Name(statement.target.id, ast.Load()), statement.op, ast.Name(LANE_VALUE, ast.Load()))
            self.outside.known[LANE_VALUE] = self._lane(vector, lane)
            self.outside.assign(statement.target.id, self.outside.value(sum_))
        del self.outside.known[LANE_VALUE]

    def _store(self, target: ast.Subscript, value: Value) -> None:
        array, index, column = _place(target)
        if column is None and index == self.counter:
            place = self.outside.part(self._at(target, 0)).name
            self.outside.lines.append(f"store {self.floats} {value.name}, ptr {place}, align 8")
        elif column is None:
            self.outside.unknown(target)
        else:
            self.written[array, index][column] = value.name

    def _write_rows(self) -> None:
        for (array, index), columns in self.written.items():
            for first, width in _runs(sorted(columns), self.n):
                vectors = [columns[first + t] for t in range(width)]
                rows = self._transposed(vectors + ["poison"] * (self.n - width))
                narrow = ", ".join(f"i32 {t}" for t in range(width))
                for lane, row in enumerate(rows):
                    part = self._new(
                        f"shufflevector {self.floats} {row}, {self.floats} poison, <{width} x i32> <{narrow}>"
                    )
                    place = self._row(array, index, first, lane)
                    self.outside.lines.append(f"store <{width} x double> {part}, ptr {place}, align 8")

    # ------------------------------------------------------------ values

    def _vector(self, node: ast.expr, kind: Kind) -> Value:
        """Evaluate an expression as a vector of this element type."""
        try:
            value = self._value(node)
        except _NotVectorised:
            value = self._joined([self.outside.converted(x, kind) for x in self._one_by_one(node)])
        if value.kind != kind:
            value = self._joined([self.outside.converted(self._lane(value, lane), kind) for lane in range(self.n)])
        return value

    def _value(self, node: ast.expr) -> Value:
        method = getattr(self, f"_of_{type(node).__name__}", None)
        if method is None:
            raise _NotVectorised
        value: Value = method(node)
        return value

    def _of_Constant(self, node: ast.Constant) -> Value:
        if not isinstance(node.value, float):
            raise _NotVectorised
        return Value(FLOAT, f"<{', '.join([f'double {number(node.value)}'] * self.n)}>")

    def _of_Name(self, node: ast.Name) -> Value:
        if node.id in self.wide:
            return self.wide[node.id]
        if node.id in self.single:
            raise _NotVectorised
        value = self.outside.value(node)
        if value.kind != FLOAT:
            raise _NotVectorised
        self.wide[node.id] = self._joined([value] * self.n)
        return self.wide[node.id]

    def _of_Subscript(self, node: ast.Subscript) -> Value:
        array, index, column = _place(node)
        if index not in self.single or self.outside.known[array].kind.dtype != "float64":
            raise _NotVectorised
        if column is None:
            if index != self.counter:
                raise _NotVectorised
            place = self.outside.part(self._at(node, 0)).name
            return Value(FLOAT, self._new(f"load {self.floats}, ptr {place}, align 8"))
        if (array, index, column) not in self.read:
            self._read_rows(array, index)
        return self.read[array, index, column]

    def _read_rows(self, array: str, index: str) -> None:
        for first, width in _runs(sorted(self.columns[array, index]), self.n):
            widened = ", ".join([*[f"i32 {t}" for t in range(width)], *["i32 poison"] * (self.n - width)])
            rows = []
            for lane in range(self.n):
                place = self._row(array, index, first, lane)
                row = self._new(f"load <{width} x double>, ptr {place}, align 8")
                both = f"<{width} x double> {row}, <{width} x double> poison"
                rows.append(self._new(f"shufflevector {both}, <{self.n} x i32> <{widened}>"))
            for t, vector in enumerate(self._transposed(rows)[:width]):
                self.read[array, index, first + t] = Value(FLOAT, vector)

    def _of_BinOp(self, node: ast.BinOp) -> Value:
        op = type(node.op)
        x, y = self._value(node.left), self._value(node.right)
        if op in FLOAT_OPERATIONS and x.kind == y.kind == FLOAT:
            operation = f"{FLOAT_OPERATIONS[op]} {self.outside.fast}{self.floats}"
            return Value(FLOAT, self._new(f"{operation} {x.name}, {y.name}"))
        if op in BIT_OPERATIONS and x.kind == y.kind == BOOL:
            return Value(BOOL, self._new(f"{BIT_OPERATIONS[op]} {self.truths} {x.name}, {y.name}"))
        raise _NotVectorised

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        x = self._value(node.operand)
        if not isinstance(node.op, ast.USub) or x.kind != FLOAT:
            raise _NotVectorised
        return Value(FLOAT, self._new(f"fneg {self.outside.fast}{self.floats} {x.name}"))

    def _of_Compare(self, node: ast.Compare) -> Value:
        ((op, right),) = zip(node.ops, node.comparators, strict=True)
        x, y = self._value(node.left), self._value(right)
        if not x.kind == y.kind == FLOAT:
            raise _NotVectorised
        name = COMPARISONS[type(op)]
        return Value(BOOL, self._new(f"fcmp {'u' if name == 'ne' else 'o'}{name} {self.floats} {x.name}, {y.name}"))

    def _of_IfExp(self, node: ast.IfExp) -> Value:
        test, x, y = (self._value(part) for part in (node.test, node.body, node.orelse))
        if test.kind != BOOL or not x.kind == y.kind == FLOAT:
            raise _NotVectorised
        names = f"{self.truths} {test.name}, {self.floats} {x.name}, {self.floats} {y.name}"
        return Value(FLOAT, self._new(f"select {names}"))

    def _of_Call(self, node: ast.Call) -> Value:
        if ast.unparse(node.func) != "math.sqrt":
            raise _NotVectorised
        (x,) = (self._value(argument) for argument in node.args)
        name = self.outside.declare(f"llvm.{INTRINSICS['math.sqrt']}.v{self.n}f64", self.floats, self.floats)
        return Value(FLOAT, self._new(f"call {self.floats} @{name}({self.floats} {x.name})"))

    # ------------------------------------------------------------ between vectors and items

    def _one_by_one(self, node: ast.expr) -> Iterator[Value]:
        """Evaluate an expression for each item."""
        names = dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name))  # in a deterministic order
        outside = self.outside.known
        for lane in range(self.n):
            single = {name: self.single[name][lane] for name in names if name in self.single}
            wide = {name: self._lane(self.wide[name], lane) for name in names if name in self.wide}
            self.outside.known = outside | single | wide
            yield self.outside.value(node)
        self.outside.known = outside

    def _lane(self, vector: Value, lane: int) -> Value:
        of = self.floats if vector.kind == FLOAT else self.truths
        return Value(vector.kind, self._new(f"extractelement {of} {vector.name}, i64 {lane}"))

    def _joined(self, values: list[Value]) -> Value:
        kind, vector = values[0].kind, "poison"
        of = self.floats if kind == FLOAT else self.truths
        for lane, value in enumerate(values):
            vector = self._new(f"insertelement {of} {vector}, {kind.llvm} {value.name}, i64 {lane}")
        return Value(kind, vector)

    def _at(self, node: ast.Subscript, lane: int) -> ast.Subscript:
        """Return the subscript for one item."""
        array, index, column = _place(node)
        self.outside.known[ITEM_INDEX] = self.single[index][lane]
        indices: list[ast.expr] = [ast.Name(ITEM_INDEX, ast.Load())]
        indices += [] if column is None else [ast.Constant(column)]
        one = ast.Tuple(indices, ast.Load()) if len(indices) > 1 else indices[0]
        return ast.Subscript(ast.Name(array, ast.Load()), one, ast.Load())

    def _row(self, array: str, index: str, column: int, lane: int) -> str:
        """Return the address of a number in the row of an item."""
        node = ast.Subscript(
            ast.Name(array, ast.Load()),
            ast.Tuple([ast.Name(index, ast.Load()), ast.Constant(column)], ast.Load()),
            ast.Load(),
        )
        return str(self.outside.part(self._at(node, lane)).name)

    def _transposed(self, vectors: list[str]) -> list[str]:
        """Transpose: element j of vector i becomes element i of vector j."""
        n, step = self.n, 1
        while step < n:
            turned = list(vectors)
            for i in (i for i in range(n) if not i & step):
                pair = f"{self.floats} {vectors[i]}, {self.floats} {vectors[i + step]}"
                low = ", ".join(f"i32 {p if not p & step else n + p - step}" for p in range(n))
                high = ", ".join(f"i32 {p + step if not p & step else n + p}" for p in range(n))
                turned[i] = self._new(f"shufflevector {pair}, <{n} x i32> <{low}>")
                turned[i + step] = self._new(f"shufflevector {pair}, <{n} x i32> <{high}>")
            vectors, step = turned, 2 * step
        return vectors


LANE_VALUE, ITEM_INDEX = "lane value", "item index"  # not valid identifiers, so distinct from names in the source


def _place(node: ast.Subscript) -> tuple[str, str, int | None]:
    """Return the array, index and column of `array[index]` or `array[index, column]`."""
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    index, *column = indices
    if not isinstance(node.value, ast.Name) or not isinstance(index, ast.Name) or len(column) > 1:
        raise _NotVectorised
    if not column:
        return node.value.id, index.id, None
    if not isinstance(column[0], ast.Constant):
        raise _NotVectorised
    return node.value.id, index.id, int(column[0].value)  # type: ignore[arg-type]


def _columns_read(body: list[ast.stmt]) -> dict[tuple[str, str], set[int]]:
    columns: dict[tuple[str, str], set[int]] = defaultdict(set)
    stack: list[ast.AST] = [statement.value for statement in body if isinstance(statement, ast.Assign | ast.AugAssign)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.BinOp):  # the most frequent case
            stack += (node.left, node.right)
        elif isinstance(node, ast.Subscript):
            array, index, column = _place(node)
            if column is not None:
                columns[array, index].add(column)
        elif not isinstance(node, ast.Name | ast.Constant):
            stack += ast.iter_child_nodes(node)
    return columns


def _runs(columns: list[int], longest: int) -> Iterator[tuple[int, int]]:
    """Yield the first column and the length of each contiguous run of columns, of at most `longest`."""
    while columns:
        width = next((t for t in range(1, len(columns)) if columns[t] != columns[0] + t), len(columns))
        width = min(width, longest)
        yield columns[0], width
        columns = columns[width:]
