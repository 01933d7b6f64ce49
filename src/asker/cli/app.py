"""The command line: the commands and their exit codes.

The exit code is the status: 0 a usable result, 1 a solve that failed, 2 bad input, 130 interrupted (Ctrl-C) or
terminated (SIGTERM) before there was a result.  Results go to stdout; the progress line and the one line of an error go
to stderr.
"""

import io
import os
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from asker.cli.checks import complain
from asker.version import __version__

COMMANDS = {
    "solve": (
        "asker.cli.solve",
        "Refine a file or folder, whose format is detected from its content.  Ctrl-C stops and keeps the best result.",
    ),
    "info": ("asker.cli.solve", "Describe a file or folder: its size, and the residuals at the initial guess."),
    "fit": (
        "asker.cli.commands.fit",
        "Fit a curve to the columns of a table, robustly and without starting values.\n\n"
        'asker fit DATA.csv "y = a*exp(-b*x) + c" --page fit.html',
    ),
    "compare": (
        "asker.cli.experiments",
        "Compare methods on your own files: print a table and write an HTML page with curves and drawings.\n\n"
        "Each method runs alone, without further steps of `asker solve` such as the estimation of the noise of a pose "
        "graph.  The method `default` estimates the noise scale, as `asker solve` does without further options:\n\n"
        "asker compare FILE --holdout 0.1 --methods default,irls,gnc",
    ),
    "reproduce": (
        "asker.cli.experiments",
        "Run a plan and write its HTML page.  Finished runs are not repeated: after Ctrl-C the same command continues.",
    ),
    "report": ("asker.cli.experiments", "Write the HTML page of recorded runs again, without running anything."),
    "fetch": (
        "asker.cli.fetch",
        "Download public data sets and print their paths.  Data that are available locally are not downloaded again.",
    ),
    "generate": (
        "asker.cli.commands.bundle",
        "Generate a synthetic scene with known truth, and write a disturbed initial guess as a BAL file.",
    ),
    "join": (
        "asker.cli.commands.bundle",
        "Join the files that several processes have written with `asker solve --parts` into one BAL file.",
    ),
    "corrupt": (
        "asker.cli.commands.pose_graph",
        "Add false loop closures to a pose graph.  --json lists them; `asker solve --false-loops` reads that file.",
    ),
    "refine-poses": (
        "asker.cli.commands.posed",
        "Refine approximate camera poses of images, as networks, ARKit and SLAM give them, by features and bundle "
        "adjustment.  The result is refused if it predicts held-out observations no better than the given poses.",
    ),
    "stereo": (
        "asker.cli.commands.stereo",
        "Estimate the disparity of every pixel of a rectified stereo pair.  Ctrl-C stops and keeps the best result.",
    ),
    "stereo-compare": (
        "asker.cli.commands.stereo",
        "Run several methods on stereo pairs in the Middlebury layout: a table, curves, bars and maps.",
    ),
    "stereo-generate": (
        "asker.cli.commands.stereo",
        "Generate a synthetic stereo pair with known truth in the Middlebury layout (true disparities times 4).",
    ),
}
"""The module of each command, which is imported when the command is run, and its help text."""


class PlainFlags:
    """Command whose help shows no type for flags, which take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return params


class PlainCommand(PlainFlags, TyperCommand):
    """A command of `COMMANDS`."""


def command_named(name: str) -> Any:
    """Return a command of `COMMANDS` with its options."""
    module, says = COMMANDS[name]
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=PlainCommand, help=says)(getattr(import_module(module), name.replace("-", "_")))
    return typer.main.get_command(alone)


class ImportedWhenRun(PlainFlags, TyperGroup):
    """The group of all commands; the options of a command are imported when it is run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, command_named(str(name)), rest


app = typer.Typer(cls=ImportedWhenRun, add_completion=False, pretty_exceptions_enable=False)
for _name, (_, _says) in COMMANDS.items():
    app.command(_name, help=_says)(lambda: None)


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may contain any bytes
    code = _exit_code(arguments)
    try:
        sys.stdout.flush()
    except OSError as e:  # a full disk, or a reader that has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return code or complain(f"standard output: {e.strerror}", 2)
    return code


def _exit_code(arguments: list[str] | None) -> int:
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print("asker: warning:", message, file=sys.stderr)
            code = app(arguments, prog_name="asker", standalone_mode=False)
    except typer.TyperException as e:  # a bad command line
        return complain(e.format_message(), 2)
    except ValueError as e:  # FileError and ProblemError are among them
        return complain(str(e), 2)
    except OSError as e:  # a folder that may not be entered, standard output on a full disk
        return complain(f"{e.filename or 'standard output'}: {e.strerror}", 2)
    except MemoryError as e:
        return complain(f"out of memory: {e}", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except RuntimeError as e:
        if not isinstance(e.__cause__, KeyboardInterrupt):
            raise
        code = 130  # interrupted during the creation of a class, before Python 3.12
    return complain("interrupted before there was a result", code) if code == 130 else code or 0


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Robust estimation at large scale."""
    if version:
        print(f"asker {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
