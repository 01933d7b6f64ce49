"""Handling of Ctrl-C (SIGINT) and of SIGTERM, which `timeout`, Slurm and containers send.

Both raise a KeyboardInterrupt at the current instruction, so that the best result is kept and worker processes end.
Python ignores exceptions in some places.  During imports, modules catch all exceptions of optional parts, and the
import system has callbacks that cannot raise.  Exceptions in callbacks of the garbage collector or of weak references
and in `__del__` are passed to `sys.unraisablehook`, which prints them.  JAX has slow callbacks: one in twenty
interrupts during tracing occurs in one.  Functions written in C, such as those that look up an attribute, drop
exceptions of the Python functions that they call.  A signal that was or would be ignored is therefore sent again.
"""

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST_WAIT = 0.2
"""Seconds between checks for Ctrl-C in a waiting thread, on systems where a signal does not end the wait."""
REPEATED_AFTER = 0.05  # seconds
USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The default handlers, which are replaced; other handlers were set on purpose, for example by `nohup`."""
OF_IMPORTS = "<frozen importlib"
"""The beginning of the file name of a frame of the import system."""


class _Interrupt(KeyboardInterrupt):
    """A KeyboardInterrupt that calls `repeat` if a function written in C has dropped it."""

    __module__, __qualname__ = "builtins", "KeyboardInterrupt"  # as it is printed

    def __init__(self, repeat: Callable[[], None]) -> None:
        super().__init__()
        self.repeat = repeat

    def __del__(self) -> None:
        """Compare the outermost frame of the traceback with those that run.

        A frame with an `except` clause for the exception still runs.  One that was called by a function written in C
        has ended; up to Python 3.11 the exception has no traceback in this case.
        """
        reached = None if self.__traceback__ is None else self.__traceback__.tb_frame
        running: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
        while running is not None and running is not reached:
            running = running.f_back
        if running is None:
            self.repeat()

    def __reduce__(self) -> Any:
        return KeyboardInterrupt, ()


class SignalsInterrupt:
    """Context in which signals raise a KeyboardInterrupt, but not where Python would ignore it."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.numbers = numbers
        self.begun_in: FrameType | None = None
        """The frame of the context; imports that this frame is part of are not considered."""
        self.replaced: dict[signal.Signals, Any] = {}
        self.hook: Callable[[Any], Any] | None = None
        """The previous `sys.unraisablehook`."""
        self.waiting: dict[int, object] = {}
        """The signals to be sent again, each with a token of the thread that will send it."""
        self.is_open = self.has_raised = False
        self.sending = threading.Lock()
        """Acquired by a thread that sends a signal, so that none is sent after the end of the context."""

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.begun_in = sys._getframe(1)
        self.is_open = True
        self.replaced = {n: USUAL[n] for n in self.numbers if signal.getsignal(n) == USUAL[n]}
        for number in self.replaced:
            signal.signal(number, self._came)
        self.hook, sys.unraisablehook = sys.unraisablehook, self._dropped

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if not self.is_open:
            return
        with self.sending:
            self.is_open = False
        for number, known in self.replaced.items():
            signal.signal(number, known)  # a signal that has come is handled first, by the handler of this context
        if self.hook is not None:
            sys.unraisablehook = self.hook
        self.begun_in = self.hook = None
        is_late = bool(self.waiting)
        self.waiting.clear()
        if is_late and error is None:
            raise KeyboardInterrupt

    def _came(self, number: int, frame: FrameType | None) -> None:
        if not self._would_be_lost(frame):
            self.has_raised = True
            raise _Interrupt(partial(self._send_again, number))
        self._send_again(number)

    def _dropped(self, unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt) and self.replaced:
            self._send_again(next(iter(self.replaced)))  # all of them raise the same
        elif self.has_raised and issubclass(unraisable.exc_type, AttributeError):
            pass  # in `__del__` of an object whose `__init__` was interrupted
        elif self.hook is not None:
            self.hook(unraisable)

    def _send_again(self, number: int) -> None:
        """Send a signal again after a while, from a thread.

        The thread is no `threading.Timer`: a signal may arrive while the main thread holds a lock of that module.
        """
        if number not in self.waiting and self.begun_in is not None:
            self.waiting[number] = token = object()
            _thread.start_new_thread(self._repeat, (number, token))

    def _would_be_lost(self, frame: FrameType | None) -> bool:
        """Return True for a frame of an import, and of a method of this class, which is to be completed."""
        while frame is not None and frame is not self.begun_in:
            if frame.f_code.co_filename.startswith(OF_IMPORTS) or frame.f_code in UNINTERRUPTED:
                return True
            frame = frame.f_back
        return False

    def _repeat(self, number: int, token: object) -> None:
        time.sleep(REPEATED_AFTER)
        with self.sending:
            if not self.is_open or self.waiting.get(number) is not token:
                return
            del self.waiting[number]
            main = threading.main_thread().ident
            if hasattr(signal, "pthread_kill") and main is not None:
                signal.pthread_kill(main, number)  # it also ends a wait
            else:
                signal.raise_signal(number)


UNINTERRUPTED = {
    f.__code__
    for f in (
        SignalsInterrupt.__enter__,
        SignalsInterrupt.__exit__,
        SignalsInterrupt._came,
        SignalsInterrupt._dropped,
        SignalsInterrupt._send_again,
        SignalsInterrupt._would_be_lost,
        _Interrupt.__del__,
    )
}
"""The methods that a signal does not interrupt."""


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Delay Ctrl-C until the end of the context."""
    before = signal.getsignal(signal.SIGINT)
    usual = before == USUAL[signal.SIGINT] or isinstance(getattr(before, "__self__", None), SignalsInterrupt)
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def interruptible(work: Callable[[], T]) -> T:
    """Return the result of work during which Python cannot handle signals, such as a compilation by XLA.

    The work is done in another thread, so that Ctrl-C ends the wait; the process exits when the work is finished.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="asker_interruptible").start()
    while not outcome.done():
        wait([outcome], LONGEST_WAIT)
    return outcome.result()
