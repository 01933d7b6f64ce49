"""The cache of machine code: whole or not at all, checked when it is read, made again when it is broken."""

import errno
import hashlib
import os
import pickle

import numpy as np
import pytest

from asker.engines.cpu.code_cache import on_compile
from asker.engines.cpu.compiler import Argument, Loop, compile_source
from asker.io import cache
from asker.io.cache import Kept

SOURCE = "def add_up(start, stop, x, y):\n    for k in range(start, stop):\n        x[k] += 2.0 * y[k]\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the code is kept, in a cache of its own."""
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "machine-code"


def call(source=SOURCE, expected=5.0):
    """Call the function as a new process would; returns whether it was compiled for that."""
    heard = []
    on_compile.append(heard.append)
    cache._kept.cache_clear()
    try:
        x = np.ones(1)
        compile_source("add_up", source)(0, 1, x, np.full(1, 2.0))
        assert x == expected
    finally:
        on_compile.remove(heard.append)
    return heard == ["add_up"]


def test_what_was_compiled_once_is_found_again(folder):
    assert call()
    assert not call()
    assert len(os.listdir(folder)) == 1
    assert call(SOURCE.replace("2.0", "3.0"), 7.0)
    assert len(os.listdir(folder)) == 2
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_packed_is_other_code(folder):
    for slp_vectorize in (True, False):
        compile_source("add_up", SOURCE, slp_vectorize=slp_vectorize)(0, 1, np.ones(1), np.ones(1))
    assert len(os.listdir(folder)) == 2


def test_what_is_known_is_not_traced_again(folder):
    traced = []

    def cube(x):
        traced.append(x)
        return (x**3,), (x,)

    for known_by, times in ((b"cube", 1), (b"cube", 1), (b"", 2), (b"other", 3), (b"cube", 3)):
        out, x = np.zeros(3), np.arange(3.0)
        total = Loop("cube", [Argument("each")], lambda x: cube(x), known_by=known_by)(3, [x], [out])
        np.testing.assert_array_equal(out, x**3)
        assert (total.tolist(), len(traced)) == ([3.0], times)


def sealed(name, content):
    return hashlib.sha256(name.encode() + b"\0" + content).digest() + content


DAMAGE = {
    "empty": lambda name, content: b"",
    "a part of the digest": lambda name, content: content[:20],
    "the digest alone": lambda name, content: content[:32],
    "cut short": lambda name, content: content[:-100],
    "longer": lambda name, content: content + b"\0",
    "one bit": lambda name, content: content[:-500] + bytes([content[-500] ^ 1]) + content[-499:],
    "no code": lambda name, content: sealed(name, b"no code"),
    "something else": lambda name, content: sealed(name, pickle.dumps((1, 2, 3))),
    "of another function": lambda name, content: sealed("other", content[32:]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_is_broken_is_made_again(damage, folder):
    call()
    (name,) = os.listdir(folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(damage(name, whole))
    assert call()
    assert os.listdir(folder) == [name]
    assert not call()


def test_a_file_of_another_function_is_not_taken_for_it(folder):
    call()
    (name,) = os.listdir(folder)
    call(SOURCE.replace("2.0", "3.0"), 7.0)
    (other,) = set(os.listdir(folder)) - {name}
    (folder / name).write_bytes((folder / other).read_bytes())
    assert call()


def fail(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["os.replace", "asker.io.temporary._made", "pathlib.Path.write_bytes"])
def test_a_full_disk_costs_the_cache_alone(where, folder, monkeypatch):
    monkeypatch.setattr(where, fail)
    with pytest.warns(UserWarning, match="compiled code is not kept in .*machine-code: No space left"):
        assert call()
    assert os.listdir(folder) == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="who can write is not on_miss here")
class TestWhatOthersCanWrite:
    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
    def test_a_folder_is_refused(self, mode, folder):
        call()
        folder.chmod(mode)
        with pytest.warns(UserWarning, match="others can write to it, so code in it is not trusted"):
            assert call()

    def test_a_file_is_refused(self, folder):
        call()
        (name,) = os.listdir(folder)
        (folder / name).chmod(0o666)
        assert call()
        assert (folder / name).stat().st_mode & 0o777 == 0o600

    def test_a_folder_of_another_user_is_refused(self, folder, monkeypatch):
        call()
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        with pytest.warns(UserWarning, match="it belongs to another user"):
            assert call()


def test_a_cache_below_a_file_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="is not kept"):
        kept = Kept(tmp_path / "file" / "machine-code")
    kept.write("name", b"content")
    assert kept.read("name") is None
