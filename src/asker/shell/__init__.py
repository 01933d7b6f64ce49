"""The command line: it finds the application of a file, parses, calls and prints."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from asker.shell.program import run_command
    except KeyboardInterrupt:  # it takes a while to import what commands need
        return 130
    return run_command(arguments)


__all__ = ["main"]
