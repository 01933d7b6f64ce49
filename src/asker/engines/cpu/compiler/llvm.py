"""From a function in the small language to LLVM's.

The small language is a part of Python: numbers and arrays as arguments; assignments, `for` over `range` or an array,
`while`, `if`, `break`, `continue`, `return`; arithmetic, comparisons, conversions and functions of `math`; parts of
arrays, `len`, `reshape`.  `vector(row, first, n)` is n numbers of a row side by side; it is computed with as a number
is, and put to a part of a row.  `for` over `lanes` does several items at once (lanes.py).  Between threads,
`next_task(counter)` gives `counter[0]` and adds 1 to it, one at a time; `tell(array, k, x)` writes array[k], and
whoever sees it there by `seen(array, k)` sees all that was written before it; `let_others_run()` gives the processor
away for a moment.  Nothing is allocated.

A text has one function, or several of which the last one calls the others, and names for numbers.  What is called is
put in place of the call, so that types follow from the arguments, statement by statement (expressions.py).  A name
keeps its type; one that is assigned once is a value, any other a place in memory, which LLVM turns into a register.

Arrays come as NumPy's own objects.  That they are arrays, their type and that they are contiguous is checked before
anything is read: the compiled function returns `REFUSED` where they are not what it was compiled for.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from asker.engines.cpu.compiler.expressions import (
    BOOL,
    CONTRACT,
    UNKNOWN,
    UNSIGNED,
    WORD,
    Expressions,
    Kind,
    NotInTheLanguage,
    Value,
    common,
)
from asker.engines.cpu.compiler.vectorize import Lanes

CLASS, DATA, NDIM, SHAPE, TYPE, FLAGS = -8, 0, 8, 16, 40, 48
"""Where the parts of a NumPy array stand behind the head that every Python object has, which ends with its class."""
CONTIGUOUS = 1
REFUSED = -(2**63)


def to_llvm(source: str, symbol: str, kinds: tuple[Kind, ...], head: int, fast: str = CONTRACT, lanes: int = 2) -> str:
    """LLVM's text of the last function of a source, for arguments of these kinds.

    symbol  its name there
    head    the size of what every Python object begins with
    fast    rules of arithmetic that LLVM may set aside
    lanes   how many numbers a vector holds
    """
    body = ast.parse(source).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    numbers = {node.targets[0].id: node.value for node in body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    return _Function(functions, numbers, kinds, head, fast, lanes).text(symbol)


class _Function(Expressions):
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
        super().__init__(_assigned_again(self.function), fast)
        self.functions, self.kinds, self.head, self.lanes = functions, kinds, head, lanes
        self.constants = numbers
        self.numbers = {name: self.value(node) for name, node in numbers.items()}
        self.known |= self.numbers
        self.places: list[str] = []
        self.loops: list[tuple[str, str]] = []  # where `continue` and `break` lead
        self.calls: list[_Call] = []  # those that are put in place of themselves, the innermost last

    def text(self, symbol: str) -> str:
        parameters = []
        for k, (argument, kind) in enumerate(zip(self.function.args.args, self.kinds, strict=True)):
            parameters.append(f"{kind.llvm} %a{k}")
            if not kind.ndim:
                self.assign(argument.arg, Value(kind, f"%a{k}"))
        self._arrays()
        self._suite(self.function.body)
        body = "\n".join(["entry:", *self.places, "br label %start", "start:", *self.lines, "ret i64 0", "}"])
        signature = ", ".join(["ptr %types", *parameters])
        return "\n".join([*sorted(self.declared), f'define i64 @"{symbol}"({signature}) {{', body])

    def _label(self) -> str:
        self.count += 1
        return f"l{self.count}"

    def _goes_on(self, label: str, jump: bool = True) -> None:
        """What follows stands under a label."""
        if jump:
            self.lines.append(f"br label %{label}")
        self.lines.append(f"{label}:")

    def _arrays(self) -> None:
        """The data and distances of each array; the function ends where one is not what it should be."""
        arrays = [(k, argument.arg, kind) for k, (argument, kind) in enumerate(
            zip(self.function.args.args, self.kinds, strict=True)
        ) if kind.ndim]  # fmt: skip
        is_array = self._type(0)
        self._refuse_if([self.new(f"icmp ne ptr {self._part(k, CLASS, 'ptr')}, {is_array}") for k, *_ in arrays])
        wrong = []
        for n, (k, _, kind) in enumerate(arrays):
            wrong.append(self.new(f"icmp ne ptr {self._part(k, TYPE, 'ptr')}, {self._type(n + 1)}"))
            wrong.append(self.new(f"icmp ne i32 {self._part(k, NDIM, 'i32')}, {kind.ndim}"))
            flag = self.new(f"and i32 {self._part(k, FLAGS, 'i32')}, {CONTIGUOUS}")
            wrong.append(self.new(f"icmp eq i32 {flag}, 0"))
        self._refuse_if(wrong)
        for k, name, kind in arrays:
            lengths = self._part(k, SHAPE, "ptr")
            places = [self.new(f"getelementptr i64, ptr {lengths}, i64 {axis}") for axis in range(kind.ndim)]
            shape = tuple(self.new(f"load i64, ptr {place}") for place in places)
            strides: list[str] = ["1"]
            for length in reversed(shape[1:]):
                strides.insert(0, length if strides[0] == "1" else self.new(f"mul i64 {length}, {strides[0]}"))
            self.known[name] = Value(kind, self._part(k, DATA, "ptr"), tuple(strides), shape)

    def _refuse_if(self, wrong: list[str]) -> None:
        """The function refuses its arguments where any of these is true."""
        any_wrong = "false"
        for bad in wrong:
            any_wrong = self.new(f"or i1 {any_wrong}, {bad}")
        right, refused = self._label(), self._label()
        self.lines += [f"br i1 {any_wrong}, label %{refused}, label %{right}", f"{refused}:"]
        self.lines += [f"ret i64 {REFUSED}", f"{right}:"]

    def _type(self, n: int) -> str:
        return self.new(f"load ptr, ptr {self.new(f'getelementptr ptr, ptr %types, i64 {n}')}")

    def _part(self, k: int, offset: int, llvm: str) -> str:
        place = self.new(f"getelementptr i8, ptr %a{k}, i64 {self.head + offset}")
        return self.new(f"load {llvm}, ptr {place}")

    # ------------------------------------------------------------ statements

    def _suite(self, statements: list[ast.stmt]) -> bool:
        """Statements in order; whether what follows is reached.  What they name first is not known behind them."""
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
        """A call for what it does, or a text for people."""
        if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) in self.functions:
            self._called(statement.value)
        elif not isinstance(statement.value, ast.Constant):
            self.value(statement.value)

    def _Assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        if isinstance(target, ast.Tuple):
            pairs = list(zip(target.elts, self.values(statement.value), strict=True))
        else:
            pairs = [(target, self.value(statement.value))]
        for one, value in pairs:
            self._put(one, value)

    def _AugAssign(self, statement: ast.AugAssign) -> None:
        whole = ast.BinOp(_loaded(statement.target), statement.op, statement.value)
        self._put(statement.target, self.value(whole))

    def _put(self, target: ast.expr, value: Value) -> None:
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
        if name not in self.in_memory:
            self.known[name] = value
            return
        if name not in self.known:
            self.known[name] = replace(value, name=self._place(value.kind))
        at = self.known[name]
        value = self.converted(value, at.kind)
        if value.strides != at.strides:
            raise NotInTheLanguage(f"{name} is a row of two arrays")
        if value.shape != at.shape:
            self.known[name] = replace(at, shape=(UNKNOWN,) * at.kind.ndim)
        self.lines.append(f"store {value.kind.llvm} {value.name}, ptr {at.name}")

    def _place(self, kind: Kind) -> str:
        """A place in memory for a value."""
        place = f"%p{len(self.places)}"
        self.places.append(f"{place} = alloca {kind.llvm}")
        return place

    def _For(self, loop: ast.For) -> None:
        assert isinstance(loop.target, ast.Name)
        if loop.target.id in self.in_memory:
            raise NotInTheLanguage(f"{loop.target.id} counts a loop and is assigned")
        array, step = None, 1
        if isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "lanes":
            bounds = self._in_lanes(loop)
        elif isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range":
            bounds = [self.value(bound) for bound in loop.iter.args[:2]]
            bounds = bounds if len(bounds) == 2 else [Value(bounds[0].kind, "0"), bounds[0]]
            if len(loop.iter.args) == 3:
                given = loop.iter.args[2]
                step = ast.literal_eval(self.constants[given.id] if isinstance(given, ast.Name) else given)
        else:
            array = self.value(loop.iter)
            if array.strides != ("1",):
                self.unknown(loop.iter)
            bounds = [Value(WORD, "0"), Value(WORD, self.known_length(array.shape[0]))]
        kind = common(bounds[0].kind, bounds[1].kind)
        kind = WORD if kind.is_float else kind  # of a signed and an unsigned one
        first, last = (self.converted(bound, kind).name for bound in bounds)
        with self._counting(kind, first, last, step) as (k, following, after):
            value = Value(kind, k)
            if array is not None:
                at = self.new(f"getelementptr {array.kind.stored}, ptr {array.name}, i64 {k}")
                value = self.loaded(Value(Kind(array.kind.dtype), at))
            self._body(loop.body, {loop.target.id: value}, following, after)

    @contextmanager
    def _counting(self, kind: Kind, first: str, last: str, step: int) -> Iterator[tuple[str, str, str]]:
        """A loop around what is written inside, which ends at the label `following`: its counter, and the labels
        `following` and `after`, where it goes on and where it ends."""
        before, header, body, following, after = (self._label() for _ in range(5))
        self._goes_on(before)
        self._goes_on(header)
        self.count += 1
        k, more = f"%v{self.count}", f"%k{self.count}"
        self.lines.append(f"{k} = phi {kind.llvm} [ {first}, %{before} ], [ {more}, %{following} ]")
        how = ("s" if kind.is_signed else "u") + ("lt" if step > 0 else "gt")
        goes = self.new(f"icmp {how} {kind.llvm} {k}, {last}")
        self.lines += [f"br i1 {goes}, label %{body}, label %{after}", f"{body}:"]
        yield k, following, after
        self.lines += [f"{more} = add {kind.llvm} {k}, {step}", f"br label %{header}", f"{after}:"]

    def _in_lanes(self, loop: ast.For) -> list[Value]:
        """The items of a loop that fill vectors (lanes.py); returns the bounds of those that are left."""
        assert isinstance(loop.target, ast.Name)
        assert isinstance(loop.iter, ast.Call)
        first, last = (self.converted(self.value(bound), UNSIGNED) for bound in loop.iter.args)
        count = self.new(f"sub i64 {last.name}, {first.name}")
        middle = self.new(f"add i64 {first.name}, {self.new(f'and i64 {count}, {-self.lanes}')}")
        with self._counting(UNSIGNED, first.name, middle, self.lanes) as (k, following, _):
            items = [Value(UNSIGNED, self.new(f"add i64 {k}, {lane}")) for lane in range(self.lanes)]
            Lanes(self, loop.target.id, items, loop.body)
            self._goes_on(following)
        return [Value(UNSIGNED, middle), last]

    def _While(self, loop: ast.While) -> None:
        header, body, after = self._label(), self._label(), self._label()
        self._goes_on(header)
        test = self.converted(self.value(loop.test), BOOL).name
        self.lines += [f"br i1 {test}, label %{body}, label %{after}", f"{body}:"]
        following = self._label()
        self._body(loop.body, {}, following, after)
        self.lines += [f"br label %{header}", f"{after}:"]

    def _body(self, statements: list[ast.stmt], names: dict[str, Value], following: str, after: str) -> None:
        """Of a loop: `continue` leads to the label `following`, which stands behind it, and `break` to `after`."""
        self.loops.append((following, after))
        outside = self.known
        self.known = outside | names
        reached = self._suite(statements)
        self.loops.pop()
        self.known = outside | {name: at for name, at in self.known.items() if name in self.in_memory}
        self._goes_on(following, reached)

    def _If(self, branch: ast.If) -> None:
        yes, no, after = self._label(), self._label(), self._label()
        test = self.converted(self.value(branch.test), BOOL).name
        self.lines += [f"br i1 {test}, label %{yes}, label %{no}", f"{yes}:"]
        if self._suite(branch.body):
            self.lines.append(f"br label %{after}")
        self.lines.append(f"{no}:")
        self._goes_on(after, self._suite(branch.orelse))

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        """What comes later is computed where it is needed alone."""
        result, end = self._place(BOOL), self._label()
        for value in node.values:
            test, more = self.converted(self.value(value), BOOL).name, self._label()
            self.lines.append(f"store i1 {test}, ptr {result}")
            ways = (more, end) if isinstance(node.op, ast.And) else (end, more)
            self.lines += [f"br i1 {test}, label %{ways[0]}, label %{ways[1]}", f"{more}:"]
        self._goes_on(end)
        return Value(BOOL, self.new(f"load i1, ptr {result}"))

    # ------------------------------------------------------------ calls

    def values(self, node: ast.expr) -> list[Value]:
        """What several names are assigned: values with commas, or what a function returns."""
        if isinstance(node, ast.Tuple):
            return [self.value(one) for one in node.elts]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in self.functions:
            return self._called(node)
        return self.unknown(node)  # type: ignore[no-any-return]

    def _Call(self, node: ast.Call) -> Value:
        if ast.unparse(node.func) not in self.functions:
            return super()._Call(node)
        (value,) = self._called(node)
        return value

    def _called(self, node: ast.Call) -> list[Value]:
        """A function of the text, in place of the call."""
        function = self.functions[ast.unparse(node.func)]
        given = [self.value(argument) for argument in node.args]
        outside = self.known, self.in_memory, self.loops
        self.known, self.in_memory, self.loops = dict(self.numbers), _assigned_again(function), []
        for parameter, value in zip(function.args.args, given, strict=True):
            self.assign(parameter.arg, value)
        call = _Call(self._label(), function.body[-1])
        self.calls.append(call)
        reached = self._suite(function.body)
        self._goes_on(call.end, reached)
        self.calls.pop()
        self.known, self.in_memory, self.loops = outside
        if call.places is None:
            return call.values
        return [Value(at.kind, self.new(f"load {at.kind.llvm}, ptr {at.name}")) for at in call.places]

    def _return(self, statement: ast.Return) -> None:
        given = statement.value
        values = [] if given is None else self.values(given) if isinstance(given, ast.Tuple) else [self.value(given)]
        if not self.calls:
            whole = self.converted(values[0], WORD).name if values else "0"
            self.lines.append(f"ret i64 {whole}")
            return
        call = self.calls[-1]
        if statement is call.last and call.places is None:  # the only one
            call.values = values
        else:
            if call.places is None:
                call.places = [Value(value.kind, self._place(value.kind)) for value in values]
            for at, value in zip(call.places, values, strict=True):
                self.lines.append(f"store {at.kind.llvm} {self.converted(value, at.kind).name}, ptr {at.name}")
        self.lines.append(f"br label %{call.end}")


class _Call:
    """A function that is put in place of a call: where it ends, and what it returns."""

    def __init__(self, end: str, last: ast.stmt):
        self.end, self.last = end, last
        self.values: list[Value] = []
        self.places: list[Value] | None = None
        """Where values are put by a function that returns at several places."""


def _assigned_again(function: ast.FunctionDef) -> set[str]:
    """The names that are assigned more than once in the text; a loop makes its own anew."""
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
    """Those of a suite, and of the suites inside; to walk all expressions takes longer than all else here."""
    for statement in body:
        yield statement
        yield from _statements(getattr(statement, "body", []))
        yield from _statements(getattr(statement, "orelse", []))


def _loaded(target: ast.expr) -> ast.expr:
    """What an augmented assignment reads."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())
