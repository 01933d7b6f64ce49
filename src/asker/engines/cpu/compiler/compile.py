"""Callable functions compiled from source text; their machine code is cached on disk."""

import os
import threading
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from asker.engines.cpu.background_compile import enqueue, is_precompiling
from asker.engines.cpu.code_cache import notify_compile
from asker.engines.cpu.compiler.expressions import CONTRACT, Kind
from asker.engines.cpu.compiler.jit import Native, kinds_of, with_known_type

_compiling = threading.Lock()
_printed: "WeakValueDictionary[tuple[str, str, bool], Printed]" = WeakValueDictionary()


def _reset_after_fork() -> None:
    """Replace the lock: the thread that holds it does not exist in a forked process."""
    global _compiling
    _compiling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


class Compiled:
    """A source in the Python subset of `llvm.py`, compiled for each kind of arguments at its first call with them."""

    name: str
    """Name of the last function of the source, which is the one that is called."""
    source: str
    fast = CONTRACT
    """Fast-math flags of LLVM."""
    slp_vectorize = True
    """Run LLVM's SLP vectoriser."""

    def __init__(self) -> None:
        self.natives: dict[tuple[Kind, ...], Native] = {}
        self.last: Native | None = None

    def run(self, *arguments: Any) -> int:
        """Call the function and return its value, 0 if it returns nothing."""
        if is_precompiling():
            enqueue(self._native(kinds_of(arguments)).code)
            return 0
        returned = None if self.last is None else self.last(*arguments)
        if returned is None:
            arguments = tuple(map(with_known_type, arguments))
            native = self._native(kinds_of(arguments))
            returned, self.last = native(*arguments), native
        assert returned is not None, f"{self.name} was not compiled for these arguments"
        return returned

    def prepare(self, *arguments: Any) -> None:
        """Compile for these arguments now, in a thread that Ctrl-C can interrupt, before several threads call."""
        if self.last is None and not is_precompiling():
            native = self._native(kinds_of(arguments))
            native.prepare()
            self.last = native

    def _native(self, kinds: tuple[Kind, ...]) -> Native:
        with _compiling:
            if kinds not in self.natives:
                self.natives[kinds] = Native(
                    self.name, self.source, kinds, notify_compile, self.fast, self.slp_vectorize
                )
            return self.natives[kinds]


def compile_source(name: str, source: str, slp_vectorize: bool = True) -> "Printed":
    """Return the function `name` defined by a source text; equal texts share one object while it is referenced."""
    with _compiling:
        printed = _printed.get((name, source, slp_vectorize))
        if printed is None:
            printed = _printed[name, source, slp_vectorize] = Printed(name, source, slp_vectorize)
        return printed


class Printed(Compiled):
    """A function of (start, stop, …), given as source text and called for each task.

    Each thread calls `share` once, which takes tasks from a counter until none remain.  A parameter `task` receives the
    number of the task.
    """

    def __init__(self, name: str, source: str, slp_vectorize: bool = True):
        super().__init__()
        self.slp_vectorize = slp_vectorize
        *_, last = source.split("\ndef ")  # parsing all of a long text would be slow
        parameters = last[last.index("(") + 1 : last.index(")")].split(",")
        arguments = [parameter.strip() for parameter in parameters][2:]
        self.name, self.parameters = name, tuple(p for p in arguments if p != "task")
        self.source = source + TASK_BY_TASK.format(
            name=name, arguments=", ".join(arguments), parameters=", ".join(self.parameters)
        )

    def __call__(self, start: int, stop: int, *args: Any) -> None:
        """Run a single task."""
        self.share(np.zeros(1, dtype=np.int64), np.array([start, stop], dtype=np.uint64), *args)

    def share(self, counter: np.ndarray, bounds: np.ndarray, *args: Any) -> None:
        """Run tasks until the counter has reached the last one; the bounds delimit the items of each task."""
        self.run(counter, bounds, *args)

    def in_order(self, named: dict[str, Any]) -> list[Any]:
        """Return named arguments in the order of the parameters after start and stop."""
        if named.keys() != set(self.parameters):
            raise TypeError(f"{self.name} expects the arguments {', '.join(self.parameters)}, got {', '.join(named)}")
        return [named[name] for name in self.parameters]


TASK_BY_TASK = """

def task_by_task(counter, bounds, {parameters}):
    task = next_task(counter)
    while task < len(bounds) - 1:
        {name}(bounds[task], bounds[task + 1], {arguments})
        task = next_task(counter)
"""
