"""Machine code that is made beside other work, before it is run.

LLVM lets other Python threads run while it is at work.  Where it is known what will be run, all of it is asked for
first: one function is compiled while the next is traced and printed.  A thread makes what is asked for, in order; what
somebody waits for comes before all else.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from asker.engines.cpu.code_cache import Code
from asker.io.interrupts import LONGEST_WAIT

_asking: ContextVar[bool] = ContextVar("asking", default=False)
is_asking = _asking.get


@contextmanager
def asking() -> Iterator[None]:
    """While this is open, compiled functions that this thread calls are asked for, and not run: they return 0."""
    before = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(before)


def ask(code: Code) -> None:
    """Have the thread make this code, after what it was asked for before."""
    beside = _thread()
    with beside.changed:
        beside.asked.append(code)
        beside.changed.notify_all()


def needed(code: Code) -> int:
    """Where the function is, ready to be called.

    LLVM hears of no signal while it is at work.  So the thread makes the code, and Ctrl-C ends the waiting.
    """
    if not code.address and code.kept is None:
        _thread().wait_for(code)
    return code.make()


class _Beside:
    """The thread that makes code, and what it was asked for."""

    def __init__(self) -> None:
        self.asked: deque[Code] = deque()
        self.changed = threading.Condition()
        self._at_work: Code | None = None
        threading.Thread(target=self._work, name="asker_ahead", daemon=True).start()
        atexit.register(self.end)

    def wait_for(self, code: Code) -> None:
        """Make this code next, and wait until that has worked or failed."""
        with self.changed:
            self.asked.appendleft(code)
            self.changed.notify_all()
            try:
                while not code.address and (code is self._at_work or code in self.asked):
                    self.changed.wait(LONGEST_WAIT)
            finally:
                with suppress(ValueError):
                    self.asked.remove(code)

    def _work(self) -> None:
        while True:
            with self.changed:
                self._at_work = None
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.asked)
                self._at_work = code = self.asked.popleft()
            with suppress(Exception):  # who needs it makes it again, and is told
                code.make()
            del code  # it holds an engine of LLVM's

    def end(self) -> None:
        """The process must not end while LLVM is at work."""
        with self.changed:
            self.asked.clear()
            self.changed.wait_for(lambda: self._at_work is None)


_beside: _Beside | None = None


def _thread() -> _Beside:
    global _beside
    if _beside is None:
        _beside = _Beside()
    return _beside


def _begin_anew() -> None:
    """Threads do not survive a fork: there is nobody to wait for."""
    global _beside
    if _beside is not None:
        atexit.unregister(_beside.end)
    _beside = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
