"""The diagonal blocks of the Gauss-Newton Hessian."""

import numpy as np

from asker.engines.cpu.system import wide_residuals
from asker.engines.cpu.system.linearization import Linearization, Weights
from asker.engines.sparsity import Structure
from asker.problem.variables import Variables


def diagonal_hessian_blocks(
    structure: Structure, linear: list[Linearization], model: list[Weights]
) -> dict[Variables, np.ndarray]:
    """Return the block Σ a JᵀJ of every variable, (n, d, d) for each free group; b is ignored."""
    blocks = {v: np.zeros((len(v), v.manifold.tangent, v.manifold.tangent)) for v in _free(structure)}
    for f, lin, w in zip(structure.factors, linear, model, strict=True):
        J = lin.J.reshape(f.n, lin.r.shape[1], f.width)
        for slot, offset in zip(f.free, f.offsets, strict=True):
            v = f.factors.slots[slot].variables
            B = blocks[v]
            if f.is_wide:
                columns = slice(offset, offset + v.manifold.tangent)
                for rows in wide_residuals.batches(f.n, J.shape[1] * f.width):
                    np.add.at(B, f.indices[slot][rows], wide_residuals.products(J[rows], w.a[rows], columns, columns))
                continue
            for q in range(B.shape[1]):
                weighted = w.a[:, None] * J[:, :, offset + q]
                for s in range(q + 1):
                    each = np.einsum("np,np->n", weighted, J[:, :, offset + s])
                    B[:, q, s] += np.bincount(f.indices[slot], each, minlength=len(v))
    for B in blocks.values():
        upper = np.triu_indices(B.shape[1], 1)
        B[:, upper[0], upper[1]] = B[:, upper[1], upper[0]]
    return blocks


def _free(structure: Structure) -> list[Variables]:
    return [v for v in structure.problem.variables if v.is_free]
