"""The cache of machine code: files are written atomically, verified when read, and replaced if damaged."""

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
    """The folder of compiled code in an empty cache."""
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "machine-code"


def call(source=SOURCE, expected=5.0):
    """Call the function as a new process would; return whether it was compiled for that."""
    notified = []
    on_compile.append(notified.append)
    cache._kept.cache_clear()
    try:
        x = np.ones(1)
        compile_source("add_up", source)(0, 1, x, np.full(1, 2.0))
        assert x == expected
    finally:
        on_compile.remove(notified.append)
    return notified == ["add_up"]


def test_compiled_code_is_cached(folder):
    assert call()
    assert not call()
    assert len(os.listdir(folder)) == 1
    assert call(SOURCE.replace("2.0", "3.0"), 7.0)
    assert len(os.listdir(folder)) == 2
    assert folder.stat().st_mode & 0o777 == 0o700


def test_slp_vectorised_code_has_its_own_cache_entry(folder):
    for slp_vectorize in (True, False):
        compile_source("add_up", SOURCE, slp_vectorize=slp_vectorize)(0, 1, np.ones(1), np.ones(1))
    assert len(os.listdir(folder)) == 2


def test_a_function_with_a_known_digest_is_not_traced_again(folder):
    traced = []

    def cube(x):
        traced.append(x)
        return (x**3,), (x,)

    for digest, times in ((b"cube", 1), (b"cube", 1), (b"", 2), (b"other", 3), (b"cube", 3)):
        out, x = np.zeros(3), np.arange(3.0)
        total = Loop("cube", [Argument("each")], lambda x: cube(x), digest=digest)(3, [x], [out])
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
def test_a_damaged_file_is_replaced(damage, folder):
    call()
    (name,) = os.listdir(folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(damage(name, whole))
    assert call()
    assert os.listdir(folder) == [name]
    assert not call()


def test_a_file_of_another_function_is_rejected(folder):
    call()
    (name,) = os.listdir(folder)
    call(SOURCE.replace("2.0", "3.0"), 7.0)
    (other,) = set(os.listdir(folder)) - {name}
    (folder / name).write_bytes((folder / other).read_bytes())
    assert call()


def fail(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["os.replace", "asker.io.temporary._made", "pathlib.Path.write_bytes"])
def test_a_full_disk_only_disables_the_cache(where, folder, monkeypatch):
    monkeypatch.setattr(where, fail)
    with pytest.warns(UserWarning, match="compiled code is not kept in .*machine-code: No space left"):
        assert call()
    assert os.listdir(folder) == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the platform has no user ids")
class TestPermissions:
    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
    def test_a_writable_folder_is_rejected(self, mode, folder):
        call()
        folder.chmod(mode)
        with pytest.warns(UserWarning, match="others can write to it, so code in it is not trusted"):
            assert call()

    def test_a_writable_file_is_replaced(self, folder):
        call()
        (name,) = os.listdir(folder)
        (folder / name).chmod(0o666)
        assert call()
        assert (folder / name).stat().st_mode & 0o777 == 0o600

    def test_a_folder_of_another_user_is_rejected(self, folder, monkeypatch):
        call()
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        with pytest.warns(UserWarning, match="it belongs to another user"):
            assert call()


def test_a_cache_folder_that_cannot_be_created_is_empty(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="is not kept"):
        kept = Kept(tmp_path / "file" / "machine-code")
    kept.write("name", b"content")
    assert kept.read("name") is None
