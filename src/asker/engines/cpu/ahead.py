"""Machine code that is made beside other work, before it is run.

LLVM lets other Python threads run while it is at work.  Where it is known what will be run, all of it is asked for
first: one function is compiled while the next is traced and printed.  A thread makes what is asked for, in order, and
stands back while somebody needs what is not made yet.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from asker.engines.cpu.machine_code import Code

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
    global _beside
    if _beside is None:
        _beside = _Beside()
    with _beside.changed:
        _beside.asked.append(code)
        _beside.changed.notify()


def needed(code: Code) -> int:
    """Where the function is, ready to be called."""
    if code.address or _beside is None:
        return code.make()
    with _beside.standing_back():
        return code.make()


class _Beside:
    """The thread that makes code, and what it was asked for."""

    def __init__(self) -> None:
        self.asked: deque[Code] = deque()
        self.changed = threading.Condition()
        self._n_waiting, self._at_work = 0, False
        threading.Thread(target=self._work, name="asker_ahead", daemon=True).start()
        atexit.register(self.end)

    @contextmanager
    def standing_back(self) -> Iterator[None]:
        """Nothing new is begun while this is open."""
        with self.changed:
            self._n_waiting += 1
        try:
            yield
        finally:
            with self.changed:
                self._n_waiting -= 1
                self.changed.notify_all()

    def _work(self) -> None:
        while True:
            with self.changed:
                self._at_work = False
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.asked and not self._n_waiting)
                code, self._at_work = self.asked.popleft(), True
            with suppress(Exception):  # who needs it makes it again, and is told
                code.make()

    def end(self) -> None:
        """The process must not end while LLVM is at work."""
        with self.changed:
            self.asked.clear()
            self.changed.wait_for(lambda: not self._at_work)


_beside: _Beside | None = None


def _begin_anew() -> None:
    """Threads do not survive a fork: there is nobody to wait for."""
    global _beside
    if _beside is not None:
        atexit.unregister(_beside.end)
    _beside = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
