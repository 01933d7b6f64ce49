"""A result as a file: what a benchmark prints, with the commit, the date and the machine.

    python benchmarks/rings.py --record rings      writes benchmarks/results/rings.md

A script adds the option with `add_record_option` and prints inside of `recorded`.  Nothing is written where it fails.
"""

import argparse
import contextlib
import io
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PACKAGES = ("jax", "llvmlite", "numpy", "scipy")


def add_record_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", type=Result, metavar="NAME", help="write what is printed to results/NAME.md too")


class Result:
    """A file of results; its heading is made with it, when the run begins."""

    def __init__(self, name: str):
        if not re.fullmatch(r"[\w-]+", name):
            raise argparse.ArgumentTypeError(f"{name!r} is no name; letters, digits, - and _ make one")
        self.file = RESULTS / f"{name}.md"
        self.heading = (
            f"# {name}\n\n`{command(sys.argv)}`\n\n"
            f"- Commit: {commit(HERE.parent)}\n- Date: {datetime.now(UTC):%Y-%m-%d}\n- Machine: {machine()}\n\n"
        )


@contextlib.contextmanager
def recorded(result: Result | None) -> Iterator[None]:
    """What is printed inside goes to the file as well, at the end; without one it is only printed."""
    if result is None:
        yield
        return
    shown = _Both(sys.stdout)
    with contextlib.redirect_stdout(shown):
        yield
    result.file.parent.mkdir(exist_ok=True)
    result.file.write_text(result.heading + shown.kept.getvalue().strip("\n") + "\n", encoding="utf-8")
    print(f"\nrecorded in {result.file.parent.name}/{result.file.name}", file=sys.stderr)


def command(words: list[str]) -> str:
    """The command as one types it; of a path the name alone."""
    script, *rest = words
    return " ".join(["python", f"benchmarks/{Path(script).name}", *(_without_folders(word) for word in rest)])


def commit(folder: Path) -> str:
    """What git calls the commit; `-dirty` where files that it knows were changed, other than results."""
    try:
        called = _git(folder, "describe", "--always")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return "no repository"
    return called + ("-dirty" if changed else "")


def machine() -> str:
    """Cores and memory, system, Python and packages, in words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = [f"{cores} cores", *_memory(), f"{platform.system()} {platform.machine()}"]
    parts.append(f"Python {platform.python_version()}")
    return ", ".join([*parts, *(f"{package} {version}" for package, version in _versions().items())])


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _memory() -> list[str]:
    """Empty where the system does not say."""
    try:
        return [f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"]
    except (AttributeError, OSError, ValueError):
        return []


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _without_folders(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return option + equals + (re.split(r"[\\/]", value.rstrip("\\/"))[-1])


class _Both(io.TextIOBase):
    """Prints, and keeps what it printed."""

    def __init__(self, out: TextIO):
        self.out, self.kept = out, io.StringIO()

    def write(self, text: str) -> int:
        self.kept.write(text)
        return self.out.write(text)

    def flush(self) -> None:
        self.out.flush()
