"""Machine code in the cache folder, and who hears of compiling.

Each compiled function is one file that is whole or not there (`asker.cache.Kept`), under a name made from all that
decides what the code is.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from asker.cache import Kept, cache_folder

on_compile: list[Callable[[str], None]] = []
"""Called with a function's name when it is compiled: for the first time on this machine, or for other types."""
LONGEST_NAME = 40  # a file name has at most 255 bytes


def tell_of_compiling(name: str) -> None:
    """Let `on_compile` hear of it."""
    for listener in on_compile:
        listener(name)


@cache
def beside(path: str) -> str:
    """The text of the files beside this one: what they do decides what comes out."""
    return "\0".join(file.read_text(encoding="utf-8") for file in sorted(Path(path).parent.glob("*.py")))


def kept_code() -> Kept:
    """The machine code in the cache folder, as that is named now."""
    return _kept(cache_folder() / "machine-code")


@cache
def _kept(folder: Path) -> Kept:
    return Kept(folder)
