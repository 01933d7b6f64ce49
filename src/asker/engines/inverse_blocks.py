"""Blocks of an inverse of H = Σ Jᵀ(aI + b rrᵀ)J, without damping, on whatever machine.

What the data do not determine is held: directions of single variables (stiffness.py), and directions N in which many
move together, such as the gauge, HN = 0.  These are found as eigenvectors of the reduced matrix with unit diagonal, by
inverse iteration; then as many unknowns as there are directions get a stiffness, such that

    M = (H + E W Eᵀ)⁻¹,   N = M E W,   Eᵀ N = I

M is an inverse of H wherever N does not matter.  For the kept variables its blocks come from the reduced matrix S, for
an eliminated one from those of the kept ones that it is coupled to, with its own block LLᵀ and couplings Y:

    M_KK = S⁻¹,   M_EE = L⁻ᵀ (I + Yᵀ S⁻¹ Y) L⁻¹,   M_KE = −S⁻¹ Y L⁻¹
"""

from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from asker.engines.cpu.cholesky import one_blas_thread
from asker.engines.null_space import Stiffness, held
from asker.engines.sparsity import Structure
from asker.problem.variables import Variables

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


class Stiffening(NamedTuple):
    """What holds the directions that the data do not determine."""

    single: dict[Variables, Stiffness]
    scale: np.ndarray
    """The roots of the diagonal of H, of the kept variables."""
    unknowns: np.ndarray
    """E: columns of the reduced matrix."""
    stiffness: np.ndarray
    """W"""


class KeptInverse(Protocol):
    """A factorised matrix of the kept variables."""

    def factorise(self, K: np.ndarray, diagonal: np.ndarray) -> bool:
        """Factorise S + K + diagonal; K are diagonal blocks, one after the other.  False if that is not positive."""

    def solve(self, B: np.ndarray) -> np.ndarray:
        """X with (S + …) X = B, (n, k)."""

    def values(self) -> Any:
        """The inverse, as `of_kept` reads it."""


class HeldInverse:
    """M, factorised; a second one at the same point may have the stiffening of the first.

    A subclass says how the blocks are added up, eliminated, and solved with.
    """

    kept: KeptInverse

    def __init__(self, structure: Structure, stiffening: Stiffening | None):
        self.structure = structure
        self.stiffening = _single_stiffening(structure, self._own_blocks()) if stiffening is None else stiffening
        self._eliminate()
        if structure.n_kept:
            self.kept = self._assembled()
            if stiffening is None:
                self._hold_together()
            self._factorise()

    def _own_blocks(self) -> dict[Variables, np.ndarray]:
        """The block Σ a JᵀJ of every variable, (n, d, d) for each free group."""
        raise NotImplementedError

    def _eliminate(self) -> None:
        """L and Y of the eliminated variables."""
        raise NotImplementedError

    def _assembled(self) -> KeptInverse:
        """The matrix of the kept variables."""
        raise NotImplementedError

    def solve(self, B: Columns) -> Columns:
        """M B"""
        raise NotImplementedError

    def of_kept(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """The blocks (k, d, e) of v[i] and w[j]; a LookupError where they are not known without a solution."""
        raise NotImplementedError

    def of_eliminated(self) -> np.ndarray:
        """The own blocks (n, d, d) of the eliminated variables."""
        raise NotImplementedError

    # ------------------------------------------------------------ what is not determined

    def _K(self) -> np.ndarray:
        """The stiffness of all kept variables, block after block."""
        return np.concatenate([self.stiffening.single[v].K.ravel() for v in self.structure.kept])

    def _hold_together(self) -> None:
        """Find N, and unknowns E that hold it."""
        from scipy.linalg import qr

        N = self._null_space()
        q = N.shape[1]
        if q:
            _, order = qr(N.T, mode="r", pivoting=True)
            E = np.sort(order[:q])
            self.stiffening = self.stiffening._replace(unknowns=E, stiffness=self.stiffening.scale[E] ** 2)

    def _null_space(self) -> np.ndarray:
        """Directions of the kept variables that the data do not determine, scaled, (n, q)."""
        shift, scale = SHIFT, self.stiffening.scale
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
        scale = self.stiffening.scale[:, None]
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
        diagonal[self.stiffening.unknowns] = self.stiffening.stiffness
        if not self.kept.factorise(self._K(), diagonal):
            raise SingularError("the matrix of the kept variables is not positive definite")

    @property
    def n_together(self) -> int:
        """Directions in which many variables move, and that the data do not determine."""
        return len(self.stiffening.unknowns)

    @cached_property
    def together(self) -> Columns:
        """N"""
        B = np.zeros((self.structure.n_kept, self.n_together))
        B[self.stiffening.unknowns, np.arange(self.n_together)] = self.stiffening.stiffness
        none = {v: np.zeros((len(v), v.manifold.tangent, self.n_together)) for v in self.stiffening.single}
        return self.solve(none | self._columns(B))

    def _columns(self, X: np.ndarray) -> Columns:
        """Of the kept variables."""
        return {v: X[s : s + len(v) * v.manifold.tangent].reshape(len(v), -1, X.shape[1])
                for v, s in self.structure.first.items()}  # fmt: skip

    # ------------------------------------------------------------ blocks

    @cached_property
    def values(self) -> Any:
        """M_KK where kept variables meet."""
        return self.kept.values()

    @cached_property
    def _of_eliminated(self) -> np.ndarray:
        return self.of_eliminated()

    def blocks(self, v: Variables) -> np.ndarray:
        """The own blocks (n, d, d) of a group of variables."""
        if v is self.structure.eliminated:
            return self._of_eliminated
        return self.of_kept(v, np.arange(len(v)), v, np.arange(len(v)))

    def pairs(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """The blocks (k, d, e) of the variables v[i] and w[j], any two."""
        try:
            return self.of_kept(v, i, w, j)
        except LookupError:  # they are not kept, or do not meet
            return self._solved(v, i, w, j)

    def _solved(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """By a solution for every direction of every w[j]."""
        out = np.empty((len(i), v.manifold.tangent, w.manifold.tangent))
        for one in np.unique(j):
            B = {u: np.zeros((len(u), u.manifold.tangent, w.manifold.tangent)) for u in self.stiffening.single}
            B[w][one] = np.eye(w.manifold.tangent)
            mine = np.flatnonzero(j == one)
            out[mine] = self.solve(B)[v][i[mine]]
        return out


def _single_stiffening(structure: Structure, of: dict[Variables, np.ndarray]) -> Stiffening:
    """What holds single variables, whose own blocks these are."""
    single = {v: held(v, B) for v, B in of.items()}
    diagonals = [np.einsum("nqq->nq", of[v] + single[v].K).ravel() for v in structure.kept]
    scale = np.sqrt(np.concatenate([*diagonals, np.zeros(0)]))
    return Stiffening(single, scale, np.zeros(0, dtype=np.int64), np.zeros(0))
