"""Recording of a benchmark's output in a Markdown file with the commit, the date and the machine.

    python benchmarks/rings.py --record rings      writes benchmarks/results/rings.md

A script adds the option with `add_record_option` and prints within `recorded`.  No file is written if the script fails.
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
    """Add the option `--record NAME`."""
    parser.add_argument("--record", type=Result, metavar="NAME", help="also write the output to results/NAME.md")


class Result:
    """Path of a results file and its heading, which is composed when the run begins."""

    def __init__(self, name: str):
        if not re.fullmatch(r"[\w-]+", name):
            raise argparse.ArgumentTypeError(f"invalid name {name!r}: use letters, digits, - and _ only")
        self.file = RESULTS / f"{name}.md"
        self.heading = (
            f"# {name}\n\n`{command(sys.argv)}`\n\n"
            f"- Commit: {commit(HERE.parent)}\n- Date: {datetime.now(UTC):%Y-%m-%d}\n- Machine: {machine()}\n\n"
        )


@contextlib.contextmanager
def recorded(result: Result | None) -> Iterator[None]:
    """Context manager that writes the printed output to the result file on success; None only prints."""
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
    """Return the command line as typed, with paths reduced to file names."""
    script, *rest = words
    return " ".join(["python", f"benchmarks/{Path(script).name}", *(_without_folders(word) for word in rest)])


def commit(folder: Path) -> str:
    """Return git's description of the commit, with `-dirty` if tracked files other than results were changed."""
    try:
        called = _git(folder, "describe", "--always")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return "no repository"
    return called + ("-dirty" if changed else "")


def machine() -> str:
    """Return cores, memory, operating system, Python and package versions as text."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = [f"{cores} cores", *_memory(), f"{platform.system()} {platform.machine()}"]
    parts.append(f"Python {platform.python_version()}")
    return ", ".join([*parts, *(f"{package} {version}" for package, version in _versions().items())])


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _memory() -> list[str]:
    """Return the memory as text in a list, empty if the system does not report it."""
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
    """Text stream that prints and keeps a copy."""

    def __init__(self, out: TextIO):
        self.out, self.kept = out, io.StringIO()

    def write(self, text: str) -> int:
        self.kept.write(text)
        return self.out.write(text)

    def flush(self) -> None:
        self.out.flush()
