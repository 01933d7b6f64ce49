"""Compile generated source with Numba, once per machine: the machine code stays in the cache folder."""

import hashlib
import inspect
import linecache
import math
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from asker.engines.cpu.machine_code import compiled

# A NaN must stay a NaN, so only fused multiply-add is allowed of the fast-math rules.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "boundscheck": False}

_compiling, _loading = threading.Lock(), threading.Lock()


def _begin_anew() -> None:
    """A forked process has no thread that could hold a lock."""
    global _compiling, _loading
    _compiling, _loading = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


on_compile: list[Callable[[str], None]] = []
"""Called with a function's name when it is compiled: for the first time on this machine, or for other types."""


def tell_of_compiling() -> None:
    """From now on `on_compile` hears of all of ours that Numba compiles."""
    with _loading:  # several threads that import Numba at once may wait for each other forever
        _tell_of_compiling()


@cache
def _tell_of_compiling() -> None:
    from numba.core import event

    class Told(event.Listener):
        def on_start(self, compiling: Any) -> None:
            function = compiling.data["dispatcher"].py_func
            for listener in on_compile if function.__module__.startswith("asker") else ():
                listener(function.__name__)

        def on_end(self, compiling: Any) -> None:
            pass

    event.register("numba:compile", Told())


@cache
def compile_source(name: str, source: str) -> "Printed":
    """The function `name` defined by a text, which may use `math` and `np`, as a `Printed` one."""
    stem = f"{name}_{hashlib.sha256(source.encode()).hexdigest()[:20]}"
    module = ModuleType(f"asker_kernels.{stem}")
    sys.modules[module.__name__] = module  # where machine code from the cache looks for it
    module.__dict__.update(math=math, np=np)
    file = f"<{stem}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for errors
    exec(compile(source, file, "exec"), module.__dict__)
    return Printed(compiled(source, **OPTIONS)(getattr(module, name)))


class Printed:
    """A function printed as source and compiled by Numba; its straight-line code becomes vector instructions.

    Arguments may be given by name, as to any function.  Numba leaves that pass of LLVM out unless its global setting
    says otherwise, so the setting is changed just while the function is compiled, on its first call.
    """

    def __init__(self, function: Any):
        self.function = function
        self.parameters = tuple(inspect.signature(function.py_func).parameters)
        self.call: Callable[..., Any] = self._first_call

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.call(*args, **named)

    def in_order(self, n_given: int, named: dict[str, Any]) -> list[Any]:
        """Named arguments as they follow the first `n_given` ones: for many calls, since names take time to sort."""
        rest = self.parameters[n_given:]
        if named.keys() != set(rest):
            raise TypeError(f"{self.function.__name__} takes {', '.join(rest)}, not {', '.join(named)}")
        return [named[name] for name in rest]

    def _first_call(self, *args: Any, **named: Any) -> Any:
        from numba import typeof
        from numba.core import config as numba_config

        config: Any = numba_config
        given = [*args, *self.in_order(len(args), named)]
        with _compiling:
            before = config.SLP_VECTORIZE
            config.SLP_VECTORIZE = 1
            try:
                self.function.compile(tuple(map(typeof, given)))
            finally:
                config.SLP_VECTORIZE = before
            self.call = self.function
        return self.function(*args, **named)
