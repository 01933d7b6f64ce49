"""Where the real data is, and what the processes of one run share."""

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

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the commands that tests start would compile every module anew
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each core has a process already; numpy is not loaded yet
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # XLA's; what is computed stays the same
FASTER = {  # to compile
    "xla_cpu_use_fusion_emitters": "false",  # XLA's older code generator needs half the time
    "xla_cpu_parallel_codegen_split_count": "1",  # each part of a program would be made ready by itself
}


def known_to_xla(flags: dict[str, str]) -> str:
    """A flag that a version of XLA does not know ends the process."""
    known = set()
    for library in Path(find_spec("jaxlib").origin).parent.glob("*.so"):
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            known |= {flag for flag in flags if content.find(f"{flag}\0".encode()) >= 0}
    return " ".join(f"--{flag}={value}" for flag, value in flags.items() if flag in known)


if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = known_to_xla(FASTER)


def pytest_configure(config):
    """What XLA has compiled is kept for the other tests, processes and commands of this run, and no longer."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="asker-xla-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_finish():
    """What is loaded by now stays to the end: the collector of garbage need not look at it again and again."""
    gc.freeze()


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


@contextmanager
def in_this_process() -> Iterator[None]:
    """Runs of `compare` and `reproduce` are done in a thread: a process of their own would load JAX first."""
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
    """Run a command; returns exit code, stdout, stderr."""

    def ask(*arguments):
        from asker.cli import main

        code = main([str(a) for a in arguments])
        return code, *capsys.readouterr()

    return ask
