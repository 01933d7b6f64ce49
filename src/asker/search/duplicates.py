"""Observations that repeat others exactly, as those of a logger that is faster than its sensor.

Such observations agree without noise, whatever the model: twelve copies of one reading make a mean exact, and the noise
would be found to be 0.  So where the noise is sought, copies count as one observation.

Numbers of a continuous scale never agree to the last bit by chance.  Those on a grid, as readings with one decimal, do:
there a repeated observation is another one, and counts.  Outliers may be off the grid, but then they have no copies: so
most observations must have some, and there must be two that differ: one number alone is on any grid.
"""

import numpy as np
from numpy.typing import NDArray

from asker.problem.factors import Factors
from asker.search.quantization import step_of_grid


def without_repeats(f: Factors) -> tuple[Factors, NDArray[np.int64]] | None:
    """The factors without the observations that repeat an earlier one, and which ones are left; None where these are no
    copies."""
    if not f.n:
        return None
    first, n_same = _firsts(f)
    if len(first) < 2 or np.count_nonzero(n_same > 1) <= len(first) / 2 or all(_is_on_a_grid(data) for data in f.data):
        return None
    return f.only(first), first


def _firsts(f: Factors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first observations of those that are the same to the last bit, and how many these are."""
    arrays = [slot.index for slot in f.slots] + list(f.data) + ([] if f.weight is None else [f.weight])
    rows = [np.ascontiguousarray(x).reshape(f.n, -1).view(np.uint8) for x in arrays]
    table = np.ascontiguousarray(np.concatenate(rows, axis=1))
    rows_as_one = table.view(f"V{table.shape[1]}").ravel()
    _, first, n_same = np.unique(rows_as_one, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], n_same[order]


def _is_on_a_grid(data: NDArray) -> bool:
    return data.dtype.kind != "f" or step_of_grid(data.astype(np.float64)) > 0
