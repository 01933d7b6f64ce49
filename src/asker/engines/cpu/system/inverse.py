"""Blocks of the inverse of H = Σ Jᵀ(aI + b rrᵀ)J, without damping.

What the data do not determine is held: directions of single variables (stiffness.py), and directions N in which many
move together, such as the gauge, HN = 0.  These are found as eigenvectors of the reduced matrix with unit diagonal, by
inverse iteration; then as many unknowns as there are directions get a stiffness, such that

    M = (H + E W Eᵀ)⁻¹,   N = M E W,   Eᵀ N = I

M is an inverse of H wherever N does not matter.  For the kept variables its blocks come from the reduced matrix
(kept_inverse.py), for an eliminated one from those of the kept ones that it is coupled to:

    M_KK = S⁻¹,   M_EE = L⁻ᵀ (I + Yᵀ S⁻¹ Y) L⁻¹,   M_KE = −S⁻¹ Y L⁻¹
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from asker.engines.cpu.cholesky import one_blas_thread
from asker.engines.cpu.system import blocks
from asker.engines.cpu.system.elimination import Eliminator
from asker.engines.cpu.system.kept_inverse import (
    NO_LAYOUT,
    DenseInverse,
    KeptInverse,
    SparseInverse,
    blocks_of_pairs,
    invert_eliminated,
)
from asker.engines.cpu.system.linearization import Linearization, Weights
from asker.engines.cpu.system.printing import run_loop
from asker.engines.cpu.system.reduced import ReducedMatrix
from asker.engines.cpu.system.stiffness import Held, held, own_blocks, packed_lower
from asker.engines.cpu.threads import balanced_bounds, even_bounds, run_tasks
from asker.engines.structure import Structure
from asker.variables import Variables

SHIFT = 1e-12
"""An eigenvalue of the matrix with unit diagonal, below which its direction is not determined."""
LARGEST_SHIFT = 1e-8
AT_REST, ROUNDS = 1e-10, 20
SEEN, CLEARLY = 3, 1e-3
"""Rounds after which an open direction would have shown, and by how much others are smaller."""
AT_FIRST, MOST = 12, 400
"""How many directions are looked for at first, and at most."""
Columns = dict[Variables, np.ndarray]
"""Vectors over all free variables: (n, tangent, k) for each group."""


class SingularError(ArithmeticError):
    """The matrix has no inverse that could be found."""


class Support(NamedTuple):
    """What holds the directions that the data do not determine."""

    single: dict[Variables, Held]
    scale: np.ndarray
    """The roots of the diagonal of H, of the kept variables."""
    unknowns: np.ndarray
    """E: columns of the reduced matrix."""
    stiffness: np.ndarray
    """W"""


class Couplings(NamedTuple):
    """Who is coupled to the eliminated variables, one entry after the other for each of them."""

    ptr: np.ndarray
    number: np.ndarray
    """Of the kept variable, among all kept ones."""
    where: np.ndarray
    """The first of its numbers in Y, one factor group after the other."""
    stride: np.ndarray
    entry: tuple[tuple[np.ndarray, ...], ...]
    """For each factor group and kept slot: the entry of each observation."""


class Inverse:
    """M, factorised; a second one at the same point may have the support of the first."""

    def __init__(
        self, structure: Structure, linear: list[Linearization], a: list[np.ndarray], b: list[np.ndarray] | None,
        dense: bool, support: Support | None = None,
    ):  # fmt: skip
        self.structure, self.linear = structure, linear
        zero = [np.zeros_like(x) for x in a]
        model = [Weights(x, y, z, b is not None) for x, y, z in zip(a, b or zero, zero, strict=True)]
        self.support = _single_support(structure, self._own_blocks(model)) if support is None else support
        self._eliminate(model)
        if structure.n_kept:
            self.kept = self._assembled(model, dense)
            if support is None:
                self._hold_together()
            self._factorise()

    def _own_blocks(self, model: list[Weights]) -> dict[Variables, np.ndarray]:
        return own_blocks(self.structure, self.linear, model)

    def _assembled(self, model: list[Weights], dense: bool) -> KeptInverse:
        """The matrix of the kept variables."""
        reduced = ReducedMatrix(self.structure, dense)
        reduced.assemble(self.linear, model, self.elimination)
        return DenseInverse(reduced) if dense else SparseInverse(reduced)

    def _eliminate(self, model: list[Weights]) -> None:
        e = self.structure.eliminated
        K = None if e is None else packed_lower(self.support.single[e].K)
        elimination = Eliminator(self.structure, False)(self.linear, model, 0.0, K)
        if elimination is None:
            raise SingularError(f"the block of one of the {e.name if e else 'variables'} is not positive definite")
        self.elimination = elimination

    # ------------------------------------------------------------ what is not determined

    def _K(self) -> np.ndarray:
        """The stiffness of all kept variables, block after block."""
        return np.concatenate([self.support.single[v].K.ravel() for v in self.structure.kept])

    def _hold_together(self) -> None:
        """Find N, and unknowns E that hold it."""
        from scipy.linalg import qr

        N = self._null_space()
        q = N.shape[1]
        if q:
            _, order = qr(N.T, mode="r", pivoting=True)
            E = np.sort(order[:q])
            self.support = self.support._replace(unknowns=E, stiffness=self.support.scale[E] ** 2)

    def _null_space(self) -> np.ndarray:
        """Directions of the kept variables that the data do not determine, scaled, (n, q)."""
        shift, scale = SHIFT, self.support.scale
        while not self.kept.factorise(self._K(), shift * scale**2):
            shift *= 10
            if shift > LARGEST_SHIFT:
                raise SingularError("the matrix of the kept variables is not positive definite")
        k, n = min(AT_FIRST, len(scale)), len(scale)
        while True:
            with one_blas_thread():
                X, sizes = self._largest(k, 1 / shift)
            N = X[:, sizes > 1 / (2 * shift)]
            if N.shape[1] < k or k == n:
                return N
            if k >= MOST:
                raise SingularError(f"more than {MOST} directions in which many variables move are not determined")
            k = min(4 * k, MOST, n)

    def _largest(self, k: int, open_size: float) -> tuple[np.ndarray, np.ndarray]:
        """The k largest eigenvalues of the shifted inverse with their vectors, ascending, by subspace iteration.

        An open direction has an eigenvalue of about `open_size`, and outgrows all others at once: where none shows
        after a few rounds, there is none, and the rest need not be known.
        """
        scale = self.support.scale[:, None]
        X = np.linalg.qr(np.random.default_rng(0).standard_normal((len(scale), k)))[0]
        sizes = np.zeros(k)
        for round_ in range(ROUNDS):
            Y = scale * self.kept.solve(scale * X)
            before, (sizes, U) = sizes, np.linalg.eigh((X.T @ Y + Y.T @ X) / 2)
            X = np.linalg.qr(Y @ U)[0]
            large = sizes > sizes[-1] * 1e-4
            nothing_open = round_ >= SEEN and sizes[-1] < CLEARLY * open_size
            if nothing_open or np.allclose(sizes[large], before[large], rtol=AT_REST):
                break
        return X, sizes

    def _factorise(self) -> None:
        diagonal = np.zeros(self.structure.n_kept)
        diagonal[self.support.unknowns] = self.support.stiffness
        if not self.kept.factorise(self._K(), diagonal):
            raise SingularError("the matrix of the kept variables is not positive definite")

    @property
    def n_together(self) -> int:
        """Directions in which many variables move, and that the data do not determine."""
        return len(self.support.unknowns)

    @cached_property
    def together(self) -> Columns:
        """N"""
        B = np.zeros((self.structure.n_kept, self.n_together))
        B[self.support.unknowns, np.arange(self.n_together)] = self.support.stiffness
        none = {v: np.zeros((len(v), v.manifold.tangent, self.n_together)) for v in self.support.single}
        return self.solve(none | self._columns(B))

    # ------------------------------------------------------------ solutions

    def _columns(self, X: np.ndarray) -> Columns:
        """Of the kept variables."""
        return {v: X[s : s + len(v) * v.manifold.tangent].reshape(len(v), -1, X.shape[1])
                for v, s in self.structure.first.items()}  # fmt: skip

    def solve(self, B: Columns) -> Columns:
        """M B"""
        e, k = self.structure.eliminated, next(iter(B.values())).shape[2]
        right = [B[v].reshape(-1, k) for v in self.structure.kept]
        X = np.concatenate([*right, np.zeros((0, k))])
        if e is None:
            return self._columns(self.kept.solve(X))
        Z = B[e]
        if Z.any():
            Z = self._forward(Z)
            for column in range(k):
                y, t = X[:, column].copy(), np.ascontiguousarray(Z[:, :, column])
                self.elimination.couple_forward(t, y)
                X[:, column] = y
        if len(X):
            X = self.kept.solve(X)
        return self._columns(X) | {e: self._backward(X, Z)}

    def _forward(self, B: np.ndarray) -> np.ndarray:
        """L⁻¹ B"""
        L, Z = self.elimination.L, np.empty_like(B)
        for q in range(B.shape[1]):
            first = q * (q + 1) // 2
            Z[:, q] = B[:, q] - np.einsum("ns,nsk->nk", L[:, first : first + q], Z[:, :q])
            Z[:, q] /= L[:, first + q, None]
        return Z

    def _backward(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """L⁻ᵀ (Z − Yᵀ X)"""
        out = np.empty_like(Z)
        for column in range(Z.shape[2]):
            t = -Z[:, :, column]
            self.elimination.couple_back(np.ascontiguousarray(X[:, column]), t)
            delta = np.empty_like(t)
            loop = blocks.solve_transposed(t.shape[1])
            run_loop(loop, even_bounds(len(t), smallest=1024), L=self.elimination.L, t=t, delta=delta)
            out[:, :, column] = delta
        return out

    # ------------------------------------------------------------ blocks

    @cached_property
    def values(self) -> np.ndarray:
        """M_KK where kept variables meet."""
        return self.kept.values()

    def blocks(self, v: Variables) -> np.ndarray:
        """The own blocks (n, d, d) of a group of variables."""
        if v is self.structure.eliminated:
            return self._of_eliminated[0]
        return self.of_kept(v, np.arange(len(v)), v, np.arange(len(v)))

    def pairs(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """The blocks (k, d, e) of the variables v[i] and w[j], any two."""
        try:
            return self.of_kept(v, i, w, j)
        except LookupError:  # they are not kept, or do not meet
            return self._solved(v, i, w, j)

    def _number(self, v: Variables) -> int:
        """Of its first variable, among all kept ones."""
        return int(np.searchsorted(self.structure.kept_variables[0], self.structure.first[v]))

    def of_kept(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        out = np.empty((len(i), v.manifold.tangent, w.manifold.tangent))
        first, second = self._number(v) + i.astype(np.int64), self._number(w) + j.astype(np.int64)
        if blocks_of_pairs(first, second, self.kept.layout, self.values, out):
            raise LookupError("two variables do not meet")
        return out

    def _solved(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """By a solution for every direction of every w[j]."""
        out = np.empty((len(i), v.manifold.tangent, w.manifold.tangent))
        for one in np.unique(j):
            B = {u: np.zeros((len(u), u.manifold.tangent, w.manifold.tangent)) for u in self.support.single}
            B[w][one] = np.eye(w.manifold.tangent)
            mine = np.flatnonzero(j == one)
            out[mine] = self.solve(B)[v][i[mine]]
        return out

    @cached_property
    def couplings(self) -> Couplings:
        """Those of all factor groups."""
        found = [np.zeros((4, 0), dtype=np.int64)]  # eliminated variable, number, where and stride of each
        begin = 0
        for f, e, Y in self.elimination.coupled():
            for s in f.kept:
                where = begin + np.arange(f.n) * Y.shape[1] + s.offset_in_Y
                found.append(
                    np.array([e.index, self._number(s.variables) + s.index, where, np.full(f.n, f.kept_width)])
                )
            begin += Y.size
        index, *rest = np.concatenate(found, axis=1)
        order = np.argsort(index, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        entries = iter(np.split(place, np.cumsum([part.shape[1] for part in found])))
        next(entries)
        of = [tuple(next(entries) for _ in f.kept) if f.eliminated is not None else () for f in self.structure.factors]
        ptr = np.concatenate([[0], np.cumsum(np.bincount(index, minlength=self.structure.n_eliminated))])
        number, where, stride = (np.ascontiguousarray(x[order]) for x in rest)
        return Couplings(ptr, number, where, stride, tuple(of))

    @cached_property
    def _of_eliminated(self) -> tuple[np.ndarray, np.ndarray]:
        return self.inverted(with_couplings=False)

    def inverted(self, with_couplings: bool) -> tuple[np.ndarray, np.ndarray]:
        """Blocks of the eliminated variables, and those with the kept ones that each is coupled to."""
        c, d = self.couplings, self.elimination.d
        out = np.empty((self.structure.n_eliminated, d, d))
        widest = int(self.structure.kept_variables[1].max(initial=0))
        cross = np.empty((len(c.number) if with_couplings else 0, widest, d))
        flat = [Y.ravel() for _, _, Y in self.elimination.coupled()]
        Y = flat[0] if len(flat) == 1 else np.concatenate([*flat, np.zeros(0)])
        layout, values = (self.kept.layout, self.values) if self.structure.n_kept else (NO_LAYOUT, np.zeros(0))
        bounds = balanced_bounds(1.0 + np.diff(c.ptr).astype(float) ** 2).astype(np.int64)

        def task(t: int) -> None:
            invert_eliminated(
                bounds[t], bounds[t + 1], c.ptr, c.number, c.where, c.stride, Y, self.elimination.L, layout, values,
                out, cross,
            )  # fmt: skip

        run_tasks(task, len(bounds) - 1)
        return out, cross


def _single_support(structure: Structure, of: dict[Variables, np.ndarray]) -> Support:
    """What holds single variables, whose own blocks these are."""
    single = {v: held(v, B) for v, B in of.items()}
    diagonals = [np.einsum("nqq->nq", of[v] + single[v].K).ravel() for v in structure.kept]
    scale = np.sqrt(np.concatenate([*diagonals, np.zeros(0)]))
    return Support(single, scale, np.zeros(0, dtype=np.int64), np.zeros(0))
