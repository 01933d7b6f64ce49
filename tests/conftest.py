"""Where the real data is."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def data_path(relative: str) -> Path:
    """The path of a real data file; the test is skipped when it is not there."""
    path = DATA / relative
    if not path.exists():
        pytest.skip(f"real data not found: {path} (set ASKER_DATA to its folder)")
    return path


@pytest.fixture
def data_file() -> Callable[[str], Path]:
    return data_path


@pytest.fixture
def asks(capsys):
    """Run a command; returns exit code, stdout, stderr."""

    def ask(*arguments):
        from asker.shell import main

        code = main([str(a) for a in arguments])
        return code, *capsys.readouterr()

    return ask
