"""Paths of real data, fixtures, and settings of JAX for all processes of a test run."""

import gc
import mmap
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from real_data import DATA

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else commands started by tests compile every module again
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each core has a process already; numpy is not loaded yet
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # of XLA; results stay the same
FASTER = {  # to compile
    "xla_cpu_use_fusion_emitters": "false",  # XLA's older code generator needs half the time
    "xla_cpu_parallel_codegen_split_count": "1",  # each part of a program would be made ready by itself
}


def known_to_xla(flags: dict[str, str]) -> str:
    """Return the flags that this version of XLA knows; an unknown one terminates the process."""
    known = set()
    for library in Path(find_spec("jaxlib").origin).parent.glob("*.so"):
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            known |= {flag for flag in flags if content.find(f"{flag}\0".encode()) >= 0}
    return " ".join(f"--{flag}={value}" for flag, value in flags.items() if flag in known)


if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = known_to_xla(FASTER)


def pytest_configure(config):
    """Share the programs that XLA compiles among all tests, processes and commands of this run."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="asker-xla-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_finish():
    """Exclude the modules loaded so far from garbage collection."""
    gc.freeze()


def data_path(relative: str) -> Path:
    """Return the path of a real data file; skip the test if it does not exist."""
    path = DATA / relative
    if not path.exists():
        pytest.skip(f"real data not found: {path} (set ASKER_DATA to its folder)")
    return path


@pytest.fixture
def data_file() -> Callable[[str], Path]:
    return data_path


@contextmanager
def in_this_process() -> Iterator[None]:
    """Perform the runs of `compare` and `reproduce` in a thread, since new processes would have to import JAX."""
    from asker.experiments import process_pool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_pool, "_workers", lambda _: ThreadPoolExecutor(1))
        yield


@pytest.fixture
def runs_here():
    with in_this_process():
        yield


@pytest.fixture
def asks(capsys):
    """Return a function that runs a command and returns exit code, stdout and stderr."""

    def ask(*arguments):
        from asker.cli import main

        code = main([str(a) for a in arguments])
        return code, *capsys.readouterr()

    return ask
