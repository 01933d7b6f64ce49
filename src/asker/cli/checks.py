"""Functions of all commands that check arguments and write results."""

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

MAX_LISTED_NAMES = 30  # in an error message

Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress line.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the run as JSON.")]


def complain(text: str, code: int) -> int:
    """Print an error message in one line and return the exit code."""
    print("asker:", " ".join(text.splitlines()), file=sys.stderr)
    return code


def one_of(option: str, given: Any, known: Collection[Any]) -> Any:
    """Return `given` if it is one of `known`, else raise a ValueError."""
    if given in known:
        return given
    names = [str(name) for name in known]
    near = difflib.get_close_matches(str(given).lower(), names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    listed = ", ".join(names) if len(names) <= MAX_LISTED_NAMES else f"the {len(names)} known names"
    raise ValueError(f"{option} is {given!r}, which is not one of {listed}{hint}")


def number(option: str, given: float, positive: bool = False) -> float:
    """Return `given` if it is finite and not negative, or positive; else raise a ValueError."""
    if (given > 0 or (given == 0 and not positive)) and given < math.inf:
        return given
    raise ValueError(f"{option} must be {'positive' if positive else '0 or more'} and finite, got {given}")


class _Untouched(Exception):
    """Raised to leave `write_whole` before the target is replaced."""


def check_outputs(
    sources: Path | Collection[Path | None] | None, *targets: Path | None, folder: Collection[Path] = ()
) -> None:
    """Raise a `FileError` before any computation if an output cannot be written, is an input, or is specified twice.

    `folder` contains an output folder and the paths that will be in it.
    """
    given = [sources] if sources is None or isinstance(sources, Path) else sources
    taken = {os.path.realpath(path) for path in given if path is not None}
    for path in (*folder, *filter(None, targets)):
        if os.path.realpath(path) in taken:
            raise FileError(path, "this path is named twice: an output must differ from all inputs and other outputs")
        taken.add(os.path.realpath(path))
    for path in filter(None, targets):
        if not os.path.isdir(path.parent):
            raise FileError(path, f"there is no folder {str(path.parent)!r} to write into")
        with suppress(_Untouched), write_whole(path):
            raise _Untouched


def write_outputs(*writers: tuple[Path | None, Callable[[Path], None]]) -> None:
    """Write the requested files; all others are written if one fails."""
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
