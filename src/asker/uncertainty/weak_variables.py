"""Variables that hang on too little, without a factorisation.

With all others known, the information of a variable is its own block B = Σ JᵀJ over the inliers.  Its d directions may
have different units, so that the size of its uncertainty is taken as (det B)^(−1/2d), and told in medians of its group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asker.problem.variables import ProblemError, Variables
from asker.solver.result import Result
from asker.uncertainty.covariance import linear_model
from asker.uncertainty.information import counted

WEAK = 5.0
"""Medians from which on a variable hangs on too little."""
OPEN = 1e-12
"""An eigenvalue of B with unit diagonal, below which the inliers leave a direction open."""


@dataclass(frozen=True, eq=False)
class Hold:
    """What the variables of one group hang on."""

    n_inliers: NDArray[np.int64]
    """(n,): how many inliers (`asker.statistics.inliers`)."""
    uncertainty: NDArray[np.float64]
    """(n,): with all others known, in medians of the group; infinite where a direction is left open, 0 where fixed."""

    def weak(self, most: int) -> NDArray[np.int64]:
        """Those that hang on too little, the worst first, at most so many."""
        order = np.lexsort((self.n_inliers, -self.uncertainty))
        return order[self.uncertainty[order] >= WEAK][:most]

    @property
    def n_weak(self) -> int:
        return int(np.count_nonzero(self.uncertainty >= WEAK))


def holds(result: Result) -> dict[Variables, Hold]:
    """Of every free group."""
    if result.problem is None or result.problem.portion is not None:
        raise ProblemError("what variables hang on is seen in a whole problem that was solved here")
    result = result.of_informative
    problem = result.problem
    assert problem is not None
    masks = counted(result, [None] * len(problem.factors))
    theta = tuple(v.manifold.pack(x) for v, x in zip(problem.variables, result.values, strict=True))
    blocks = linear_model(result.engine, problem, theta).own_blocks([mask.astype(float) for mask in masks])
    counts = {v: np.zeros(len(v), dtype=np.int64) for v in blocks}
    for f, mask in zip(problem.factors, result.inliers, strict=True):
        for slot in f.slots:
            if slot.variables in counts:
                counts[slot.variables] += np.bincount(slot.index[mask], minlength=len(slot.variables))
    return {v: Hold(counts[v], _uncertainty(v, B)) for v, B in blocks.items()}


def _uncertainty(v: Variables, B: NDArray[np.float64]) -> NDArray[np.float64]:
    B = np.where(np.isfinite(B).all(axis=(1, 2), keepdims=True), B, 0.0)  # where nothing is known, nothing is held
    diagonal = np.einsum("nqq->nq", B)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    sizes = np.linalg.eigvalsh(B / (scale[:, :, None] * scale[:, None, :]))
    is_open = (sizes[:, 0] < OPEN) & ~v.fixed
    logs = np.log(np.maximum(sizes, OPEN)).sum(axis=1) + 2 * np.log(scale).sum(axis=1)
    alone = np.exp(-logs / (2 * B.shape[1]))
    known = ~is_open & ~v.fixed
    alone = alone / np.median(alone[known]) if known.any() else alone
    return np.where(v.fixed, 0.0, np.where(is_open, np.inf, alone))
