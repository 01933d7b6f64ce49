"""A time limit that several solves share."""

import time


class Clock:
    """Counts down from a limit in seconds; without one it never ends."""

    def __init__(self, limit: float | None):
        self.end = None if limit is None else time.perf_counter() + limit

    def left(self) -> float | None:
        return None if self.end is None else max(self.end - time.perf_counter(), 0.0)
