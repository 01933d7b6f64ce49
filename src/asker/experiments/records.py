"""The folder of a finished run: its files, their checksums, and a reader.

    config.json     the settings of the run and the versions of the software
    history.jsonl   one line for each iteration, written during the solve
    result.json     costs, inliers, time
    arrays.npz      arrays for figures: points, trajectories or disparities
    SHA256SUMS      checksums of these four files, in the format of `sha256sum --check`

The checksums are written last; a folder with missing or wrong ones is not that of a finished run.
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
from asker.experiments.plan import METHOD_NAMES, Run
from asker.io.files import FileError, opened, read_bytes, write_whole

FILES = ("config.json", "history.jsonl", "result.json", "arrays.npz")
SUMS = "SHA256SUMS"
NUMBERS = ("cost", "initial_cost", "mean_cost", "seconds", "iterations")
"""The numbers in the result of every run."""


@dataclass(frozen=True, eq=False)
class Record:
    """A finished run, read from its folder."""

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
    """The arrays of a file; a missing one raises a `FileError`."""

    def __init__(self, path: Path, arrays: Any):
        super().__init__(arrays)
        self.path = path

    def __missing__(self, name: str) -> np.ndarray:
        raise FileError(self.path, f"there is no array {name!r} in it")


def write_sums(folder: Path) -> None:
    """Write the checksums of the files of a run."""
    with write_whole(folder / SUMS) as file:
        file.write(_sums(folder).encode())


def is_finished(folder: Path) -> bool:
    """Return True if the folder of a run exists and is complete."""
    try:
        read_record(folder)
    except FileError:
        return False
    return True


def read_record(folder: Path) -> Record:
    """Return a finished run; raise a `FileError` if its folder is incomplete or damaged."""
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
    """Return the checksums of the files of a recorded run, one line for each file."""
    return "".join(f"{hashlib.sha256(read_bytes(folder / name)).hexdigest()}  {name}\n" for name in FILES)


def _check_sums(folder: Path) -> None:
    written = read_bytes(folder / SUMS).decode(errors="replace").splitlines()
    for line in _sums(folder).splitlines():
        if line not in written:
            raise ValueError(f"{line.split()[1]} has been changed: its checksum differs")


def _strict(text: bytes) -> dict[str, Any]:
    """Return a table of JSON; raise a ValueError for NaN and infinities."""

    def refuse(constant: str) -> None:
        raise ValueError(f"expected a finite number, not {constant}")

    table = json.loads(text, parse_constant=refuse)
    if not isinstance(table, dict):
        raise ValueError(f"expected a table, not {str(table)[:40]!r}")
    return table


def _check_config(config: dict[str, Any]) -> None:
    for key in ("instance", "kind", "method", "content"):
        if not isinstance(config[key], str):
            raise TypeError(f"{key} is {config[key]!r}")
    if config["kind"] not in sources():
        raise ValueError(f"unknown kind {config['kind']!r}; known kinds are {', '.join(sources())}")
    if config["method"] not in METHOD_NAMES:
        raise ValueError(f"unknown method {config['method']!r}")
    for key in ("options", "settings"):
        if not isinstance(config[key], dict):
            raise TypeError(f"{key} is {config[key]!r}")
    if missing := sources()[config["kind"]][1].keys.keys() - config["options"].keys():
        raise ValueError(f"config.json has no {', '.join(sorted(missing))}")


def _check_result(result: dict[str, Any], history: list[dict[str, Any]]) -> None:
    for key in NUMBERS:
        if not _is_number(result[key]):
            raise TypeError(f"{key} is {result[key]!r}")
    for key, value in result.items():
        if not (value is None or isinstance(value, str) or _is_number(value)):
            raise TypeError(f"{key} is {str(value)[:40]}")
    if [line["iteration"] for line in history] != list(range(result["iterations"] + 1)):
        raise ValueError(f"history.jsonl does not have the lines of {result['iterations']} iterations")
    for line in history:
        if not all(_is_number(line[key]) for key in ("best_cost", "seconds")):
            raise ValueError("history.jsonl has lines without cost and time")


def _is_number(x: Any) -> bool:
    """Return True for a finite number within the range of double precision."""
    return isinstance(x, int | float) and abs(x) <= 1e308 and math.isfinite(x)
