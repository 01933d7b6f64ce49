"""SIGTERM and Ctrl-C end a command with the exit code that is documented, whenever they come after its start."""

import contextlib
import ctypes
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from asker.io.interrupts import REPEATED_AFTER, SignalsInterrupt

WAIT = 300  # seconds: a busy machine is no fault
RUN = """
import sys
from asker.cli import main
print("begins", flush=True)
sys.exit(main(sys.argv[1:]))
"""
SWALLOWED = """
import os, sys
class Swallows:
    "An import that ignores all exceptions, as Python does in callbacks."
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), {number})
                sum(range(1000))
            except BaseException:
                pass
sys.meta_path.insert(0, Swallows())
"""
ENDLESS = ("--tau", "1", "--method", "asker-published", "--iterations", "100000000", "--tol", "0", "--quiet")
INTERRUPTED = "asker: interrupted before there was a result\n"


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    from asker.applications.bundle.bal import write_bal
    from asker.applications.bundle.synthetic import make_scene

    path = tmp_path_factory.mktemp("signals") / "scene.txt"
    write_bal(path, make_scene(4, 200).start)
    return path


def started(code, *arguments):
    """A process that takes Ctrl-C, also where the tests run in the background of a shell, which ignore it."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def assert_interrupted(process):
    """It ends before the first iteration by 130, after it with the best result so far."""
    try:
        out, err = process.communicate(timeout=WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("the signal was lost: the command continues")
    ended = (
        process.returncode,
        err.removeprefix("asker:") if err.startswith("asker:asker:") else err,
    )  # while it prints
    assert ended == (130, INTERRUPTED) or (ended == (0, "") and "interrupted" in out), ended


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["typer", "asker.cli.solve", "numpy", "asker.engines.cpu.engine"])
def test_an_import_does_not_lose_a_signal(module, number, scene):
    process = started(SWALLOWED.format(module=module, number=int(number)) + RUN, "solve", scene, *ENDLESS)
    assert_interrupted(process)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there")
@pytest.mark.parametrize("module", ["jax._src.dtypes", "jax.numpy", "llvmlite"])
def test_an_import_of_the_compiler_does_not_lose_a_signal(module, scene, tmp_path, monkeypatch):
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path))  # with cached code the compiler is not imported
    process = started(SWALLOWED.format(module=module, number=int(signal.SIGTERM)) + RUN, "solve", scene, *ENDLESS)
    assert_interrupted(process)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there")
def test_a_signal_at_any_moment_ends_a_command(scene):
    for seconds in np.linspace(0.0, 3.0, 16):
        process = started(RUN, "solve", scene, *ENDLESS)
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.01 + seconds)
        process.terminate()
        assert_interrupted(process)


def test_a_signal_outside_of_an_import_interrupts_at_once():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        with pytest.raises(KeyboardInterrupt), SignalsInterrupt(signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
    assert {number: signal.getsignal(number) for number in before} == before


def interrupt(*_):
    signal.raise_signal(signal.SIGINT)


def in_a_callback_of_the_garbage_collector():
    gc.callbacks.append(interrupt)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(interrupt)


def in_the_end_of_an_object():
    type("Watched", (), {"__del__": interrupt})()


def in_a_callback_of_a_weak_reference():
    watched = type("Watched", (), {})()
    reference = weakref.ref(watched, interrupt)
    del watched
    assert reference() is None


def in_an_attribute_that_c_looks_up():
    """The function clears all exceptions, as many of C do; since Python 3.13 it passes them to `sys.unraisablehook`."""
    watched = type("Watched", (), {"attribute": property(interrupt)})()
    has_attribute = ctypes.pythonapi.PyObject_HasAttrString
    has_attribute.argtypes = [ctypes.py_object, ctypes.c_char_p]
    assert not has_attribute(watched, b"attribute")


IGNORED = (
    in_a_callback_of_the_garbage_collector,
    in_the_end_of_an_object,
    in_a_callback_of_a_weak_reference,
    in_an_attribute_that_c_looks_up,
)


@pytest.mark.parametrize("while_open", [time.sleep, lambda seconds: None], ids=["within", "at the end"])
@pytest.mark.parametrize("interrupted", IGNORED)
def test_a_signal_is_not_dropped(interrupted, while_open):
    hook = sys.unraisablehook

    def run():
        with SignalsInterrupt(signal.SIGINT):
            interrupted()
            while_open(10)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("interrupted", IGNORED)
def test_a_signal_that_is_sent_again_at_the_end_of_the_context_is_raised_once(interrupted):
    """The context ends when the signal is sent again, a little earlier or later."""
    rng = np.random.default_rng(0)
    for margin in rng.uniform(-2e-3, 2e-3, 12):
        until = 0.0
        with pytest.raises(KeyboardInterrupt), SignalsInterrupt(signal.SIGINT):  # noqa: PT012
            interrupted()
            until = time.perf_counter() + REPEATED_AFTER + margin
            while time.perf_counter() < until:
                pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    time.sleep(2 * REPEATED_AFTER)  # a second interrupt would be raised here


def test_a_signal_that_a_user_has_handled_is_not_sent_again():
    with SignalsInterrupt(signal.SIGINT):
        for _ in range(3):
            with contextlib.suppress(KeyboardInterrupt):
                interrupt()
        time.sleep(2 * REPEATED_AFTER)


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_the_end_of_an_object_whose_creation_was_interrupted_is_not_reported(is_interrupted, monkeypatch):
    class Opened:
        def __init__(self):
            if is_interrupted:
                interrupt()

        def __del__(self):
            return self.is_open

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    with SignalsInterrupt(signal.SIGINT), contextlib.suppress(KeyboardInterrupt):
        Opened()
    assert reported == ([] if is_interrupted else [AttributeError])


def test_other_exceptions_that_are_ignored_are_printed(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    watched = type("Watched", (), {})()
    with SignalsInterrupt(signal.SIGINT):
        reference = weakref.ref(watched, lambda _: 1 / 0)
        del watched
    assert reference() is None
    assert [unraisable.exc_type for unraisable in told] == [ZeroDivisionError]


def test_a_handler_that_somebody_has_chosen_stays():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with SignalsInterrupt(signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_has_no_signals():
    def run():
        with SignalsInterrupt(signal.SIGINT, signal.SIGTERM):
            handlers.append(signal.getsignal(signal.SIGTERM))

    handlers = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]
