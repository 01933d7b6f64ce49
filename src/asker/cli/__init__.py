"""The command line: it parses arguments, detects the application of a file, calls it and prints the report."""

import signal
import sys

from asker.io.interrupts import SignalsInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    code = None
    try:
        with SignalsInterrupt(signal.SIGINT, signal.SIGTERM):
            from asker.cli.app import run_command

            code = run_command(arguments)
    except KeyboardInterrupt:  # during the imports of a command, or after its end
        if code is None:
            print("asker: interrupted before there was a result", file=sys.stderr)
            return 130
    return code


__all__ = ["main"]
