"""Compile source, once per machine: the machine code stays in the cache folder."""

import ast
import os
import threading
from functools import cache
from typing import Any

from asker.engines.cpu.compiler.expressions import CONTRACT, UNSIGNED, Kind
from asker.engines.cpu.compiler.native import Native, kinds_of
from asker.engines.cpu.machine_code import tell_of_compiling

_compiling = threading.Lock()


def _begin_anew() -> None:
    """A forked process has no thread that could hold a lock."""
    global _compiling
    _compiling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class Compiled:
    """A source in the small language of `llvm.py`, compiled for each kind of arguments when it is called with it."""

    name: str
    """Of its last function, which is the one that is called."""
    source: str
    fast = CONTRACT
    """Rules of arithmetic that LLVM may set aside."""

    def __init__(self) -> None:
        self.natives: dict[tuple[Kind, ...], Native] = {}
        self.last: Native | None = None

    def run(self, *arguments: Any, first: tuple[Kind, ...] = ()) -> int:
        """What the function returns, 0 where that is nothing; `first`: the kinds of the first arguments, if given."""
        returned = None if self.last is None else self.last(*arguments)
        if returned is None:
            native = self._native((*first, *kinds_of(arguments[len(first) :])))
            returned, self.last = native(*arguments), native
        assert returned is not None, f"{self.name} was not compiled for these arguments"
        return returned

    def _native(self, kinds: tuple[Kind, ...]) -> Native:
        with _compiling:
            if kinds not in self.natives:
                self.natives[kinds] = Native(self.name, self.source, kinds, tell_of_compiling, self.fast)
            return self.natives[kinds]


@cache
def compile_source(name: str, source: str) -> "Printed":
    """The function `name` defined by a text."""
    return Printed(name, source)


class Printed(Compiled):
    """A function of start, stop and more that was printed as source."""

    def __init__(self, name: str, source: str):
        super().__init__()
        self.name, self.source = name, source
        with _compiling:  # Python 3.11 cannot parse in two threads at once
            (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        self.parameters = tuple(argument.arg for argument in function.args.args)

    def __call__(self, start: int, stop: int, *args: Any) -> None:
        self.run(start, stop, *args, first=(UNSIGNED, UNSIGNED))

    def in_order(self, named: dict[str, Any]) -> list[Any]:
        """Named arguments as they follow start and stop."""
        rest = self.parameters[2:]
        if named.keys() != set(rest):
            raise TypeError(f"{self.name} takes {', '.join(rest)}, not {', '.join(named)}")
        return [named[name] for name in rest]
