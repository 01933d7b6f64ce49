"""Observations with many derivatives: their contribution to the linear system by NumPy's matrix products.

A printed loop has a statement for every scalar product, p·D² for the block of J with p rows and D columns.  If these
are too many to compile (`asker.engines.sparsity.MOST_DERIVATIVES`), two measures are taken.

The linear system depends on an observation only by JᵀJ, Jᵀr and rᵀJδ, which are invariant under an orthogonal Q.  If
p > D, the QR factorisation

    [J r] = Q R

is computed, and the first D rows of R replace J and r (`compressed`).  If D is large too, blocks are computed by
NumPy's matrix products in batches of observations, and added to the reduced matrix by one loop for all sizes
(`WideGroup`).
"""

from collections.abc import Iterator

import numpy as np

from asker.engines.cpu.cholesky import one_blas_thread
from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.system.codegen import padded_rows
from asker.engines.cpu.system.linearization import Delta, Linearization, Weights
from asker.engines.cpu.threads import run_tasks
from asker.engines.sparsity import FactorStructure, KeptSlot

NUMBERS_PER_BATCH = 1 << 20
"""Numbers of J, or of blocks, in a batch of observations."""


def batches(n: int, numbers: int) -> list[slice]:
    """Return batches of the observations 0…n with about `NUMBERS_PER_BATCH` numbers, given the numbers of each."""
    step = max(1, NUMBERS_PER_BATCH // max(numbers, 1))
    return [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]


def compressed(f: FactorStructure, lin: Linearization) -> Linearization:
    """Return J and r reduced to `f.height` rows per observation, by a QR factorisation."""
    p, D = lin.r.shape[1], f.width
    if p == f.height:
        return lin
    J, out = lin.J.reshape(f.n, p, D), Linearization(np.empty((f.n, D)), padded_rows(f.n, D * D))
    slices = batches(f.n, p * (D + 1))

    def work(k: int) -> None:
        R = np.asarray(np.linalg.qr(np.concatenate([J[slices[k]], lin.r[slices[k], :, None]], axis=2), mode="r"))
        out.J[slices[k]], out.r[slices[k]] = R[:, :D, :D].reshape(len(R), -1), R[:, :D, D]

    with one_blas_thread():
        run_tasks(work, len(slices))
    return out


def add_gradients(f: FactorStructure, lin: Linearization, weights: tuple[np.ndarray, ...], G: Delta) -> None:
    """Add Σ c Jᵀr to G[v][m] for each array m of weights c and all variables v."""
    Jr = _gradients(f, lin)
    for k, start in zip(f.free, f.offsets, strict=True):
        v = f.factors.slots[k].variables
        block = Jr[:, start : start + v.manifold.tangent]
        for m, c in enumerate(weights):
            np.add.at(G[v][m], f.indices[k], c[:, None] * block)


def radial_change(f: FactorStructure, lin: Linearization, delta: Delta, out: np.ndarray) -> None:
    """Compute out = rᵀJδ."""
    Jr = _gradients(f, lin)
    out[...] = 0.0
    for k, start in zip(f.free, f.offsets, strict=True):
        v = f.factors.slots[k].variables
        out += np.einsum("nd,nd->n", Jr[:, start : start + v.manifold.tangent], delta[v][f.indices[k]])


def _gradients(f: FactorStructure, lin: Linearization) -> np.ndarray:
    """Return Jᵀr of every observation, (n, D)."""
    J = lin.J.reshape(f.n, lin.r.shape[1], f.width)
    return np.matmul(lin.r[:, None, :], J)[:, 0]


def products(J: np.ndarray, a: np.ndarray, first: slice, second: slice) -> np.ndarray:
    """Return a JᵀJ of every observation, for two ranges of columns."""
    A, B = J[:, :, first], J[:, :, second]
    with one_blas_thread():  # otherwise BLAS would synchronise its threads at every small product
        return np.asarray(np.matmul(np.swapaxes(A * a[:, None, None], 1, 2), B))


class WideGroup:
    """The contribution of a wide factor group, of which no variable is eliminated, to the reduced matrix."""

    def __init__(self, f: FactorStructure, places: dict[tuple[KeptSlot, KeptSlot], tuple[np.ndarray, np.ndarray]]):
        """`places` has the position of each observation's block in the values of the matrix, −1 if it is above the
        diagonal, and the stride of its rows."""
        self.f, self.places = f, places

    def add(self, lin: Linearization, w: Weights, values: np.ndarray, g: np.ndarray, diagonal: np.ndarray) -> None:
        """Add Jᵀ(aI + b rrᵀ)J to S, cJᵀr to g and diag JᵀMJ to the diagonal."""
        f, Jr = self.f, _gradients(self.f, lin)
        for slot in f.kept:
            unknowns = slot.columns[:, None] + np.arange(slot.dim)
            np.add.at(g, unknowns, w.c[:, None] * Jr[:, _columns(slot)])
        for (A, B), (place, stride) in self.places.items():
            for batch, C in self._blocks(lin, w, Jr, A, B):
                add_blocks(C, place[batch], stride[batch], values)
                if A.first == B.first:  # the same group, with the same variable in some observations
                    same = np.flatnonzero(A.columns[batch] == B.columns[batch])
                    unknowns = A.columns[batch][same, None] + np.arange(A.dim)
                    np.add.at(diagonal, unknowns, np.diagonal(C[same], axis1=1, axis2=2))

    def _blocks(
        self, lin: Linearization, w: Weights, Jr: np.ndarray, A: KeptSlot, B: KeptSlot
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield batches of observations and their blocks Jᵀ(aI + brrᵀ)J of two slots."""
        J = lin.J.reshape(self.f.n, lin.r.shape[1], self.f.width)
        first, second = _columns(A), _columns(B)
        for batch in batches(self.f.n, self.f.width * max(J.shape[1], self.f.width)):
            C = products(J[batch], w.a[batch], first, second)
            if w.radial:
                C += (w.b[batch, None] * Jr[batch, first])[:, :, None] * Jr[batch, None, second]
            yield batch, C


def _columns(slot: KeptSlot) -> slice:
    """Return the columns of J that belong to a slot."""
    return slice(slot.offset, slot.offset + slot.dim)


@compiled
def add_blocks(C: np.ndarray, place: np.ndarray, stride: np.ndarray, values: np.ndarray) -> None:
    """Add C to the values, block by block; blocks with a negative position are skipped."""
    for k in range(len(place)):
        if place[k] >= 0:
            for q in range(len(C[k])):
                at = place[k] + q * stride[k]
                for t in range(len(C[k, q])):
                    values[at + t] += C[k, q, t]
