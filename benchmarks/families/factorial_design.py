"""Balanced tables of conditions: a fractional factorial design."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from families.family import Condition

N_RANDOM_TABLES = 200


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
