"""Cache keys of built-in functions: the same in every process, and different after any change of the package."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import asker
from asker.applications.bundle import make_scene, write_bal
from asker.applications.pose_graph.residuals import error_se2, error_se3
from asker.engines.interface import omega, psi
from asker.tracing.source_digest import digest_of


def users(x):
    return x


@dataclass(frozen=True)
class UsersKernel(asker.Cauchy):
    pass


def closing_over(x):
    return asker.Factors(lambda v: v, asker.Variables(np.zeros((1, 2)))[[0]], valid=x).condition().residual


BUILTIN = [
    error_se2, error_se3, partial(error_se2, 1.0), partial(error_se2, 2.0), closing_over(error_se2),
    closing_over(error_se3), (omega, asker.Cauchy(1.0)), (omega, asker.Cauchy(2.0)), (psi, asker.Cauchy(1.0)),
    (omega, asker.Tukey(1.0)), asker.SE2, asker.SE3, asker.Product(asker.SE3, asker.Euclidean(1)),
    asker.Product(asker.SE3, asker.Euclidean(2)), 1, 1.0, True, "1", np.ones(1), np.ones(1, np.int64), [1, 2], [[1], 2],
]  # fmt: skip


def test_keys_of_builtin_functions_and_values_are_distinct():
    known = [digest_of(each) for each in BUILTIN]
    assert all(known)
    assert len(set(known)) == len(BUILTIN)
    assert known == [digest_of(each) for each in BUILTIN]


@pytest.mark.parametrize(
    "thing",
    [users, partial(error_se2, users), closing_over(users), (omega, UsersKernel()), [users], {"f": users}, object()],
)
def test_functions_and_classes_of_users_have_no_key(thing):
    assert digest_of(thing) == b""


# ---- in separate processes, with an editable copy of the package

SOLVE = """
import sys
from asker.cli import main
assert main(["solve", sys.argv[1], "--method", "irls", "--iterations", "1", "--json", sys.argv[2]]) == 0
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


class Package:
    """Copy of asker with a separate cache."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.source = folder / "asker"
        shutil.copytree(Path(asker.__file__).parent, self.source, ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, code: str, *arguments: object, seed: int = 0) -> str:
        others = {
            "PYTHONPATH": str(self.folder),
            "ASKER_CACHE": str(self.folder / "cache"),
            "PYTHONHASHSEED": str(seed),
        }
        command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | others)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.source / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def package(tmp_path):
    return Package(tmp_path)


@pytest.fixture
def scene(tmp_path):
    path = tmp_path / "scene.txt"
    write_bal(path, make_scene(4, 200).start)
    return path


def test_a_command_with_a_warm_cache_traces_nothing_and_an_edited_residual_is_traced_again(package, scene):
    record = scene.with_suffix(".json")

    def solved(seed=0):
        imported = package.run(SOLVE, scene, record, seed=seed).split()
        return "jax" in imported, json.loads(record.read_text())["initial_cost"]

    (cold, cost), warm = solved(), solved(seed=1)
    assert cold
    assert warm == (False, cost)
    package.edit("applications/bundle/problem.py", "p = -P[:2] / P[2]", "p = -1.001 * P[:2] / P[2]")
    traced, edited = solved()
    assert traced
    assert edited != cost
    assert solved() == (False, edited)


def test_a_file_that_changed_after_the_import_gives_no_key(package):
    code = """
import os, sys
from pathlib import Path
from asker.tracing import source_digest
if sys.argv[1:]:
    os.utime(Path(source_digest.PACKAGE) / sys.argv[1])
print(source_digest.digest_of(1) == b"")
"""
    assert package.run(code).split()[-1] == "False"
    assert package.run(code, "kernels/kernels.py").split()[-1] == "True"
