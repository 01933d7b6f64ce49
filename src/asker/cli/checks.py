"""What all commands share: checking arguments, writing results."""

import difflib
import math
import os
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from asker.io.files import FileError, write_whole

MANY = 30  # more names than this are not listed in an error

Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same data.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress line.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the run as JSON.")]


def complain(text: str, code: int) -> int:
    """The one line of an error."""
    print("asker:", " ".join(text.splitlines()), file=sys.stderr)
    return code


def one_of(option: str, given: Any, known: Collection[Any]) -> Any:
    """`given`, if it is among the `known`."""
    if given in known:
        return given
    names = [str(name) for name in known]
    near = difflib.get_close_matches(str(given).lower(), names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    listed = ", ".join(names) if len(names) <= MANY else f"the {len(names)} names that are known"
    raise ValueError(f"{option} is {given!r}, which is not one of {listed}{hint}")


def number(option: str, given: float, positive: bool = False) -> float:
    """`given`, if it is finite and not negative."""
    if (given > 0 or (given == 0 and not positive)) and given < math.inf:
        return given
    raise ValueError(f"{option} must be {'positive' if positive else '0 or more'} and finite, got {given}")


class _Untouched(Exception):
    """Leaves `write_whole` before the target is replaced."""


def check_outputs(
    sources: Path | Collection[Path | None] | None, *targets: Path | None, folder: Collection[Path] = ()
) -> None:
    """Refuse now what could not be written after the work, would be read and written, or written twice.

    folder   a folder that is written whole, and what it will hold
    """
    given = [sources] if sources is None or isinstance(sources, Path) else sources
    taken = {os.path.realpath(path) for path in given if path is not None}
    for path in (*folder, *filter(None, targets)):
        if os.path.realpath(path) in taken:
            raise FileError(path, "this would be read and written, or written twice: it is named twice")
        taken.add(os.path.realpath(path))
    for path in filter(None, targets):
        if not os.path.isdir(path.parent):
            raise FileError(path, f"there is no folder {str(path.parent)!r} to write into")
        with suppress(_Untouched), write_whole(path):
            raise _Untouched


def write_outputs(*writers: tuple[Path | None, Callable[[Path], None]]) -> None:
    """Write what was asked for; a file that cannot be written does not cost the others."""
    problems: list[FileError] = []
    for path, write in writers:
        if path is None:
            continue
        try:
            write(path)
            print(f"wrote {path}")
        except FileError as e:
            problems.append(e)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ValueError("; ".join(map(str, problems)))
