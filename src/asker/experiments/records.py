"""The folder of a finished run: what is in it, whether it is whole, and reading it back.

    config.json     what was run, and with which versions
    history.jsonl   one line for each iteration, written as it goes
    result.json     costs, inliers, time
    arrays.npz      what figures need: points, ways or disparities
    SHA256SUMS      the sums of these four, as `sha256sum --check` reads them

The sums are written last; a folder in which they do not fit is not that of a finished run.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.application import Arrays
from asker.experiments.instances import sources
from asker.experiments.plan import Run
from asker.io.files import FileError, opened, read_bytes, write_whole
from asker.strategies import METHODS

FILES = ("config.json", "history.jsonl", "result.json", "arrays.npz")
SUMS = "SHA256SUMS"
NUMBERS = ("cost", "initial_cost", "mean_cost", "seconds", "iterations")
"""What the result of every run has."""


@dataclass(frozen=True, eq=False)
class Record:
    """A finished run, read back."""

    run: Run
    folder: Path
    versions: dict[str, str]
    result: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def cost(self) -> float:
        return self.result["cost"]

    @property
    def method(self) -> str:
        return self.run.method

    @property
    def settings(self) -> dict[str, Any]:
        return self.run.settings

    @property
    def options(self) -> dict[str, Any]:
        return self.run.keys

    def arrays(self) -> Arrays:
        path = self.folder / "arrays.npz"
        try:
            with opened(path) as file, np.load(file) as arrays:
                return _Named(path, arrays)
        except Exception as e:  # zipfile and NumPy raise a dozen kinds for broken bytes
            raise FileError(path, f"these are not the arrays of a run ({e})") from e


class _Named(dict[str, np.ndarray]):
    """Arrays of a file; one that is missing is a fault of the file."""

    def __init__(self, path: Path, arrays: Any):
        super().__init__(arrays)
        self.path = path

    def __missing__(self, name: str) -> np.ndarray:
        raise FileError(self.path, f"there is no array {name!r} in it")


def write_sums(folder: Path) -> None:
    """Say what the files of a run are, after they were written."""
    with write_whole(folder / SUMS) as file:
        file.write(_sums(folder).encode())


def is_finished(folder: Path) -> bool:
    """Whether a run is there and whole."""
    try:
        read_record(folder)
    except FileError:
        return False
    return True


def read_record(folder: Path) -> Record:
    """A finished run; a `FileError` says what is wrong with its folder."""
    try:
        if not folder.is_dir():
            raise FileError(folder, "there is no such folder")
        if (folder / SUMS).exists():  # older runs have none
            _check_sums(folder)
        config, result = (_strict(read_bytes(folder / name)) for name in ("config.json", "result.json"))
        history = [_strict(line) for line in read_bytes(folder / "history.jsonl").splitlines()]
        versions = config.pop("versions")
        _check_result(result, history)
        _check_config(config)
        return Record(Run(**config), folder, {str(k): str(v) for k, v in versions.items()}, result, history)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise FileError(folder, f"this is not the folder of a finished run: {e}") from e


def _sums(folder: Path) -> str:
    return "".join(f"{hashlib.sha256(read_bytes(folder / name)).hexdigest()}  {name}\n" for name in FILES)


def _check_sums(folder: Path) -> None:
    told = read_bytes(folder / SUMS).decode(errors="replace").splitlines()
    for line in _sums(folder).splitlines():
        if line not in told:
            raise ValueError(f"{line.split()[1]} is not what was written")


def _strict(text: bytes) -> dict[str, Any]:
    """A table of JSON, without NaN and infinities."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} stands for a number")

    table = json.loads(text, parse_constant=refuse)
    if not isinstance(table, dict):
        raise ValueError(f"{str(table)[:40]!r} stands for a table")
    return table


def _check_config(config: dict[str, Any]) -> None:
    for key in ("instance", "kind", "method", "content"):
        if not isinstance(config[key], str):
            raise TypeError(f"{key} is {config[key]!r}")
    if config["kind"] not in sources():
        raise ValueError(f"it is of the kind {config['kind']!r}; known are {', '.join(sources())}")
    if config["method"] not in METHODS:
        raise ValueError(f"there is no method {config['method']!r}")
    for key in ("options", "settings"):
        if not isinstance(config[key], dict):
            raise TypeError(f"{key} is {config[key]!r}")
    if missing := sources()[config["kind"]][1].keys.keys() - config["options"].keys():
        raise ValueError(f"it has no {', '.join(sorted(missing))}")


def _check_result(result: dict[str, Any], history: list[dict[str, Any]]) -> None:
    for key in NUMBERS:
        if not _is_number(result[key]):
            raise TypeError(f"{key} is {result[key]!r}")
    for key, value in result.items():
        if not (value is None or isinstance(value, str) or _is_number(value)):
            raise TypeError(f"{key} is {str(value)[:40]}")
    if [line["iteration"] for line in history] != list(range(result["iterations"] + 1)):
        raise ValueError(f"its history is not one of {result['iterations']} iterations")
    for line in history:
        if not all(_is_number(line[key]) for key in ("best_cost", "seconds")):
            raise ValueError("its history is not one of costs")


def _is_number(x: Any) -> bool:
    """Whether JSON has a number that is one of Python's floats too."""
    return isinstance(x, int | float) and abs(x) <= 1e308 and math.isfinite(x)
