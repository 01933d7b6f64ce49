"""Handling of Ctrl-C (SIGINT) and of SIGTERM, which `timeout`, Slurm and containers send.

Both raise a KeyboardInterrupt at the current instruction, so that the best result is kept and worker processes end.
Python ignores exceptions in some places.  During imports, modules catch all exceptions of optional parts, and the
import system has callbacks that cannot raise.  Exceptions in callbacks of the garbage collector or of weak references
and in `__del__` are passed to `sys.unraisablehook`, which prints them.  JAX has slow callbacks: one in twenty
interrupts during tracing occurs in one.  A signal that would be ignored is therefore sent again.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
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


class SignalsInterrupt:
    """Context in which signals raise a KeyboardInterrupt, but not where Python would ignore it."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.numbers = numbers
        self.begun_in: FrameType | None = None
        """The frame of the context; imports that this frame is part of are not considered."""
        self.replaced: dict[signal.Signals, Any] = {}
        self.hook: Callable[[Any], Any] | None = None
        """The previous `sys.unraisablehook`."""
        self.waiting: dict[int, threading.Timer] = {}
        """The timers of the signals to be sent again."""

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.begun_in = sys._getframe(1)
        self.replaced = {n: USUAL[n] for n in self.numbers if signal.getsignal(n) == USUAL[n]}
        for number in self.replaced:
            signal.signal(number, self._came)
        self.hook, sys.unraisablehook = sys.unraisablehook, self._dropped

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self.hook is not None:
            sys.unraisablehook, self.hook = self.hook, None
        for number, known in self.replaced.items():
            signal.signal(number, known)
        self.begun_in = None
        late = bool(self.waiting)
        while self.waiting:
            self.waiting.popitem()[1].cancel()
        if late and error is None:
            raise KeyboardInterrupt

    def _came(self, number: int, frame: FrameType | None) -> None:
        if not self._in_import(frame):
            raise KeyboardInterrupt
        self._send_again(number)

    def _dropped(self, unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt) and self.replaced:
            self._send_again(next(iter(self.replaced)))  # all of them raise the same
        elif self.hook is not None:
            self.hook(unraisable)

    def _send_again(self, number: int) -> None:
        if number not in self.waiting:
            self.waiting[number] = timer = threading.Timer(REPEATED_AFTER, self._repeat, [number])
            timer.daemon = True
            timer.start()

    def _in_import(self, frame: FrameType | None) -> bool:
        while frame is not None and frame is not self.begun_in:
            if frame.f_code.co_filename.startswith(OF_IMPORTS):
                return True
            frame = frame.f_back
        return False

    def _repeat(self, number: int) -> None:
        """Send a signal again, from the thread of the timer."""
        if self.waiting.pop(number, None) is None:
            return
        main = threading.main_thread().ident
        if hasattr(signal, "pthread_kill") and main is not None:
            signal.pthread_kill(main, number)  # it also ends a wait
        else:
            signal.raise_signal(number)


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
