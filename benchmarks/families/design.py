"""What the families share: tables of conditions, where real data is, and peers that may not be installed."""

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
TRIES = 200
KEPT = 0.95
"""The part of the cameras, or rotations, that an error is over."""


def balanced(levels: dict[str, Sequence[Any]], n: int, seed: int = 0) -> list[Condition]:
    """`n` conditions in which the values of each name come equally often, or once more where n is no multiple.

    It is a small part of all combinations: each column is a permutation, and of `TRIES` such tables the one that has
    the most pairs of values of two names.  The same arguments give the same table.
    """
    rng = np.random.default_rng(seed)
    tables = [{k: rng.permutation(np.arange(n) % len(v)) for k, v in levels.items()} for _ in range(TRIES)]

    def n_pairs(table: dict[str, np.ndarray]) -> int:
        return sum(len(set(zip(a.tolist(), b.tolist(), strict=True))) for a, b in combinations(table.values(), 2))

    best = max(tables, key=n_pairs)
    return [{k: levels[k][column[row]] for k, column in best.items()} for row in range(n)]


def balanced_cases(
    levels: dict[str, Sequence[Any]], n: int, seeds: Sequence[int], quick: bool
) -> list[tuple[Condition, int]]:
    """The cases of a balanced table: each condition with every seed; quick: the first one."""
    conditions = balanced(levels, n)
    return [(conditions[0], seeds[0])] if quick else [(c, seed) for c in conditions for seed in seeds]


def n_kept(n: int) -> int:
    """How many of n things an error is over."""
    return int(np.ceil(KEPT * n))


def trimmed(off: np.ndarray) -> float:
    """The root mean square of the smallest 95 % of distances (n,): one thing in twenty may be lost without a say."""
    return float(np.sqrt(np.mean(np.sort(off)[: n_kept(len(off))] ** 2)))


def data_folder() -> Path:
    """Where the real data is, if it is there at all."""
    return Path(os.environ.get("ASKER_DATA") or ROOT.parent / "shared" / "data")


def peer(name: str) -> ModuleType | None:
    """A module of `benchmarks/peers`; None where the program that it drives is not installed."""
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        _tell_once(f"benchmarks/peers/{name}.py is left out: {error}")
        return None


@cache
def _tell_once(text: str) -> None:
    print(text, file=sys.stderr)
