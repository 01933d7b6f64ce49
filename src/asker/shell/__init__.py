"""The command line: it finds the application of a file, parses, calls and prints."""

from asker.shell.program import main

__all__ = ["main"]
