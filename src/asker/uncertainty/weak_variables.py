"""Poorly constrained variables, from the diagonal blocks of the Hessian, without a factorisation.

With all other variables known, the information of a variable is its diagonal block B = Σ JᵀJ over the inliers.  Its d
parameters may have different units; its uncertainty is therefore measured by (det B)^(−1/2d), relative to the median of
its group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asker.engines.linearised import linear_model
from asker.problem.variables import ProblemError, Variables
from asker.solver.result import Result
from asker.uncertainty.information import inlier_masks

WEAK_UNCERTAINTY = 5.0
"""Uncertainty over the median of the group, from which a variable is poorly constrained."""
MIN_EIGENVALUE = 1e-12
"""Eigenvalue of B with unit diagonal, below which the inliers do not determine a direction."""


@dataclass(frozen=True, eq=False)
class GroupSupport:
    """Support of each variable of one group: its inliers and its uncertainty."""

    n_inliers: NDArray[np.int64]
    """(n,): number of inliers (`asker.statistics.inliers`)."""
    uncertainty: NDArray[np.float64]
    """(n,): uncertainty with all other variables known, over the median of the group; infinite if a direction is
    undetermined, 0 for fixed variables."""

    def weakest(self, max_count: int) -> NDArray[np.int64]:
        """Return the poorly constrained variables, worst first, at most `max_count`."""
        order = np.lexsort((self.n_inliers, -self.uncertainty))
        return order[self.uncertainty[order] >= WEAK_UNCERTAINTY][:max_count]

    @property
    def n_weak(self) -> int:
        """Number of poorly constrained variables."""
        return int(np.count_nonzero(self.uncertainty >= WEAK_UNCERTAINTY))


def group_supports(result: Result) -> dict[Variables, GroupSupport]:
    """Return the support of every free group of variables."""
    if result.problem is None or result.problem.portion is not None:
        raise ProblemError("the support of variables needs the whole problem, which this result does not have")
    result = result.of_informative
    problem = result.problem
    assert problem is not None
    masks = inlier_masks(result, [None] * len(problem.factors))
    theta = tuple(v.manifold.pack(x) for v, x in zip(problem.variables, result.values, strict=True))
    blocks = linear_model(result.engine, problem, theta).diagonal_blocks([mask.astype(float) for mask in masks])
    counts = {v: np.zeros(len(v), dtype=np.int64) for v in blocks}
    for f, mask in zip(problem.factors, result.inliers, strict=True):
        for slot in f.slots:
            if slot.variables in counts:
                counts[slot.variables] += np.bincount(slot.index[mask], minlength=len(slot.variables))
    return {v: GroupSupport(counts[v], _uncertainty(v, B)) for v, B in blocks.items()}


def _uncertainty(v: Variables, B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the uncertainty of each variable over the median of its group, from the diagonal blocks B."""
    B = np.where(np.isfinite(B).all(axis=(1, 2), keepdims=True), B, 0.0)  # a block of NaN carries no information
    diagonal = np.einsum("nqq->nq", B)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    sizes = np.linalg.eigvalsh(B / (scale[:, :, None] * scale[:, None, :]))
    is_open = (sizes[:, 0] < MIN_EIGENVALUE) & ~v.fixed
    logs = np.log(np.maximum(sizes, MIN_EIGENVALUE)).sum(axis=1) + 2 * np.log(scale).sum(axis=1)
    size = np.exp(-logs / (2 * B.shape[1]))
    known = ~is_open & ~v.fixed
    size = size / np.median(size[known]) if known.any() else size
    return np.where(v.fixed, 0.0, np.where(is_open, np.inf, size))
