"""The linear system as a dense matrix: the test oracle of the other solvers, and the solver of very small problems."""

import numpy as np

from asker.engines.cpu.system.linearization import Delta, Linearization, Weights
from asker.engines.sparsity import FactorStructure, Structure


def unit_of_damping(diagonal: np.ndarray, relative: bool) -> np.ndarray:
    """Return the factor of λ for each unknown: diag H if relative (1 if that is 0, as is the gradient then), else 1."""
    return np.where(diagonal > 0, diagonal, 1.0) if relative else np.ones_like(diagonal)


def reference(
    structure: Structure,
    linear: list[Linearization],
    model: list[Weights],
    damping: float,
    relative: bool = False,
) -> Delta | None:
    """Return the step δ of all free variables, or None if the matrix is singular."""
    free = [v for v in structure.problem.variables if v.is_free]
    sizes = [len(v) * v.manifold.tangent for v in free]
    first = dict(zip(free, np.cumsum([0, *sizes])[:-1].tolist(), strict=True))
    n = sum(sizes)
    H, g = np.zeros((n, n)), np.zeros(n)
    for f, lin, abc in zip(structure.factors, linear, model, strict=True):
        if f.free:
            _add(f, lin, abc, first, H, g)
    H[np.diag_indices(n)] += damping * unit_of_damping(np.diagonal(H), relative)
    try:
        x = np.linalg.solve(H, -g)
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(x).all():
        return None
    return {v: x[s : s + size].reshape(len(v), -1) for (v, s), size in zip(first.items(), sizes, strict=True)}


def _add(f: FactorStructure, lin: Linearization, abc: Weights, first: dict, H: np.ndarray, g: np.ndarray) -> None:
    """Add Σ Jᵀ(aI + b rrᵀ)J to H and Σ c Jᵀr to g for one factor group."""
    p = lin.r.shape[1]
    J = lin.J.reshape(f.n, p, f.width)
    Jr = np.einsum("npd,np->nd", J, lin.r)
    slots = [f.factors.slots[k].variables for k in f.free]
    dims = [v.manifold.tangent for v in slots]
    if len(slots) == 1 and len(slots[0]) == 1:  # one variable: plain matrix products
        one = slice(first[slots[0]], first[slots[0]] + dims[0])
        flat = J.reshape(-1, f.width)
        H[one, one] += flat.T @ (np.repeat(abc.a, p)[:, None] * flat)
        if abc.radial:
            H[one, one] += Jr.T @ (abc.b[:, None] * Jr)
        g[one] += abc.c @ Jr
        return
    each = np.einsum("n,npd,npe->nde", abc.a, J, J)
    if abc.radial:
        each += np.einsum("n,nd,ne->nde", abc.b, Jr, Jr)
    at = np.concatenate(
        [first[v] + f.indices[k][:, None] * d + np.arange(d) for v, k, d in zip(slots, f.free, dims, strict=True)],
        axis=1,
    )
    np.add.at(H, (at[:, :, None], at[:, None, :]), each)
    np.add.at(g, at, abc.c[:, None] * Jr)
