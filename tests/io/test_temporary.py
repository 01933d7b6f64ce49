"""Temporary files of processes that were killed are removed by the next one, and no others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from asker.io import temporary
from asker.io.folders import write_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs locks, and a boot id")

WRITERS = {
    "file": "with write_whole(folder / 'target') as file: file.write(b'half'); wait()",
    "folder": "with write_folder(folder / 'model', ('a', 'b')) as new: (new / 'a').write_text('half'); wait()",
    "cache": "cache.os.replace = lambda *_: wait(); Kept(folder).write('code', b'half')",
}
BEGIN = """
import sys
from pathlib import Path
from asker.io import cache
from asker.io.cache import Kept
from asker.io.files import write_whole
from asker.io.folders import write_folder
folder = Path(sys.argv[1])
folder.chmod(0o700)
def wait():
    print("writes", flush=True)
    sys.stdin.read()
"""


def started(folder, what):
    """A process that has a temporary file or folder, and waits."""
    command = [sys.executable, "-c", BEGIN + WRITERS[what], str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writes\n"
    return process


def killed(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def write_all(folder):
    """Write all files in a new process, as the next run does."""
    code = BEGIN + "wait = lambda: None\n" + "\n".join(text for name, text in WRITERS.items() if name != "cache")
    subprocess.run([sys.executable, "-c", f"{code}\nKept(folder).write('code', b'whole')", str(folder)], check=True)


def left(folder):
    return sorted(p.name for p in folder.iterdir() if p.name not in ("target", "code", "model"))


@pytest.mark.parametrize("what", WRITERS)
def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path, what):
    killed(started(tmp_path, what))
    assert len(left(tmp_path)) == 1
    write_all(tmp_path)
    assert left(tmp_path) == []


def test_what_a_process_at_work_has_is_left_alone(tmp_path):
    others = [started(tmp_path, what) for what in WRITERS]
    names = left(tmp_path)
    assert len(names) == len(WRITERS)
    write_all(tmp_path)
    assert left(tmp_path) == names
    for process in others:
        killed(process)
    write_all(tmp_path)
    assert left(tmp_path) == []


def test_what_another_host_has_made_is_left_alone(tmp_path, monkeypatch):
    """A drive may keep locks within one host, so the state of a process on another host is unknown."""
    with monkeypatch.context() as patch:
        patch.setattr(temporary, "prefix", lambda: ".asker-elsewhere-")
        name = temporary._made(tmp_path, Path.touch)[0].name
    (tmp_path / "mine.tmp").touch()
    (tmp_path / ".asker-mine").touch()
    write_all(tmp_path)
    assert left(tmp_path) == sorted([name, "mine.tmp", ".asker-mine"])


def test_a_link_is_not_followed(tmp_path):
    folder, mine = tmp_path / "folder", tmp_path / "mine"
    folder.mkdir()
    mine.mkdir()
    (mine / "file").touch()
    for k, target in enumerate((mine, mine / "file")):
        (folder / f"{temporary.prefix()}{k}.tmp").symlink_to(target)
    write_all(folder)
    assert (mine / "file").exists()
    assert len(left(folder)) == 2


def test_one_that_is_removed_before_it_was_locked_is_made_again(tmp_path):
    """Another process may look between the two."""
    made = []

    def make(path):
        path.touch()
        made.append(path)
        if len(made) < 3:
            path.unlink()

    path, lock = temporary._made(tmp_path, make)
    os.close(lock)
    assert (path, len(made)) == (made[2], 3)
    assert path.exists()


def test_a_folder_that_gives_way_outlives_a_kill(tmp_path, monkeypatch):
    """Without an atomic exchange, the old folder is renamed for a moment, but not to a temporary name."""
    monkeypatch.setattr("asker.io.folders._exchanged", lambda *_: False)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("old")
    seen, rename = [], os.rename

    def renamed(a, b):
        rename(a, b)
        seen.append([p for p in tmp_path.rglob("a") if p.read_text() == "old"])

    monkeypatch.setattr(os, "rename", renamed)
    with write_folder(tmp_path / "model", ("a",)) as new:
        (new / "a").write_text("new")
    assert not any(path.parent.name.startswith(temporary.prefix()) for found in seen[:2] for path in found)
    assert [p.read_text() for p in tmp_path.rglob("a")] == ["new"]
