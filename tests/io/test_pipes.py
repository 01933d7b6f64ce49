"""A named pipe in the place of a file is refused, or passed over in the cache; nothing waits for its other end."""

import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest

import asker
from asker.applications.colmap.georegistration.position_priors import read_positions
from asker.applications.datasets import fetch
from asker.io.cache import Kept
from asker.io.files import FileError, opened
from asker.io.folders import alone_in

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
SECONDS = 300  # a busy machine is no fault


class Hang(BaseException):
    """Raised after a timeout; readers do not catch a BaseException."""


@contextmanager
def no_hang():
    def ring(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path):
    def made(name):
        os.mkfifo(tmp_path / name)
        return tmp_path / name

    return made


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.bz2"])
def test_a_pipe_is_no_file_to_read(pipe, name, monkeypatch):
    """Also where it takes the place of a file after that was looked at."""
    path = pipe(name)
    monkeypatch.setattr("asker.io.files._has_no_end", lambda _: False, raising=False)
    with no_hang(), pytest.raises(FileError, match="a device or a pipe"):
        opened(path).__enter__()


def test_a_pipe_in_the_cache_is_made_anew(pipe):
    path = pipe("entry")
    path.parent.chmod(0o700)
    kept = Kept(path.parent)
    with no_hang():
        assert kept.read("entry") is None
        kept.write("entry", b"code")
        assert kept.read("entry") == b"code"
    assert path.is_file()


def test_a_result_and_a_checkpoint_are_no_pipes(pipe):
    x = asker.Variables(np.zeros((1, 2)))
    factors = asker.Factors(lambda x, d: x - d, x[np.zeros(3, int)], data=np.ones((3, 2)), kernel=asker.Huber())
    with no_hang():
        with pytest.raises(FileError, match="a device or a pipe"):
            asker.Result.load(pipe("result.npz"))
        with pytest.raises(FileError, match="a device or a pipe"):
            asker.solve(asker.Problem(factors), asker.IRLS(), checkpoint=pipe("run.npz"))


def test_a_database_is_no_pipe(pipe):
    with no_hang(), pytest.raises(FileError, match="a device or a pipe"):
        read_positions(pipe("a.db"))


def test_a_download_and_a_lock_are_no_pipes(tmp_path, pipe, monkeypatch):
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path))
    monkeypatch.delenv("ASKER_DATA", raising=False)
    (tmp_path / "data" / "g2o").mkdir(parents=True)
    with no_hang():
        part = pipe("data/g2o/intel.g2o.part")
        with pytest.raises(FileError, match=f"{part}: this is a device or a pipe"):
            fetch("intel", mirror="http://localhost:9")
        pipe(".lock")
        with pytest.raises(FileError, match="a device or a pipe"), alone_in(tmp_path):
            pass
