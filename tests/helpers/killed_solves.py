"""Interruption of a solve at a certain iteration, as if its process had been killed."""


class Killed(Exception):
    """Raised instead of the end of the process."""


def kill_at(n):
    """Return an `on_iteration` callback that raises `Killed` at iteration n."""

    def on_iteration(line):
        if line.iteration == n:
            raise Killed

    return on_iteration
