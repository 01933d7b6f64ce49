"""The command line: the commands and their exit codes.

The exit code is the status: 0 a usable result, 1 a solve that failed, 2 bad input, 130 interrupted or terminated
before there was a result.  Results go to stdout; the progress line and the one line of an error go to stderr.
"""

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

import asker
from asker.applications import ROOMS
from asker.shell import fetch, study
from asker.shell.solve import info, solve
from asker.shell.support import complain

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # what typer raises for a bad command line


def room_commands() -> Iterator[Callable[..., int]]:
    """The commands that rooms provide beside `solve` and `info`, in their `commands.py`."""
    for room in ROOMS:
        module = f"asker.applications.{room}.commands"
        if find_spec(module):
            yield from import_module(module).COMMANDS


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
COMMANDS: tuple[Callable[..., int], ...] = (
    solve,
    info,
    study.compare,
    study.reproduce,
    study.report,
    fetch.fetch,
    *room_commands(),
)
for command in COMMANDS:
    app.command()(command)


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may hold anything
    code = _exit_code(arguments)
    try:
        sys.stdout.flush()
    except OSError as e:  # a full disk, or a reader that has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return code or complain(f"standard output: {e.strerror}", 2)
    return code


def _exit_code(arguments: list[str] | None) -> int:
    try:
        with _terminated_as_interrupted(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print("asker: warning:", message, file=sys.stderr)
            code = app(arguments, prog_name="asker", standalone_mode=False)
    except UsageError as e:
        return complain(e.format_message(), 2)  # type: ignore[attr-defined]
    except ValueError as e:  # FileError and ProblemError are among them
        return complain(str(e), 2)
    except OSError as e:  # a folder that may not be entered, standard output on a full disk
        return complain(f"{e.filename or 'standard output'}: {e.strerror}", 2)
    except MemoryError as e:
        return complain(f"out of memory: {e}", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    return complain("interrupted before there was a result", code) if code == 130 else code or 0


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, which `timeout`, Slurm and containers send, is as Ctrl-C: the best so far is kept, and workers end."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Robust estimation at large scale."""
    if version:
        print(f"asker {asker.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
