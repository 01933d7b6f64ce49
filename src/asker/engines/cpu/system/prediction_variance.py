"""Prediction variances tr(J M Jᵀ) of the observations of a linearised problem."""

import numpy as np

from asker.engines.cpu.system.inverse import Inverse
from asker.engines.sparsity import FactorStructure

OBSERVATIONS_PER_BATCH = 100_000
"""Observations processed at a time, which bounds the memory of their blocks."""


def prediction_variances(inverse: Inverse) -> list[np.ndarray]:
    """Return tr(J M Jᵀ) of every observation, for each factor group, in the engine's order.

    M may be any generalised inverse: undetermined directions N do not contribute, since JN = 0.
    """
    structure = inverse.structure
    blocks, cross = inverse.inverted(with_couplings=True) if structure.n_eliminated else (np.zeros(0), np.zeros(0))
    outs = []
    for k, f in enumerate(structure.factors):
        out = np.zeros(f.n)
        for begin in range(0, f.n, OBSERVATIONS_PER_BATCH):
            part = slice(begin, min(begin + OBSERVATIONS_PER_BATCH, f.n))
            out[part] = _of(inverse, k, f, part, blocks, cross)
        outs.append(out)
    return outs


def _of(inverse: Inverse, k: int, f: FactorStructure, part: slice, blocks: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """Return tr(J H⁻¹ Jᵀ) of a range of the observations of factor group k."""
    linear = inverse.linear[k]
    J = linear.J.reshape(f.n, linear.r.shape[1], f.width)[part]
    total = np.zeros(len(J))

    def add(first: int, second: int, M: np.ndarray, factor: float) -> None:
        A, B = J[:, :, first : first + M.shape[1]], J[:, :, second : second + M.shape[2]]
        total[:] += factor * np.einsum("npq,npq->n", np.matmul(A, M), B)

    for m, s in enumerate(f.kept):
        for t in f.kept[: m + 1]:
            M = inverse.of_kept(s.variables, s.index[part], t.variables, t.index[part])
            add(s.offset, t.offset, M, 1.0 if s is t else 2.0)
        if f.eliminated is not None:
            entries = inverse.couplings.entry[k][m][part]
            add(s.offset, f.eliminated.offset, cross[entries, : s.dim], 2.0)
    if f.eliminated is not None:
        add(f.eliminated.offset, f.eliminated.offset, blocks[f.eliminated.index[part]], 1.0)
    return total
