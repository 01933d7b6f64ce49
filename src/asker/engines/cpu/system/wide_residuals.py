"""Observations with many derivatives: their part of the linear system by plain matrix products.

A printed loop has a statement for every product of two numbers; of J with p rows and D columns there are p·D² in a
block.  Where these are too many to be compiled (`asker.engines.sparsity.MOST_DERIVATIVES`), two things are done.

An orthogonal Q changes none of JᵀJ, Jᵀr and rᵀJδ, and a linear system knows no more of an observation.  So where p > D,

    [J r] = Q R,

and the first D rows of R take the place of J and r (`shortened`).  If even these are many, blocks are made by NumPy's
matrix products, some observations at a time, and added to the reduced matrix by one loop for all sizes (`WideGroup`).
"""

from collections.abc import Iterator

import numpy as np

from asker.engines.cpu.cholesky import one_blas_thread
from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.system.codegen import spacious
from asker.engines.cpu.system.linearization import Delta, Linearization, Weights
from asker.engines.cpu.threads import run_tasks
from asker.engines.sparsity import FactorStructure, KeptSlot

AT_ONCE = 1 << 20
"""Numbers of J, or of blocks, that are copied at a time."""


def parts(n: int, numbers: int) -> list[slice]:
    """The observations 0…n in parts of about `AT_ONCE` numbers, so many for each."""
    step = max(1, AT_ONCE // max(numbers, 1))
    return [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]


def shortened(f: FactorStructure, lin: Linearization) -> Linearization:
    """The same with as many rows of J and r as a linear system needs, `f.height`."""
    p, D = lin.r.shape[1], f.width
    if p == f.height:
        return lin
    J, out = lin.J.reshape(f.n, p, D), Linearization(np.empty((f.n, D)), spacious(f.n, D * D))
    some = parts(f.n, p * (D + 1))

    def work(k: int) -> None:
        R = np.asarray(np.linalg.qr(np.concatenate([J[some[k]], lin.r[some[k], :, None]], axis=2), mode="r"))
        out.J[some[k]], out.r[some[k]] = R[:, :D, :D].reshape(len(R), -1), R[:, :D, D]

    with one_blas_thread():
        run_tasks(work, len(some))
    return out


def add_gradients(f: FactorStructure, lin: Linearization, weights: tuple[np.ndarray, ...], G: Delta) -> None:
    """G[v][m] += Σ c Jᵀr for each array m of weights c, and for all variables."""
    Jr = _gradients(f, lin)
    for k, start in zip(f.free, f.offsets, strict=True):
        v = f.factors.slots[k].variables
        own = Jr[:, start : start + v.manifold.tangent]
        for m, c in enumerate(weights):
            np.add.at(G[v][m], f.indices[k], c[:, None] * own)


def radial_change(f: FactorStructure, lin: Linearization, delta: Delta, out: np.ndarray) -> None:
    """out = rᵀJδ."""
    Jr = _gradients(f, lin)
    out[...] = 0.0
    for k, start in zip(f.free, f.offsets, strict=True):
        v = f.factors.slots[k].variables
        out += np.einsum("nd,nd->n", Jr[:, start : start + v.manifold.tangent], delta[v][f.indices[k]])


def _gradients(f: FactorStructure, lin: Linearization) -> np.ndarray:
    """Jᵀr of every observation, (n, D)."""
    J = lin.J.reshape(f.n, lin.r.shape[1], f.width)
    return np.matmul(lin.r[:, None, :], J)[:, 0]


def products(J: np.ndarray, a: np.ndarray, first: slice, second: slice) -> np.ndarray:
    """a JᵀJ of every observation, in these columns."""
    A, B = J[:, :, first], J[:, :, second]
    with one_blas_thread():  # for each product it would wait for all of them
        return np.asarray(np.matmul(np.swapaxes(A * a[:, None, None], 1, 2), B))


class WideGroup:
    """What a factor group adds to the reduced matrix; nothing of it is eliminated."""

    def __init__(self, f: FactorStructure, places: dict[tuple[KeptSlot, KeptSlot], tuple[np.ndarray, np.ndarray]]):
        """`places`: where the block of each observation begins among the values of the matrix, −1 where it lies above
        the diagonal, and how far its rows lie from each other."""
        self.f, self.places = f, places

    def add(self, lin: Linearization, w: Weights, values: np.ndarray, g: np.ndarray, diagonal: np.ndarray) -> None:
        """S += Jᵀ(aI + b rrᵀ)J, g += cJᵀr, diagonal += diag JᵀMJ."""
        f, Jr = self.f, _gradients(self.f, lin)
        for slot in f.kept:
            own = slot.columns[:, None] + np.arange(slot.dim)
            np.add.at(g, own, w.c[:, None] * Jr[:, _columns(slot)])
        for (A, B), (place, stride) in self.places.items():
            for some, C in self._blocks(lin, w, Jr, A, B):
                add_blocks(C, place[some], stride[some], values)
                if A.first == B.first:  # one group of variables, and perhaps the same variable
                    those = np.flatnonzero(A.columns[some] == B.columns[some])
                    own = A.columns[some][those, None] + np.arange(A.dim)
                    np.add.at(diagonal, own, np.diagonal(C[those], axis1=1, axis2=2))

    def _blocks(
        self, lin: Linearization, w: Weights, Jr: np.ndarray, A: KeptSlot, B: KeptSlot
    ) -> Iterator[tuple[slice, np.ndarray]]:
        J = lin.J.reshape(self.f.n, lin.r.shape[1], self.f.width)
        first, second = _columns(A), _columns(B)
        for some in parts(self.f.n, self.f.width * max(J.shape[1], self.f.width)):
            C = products(J[some], w.a[some], first, second)
            if w.radial:
                C += (w.b[some, None] * Jr[some, first])[:, :, None] * Jr[some, None, second]
            yield some, C


def _columns(slot: KeptSlot) -> slice:
    return slice(slot.offset, slot.offset + slot.dim)


@compiled
def add_blocks(C: np.ndarray, place: np.ndarray, stride: np.ndarray, values: np.ndarray) -> None:
    """values += C, block by block; those with a negative place are passed over."""
    for k in range(len(place)):
        if place[k] >= 0:
            for q in range(len(C[k])):
                at = place[k] + q * stride[k]
                for t in range(len(C[k, q])):
                    values[at + t] += C[k, q, t]
