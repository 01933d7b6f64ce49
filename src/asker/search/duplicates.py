"""Observations that repeat others exactly, such as those of a logger that is faster than its sensor.

Such observations agree without noise, whatever the model: twelve copies of one reading make a mean exact, and the noise
would be estimated as 0.  So copies count as one observation in the estimate of the noise.

Numbers of a continuous scale never agree to the last bit by chance.  Numbers on a grid, such as readings with one
decimal, do; there a repeated observation is another one, and counts.  Outliers may be off the grid, but then they have
no copies: so most observations must have copies, and two observations must differ.
"""

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.search.quantization import step_of_grid


def first_copies(f: Factors) -> NDArray[np.int64] | None:
    """Return the numbers of the observations that repeat no earlier one; None if there are no copies."""
    if not f.n:
        return None
    first, n_same = _first_of_each(f)
    if len(first) < 2 or np.count_nonzero(n_same > 1) <= len(first) / 2 or all(_is_on_a_grid(data) for data in f.data):
        return None
    return first


def _first_of_each(f: Factors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of the observations that are equal to the last bit, and the number of each."""
    arrays = [slot.index for slot in f.slots] + list(f.data) + ([] if f.weight is None else [f.weight])
    rows = [np.ascontiguousarray(x).reshape(f.n, -1).view(np.uint8) for x in arrays]
    table = np.ascontiguousarray(np.concatenate(rows, axis=1))
    rows_as_one = table.view(f"V{table.shape[1]}").ravel()
    _, first, n_same = np.unique(rows_as_one, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], n_same[order]


def _is_on_a_grid(data: NDArray) -> bool:
    return data.dtype.kind != "f" or step_of_grid(data.astype(np.float64)) > 0
