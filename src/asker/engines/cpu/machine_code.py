"""Functions that Numba compiles, and their machine code in the cache folder.

Numba's own files are loaded without a check, and a broken one stops every run.  Here each compiled function is one file
that is whole or not there (`asker.cache.Kept`), under a name made from all that decides what the code is.
"""

import hashlib
import inspect
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from asker.cache import Kept, cache_folder

on_compile: list[Callable[[str], None]] = []
"""Called with a function's name when it is compiled: for the first time on this machine, or for other types."""
LONGEST_NAME = 40  # a file name has at most 255 bytes


def tell_of_compiling(name: str) -> None:
    """Let `on_compile` hear of it."""
    for listener in on_compile:
        listener(name)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: `numba.njit` without the interpreter's lock, whose machine code is kept."""
    from numba import njit

    def decorated(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, **options)(function)
        dispatcher._cache = _Code(function)
        return dispatcher

    return decorated


@cache
def beside(path: str) -> str:
    """The text of the files beside this one: a compiled function has those that it calls inside."""
    return "\0".join(file.read_text(encoding="utf-8") for file in sorted(Path(path).parent.glob("*.py")))


@cache
def _versions() -> tuple[str, ...]:
    return (str(sys.implementation.cache_tag), *map(version, ("numba", "llvmlite", "numpy")))


def kept_code() -> Kept:
    """The machine code in the cache folder, as that is named now."""
    return _kept(cache_folder() / "machine-code")


@cache
def _kept(folder: Path) -> Kept:
    return Kept(folder)


class _Code:
    """The machine code of one function, for each kind of arguments: what Numba asks of a cache."""

    cache_path = None

    def __init__(self, function: Callable[..., Any]):
        source = beside(inspect.getfile(function))
        self.function, self.source = function, hashlib.sha256(source.encode()).hexdigest()

    def load_overload(self, signature: Any, target: Any) -> Any:
        from numba.core.compiler import CompileResult

        target.refresh()
        content = kept_code().read(self._name(signature, target.codegen()))
        if content is not None:
            with suppress(Exception):  # whatever it is: it is made again
                return CompileResult._rebuild(target, *pickle.loads(content))
        tell_of_compiling(self.function.__name__)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        from numba.core.serialize import dumps

        if not result.lifted and not result.library.has_dynamic_globals:
            kept_code().write(self._name(signature, result.codegen), dumps(result._reduce()))

    def enable(self) -> None:
        """It always is."""

    def disable(self) -> None:
        """It never is."""

    def flush(self) -> None:
        """Files of other sources are left alone."""

    def _name(self, signature: Any, codegen: Any) -> str:
        made_of = (self.source, self.function.__qualname__, str(signature), codegen.magic_tuple(), _versions())
        return f"{self.function.__name__[:LONGEST_NAME]}-{hashlib.sha256(repr(made_of).encode()).hexdigest()}"
