"""Run the fast tests and the demo on all installed Pythons, with the oldest and the newest dependencies.

`make matrix` calls this script.  By default all interpreters from 3.11 on are detected; PYTHONS names others:

    make matrix PYTHONS="python3.11 /opt/python3.13/bin/python3"

The oldest versions are the lower bounds of pyproject.toml, used as constraints of pip; the newest are those that pip
chooses.  Each environment has a folder in .cache/matrix, with its log and its compiled code.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".cache" / "matrix"
REPORTED_PACKAGES = ("jax", "numpy", "llvmlite", "scipy", "typer")
PRINT_VERSION = "import sys; print(*sys.version_info[:2])"


class Outcome(NamedTuple):
    """One environment and the outcome of its tests."""

    python: str
    which: str
    versions: dict[str, str]
    result: str
    seconds: float


def version_of(python: str) -> tuple[int, int] | None:
    """Return the version as (3, 12), or None if this is not a working interpreter."""
    try:
        shown = subprocess.run([python, "-c", PRINT_VERSION], capture_output=True, text=True, timeout=30).stdout
        major, minor = map(int, shown.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return major, minor


def detected_pythons() -> dict[tuple[int, int], str]:
    """Return the interpreters from 3.11 on by version: this one, those on the path, and pyenv's."""
    candidates = [sys.executable, *(f"python3.{minor}" for minor in range(11, 30))]
    candidates += map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"), reverse=True))
    pythons: dict[tuple[int, int], str] = {}
    for python in candidates:
        path = shutil.which(python)
        version = version_of(path) if path else None
        if path and version and version >= (3, 11):
            pythons.setdefault(version, path)
    return dict(sorted(pythons.items()))


def lower_bounds(python: tuple[int, int]) -> list[str]:
    """Return `name==version` for each dependency; environment markers are evaluated for this Python."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        lines = tomllib.load(file)["project"]["dependencies"]
    bounds = {}
    for line in lines:
        requirement, _, marker = line.partition(";")
        limit = re.fullmatch(r"\s*python_version *>= *'(\d+)\.(\d+)'\s*", marker) if marker else None
        if marker and not limit:
            sys.exit(f"pyproject.toml: cannot read the marker of {line!r}")
        if limit and python < tuple(map(int, limit.groups())):
            continue
        name, version = re.match(r"([\w-]+)>=([\w.]+)", requirement).groups()
        bounds[name] = version
    bounds["jaxlib"] = bounds["jax"]
    return [f"{name}=={version}" for name, version in bounds.items()]


def try_one(python: str, version: tuple[int, int], which: str, targets: list[str]) -> Outcome:
    """Create the environment and run the targets in it."""
    folder = ENVIRONMENTS / f"{version[0]}.{version[1]}-{which}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = os.environ | {"ASKER_CACHE": str(folder / "kernels")}
    environment.pop("PYTHONPATH", None)
    environment.pop("MAKEFLAGS", None)
    if which == "oldest":
        (folder / "constraints.txt").write_text("\n".join(lower_bounds(version)) + "\n")
        environment["PIP_CONSTRAINT"] = str(folder / "constraints.txt")
    settings = [f"PYTHON={python}", f"VENV={folder / 'env'}", f"DEMO={folder / 'demo'}"]
    begin = time.perf_counter()
    with open(folder / "log.txt", "w") as log:
        code = subprocess.run(
            ["make", *targets, *settings], cwd=ROOT, env=environment, stdout=log, stderr=log
        ).returncode
    text = (folder / "log.txt").read_text(errors="replace")
    counts = re.findall(r"\d+ (?:passed|failed|error)[^\n]*", text)
    result = (counts[-1] if counts else "no test ran") + ("" if code == 0 else f"; FAILED, see {folder / 'log.txt'}")
    return Outcome(f"{version[0]}.{version[1]}", which, installed(folder / "env"), result, time.perf_counter() - begin)


def installed(env: Path) -> dict[str, str]:
    """Return the versions of `REPORTED_PACKAGES` in an environment."""
    command = [env / "bin" / "python", "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return {}
    versions = dict(line.split("==") for line in shown.splitlines() if "==" in line)
    return {name: versions[name] for name in REPORTED_PACKAGES if name in versions}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("oldest", "newest"), help="use one of the two environments of each Python")
    parser.add_argument("--other", action="store_true", help="use only the newest Python other than this one")
    parser.add_argument("targets", nargs="*", default=["demo", "test-fast"], help="targets of the Makefile")
    parser.add_argument("--constraints", action="store_true", help="print the oldest versions for this Python and exit")
    args = parser.parse_args()
    if args.constraints:
        print("\n".join(lower_bounds(sys.version_info[:2])))
        return 0
    named = os.environ.get("PYTHONS", "").split()
    pythons = {version_of(p): p for p in named} if named else detected_pythons()
    if None in pythons:
        parser.error(f"{pythons[None]} does not run")
    if args.other:
        others = {v: p for v, p in pythons.items() if v != sys.version_info[:2]}
        pythons = dict(list(others.items())[-1:])
        if not pythons:
            print("no other Python from 3.11 on is installed; PYTHONS names interpreters")
    lines = []
    for version, python in pythons.items():
        for which in (args.only,) if args.only else ("oldest", "newest"):
            print(f"Python {version[0]}.{version[1]}, {which} versions ...", flush=True)
            lines.append(try_one(python, version, which, args.targets))
            print(f"  {lines[-1].result}", flush=True)
    for line in lines:
        versions = "  ".join(f"{name} {line.versions.get(name, '?'):9}" for name in REPORTED_PACKAGES)
        print(f"Python {line.python}  {line.which}  {versions}  {line.seconds:4.0f} s  {line.result}")
    return int(any("FAILED" in line.result for line in lines))


if __name__ == "__main__":
    sys.exit(main())
