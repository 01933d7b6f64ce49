"""Compilation in a background thread.

LLVM releases the interpreter's lock while it compiles, so one function can be compiled while the next one is traced and
printed.  Code that is known to be needed is therefore enqueued in advance.  The thread compiles in order of enqueueing,
except that code which a caller is waiting for comes first.
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

_precompiling: ContextVar[bool] = ContextVar("precompiling", default=False)
is_precompiling = _precompiling.get


@contextmanager
def precompiling() -> Iterator[None]:
    """Within this context, compiled functions called by this thread are enqueued for compilation and return 0."""
    before = _precompiling.set(True)
    try:
        yield
    finally:
        _precompiling.reset(before)


def enqueue(code: Code) -> None:
    """Append code to the queue of the background thread."""
    thread = _thread()
    with thread.changed:
        thread.queue.append(code)
        thread.changed.notify_all()


def compiled_address(code: Code) -> int:
    """Return the address of a function, and compile it before if necessary.

    LLVM does not react to signals.  The background thread therefore compiles, and Ctrl-C interrupts the wait for it.
    """
    if not code.address and code.cached is None:
        _thread().wait_for(code)
    return code.make()


class _CompilerThread:
    """The background thread and its queue."""

    def __init__(self) -> None:
        self.queue: deque[Code] = deque()
        self.changed = threading.Condition()
        self._current: Code | None = None
        threading.Thread(target=self._work, name="asker_compiler", daemon=True).start()
        atexit.register(self.end)

    def wait_for(self, code: Code) -> None:
        """Compile this code next, and wait until it has been compiled or has failed."""
        with self.changed:
            self.queue.appendleft(code)
            self.changed.notify_all()
            try:
                while not code.address and (code is self._current or code in self.queue):
                    self.changed.wait(LONGEST_WAIT)
            finally:
                with suppress(ValueError):
                    self.queue.remove(code)

    def _work(self) -> None:
        while True:
            with self.changed:
                self._current = None
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.queue)
                self._current = code = self.queue.popleft()
            with suppress(Exception):  # the caller compiles it again, which raises the error there
                code.make()
            del code  # it references an engine of LLVM

    def end(self) -> None:
        """Empty the queue and wait for the current compilation: the process must not exit while LLVM is running."""
        with self.changed:
            self.queue.clear()
            self.changed.wait_for(lambda: self._current is None)


_compiler_thread: _CompilerThread | None = None


def _thread() -> _CompilerThread:
    global _compiler_thread
    if _compiler_thread is None:
        _compiler_thread = _CompilerThread()
    return _compiler_thread


def _reset_after_fork() -> None:
    """Forget the thread: threads do not survive a fork."""
    global _compiler_thread
    if _compiler_thread is not None:
        atexit.unregister(_compiler_thread.end)
    _compiler_thread = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
