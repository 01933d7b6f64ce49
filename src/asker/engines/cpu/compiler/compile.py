"""Compile generated source, once per machine: the machine code stays in the cache folder."""

import ast
import os
import threading
from functools import cache
from typing import Any

from asker.engines.cpu.compiler.expressions import UNSIGNED, Kind
from asker.engines.cpu.compiler.native import Native, kinds_of
from asker.engines.cpu.machine_code import tell_of_compiling

_compiling = threading.Lock()


def _begin_anew() -> None:
    """A forked process has no thread that could hold a lock."""
    global _compiling
    _compiling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@cache
def compile_source(name: str, source: str) -> "Printed":
    """The function `name` defined by a text in the small language of `llvm.py`."""
    return Printed(name, source)


class Printed:
    """A function of start, stop and more, printed as source and compiled when it is called first."""

    def __init__(self, name: str, source: str):
        self.name, self.source = name, source
        with _compiling:  # Python 3.11 cannot parse in two threads at once
            (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        self.parameters = tuple(argument.arg for argument in function.args.args)
        self.natives: dict[tuple[Kind, ...], Native] = {}
        self.last: Native | None = None

    def __call__(self, start: int, stop: int, *args: Any) -> None:
        if self.last is not None and self.last.does(start, stop, *args):
            return
        self.last = self._native((UNSIGNED, UNSIGNED, *kinds_of(args)))
        done = self.last.does(start, stop, *args)
        assert done, f"{self.name} was not compiled for these arguments"

    def in_order(self, named: dict[str, Any]) -> list[Any]:
        """Named arguments as they follow start and stop."""
        rest = self.parameters[2:]
        if named.keys() != set(rest):
            raise TypeError(f"{self.name} takes {', '.join(rest)}, not {', '.join(named)}")
        return [named[name] for name in rest]

    def _native(self, kinds: tuple[Kind, ...]) -> Native:
        with _compiling:
            if kinds not in self.natives:
                self.natives[kinds] = Native(self.name, self.source, kinds, tell_of_compiling)
            return self.natives[kinds]
