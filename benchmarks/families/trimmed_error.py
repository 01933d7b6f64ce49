"""Trimmed errors, which ignore the worst 5 % of the cameras or rotations."""

import numpy as np

TRIMMED_FRACTION = 0.95
"""Fraction of the cameras or rotations, the most accurate ones, over which an error is computed."""


def n_kept(n: int) -> int:
    """Return the number of items, out of n, over which a trimmed error is computed."""
    return int(np.ceil(TRIMMED_FRACTION * n))


def trimmed(off: np.ndarray) -> float:
    """Return the root mean square of the smallest 95 % of the distances (n,)."""
    return float(np.sqrt(np.mean(np.sort(off)[: n_kept(len(off))] ** 2)))
