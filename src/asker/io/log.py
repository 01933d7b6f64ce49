"""What asker says while it works: to the logger "asker", as Python's own `logging` has it.

DEBUG has a line for each iteration, INFO what is compiled, how a solve begins and how it ends.  The library prints
nothing by itself; `verbose=True` prints these lines.  In a notebook iterations follow each other on one line.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("asker")
devices = logging.getLogger("asker.devices")
"""What a solve runs on: devices, solver, memory."""
log.addHandler(logging.NullHandler())


@contextmanager
def spoken(verbose: bool) -> Iterator[None]:
    """While this is open, what is logged is printed, too."""
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
    """For a notebook: an iteration takes the place of the one before it."""

    goes_on = False

    def format(self, record: logging.LogRecord) -> str:
        before, self.goes_on = self.goes_on, record.levelno == logging.DEBUG
        self.terminator = "" if self.goes_on else "\n"
        return ("\r" if self.goes_on else "\n" if before else "") + super().format(record)
