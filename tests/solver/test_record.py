"""Files with results of benchmarks: the printed text, with the commit, the date and the machine."""

import argparse
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import record  # noqa: E402  (benchmarks/record.py)

SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=tmp_path, check=True)

    git("init", "--quiet")
    (tmp_path / "code.py").write_text("1")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "old.md").write_text("old")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    return tmp_path


def parsed(*words):
    parser = argparse.ArgumentParser()
    record.add_record_option(parser)
    return parser.parse_args(words).record


def test_printed_text_is_written_to_a_file(results, capsys):
    with record.recorded(parsed("--record", "rings")):
        print("| a | b |\n|---|---|")
        print("| 1 | 2 |", flush=True)
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert capsys.readouterr().out == table
    text = (results / "rings.md").read_text()
    assert text.startswith("# rings\n\n`python benchmarks/")
    assert text.endswith(f"\n\n{table}")
    assert re.search(r"^- Commit: \w+", text, re.M)
    assert re.search(r"^- Date: \d{4}-\d\d-\d\d$", text, re.M)
    assert re.search(r"^- Machine: \d+ cores, .*Python 3\.\d+.*, jax [\d.]+, llvmlite [\d.]+, numpy [\d.]+", text, re.M)


def test_without_the_option_nothing_is_written(results, capsys):
    with record.recorded(parsed()):
        print("shown")
    assert capsys.readouterr() == ("shown\n", "")
    assert not results.exists()


def test_a_failed_run_does_not_change_the_former_result(results):
    with record.recorded(parsed("--record", "kept")):
        print("first")
    before = (results / "kept.md").read_text()

    def fail():
        with record.recorded(parsed("--record", "kept")):
            print("second")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (results / "kept.md").read_text() == before


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a.md", "a b"])
def test_a_path_is_no_valid_name(name, results, capsys):
    with pytest.raises(SystemExit):
        parsed("--record", name)
    assert "invalid name" in capsys.readouterr().err


def test_a_record_contains_no_path_and_no_host_name():
    text = record.command(["/somewhere/benchmarks/rings.py", "/data/problem.txt", "--data=/data/", "--kind", "path"])
    assert text == "python benchmarks/rings.py problem.txt --data=data --kind path"
    assert "/" not in record.machine()
    assert platform.node() not in record.machine().split(", ")


def test_a_commit_is_marked_as_dirty_after_changes(repository):
    plain = record.commit(repository)
    assert re.fullmatch(r"[0-9a-f]{7,}", plain)
    (repository / "benchmarks" / "results" / "old.md").write_text("new")
    (repository / "unknown.txt").write_text("not known to git")
    assert record.commit(repository) == plain
    (repository / "code.py").write_text("2")
    assert record.commit(repository) == f"{plain}-dirty"


def test_a_record_outside_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert record.commit(tmp_path) == "no repository"
    monkeypatch.setenv("PATH", "")
    assert record.commit(tmp_path) == "no repository"


@pytest.mark.parametrize("script", [s for s in SCRIPTS if s.stem != "record"], ids=lambda s: s.stem)
def test_every_benchmark_can_be_recorded(script):
    text = script.read_text(encoding="utf-8")
    assert "add_record_option(parser)" in text
    assert re.search(r"with recorded\(\w+\.record\)[:,]", text)
