"""Folders that change as a whole."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from asker.io import folders
from asker.io.files import FileError, opened, write_whole
from asker.io.folders import alone_in, check_folder, make_folder, write_folder

NAMES = ("a", "b", "c")


def content(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def fill(folder, text):
    for name in NAMES:
        (folder / name).write_text(text)


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr(folders, "_exchanged", lambda a, b: False)


def test_a_folder_appears_whole(tmp_path):
    with write_folder(tmp_path / "new", NAMES) as new:
        fill(new, "new")
        assert not (tmp_path / "new").exists()
    assert content(tmp_path) == {f"new/{name}": "new" for name in NAMES}


def test_a_folder_without_such_files_is_filled(tmp_path):
    (tmp_path / "other").write_text("mine")
    with write_folder(tmp_path, NAMES) as new:
        fill(new, "new")
        assert content(tmp_path).keys() & set(NAMES) == set()
    assert content(tmp_path) == dict.fromkeys(NAMES, "new") | {"other": "mine"}


@pytest.mark.usefixtures("way")
def test_a_folder_with_such_files_is_swapped_and_keeps_the_others(tmp_path):
    old = tmp_path / "old"
    (old / "deep" / "er").mkdir(parents=True)
    fill(old, "old")
    (old / "other").write_text("mine")
    (old / "deep" / "er" / "file").write_text("mine too")
    (old / "link").symlink_to("nowhere")
    old.chmod(0o750)
    (tmp_path / "alias").symlink_to("old")
    with write_folder(tmp_path / "alias", NAMES) as new:
        fill(new, "new")
    assert content(old) == dict.fromkeys(NAMES, "new") | {"other": "mine", "deep/er/file": "mine too"}
    assert os.readlink(old / "link") == "nowhere"
    assert old.stat().st_mode & 0o777 == 0o750
    assert sorted(os.listdir(tmp_path)) == ["alias", "old"]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("before", [None, "old", "other"])
def test_after_an_error_everything_is_as_it_was(tmp_path, before, monkeypatch):
    target = tmp_path / "target"
    if before:
        target.mkdir()
        fill(target, "old") if before == "old" else (target / "other").write_text("mine")
    was = content(tmp_path)
    with suppress(RuntimeError), write_folder(target, NAMES) as new:
        fill(new, "new")
        raise RuntimeError
    assert content(tmp_path) == was

    true = {name: getattr(os, name) for name in ("rename", "replace", "link")}

    def fails(name, at):
        """The call of this number fails, and none after it."""
        calls = [0]

        def call(*args, **more):
            calls[0] += 1
            if calls[0] == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return true[name](*args, **more)

        return call

    for name in ("rename", "replace"):
        for at in (1, 2):
            monkeypatch.setattr(os, name, fails(name, at))
            with suppress(FileError), write_folder(target, NAMES) as new:
                fill(new, "new")
            monkeypatch.setattr(os, name, true[name])
            if content(tmp_path) != was:  # there was no such call
                assert {text for path, text in content(tmp_path).items() if path[-1] in NAMES} == {"new"}
                return
            assert os.listdir(tmp_path) == ([target.name] if before else [])


def test_what_cannot_be_written_is_refused_before(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path, said in (
        (tmp_path / "file", "not a folder"),
        (tmp_path / "file" / "below", "there is no folder"),
        (tmp_path / "none" / "below", "there is no folder"),
        (tmp_path / ("long" * 80), "cannot be written"),
        (Path("/proc/model"), "cannot be written"),
    ):
        with pytest.raises(FileError, match=said):
            check_folder(path, NAMES)
    assert os.listdir(tmp_path) == ["file"]
    fill(tmp_path, "old")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="the current one"):
        check_folder(".", NAMES)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    check_folder(".", NAMES)
    assert os.listdir(".") == []


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300), Path("/proc/x")):
        with pytest.raises(FileError):
            make_folder(path)


def test_a_lock_says_who_has_it_and_ends(tmp_path):
    told = f"process {os.getpid()} on .+ is at work here"
    with alone_in(tmp_path), pytest.raises(FileError, match=told), alone_in(tmp_path):
        pass
    with alone_in(tmp_path) as alone:
        assert alone
    with pytest.raises(FileError, match="cannot be written"), alone_in(tmp_path / "none"):
        pass


def test_names_up_to_the_longest_are_written(tmp_path):
    path = tmp_path / ("x" * 255)
    with write_whole(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    with pytest.raises(FileError, match="too long"), write_whole(tmp_path / ("x" * 256)):
        pass


@pytest.mark.parametrize("name", ["/dev/zero", "fifo"])
def test_what_has_no_end_is_not_read(tmp_path, name):
    if name == "fifo":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / "link").symlink_to(name)
    with pytest.raises(FileError, match="a device or a pipe"), opened(tmp_path / ("link" if "/" in name else name)):
        pass
