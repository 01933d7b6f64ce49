"""Translation of the statements of the Python subset to LLVM IR: assignments, control flow and inlined calls."""

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from asker.engines.cpu.compiler.expressions import (
    BOOL,
    UNKNOWN,
    UNSIGNED,
    WORD,
    Expressions,
    Kind,
    UnsupportedSyntax,
    Value,
    common,
)
from asker.engines.cpu.compiler.vectorize import Lanes


class Statements(Expressions):
    """LLVM IR of the statements of a function; functions that it calls are inlined."""

    def __init__(
        self,
        function: ast.FunctionDef,
        functions: dict[str, ast.FunctionDef],
        numbers: dict[str, ast.expr],
        fast: str,
        lanes: int,
    ):
        super().__init__(_reassigned(function), fast)
        self.functions, self.constants, self.lanes = functions, numbers, lanes
        self.numbers = {name: self.value(node) for name, node in numbers.items()}
        self.known |= self.numbers
        self.slots: list[str] = []
        self.loops: list[tuple[str, str]] = []  # targets of `continue` and `break`
        self.calls: list[_InlinedCall] = []  # calls being inlined, the innermost last

    def _label(self) -> str:
        self.count += 1
        return f"l{self.count}"

    def _begin_block(self, label: str, jump: bool = True) -> None:
        """Begin the basic block of a label, and jump to it from the block before if `jump`."""
        if jump:
            self.lines.append(f"br label %{label}")
        self.lines.append(f"{label}:")

    def _suite(self, statements: list[ast.stmt]) -> bool:
        """Translate statements in a scope of their own, and return whether their end is reached."""
        outside, reached = dict(self.known), True
        for statement in statements:
            if isinstance(statement, ast.Break | ast.Continue):
                self.lines.append(f"br label %{self.loops[-1][isinstance(statement, ast.Break)]}")
                reached = False
            elif isinstance(statement, ast.Return):
                self._return(statement)
                reached = False
            else:
                getattr(self, f"_{type(statement).__name__}", self.unknown)(statement)
            if not reached:
                break
        self.known = outside | {name: at for name, at in self.known.items() if name in self.in_memory}
        return reached

    def _Pass(self, _: ast.Pass) -> None:
        pass

    def _Expr(self, statement: ast.Expr) -> None:
        """Translate a call whose value is not used; ignore a docstring."""
        if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) in self.functions:
            self._inlined(statement.value)
        elif not isinstance(statement.value, ast.Constant):
            self.value(statement.value)

    def _Assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        if isinstance(target, ast.Tuple):
            pairs = list(zip(target.elts, self.values(statement.value), strict=True))
        else:
            pairs = [(target, self.value(statement.value))]
        for one, value in pairs:
            self._store(one, value)

    def _AugAssign(self, statement: ast.AugAssign) -> None:
        result = ast.BinOp(_as_operand(statement.target), statement.op, statement.value)
        self._store(statement.target, self.value(result))

    def _store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
            return
        assert isinstance(target, ast.Subscript)
        place = self.part(target)
        if place.strides == ("1",) and value.kind.lanes > 1:
            self.lines.append(f"store {value.kind.llvm} {value.name}, ptr {place.name}, align 8")
            return
        if place.kind.ndim:
            self.unknown(target)
        name = self.converted(value, place.kind).name
        name = self.new(f"zext i1 {name} to i8") if place.kind == BOOL else name
        self.lines.append(f"store {place.kind.stored} {name}, ptr {place.name}")

    def assign(self, name: str, value: Value) -> None:
        """Bind a name to a value, or store the value in the name's stack slot."""
        if name not in self.in_memory:
            self.known[name] = value
            return
        if name not in self.known:
            self.known[name] = replace(value, name=self._stack_slot(value.kind))
        at = self.known[name]
        value = self.converted(value, at.kind)
        if value.strides != at.strides:
            raise UnsupportedSyntax(f"{name} is assigned rows of arrays with different strides")
        if value.shape != at.shape:
            self.known[name] = replace(at, shape=(UNKNOWN,) * at.kind.ndim)
        self.lines.append(f"store {value.kind.llvm} {value.name}, ptr {at.name}")

    def _stack_slot(self, kind: Kind) -> str:
        """Allocate a stack slot and return its address."""
        slot = f"%p{len(self.slots)}"
        self.slots.append(f"{slot} = alloca {kind.llvm}")
        return slot

    def _For(self, loop: ast.For) -> None:
        assert isinstance(loop.target, ast.Name)
        if loop.target.id in self.in_memory:
            raise UnsupportedSyntax(f"{loop.target.id} is a loop counter and is assigned")
        array, step = None, 1
        if isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "lanes":
            bounds = self._vectorised_items(loop)
        elif isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range":
            bounds = [self.value(bound) for bound in loop.iter.args[:2]]
            bounds = bounds if len(bounds) == 2 else [Value(bounds[0].kind, "0"), bounds[0]]
            if len(loop.iter.args) == 3:
                third = loop.iter.args[2]
                step = ast.literal_eval(self.constants[third.id] if isinstance(third, ast.Name) else third)
        else:
            array = self.value(loop.iter)
            if array.strides != ("1",):
                self.unknown(loop.iter)
            bounds = [Value(WORD, "0"), Value(WORD, self.known_length(array.shape[0]))]
        kind = common(bounds[0].kind, bounds[1].kind)
        kind = WORD if kind.is_float else kind  # one bound is signed, the other unsigned
        first, last = (self.converted(bound, kind).name for bound in bounds)
        with self._counted_loop(kind, first, last, step) as (k, following, after):
            value = Value(kind, k)
            if array is not None:
                at = self.new(f"getelementptr {array.kind.stored}, ptr {array.name}, i64 {k}")
                value = self.loaded(Value(Kind(array.kind.dtype), at))
            self._body(loop.body, {loop.target.id: value}, following, after)

    @contextmanager
    def _counted_loop(self, kind: Kind, first: str, last: str, step: int) -> Iterator[tuple[str, str, str]]:
        """Wrap the instructions emitted in this context in a loop; they must end by beginning the block `following`.

        Yields the counter, the label `following`, where the counter is incremented, and the label `after` the loop.
        """
        before, header, body, following, after = (self._label() for _ in range(5))
        self._begin_block(before)
        self._begin_block(header)
        self.count += 1
        k, more = f"%v{self.count}", f"%k{self.count}"
        self.lines.append(f"{k} = phi {kind.llvm} [ {first}, %{before} ], [ {more}, %{following} ]")
        how = ("s" if kind.is_signed else "u") + ("lt" if step > 0 else "gt")
        continues = self.new(f"icmp {how} {kind.llvm} {k}, {last}")
        self.lines += [f"br i1 {continues}, label %{body}, label %{after}", f"{body}:"]
        yield k, following, after
        self.lines += [f"{more} = add {kind.llvm} {k}, {step}", f"br label %{header}", f"{after}:"]

    def _vectorised_items(self, loop: ast.For) -> list[Value]:
        """Translate the items of a loop that fill whole vectors (vectorize.py); return the bounds of the others."""
        assert isinstance(loop.target, ast.Name)
        assert isinstance(loop.iter, ast.Call)
        first, last = (self.converted(self.value(bound), UNSIGNED) for bound in loop.iter.args)
        count = self.new(f"sub i64 {last.name}, {first.name}")
        middle = self.new(f"add i64 {first.name}, {self.new(f'and i64 {count}, {-self.lanes}')}")
        with self._counted_loop(UNSIGNED, first.name, middle, self.lanes) as (k, following, _):
            items = [Value(UNSIGNED, self.new(f"add i64 {k}, {lane}")) for lane in range(self.lanes)]
            Lanes(self, loop.target.id, items, loop.body)
            self._begin_block(following)
        return [Value(UNSIGNED, middle), last]

    def _While(self, loop: ast.While) -> None:
        header, body, after = self._label(), self._label(), self._label()
        self._begin_block(header)
        test = self.converted(self.value(loop.test), BOOL).name
        self.lines += [f"br i1 {test}, label %{body}, label %{after}", f"{body}:"]
        following = self._label()
        self._body(loop.body, {}, following, after)
        self.lines += [f"br label %{header}", f"{after}:"]

    def _body(self, statements: list[ast.stmt], names: dict[str, Value], following: str, after: str) -> None:
        """Translate the body of a loop; `continue` jumps to the label `following` at its end, `break` to `after`."""
        self.loops.append((following, after))
        outside = self.known
        self.known = outside | names
        reached = self._suite(statements)
        self.loops.pop()
        self.known = outside | {name: at for name, at in self.known.items() if name in self.in_memory}
        self._begin_block(following, reached)

    def _If(self, branch: ast.If) -> None:
        yes, no, after = self._label(), self._label(), self._label()
        test = self.converted(self.value(branch.test), BOOL).name
        self.lines += [f"br i1 {test}, label %{yes}, label %{no}", f"{yes}:"]
        if self._suite(branch.body):
            self.lines.append(f"br label %{after}")
        self.lines.append(f"{no}:")
        self._begin_block(after, self._suite(branch.orelse))

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        """Translate `and` and `or` with short-circuit evaluation."""
        result, end = self._stack_slot(BOOL), self._label()
        for value in node.values:
            test, more = self.converted(self.value(value), BOOL).name, self._label()
            self.lines.append(f"store i1 {test}, ptr {result}")
            targets = (more, end) if isinstance(node.op, ast.And) else (end, more)
            self.lines += [f"br i1 {test}, label %{targets[0]}, label %{targets[1]}", f"{more}:"]
        self._begin_block(end)
        return Value(BOOL, self.new(f"load i1, ptr {result}"))

    # ------------------------------------------------------------ calls

    def values(self, node: ast.expr) -> list[Value]:
        """Return the values of a tuple, or those that a called function returns."""
        if isinstance(node, ast.Tuple):
            return [self.value(one) for one in node.elts]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in self.functions:
            return self._inlined(node)
        return self.unknown(node)  # type: ignore[no-any-return]

    def _Call(self, node: ast.Call) -> Value:
        if ast.unparse(node.func) not in self.functions:
            return super()._Call(node)
        (value,) = self._inlined(node)
        return value

    def _inlined(self, node: ast.Call) -> list[Value]:
        """Inline a call of another function of the source, and return its values."""
        function = self.functions[ast.unparse(node.func)]
        arguments = [self.value(argument) for argument in node.args]
        outside = self.known, self.in_memory, self.loops
        self.known, self.in_memory, self.loops = dict(self.numbers), _reassigned(function), []
        for parameter, value in zip(function.args.args, arguments, strict=True):
            self.assign(parameter.arg, value)
        call = _InlinedCall(self._label(), function.body[-1])
        self.calls.append(call)
        reached = self._suite(function.body)
        self._begin_block(call.end, reached)
        self.calls.pop()
        self.known, self.in_memory, self.loops = outside
        if call.slots is None:
            return call.values
        return [Value(at.kind, self.new(f"load {at.kind.llvm}, ptr {at.name}")) for at in call.slots]

    def _return(self, statement: ast.Return) -> None:
        node = statement.value
        values = [] if node is None else self.values(node) if isinstance(node, ast.Tuple) else [self.value(node)]
        if not self.calls:
            result = self.converted(values[0], WORD).name if values else "0"
            self.lines.append(f"ret i64 {result}")
            return
        call = self.calls[-1]
        if statement is call.last and call.slots is None:  # the only return statement
            call.values = values
        else:
            if call.slots is None:
                call.slots = [Value(value.kind, self._stack_slot(value.kind)) for value in values]
            for at, value in zip(call.slots, values, strict=True):
                self.lines.append(f"store {at.kind.llvm} {self.converted(value, at.kind).name}, ptr {at.name}")
        self.lines.append(f"br label %{call.end}")


class _InlinedCall:
    """The end label and the returned values of a call that is being inlined."""

    def __init__(self, end: str, last: ast.stmt):
        self.end, self.last = end, last
        self.values: list[Value] = []
        self.slots: list[Value] | None = None
        """Stack slots of the returned values, if the function has several return statements."""


def _reassigned(function: ast.FunctionDef) -> set[str]:
    """Return the names that are assigned more than once; a loop counter is not, as each iteration binds it anew."""
    times: Counter[str] = Counter(argument.arg for argument in function.args.args)
    counting: set[str] = set()
    for node in _statements(function.body):
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            times.update(one.id for one in getattr(target, "elts", [target]) if isinstance(one, ast.Name))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            times[node.target.id] += 2
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            counting.add(node.target.id)
    return {name for name, n in times.items() if n > (name not in counting)}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a suite and of nested suites; `ast.walk` over all expressions would be slow."""
    for statement in body:
        yield statement
        yield from _statements(getattr(statement, "body", []))
        yield from _statements(getattr(statement, "orelse", []))


def _as_operand(target: ast.expr) -> ast.expr:
    """Return the expression that an augmented assignment reads."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())
