"""Both engines implement the interface, and their users use nothing else."""

import ast
import inspect
from pathlib import Path

import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.engines.interface import Engine, Verbs
from asker.engines.xla.engine import XlaEngine
from linear_problems import line_problem

SOURCE = Path(asker.__file__).parent
OF_SINGLE_VARIABLES = [
    SOURCE / "strategies" / "composite" / f"{name}.py"
    for name in ("batched_subproblems", "block_moves", "inlier_flips")
]
STRATEGIES = sorted({*(SOURCE / "strategies").rglob("*.py")} - {*OF_SINGLE_VARIABLES})
LIBRARY = [SOURCE / "_solve.py", SOURCE / "engines" / "validity.py", *OF_SINGLE_VARIABLES]
LIBRARY += [*sorted((SOURCE / "solver").glob("*.py")), *sorted((SOURCE / "search").glob("*.py"))]
pytestmark = pytest.mark.filterwarnings("ignore:engine xla without a GPU")


def members(protocol):
    """The public names of a protocol and of those that it extends."""
    names = set()
    for cls in protocol.__mro__:
        if cls.__module__ == Engine.__module__:
            names |= {name for name in {*vars(cls), *inspect.get_annotations(cls)} if not name.startswith("_")}
    return names


def asked(path):
    """The attributes of engines (by the names of variables) that are used in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if owner in ("engine", "machine", "verbs"):
                yield node.attr


def test_members_of_the_interface():
    assert {"each", "solve", "move", "problem"} <= members(Verbs) < members(Engine)
    assert "fingerprint" in members(Engine) - members(Verbs)


@pytest.mark.parametrize("cls", [CpuEngine, XlaEngine])
def test_an_engine_has_every_member(cls):
    engine = cls(line_problem())
    assert not {name for name in members(Engine) if not hasattr(engine, name)}
    for name in members(Engine):
        promised, given = getattr(Engine, name, None), getattr(cls, name, None)
        if inspect.isfunction(promised):
            assert list(inspect.signature(given).parameters) == list(inspect.signature(promised).parameters), name


@pytest.mark.parametrize("path", STRATEGIES, ids=lambda p: p.stem)
def test_strategies_use_only_verbs(path):
    assert set(asked(path)) <= members(Verbs)


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: p.stem)
def test_the_library_uses_only_the_engine_interface(path):
    assert set(asked(path)) <= members(Engine)


def test_every_member_is_used():
    used = {name for path in [*STRATEGIES, *LIBRARY] for name in asked(path)}
    assert members(Engine) <= used


def imports(folder):
    """The modules of asker outside of a folder that its files import."""
    package = "asker." + str(folder.relative_to(SOURCE)).replace("/", ".")
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module and module.startswith("asker.") and not module.startswith(package):
                yield from ([f"{module}.{a.name}" for a in node.names] if module == "asker.engines.cpu" else [module])


ALLOWED = {
    "compiler": {
        "tracing.array_namespace",
        "io.cache",
        "engines.cpu.background_compile",
        "engines.cpu.code_cache",
        "engines.cpu.threads",
        "io.interrupts",
        "tracing.jax_compat",
        "tracing.unsupported_primitives",
    },
    "sparse": {"engines.cpu.cholesky", "engines.cpu.compiler", "engines.cpu.threads"},
    "system": {
        "tracing.array_namespace",
        "engines.cpu.cholesky",
        "engines.cpu.compiler",
        "engines.cpu.sparse",
        "engines.cpu.threads",
        "engines.inverse_blocks",
        "engines.solvers",
        "engines.null_space",
        "engines.sparsity",
        "problem.variables",
    },
}


@pytest.mark.parametrize("package", ALLOWED)
def test_subpackages_of_the_cpu_engine_import_only_allowed_modules(package):
    assert {name.removeprefix("asker.") for name in imports(SOURCE / "engines" / "cpu" / package)} <= ALLOWED[package]
