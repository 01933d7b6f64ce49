"""Files of the repository that repeat what stands elsewhere: they agree."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import asker

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_has_the_version():
    assert re.findall(r"^version: (.*)$", text("CITATION.cff"), re.M) == [asker.__version__]


def test_the_changelog_has_the_version_and_dates():
    titles = re.findall(r"^## (.*)$", text("CHANGELOG.md"), re.M)
    assert titles[0] == "[Unreleased]" or titles[0].startswith(f"[{asker.__version__}]")
    released = [title for title in titles if title != "[Unreleased]"]
    assert released[0].startswith(f"[{asker.__version__}] - ")
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", title) for title in released)


def test_the_readme_says_what_is_installed():
    assert f"`{PROJECT['name']}`" in text("README.md")
    oldest = dict(re.match(r"([\w-]+)>=(\d+\.\d+)", line).groups() for line in reversed(PROJECT["dependencies"]))
    for shown, package in (("JAX", "jax"), ("NumPy", "numpy"), ("llvmlite", "llvmlite")):
        assert f"{shown} {oldest[package]} to " in text("README.md")


def test_the_classifiers_name_the_pythons_that_are_tried():
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    tried = re.search(r"python: \[(.*)\]", text(".github/workflows/tests.yml"))[1]
    assert named == re.findall(r"3\.\d+", tried)
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert f"Python {named[0]} to {named[-1]}" in text("README.md")


def test_what_compares_two_checkouts_has_a_usage():
    answer = subprocess.run([sys.executable, ROOT / "tools/same_results.py"], capture_output=True, text=True)
    assert answer.returncode == 2
    assert "OLD NEW" in answer.stderr
    assert "Traceback" not in answer.stderr
