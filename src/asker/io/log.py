"""The logger "asker" of Python's `logging`.

Messages of level DEBUG report each iteration; those of level INFO report compilations and the beginning and end of a
solve.  The library prints them only with `verbose=True`.  In a notebook, each iteration replaces the previous line.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("asker")
devices = logging.getLogger("asker.devices")
"""The logger of devices, linear solver and memory."""
log.addHandler(logging.NullHandler())


@contextmanager
def spoken(verbose: bool) -> Iterator[None]:
    """Print log messages within the context."""
    if not verbose:
        yield
        return
    handler = (_OneLine if "ipykernel" in sys.modules else logging.StreamHandler)(sys.stdout)
    before, log.propagate = (log.level, log.propagate), False
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


class _OneLine(logging.StreamHandler):
    """Handler for notebooks, in which an iteration replaces the previous one."""

    is_iteration = False

    def format(self, record: logging.LogRecord) -> str:
        before, self.is_iteration = self.is_iteration, record.levelno == logging.DEBUG
        self.terminator = "" if self.is_iteration else "\n"
        return ("\r" if self.is_iteration else "\n" if before else "") + super().format(record)
