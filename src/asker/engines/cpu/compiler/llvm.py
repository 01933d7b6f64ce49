"""From a printed loop to LLVM's language.

A printed loop is a Python function in a small part of the language: numbers and arrays as arguments; assignments, `for`
over `range`, `if`, `break`, `continue`; arithmetic, comparisons, conversions and functions of `math`.  It returns
nothing and allocates nothing.  Types follow from the arguments, statement by statement (expressions.py).  A name keeps
its type; one that is assigned once is a value, any other a place in memory, which LLVM turns into a register.

Arrays come as NumPy's own objects.  That they are arrays, their type and that they are contiguous is checked before
anything is read: the compiled function returns 1 where they are not what it was compiled for.
"""

import ast
from collections import Counter
from dataclasses import replace

from asker.engines.cpu.compiler.expressions import BOOL, Expressions, Kind, NotInTheLanguage, Value, common

CLASS, DATA, NDIM, SHAPE, TYPE, FLAGS = -8, 0, 8, 16, 40, 48
"""Where the parts of a NumPy array stand behind the head that every Python object has, which ends with its class."""
CONTIGUOUS = 1


def to_llvm(source: str, symbol: str, kinds: tuple[Kind, ...], head: int) -> str:
    """LLVM's text of a function for arguments of these kinds.

    symbol  its name there
    head    the size of what every Python object begins with
    """
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return _Function(function, kinds, head).text(symbol)


class _Function(Expressions):
    def __init__(self, function: ast.FunctionDef, kinds: tuple[Kind, ...], head: int):
        super().__init__(_assigned_again(function))
        self.function, self.kinds, self.head = function, kinds, head
        self.places: list[str] = []
        self.loops: list[tuple[str, str]] = []  # where `continue` and `break` lead

    def text(self, symbol: str) -> str:
        parameters = []
        for k, (argument, kind) in enumerate(zip(self.function.args.args, self.kinds, strict=True)):
            parameters.append(f"{kind.llvm} %a{k}")
            if not kind.ndim:
                self._assign(argument.arg, Value(kind, f"%a{k}"))
        self._arrays()
        self._suite(self.function.body)
        body = "\n".join(["entry:", *self.places, "br label %start", "start:", *self.lines, "ret i32 0", "}"])
        signature = ", ".join(["ptr %types", *parameters])
        return "\n".join([*sorted(self.declared), f'define i32 @"{symbol}"({signature}) {{', body])

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
            shape = self._part(k, SHAPE, "ptr")
            strides: list[str] = ["1"]
            for axis in range(kind.ndim - 1, 0, -1):
                length = self.new(f"load i64, ptr {self.new(f'getelementptr i64, ptr {shape}, i64 {axis}')}")
                strides.insert(0, length if strides[0] == "1" else self.new(f"mul i64 {length}, {strides[0]}"))
            self.known[name] = Value(kind, self._part(k, DATA, "ptr"), tuple(strides))

    def _refuse_if(self, wrong: list[str]) -> None:
        """The function returns 1 where any of these is true."""
        any_wrong = "false"
        for bad in wrong:
            any_wrong = self.new(f"or i1 {any_wrong}, {bad}")
        right, refused = self._label(), self._label()
        self.lines += [f"br i1 {any_wrong}, label %{refused}, label %{right}", f"{refused}:", "ret i32 1", f"{right}:"]

    def _type(self, n: int) -> str:
        return self.new(f"load ptr, ptr {self.new(f'getelementptr ptr, ptr %types, i64 {n}')}")

    def _part(self, k: int, offset: int, llvm: str) -> str:
        place = self.new(f"getelementptr i8, ptr %a{k}, i64 {self.head + offset}")
        return self.new(f"load {llvm}, ptr {place}")

    # ------------------------------------------------------------ statements

    def _suite(self, statements: list[ast.stmt]) -> bool:
        """Statements in order; whether what follows is reached.  What they name first is not known behind them."""
        outside = dict(self.known)
        for statement in statements:
            if isinstance(statement, ast.Break | ast.Continue):
                self.lines.append(f"br label %{self.loops[-1][isinstance(statement, ast.Break)]}")
                return False
            getattr(self, f"_{type(statement).__name__}", self.unknown)(statement)
        self.known = outside | {name: at for name, at in self.known.items() if name in self.in_memory}
        return True

    def _Pass(self, _: ast.Pass) -> None:
        pass

    def _Assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        if isinstance(target, ast.Tuple):
            assert isinstance(statement.value, ast.Tuple)
            pairs = zip(target.elts, [self.value(v) for v in statement.value.elts], strict=True)
        else:
            pairs = zip([target], [self.value(statement.value)], strict=True)
        for one, value in pairs:
            self._put(one, value)

    def _AugAssign(self, statement: ast.AugAssign) -> None:
        whole = ast.BinOp(_loaded(statement.target), statement.op, statement.value)
        self._put(statement.target, self.value(whole))

    def _put(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._assign(target.id, value)
            return
        assert isinstance(target, ast.Subscript)
        kind, place = self.element(target)
        name = self.converted(value, kind).name
        name = self.new(f"zext i1 {name} to i8") if kind == BOOL else name
        self.lines.append(f"store {kind.stored} {name}, ptr {place}")

    def _assign(self, name: str, value: Value) -> None:
        if name not in self.in_memory:
            self.known[name] = value
            return
        if name not in self.known:
            place = f"%p{len(self.places)}"
            self.places.append(f"{place} = alloca {value.kind.llvm}")
            self.known[name] = replace(value, name=place)
        at = self.known[name]
        value = self.converted(value, at.kind)
        if value.strides != at.strides:
            raise NotInTheLanguage(f"{name} is a row of two arrays")
        self.lines.append(f"store {value.kind.llvm} {value.name}, ptr {at.name}")

    def _For(self, loop: ast.For) -> None:
        assert isinstance(loop.target, ast.Name)
        assert isinstance(loop.iter, ast.Call)
        if loop.target.id in self.in_memory:
            raise NotInTheLanguage(f"{loop.target.id} counts a loop and is assigned")
        bounds = [self.value(bound) for bound in loop.iter.args]
        bounds = bounds if len(bounds) == 2 else [Value(bounds[0].kind, "0"), bounds[0]]
        kind = common(bounds[0].kind, bounds[1].kind)
        first, last = (self.converted(bound, kind).name for bound in bounds)
        before, header, body, following, after = (self._label() for _ in range(5))
        self._goes_on(before)
        self._goes_on(header)
        self.count += 1
        k, more = f"%v{self.count}", f"%k{self.count}"
        self.lines.append(f"{k} = phi {kind.llvm} [ {first}, %{before} ], [ {more}, %{following} ]")
        goes = self.new(f"icmp {'slt' if kind.is_signed else 'ult'} {kind.llvm} {k}, {last}")
        self.lines.append(f"br i1 {goes}, label %{body}, label %{after}")
        self.lines.append(f"{body}:")
        self.loops.append((following, after))
        outside = self.known
        self.known = outside | {loop.target.id: Value(kind, k)}
        reached = self._suite(loop.body)
        self.loops.pop()
        self.known = outside | {name: at for name, at in self.known.items() if name in self.in_memory}
        self._goes_on(following, reached)
        self.lines += [f"{more} = add {kind.llvm} {k}, 1", f"br label %{header}", f"{after}:"]

    def _If(self, branch: ast.If) -> None:
        if branch.orelse:
            self.unknown(branch)
        yes, after = self._label(), self._label()
        test = self.converted(self.value(branch.test), BOOL).name
        self.lines += [f"br i1 {test}, label %{yes}, label %{after}", f"{yes}:"]
        self._goes_on(after, self._suite(branch.body))


def _assigned_again(function: ast.FunctionDef) -> set[str]:
    """The names that are assigned more than once in the text; a loop makes its own anew."""
    times: Counter[str] = Counter(argument.arg for argument in function.args.args)
    counting: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            times[node.id] += 1
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            times[node.target.id] += 1
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            times[node.target.id] -= 1
            counting.add(node.target.id)
    return {name for name, n in times.items() if n > (name not in counting)}


def _loaded(target: ast.expr) -> ast.expr:
    """What an augmented assignment reads."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())
