"""Utilities of the families: tables of conditions, trimmed errors, the data folder, and optional peers."""

import importlib
import os
import sys
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from families.family import Condition

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks" / "peers"
N_RANDOM_TABLES = 200
TRIMMED_FRACTION = 0.95
"""Fraction of the cameras or rotations, the most accurate ones, over which an error is computed."""


def balanced(levels: dict[str, Sequence[Any]], n: int, seed: int = 0) -> list[Condition]:
    """Return `n` conditions in which each level of each factor occurs equally often, up to one if n is not a multiple.

    This is a fractional factorial design: each column is a random permutation, and of `N_RANDOM_TABLES` such tables the
    one with the most distinct pairs of levels is returned.  The result is deterministic.
    """
    rng = np.random.default_rng(seed)
    tables = [{k: rng.permutation(np.arange(n) % len(v)) for k, v in levels.items()} for _ in range(N_RANDOM_TABLES)]

    def n_pairs(table: dict[str, np.ndarray]) -> int:
        return sum(len(set(zip(a.tolist(), b.tolist(), strict=True))) for a, b in combinations(table.values(), 2))

    best = max(tables, key=n_pairs)
    return [{k: levels[k][column[row]] for k, column in best.items()} for row in range(n)]


def balanced_cases(
    levels: dict[str, Sequence[Any]], n: int, seeds: Sequence[int], quick: bool
) -> list[tuple[Condition, int]]:
    """Return each condition of a balanced table with every seed; with `quick`, only the first case."""
    conditions = balanced(levels, n)
    return [(conditions[0], seeds[0])] if quick else [(c, seed) for c in conditions for seed in seeds]


def n_kept(n: int) -> int:
    """Return the number of items, out of n, over which a trimmed error is computed."""
    return int(np.ceil(TRIMMED_FRACTION * n))


def trimmed(off: np.ndarray) -> float:
    """Return the root mean square of the smallest 95 % of the distances (n,)."""
    return float(np.sqrt(np.mean(np.sort(off)[: n_kept(len(off))] ** 2)))


def data_folder() -> Path:
    """Return the folder of the real data sets, which may not exist."""
    return Path(os.environ.get("ASKER_DATA") or ROOT.parent / "shared" / "data")


def peer(name: str) -> ModuleType | None:
    """Import a module of `benchmarks/peers`; return None if the program that it needs is not installed."""
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        _warn_once(f"benchmarks/peers/{name}.py is skipped: {error}")
        return None


@cache
def _warn_once(text: str) -> None:
    print(text, file=sys.stderr)
