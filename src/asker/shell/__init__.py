"""The command line: it finds the application of a file, parses, calls and prints."""

import sys

from asker.shell.signals import SignalsInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        with SignalsInterrupt():
            from asker.shell.program import run_command

            return run_command(arguments)
    except KeyboardInterrupt:  # while what commands need is imported
        print("asker: interrupted before there was a result", file=sys.stderr)
        return 130


__all__ = ["main"]
