"""Consistency of the repository's files (versions, README), and size limits of modules, functions and folders."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import asker

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


PACKAGE = ROOT / "src" / "asker"
MODULES = sorted(PACKAGE.rglob("*.py"))
FILE_LINES, FUNCTION_LINES, FOLDER_FILES, ROOT_FILES = 400, 50, 15, 5

LONG_FILES: set[str] = set()  # exceptions, by folder and file name


def short(path):
    return "/".join(path.parts[-2:])


def code_lines(function):
    """Number of lines of a function without its docstring."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        lines -= function.body[0].end_lineno - function.body[0].lineno + 1
    return lines


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


def test_the_readme_names_the_package_and_the_oldest_versions():
    assert f"`{PROJECT['name']}`" in text("README.md")
    oldest = dict(re.match(r"([\w-]+)>=(\d+\.\d+)", line).groups() for line in reversed(PROJECT["dependencies"]))
    for shown, package in (("JAX", "jax"), ("NumPy", "numpy"), ("llvmlite", "llvmlite")):
        assert f"{shown} {oldest[package]} to " in text("README.md")


def test_the_classifiers_name_the_pythons_of_the_ci():
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    tried = re.search(r"python: \[(.*)\]", text(".github/workflows/tests.yml"))[1]
    assert named == re.findall(r"3\.\d+", tried)
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert f"Python {named[0]} to {named[-1]}" in text("README.md")


def test_no_module_is_longer_than_400_lines():
    lengths = [(short(path), len(path.read_text(encoding="utf-8").splitlines())) for path in MODULES]
    assert len(lengths) > 100
    assert {name for name, n in lengths if n > FILE_LINES} <= LONG_FILES


def test_no_function_is_longer_than_50_lines():
    lengths = [
        (f"{short(path)} {node.name}", code_lines(node))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(lengths) > 1000
    assert {name for name, n in lengths if n > FUNCTION_LINES} == set()


def test_no_folder_but_those_of_the_engines_has_more_than_15_modules():
    folders = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert len(folders) > 10
    too_many = {folder for folder, n in folders.items() if n > FOLDER_FILES}
    assert {folder for folder in too_many if PACKAGE / "engines" not in folder.parents} == set()


def test_the_root_of_the_package_has_at_most_5_modules():
    assert 1 <= len(list(PACKAGE.glob("*.py"))) <= ROOT_FILES


def test_same_results_prints_its_usage():
    answer = subprocess.run([sys.executable, ROOT / "tools/same_results.py"], capture_output=True, text=True)
    assert answer.returncode == 2
    assert "OLD NEW" in answer.stderr
    assert "Traceback" not in answer.stderr
