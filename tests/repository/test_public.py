"""Public names are listed once, typed and documented; the wheel contains the code and its data."""

import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import resources
from pathlib import Path

import pytest

import asker

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = (asker.Manifold, asker.Strategy)
THINGS = {name: getattr(asker, name) for name in asker.__all__}
CLASSES = {
    name: x if inspect.isclass(x) else type(x)
    for name, x in THINGS.items()
    if not inspect.isroutine(x) and not isinstance(x, dict | str)
}
FUNCTIONS = {name: x for name, x in THINGS.items() if inspect.isfunction(x)}
STRATEGIES = {name for name, cls in CLASSES.items() if cls.__module__.startswith("asker.strategies.")}
"""Names of the strategies, whose members are documented in the module of each method next to the paper's equations."""


def members(name, cls):
    """Yield the public functions and properties that a class defines itself, as functions."""
    for member, x in vars(cls).items():
        x = x.__func__ if isinstance(x, classmethod | staticmethod) else x.fget if isinstance(x, property) else x
        if not member.startswith("_") and inspect.isfunction(x):
            yield f"{name}.{member}", cls, member, x


METHODS = [m for name, cls in CLASSES.items() if name not in STRATEGIES for m in members(name, cls)]


def test_all_lists_every_public_name():
    assert len(set(asker.__all__)) == len(asker.__all__)
    public = {name for name, x in vars(asker._api).items() if not name.startswith("_") and not inspect.ismodule(x)}
    assert public | {"__version__"} == set(asker.__all__) == set(dir(asker))


def test_no_public_name_equals_that_of_a_module():
    """Otherwise the meaning of `asker.solve` would depend on the order of imports."""
    assert not {module.name for module in pkgutil.iter_modules(asker.__path__)} & set(asker.__all__)


def is_documented(x):
    doc = vars(x).get("__doc__") if inspect.isclass(x) else x.__doc__
    return doc and not doc.startswith(f"{x.__name__}(")  # the default docstring of a dataclass


def test_public_names_are_documented():
    assert not [name for name, x in (FUNCTIONS | CLASSES).items() if not is_documented(x)]


def test_public_methods_are_documented():
    """A method has a docstring, overrides a method with one, or implements a documented protocol."""
    assert not [
        name
        for name, cls, member, _ in METHODS
        if not any(inspect.getdoc(getattr(x, member)) for x in (cls, *PROTOCOLS) if hasattr(x, member))
    ]


def is_typed(function):
    parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
    return {*parameters, "return"} <= set(function.__annotations__)


def test_public_functions_are_typed():
    assert not [f.__qualname__ for f in (*FUNCTIONS.values(), *(m[3] for m in METHODS)) if not is_typed(f)]


def test_the_version_is_defined_in_one_place(asks):
    assert re.fullmatch(r"\d+\.\d+\.\d+", asker.__version__)  # semantic versioning
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/asker/version.py"
    assert asks("--version") == (0, f"asker {asker.__version__}\n", "")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[(\d.*?)\]", changes, re.MULTILINE)[1] == asker.__version__


DATA = ["py.typed", "experiments/page.html", "experiments/plans/quick.toml", "experiments/plans/paper.toml"]


def test_a_wheel_contains_the_code_and_its_data(tmp_path):
    pytest.importorskip("hatchling")
    build = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name = done.stdout.split()[-1]
    assert name == f"asker_solver-{asker.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name) as wheel:
        contents = set(wheel.namelist())
        entry = wheel.read(f"asker_solver-{asker.__version__}.dist-info/entry_points.txt").decode()
    source = ROOT / "src"
    code = {str(path.relative_to(source)) for path in (source / "asker").rglob("*.py")}
    assert {name for name in contents if name.endswith(".py")} == code
    assert {f"asker/{name}" for name in DATA} <= contents
    assert f"asker_solver-{asker.__version__}.dist-info/licenses/LICENSE" in contents
    assert "asker = asker.cli:main" in entry


@pytest.mark.parametrize("name", DATA)
def test_the_data_is_accessible_through_the_package(name):
    assert resources.files("asker").joinpath(name).is_file()
