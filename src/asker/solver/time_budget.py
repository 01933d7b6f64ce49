"""A time limit that several solves share."""

import time


class Clock:
    """Countdown of a time limit in seconds; None for no limit."""

    def __init__(self, limit: float | None):
        self.end = None if limit is None else time.perf_counter() + limit

    def left(self) -> float | None:
        """Return the remaining seconds; None without a limit."""
        return None if self.end is None else max(self.end - time.perf_counter(), 0.0)
