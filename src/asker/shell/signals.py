"""Signals that end a command: Ctrl-C (SIGINT), and SIGTERM, which `timeout`, Slurm and containers send.

Both raise a KeyboardInterrupt where the command stands, so that the best result so far is kept, and workers end.  Two
places may lose one.  In an import, modules catch everything around what is optional, and the import system calls back
where nothing can be raised.  And what is raised in a callback of the garbage collector, such as that of JAX, is printed
and dropped.  A signal that comes in one of them is therefore repeated until that has ended.
"""

import gc
import signal
import sys
import threading
from types import FrameType
from typing import Any

USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The handlers that are replaced; others were chosen by somebody, as by `nohup`."""
REPEATED_AFTER = 0.05  # seconds
OF_IMPORTS = "<frozen importlib"
"""The beginning of the file name of a frame of the import system."""


class SignalsInterrupt:
    """While this is open, SIGINT and SIGTERM raise a KeyboardInterrupt, but not where it might be lost."""

    def __init__(self) -> None:
        self.begun_in: FrameType | None = None
        """An import that this frame itself is a part of does not count."""
        self.replaced: dict[signal.Signals, Any] = {}
        self.waiting: dict[int, threading.Timer] = {}
        """The signals that are to be repeated."""

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.begun_in = sys._getframe(1)
        self.replaced = {number: known for number, known in USUAL.items() if signal.getsignal(number) == known}
        for number in self.replaced:
            signal.signal(number, self._came)

    def __exit__(self, *_: object) -> None:
        for number, known in self.replaced.items():
            signal.signal(number, known)
        self.begun_in = None
        while self.waiting:  # the command has ended, as they ask
            self.waiting.popitem()[1].cancel()

    def _came(self, number: int, frame: FrameType | None) -> None:
        if not self._is_lost(frame):
            raise KeyboardInterrupt
        if number not in self.waiting:
            self.waiting[number] = timer = threading.Timer(REPEATED_AFTER, self._repeat, [number])
            timer.daemon = True
            timer.start()

    def _is_lost(self, frame: FrameType | None) -> bool:
        """Whether an import or a callback of the garbage collector is under way, where an exception may be lost."""
        callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
        while frame is not None and frame is not self.begun_in:
            if frame.f_code.co_filename.startswith(OF_IMPORTS) or frame.f_code in callbacks:
                return True
            frame = frame.f_back
        return False

    def _repeat(self, number: int) -> None:
        """Send a signal once more, from the thread of the timer."""
        if self.waiting.pop(number, None) is None:
            return
        main = threading.main_thread().ident
        if hasattr(signal, "pthread_kill") and main is not None:
            signal.pthread_kill(main, number)  # it also ends a wait
        else:
            signal.raise_signal(number)
