"""Compile source, once per machine: the machine code stays in the cache folder."""

import os
import threading
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from asker.engines.cpu.background_compile import ask, is_asking
from asker.engines.cpu.code_cache import tell_of_compiling
from asker.engines.cpu.compiler.expressions import CONTRACT, Kind
from asker.engines.cpu.compiler.jit import Native, kinds_of, with_known_type

_compiling = threading.Lock()
_printed: "WeakValueDictionary[tuple[str, str, bool], Printed]" = WeakValueDictionary()


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
    packed = True
    """Whether LLVM looks for statements that make one on vectors."""

    def __init__(self) -> None:
        self.natives: dict[tuple[Kind, ...], Native] = {}
        self.last: Native | None = None

    def run(self, *arguments: Any) -> int:
        """What the function returns, 0 where that is nothing."""
        if is_asking():
            ask(self._native(kinds_of(arguments)).code)
            return 0
        returned = None if self.last is None else self.last(*arguments)
        if returned is None:
            arguments = tuple(map(with_known_type, arguments))
            native = self._native(kinds_of(arguments))
            returned, self.last = native(*arguments), native
        assert returned is not None, f"{self.name} was not compiled for these arguments"
        return returned

    def prepare(self, *arguments: Any) -> None:
        """Have the code for these arguments made now, by a thread that Ctrl-C reaches, and not when several begin."""
        if self.last is None and not is_asking():
            native = self._native(kinds_of(arguments))
            native.prepare()
            self.last = native

    def _native(self, kinds: tuple[Kind, ...]) -> Native:
        with _compiling:
            if kinds not in self.natives:
                self.natives[kinds] = Native(self.name, self.source, kinds, tell_of_compiling, self.fast, self.packed)
            return self.natives[kinds]


def compile_source(name: str, source: str, packed: bool = True) -> "Printed":
    """The function `name` defined by a text; the same object as long as somebody has it."""
    with _compiling:
        found = _printed.get((name, source, packed))
        if found is None:
            found = _printed[name, source, packed] = Printed(name, source, packed)
        return found


class Printed(Compiled):
    """A function of start, stop and more that was printed as source, called task by task.

    Threads that share its tasks call it once each, and take the next task from a counter until none is left.  A
    parameter `task` is the number of the task.
    """

    def __init__(self, name: str, source: str, packed: bool = True):
        super().__init__()
        self.packed = packed
        *_, last = source.split("\ndef ")  # to parse all of a long text takes long
        named = last[last.index("(") + 1 : last.index(")")].split(",")
        given = [parameter.strip() for parameter in named][2:]
        self.name, self.parameters = name, tuple(p for p in given if p != "task")
        self.source = source + TASK_BY_TASK.format(name=name, given=", ".join(given), named=", ".join(self.parameters))

    def __call__(self, start: int, stop: int, *args: Any) -> None:
        """Of one task alone."""
        self.share(np.zeros(1, dtype=np.int64), np.array([start, stop], dtype=np.uint64), *args)

    def share(self, counter: np.ndarray, bounds: np.ndarray, *args: Any) -> None:
        """Do tasks until the counter has come to the last one; each lies between two of the bounds."""
        self.run(counter, bounds, *args)

    def in_order(self, named: dict[str, Any]) -> list[Any]:
        """Named arguments as they follow start and stop."""
        if named.keys() != set(self.parameters):
            raise TypeError(f"{self.name} takes {', '.join(self.parameters)}, not {', '.join(named)}")
        return [named[name] for name in self.parameters]


TASK_BY_TASK = """

def task_by_task(counter, bounds, {named}):
    task = next_task(counter)
    while task < len(bounds) - 1:
        {name}(bounds[task], bounds[task + 1], {given})
        task = next_task(counter)
"""
