"""Trials of readers: a damaged file is rejected with an error that names it, or read as a valid one."""

import bz2
import json
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import reference_graphs
import reference_models
from asker.applications.bundle.bal import read_bal
from asker.applications.colmap.formats.folder import read_model
from asker.applications.pose_graph.formats.g2o import read_g2o
from asker.applications.stereo.pairs import read_folder
from asker.io.npz import parse_npz, write_npz
from fault_trials import Trial
from file_damage import edits, repacked, replaced, spoiled
from reader_cases import CASES, Case, Hang
from real_data import DATA

MAX_EDITS = 5000
REFERENCES: dict[Any, Any] = {
    read_bal: (reference_models.read_bal, reference_models.numbers_of_bundle),
    read_g2o: (reference_graphs.read_g2o, reference_graphs.numbers_of_graph),
    read_model: (reference_models.read_colmap, reference_models.numbers_of_model),
}
"""Reference reader, and extraction of its numbers, for each reader of real data."""


def damage_readers(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Read about `n` damaged files, equally many for every reader."""
    for name, make in CASES.items():
        home = folder / name.replace(" ", "-").replace(",", "") / "a"
        home.mkdir(parents=True)
        yield from _damage(name, make(home), -(-n // len(CASES)), rng)


def damage_real_files(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Read about `n` damaged files, equally many for each of the available real data sets."""
    real = [(name, source, read) for name, source, read in _real() if source.exists()]
    for name, source, read in real:
        home = folder / source.name.replace(".bz2", "")
        home.mkdir(parents=True)
        path = _copied(source, home)
        reference, numbers = REFERENCES.get(read, (None, None))
        case = Case(home, partial(read, path), reference=reference and partial(reference, path), numbers=numbers)
        yield from _damage(name, case, -(-n // len(real)), rng)


def _damage(name: str, case: Case, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    for path, good in case.good.items():
        trial = attempt(name, case, path, good)
        yield Trial(name, f"{path.name} is rejected although undamaged") if trial.refused else trial
    for _ in range(n):
        path = case.files[rng.integers(len(case.files))]
        yield attempt(name, case, path, damaged(rng, path, case.good[path]))


def _real() -> Iterator[tuple[str, Path, Any]]:
    for name in ("intel", "MIT", "parking-garage", "sphere2500"):
        yield f"real graph {name}", DATA / "g2o" / f"{name}.g2o.bz2", read_g2o
    yield "real BAL ladybug-49", DATA / "bal" / "problem-49-7776-pre.txt.bz2", read_bal
    for name in ("small-15", "rig-3"):
        yield f"real model {name}", DATA / "colmap" / name, read_model
    yield "real stereo teddy", DATA / "stereo" / "teddy", read_folder


def _copied(source: Path, home: Path) -> Path:
    """Copy a data set, decompressed, and return its path."""
    if source.is_file():
        path = home / source.name.removesuffix(".bz2")
        path.write_bytes(bz2.decompress(source.read_bytes()))
        return path
    for file in source.iterdir():
        if file.is_file():
            (home / file.name).write_bytes(file.read_bytes())
    return home


def attempt(what: str, case: Case, path: Path, content: bytes) -> Trial:
    """Read one damaged file; keep it in `runs/faults` if there is a fault."""
    try:
        return Trial(what, refused=case.try_on(path, content) is not None)
    except Hang:
        fault = "the reader hangs"
    except AssertionError as error:
        fault = str(error)
    except Exception:
        fault = traceback.format_exc(limit=-2)
    kept = Path("runs") / "faults" / f"{what.replace(' ', '-')}-{path.name}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(content)
    return Trial(what, f"{path.name}, kept as {kept}: {fault}")


def damaged(rng: np.random.Generator, path: Path, good: bytes) -> bytes:
    """Return content with damaged bytes, or with damage inside the compression or in the decoded structure."""
    if path.suffix in (".gz", ".bz2") and rng.random() < 0.5:
        return repacked(path, good, lambda inner: spoiled(rng, inner))
    if path.suffix in (".json", ".jsonl") and rng.random() < 0.5:
        lines = good.splitlines() if path.suffix == ".jsonl" else [good]
        k = int(rng.integers(len(lines)))
        lines[k] = json.dumps(_edited(rng, json.loads(lines[k]))).encode()
        return b"\n".join(lines)
    if path.suffix == ".npz" and path.name != "arrays.npz" and rng.random() < 0.7:
        tree, arrays = parse_npz(path, good, "file")
        write_npz(path, _edited(rng, tree), arrays)
        return path.read_bytes()
    return spoiled(rng, good)


def _edited(rng: np.random.Generator, value: Any) -> Any:
    every = [edit for edit, _ in zip(edits(value), range(MAX_EDITS), strict=False)]
    return replaced(value, *every[rng.integers(len(every))])
