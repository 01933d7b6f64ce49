"""Run folders: two processes, kills and damage never leave one that is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import in_this_process

from asker.experiments import process_pool, runs
from asker.experiments.instances import sources
from asker.experiments.plan import Run
from asker.experiments.plan_reader import read_plan
from asker.experiments.records import FILES, is_finished, read_record
from asker.experiments.runs import clear, execute
from asker.io.files import FileError
from asker.io.folders import LOCK, alone_in
from file_damage import edits, replaced

PLAN = """
[instances.line]
kind = "mean"
[[groups]]
instances = ["line"]
methods = ["irls", "asker"]
iterations = 4
"""
WAIT = 600  # seconds: a busy machine is no fault


@pytest.fixture
def run():
    return Run("line", "mean", dict(sources()["mean"][1].keys), "irls", {}, 4)


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(PLAN)
    return path


def names(root):
    return sorted(path.name for path in root.iterdir())


def numbers(folder):
    """Return the reproducible numbers of a run, which exclude times."""
    record = read_record(folder)
    return record.cost, [(h["iteration"], h["cost"], h["best_cost"]) for h in record.history]


# ---- one run


def test_a_finished_run_has_the_sums_of_its_files(tmp_path, run):
    folder = execute(run, tmp_path)
    assert names(folder) == sorted([*FILES, "SHA256SUMS"])
    assert names(tmp_path) == [run.folder]
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True)
    assert done.returncode == 0


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_run_is_reported_and_repeated(tmp_path, run, name):
    folder = execute(run, tmp_path)
    good = numbers(folder)
    content = (folder / name).read_bytes()
    last = content.splitlines(keepends=True)[-1]
    twice = content + last if name == "history.jsonl" else content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]
    (folder / name).write_bytes(twice)
    with pytest.raises(
        FileError, match=f"not the folder of a finished run: {name} has been changed: its checksum differs"
    ):
        read_record(folder)
    assert numbers(execute(run, tmp_path)) == good
    assert names(tmp_path) == [run.folder]


def test_an_older_run_has_no_sums_and_is_checked_all_the_same(tmp_path, run):
    folder = execute(run, tmp_path)
    (folder / "SHA256SUMS").unlink()
    assert is_finished(folder)
    lines = (folder / "history.jsonl").read_text().splitlines(keepends=True)
    (folder / "history.jsonl").write_text("".join([*lines, lines[-1]]))
    with pytest.raises(FileError, match=r"history\.jsonl does not have the lines of 4 iterations"):
        read_record(folder)


@pytest.mark.parametrize("other", ["finished", "damaged", "a file"])
def test_another_process_may_be_first(tmp_path, run, monkeypatch, other):
    good = numbers(execute(run, tmp_path / "good"))
    record = runs._record

    def meanwhile(run, folder, threads):
        record(run, folder, threads)
        final = tmp_path / "runs" / run.folder
        if other == "finished":
            monkeypatch.setattr(runs, "_record", record)
            execute(run, tmp_path / "runs")
        elif other == "damaged":
            final.mkdir()
            (final / "result.json").write_text("{}")
        else:
            final.write_text("")

    monkeypatch.setattr(runs, "_record", meanwhile)
    assert numbers(execute(run, tmp_path / "runs")) == good
    assert names(tmp_path / "runs") == [run.folder]


def test_a_run_that_fails_leaves_nothing(tmp_path, run, monkeypatch):
    monkeypatch.setattr(runs, "write_sums", lambda folder: (_ for _ in ()).throw(FileError(folder, "no space")))
    with pytest.raises(FileError, match="no space"):
        execute(run, tmp_path)
    assert names(tmp_path) == []


def test_what_was_cut_off_is_removed(tmp_path, run):
    folder = execute(run, tmp_path)
    (tmp_path / f"{run.folder}.0123.partial").mkdir()
    (tmp_path / f"{run.folder}.0123.partial" / "history.jsonl").write_text("{}")
    clear(tmp_path)
    assert names(tmp_path) == [folder.name]


def test_a_long_name_makes_a_folder(tmp_path, run):
    long = Run("é" * 250 + "x" * 250, run.kind, run.options, run.method, {}, 2)
    assert len(os.fsencode(execute(long, tmp_path).name)) < 200


# ---- a folder of runs


def test_a_second_process_reports_the_first_one(tmp_path, plan_file, asks):
    out = tmp_path / "out"
    out.mkdir()
    with alone_in(out) as alone:
        assert alone
        code, text, err = asks("reproduce", "--plan", plan_file, "--output", out)
    assert (code, text) == (2, "")
    assert f"asker: {out}: process {os.getpid()} on " in err
    assert "is at work here" in err
    assert names(out) == [LOCK]


def started(plan_file, out):
    code = "import sys; from asker.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "reproduce", "--plan", plan_file, "--output", out, "--processes", "1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(condition):
    deadline = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def workers_of(process):
    """The processes that work for it, as soon as a run is under way."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux shows them")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path, plan_file, asks, runs_here, number):
    endless = PLAN.replace('"irls", "asker"', '"asker-published"').replace("iterations = 4", "iterations = 1000000")
    plan_file.write_text(endless)
    out = tmp_path / "out"
    process = started(plan_file, out)
    until(lambda: list(out.glob("runs/*.partial/history.jsonl")))
    workers = workers_of(process)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == (130 if number == signal.SIGTERM else -number)
    if number == signal.SIGTERM:
        assert err == "asker: interrupted before there was a result\n"
    assert workers
    until(lambda: all(map(is_gone, workers)))
    plan_file.write_text(PLAN)
    code, _, err = asks("reproduce", "--plan", plan_file, "--output", out, "--quiet")
    assert (code, err) == (0, "")
    plan = read_plan(plan_file)
    assert names(out / "runs") == sorted(run.folder for run in plan.runs())
    for run in plan.runs():
        assert numbers(out / "runs" / run.folder) == numbers(execute(run, tmp_path / "alone"))


def test_signals_are_heeded_between_two_looks():
    with process_pool._signals_noted() as noted:
        os.kill(os.getpid(), signal.SIGTERM)
        assert noted == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def die(*_):
    os._exit(3)


def test_a_process_that_dies_is_reported(tmp_path, run, monkeypatch):
    monkeypatch.setattr(process_pool, "execute", die)
    with pytest.raises(ValueError, match="a process died"):
        process_pool.run_all([run], tmp_path, 1, 1e4)


# ---- reports on damaged folders


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    from asker.cli import main

    root = tmp_path_factory.mktemp("runs")
    (root / "plan.toml").write_text(PLAN)
    with in_this_process():
        assert main(["reproduce", "--plan", str(root / "plan.toml"), "--output", str(root / "out")]) == 0
    return root / "out"


@pytest.mark.parametrize("name", ["plan.json", "config.json", "result.json", "history.jsonl"])
def test_report_on_edited_folders_ends_with_one_line_or_a_page(reproduced, asks, name, tmp_path):
    """Without their sums, so that every value is looked at."""
    folder = (
        reproduced if name == "plan.json" else next(p for p in (reproduced / "runs").iterdir() if "asker" in p.name)
    )
    sums = (folder / "SHA256SUMS").read_bytes() if name != "plan.json" else b""
    good = (folder / name).read_text()
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    first, *rest = [json.loads(line) for line in good.splitlines()] if name == "history.jsonl" else [json.loads(good)]
    every = list(edits(first))
    chosen = np.random.default_rng(0).permutation(len(every))[:40]
    try:
        for path, other in (every[k] for k in chosen):
            lines = [replaced(first, path, other), *rest]
            (folder / name).write_text("\n".join(map(json.dumps, lines)))
            code, _, err = asks("report", reproduced)
            assert code in (0, 2), (path, other)
            assert err.count("\n") == (1 if code else 0), (path, other)
    finally:
        (folder / name).write_text(good)
        if sums:
            (folder / "SHA256SUMS").write_bytes(sums)
