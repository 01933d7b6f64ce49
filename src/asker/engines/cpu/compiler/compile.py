"""Compile generated source with Numba, once per machine.

The source is kept in the cache folder under a name made from its text, so that Numba finds its own compiled code
beside it in every later process.
"""

import hashlib
import importlib.util
import inspect
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from asker.cache import cache_folder

HEADER = """import math
import numpy as np
from numba import njit

"""

# A NaN must stay a NaN, so only fused multiply-add is allowed of the fast-math rules.
DECORATOR = '@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"}, boundscheck=False)\n'

_compiling = threading.Lock()

on_compile: list[Callable[[str], None]] = []
"""Called with a function's name when it is compiled: for the first time on this machine, or for other types."""


@cache
def tell_of_compiling() -> None:
    """From now on `on_compile` hears of all of ours that Numba compiles."""
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
def _writable_folder() -> Path:
    folder = cache_folder() / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as e:
        warnings.warn(f"cannot write to {folder} ({e.strerror}): compiled code is not kept", stacklevel=2)
        return Path(tempfile.mkdtemp(prefix="asker-"))


@cache
def compile_source(name: str, body: str) -> "Printed":
    """The function `name` defined by the source `body` (without decorator or imports), as a `Printed` one."""
    text = HEADER + DECORATOR + body
    stem = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:20]}"
    path = _writable_folder() / f"{stem}.py"
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    spec = importlib.util.spec_from_file_location(f"asker_kernels.{stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return Printed(getattr(module, name))


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
