"""Blocks of a generalised inverse of H = Σ Jᵀ(aI + b rrᵀ)J, without damping, on every engine.

Directions that the data do not determine are regularised: null directions of single variables (null_space.py), and the
joint null space N of many variables, HN = 0, such as the gauge.  N consists of eigenvectors of the reduced matrix with
unit diagonal, computed by inverse iteration.  As many unknowns E as N has columns get weights W, such that

    M = (H + E W Eᵀ)⁻¹,   N = M E W,   Eᵀ N = I

M is an inverse of H for all functions of the variables that do not depend on N.  Its blocks for kept variables come
from the reduced matrix S; those of an eliminated variable, with diagonal block LLᵀ and couplings Y, from the blocks of
the kept variables that it is coupled to:

    M_KK = S⁻¹,   M_EE = L⁻ᵀ (I + Yᵀ S⁻¹ Y) L⁻¹,   M_KE = −S⁻¹ Y L⁻¹
"""

from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from asker.engines.cpu.cholesky import one_blas_thread
from asker.engines.null_space import BlockRegularisation, regularised
from asker.engines.sparsity import Structure
from asker.problem.variables import Variables

SHIFT = 1e-12
"""Eigenvalue of the matrix with unit diagonal below which its direction is not determined."""
MAX_SHIFT = 1e-8
ITERATION_TOL, MAX_ITERATIONS = 1e-10, 20
NULL_CHECK_ITERATION, MAX_NON_NULL_RATIO = 3, 1e-3
"""Iteration from which a null direction would be apparent, and the eigenvalue, relative to that of a null direction,
below which there is none."""
INITIAL_DIRECTIONS, MAX_DIRECTIONS = 12, 400
"""Size of the subspace at first, and at most."""
Columns = dict[Variables, np.ndarray]
"""Vectors over all free variables: (n, tangent, k) for each group."""


class SingularError(ArithmeticError):
    """The matrix has no inverse that could be computed."""


class Regularisation(NamedTuple):
    """The regularisation of the directions that the data do not determine."""

    single: dict[Variables, BlockRegularisation]
    """The regularisation of the diagonal blocks."""
    scale: np.ndarray
    """Square roots of the diagonal of H, for the kept variables."""
    unknowns: np.ndarray
    """E: columns of the reduced matrix."""
    weights: np.ndarray
    """W"""


class ReducedFactorisation(Protocol):
    """The matrix S of the kept variables, and its factorisation."""

    def factorise(self, K: np.ndarray, diagonal: np.ndarray) -> bool:
        """Factorise S + K + diagonal, with diagonal blocks K; return whether this is positive definite."""

    def solve(self, B: np.ndarray) -> np.ndarray:
        """Return X with (S + K + diagonal) X = B, (n, k)."""

    def values(self) -> Any:
        """Return the inverse, in the format that `of_kept` reads."""


class RegularisedInverse:
    """The inverse M, factorised; a second one at the same point may reuse the regularisation of the first.

    A subclass implements the assembly, the elimination and the solution.
    """

    kept: ReducedFactorisation

    def __init__(self, structure: Structure, regularisation: Regularisation | None):
        self.structure = structure
        self.regularisation = regularisation or _block_regularisation(structure, self._diagonal_blocks())
        self._eliminate()
        if structure.n_kept:
            self.kept = self._assembled()
            if regularisation is None:
                self._regularise_null_space()
            self._factorise()

    def _diagonal_blocks(self) -> dict[Variables, np.ndarray]:
        """Return the diagonal block Σ a JᵀJ of every variable, (n, d, d) for each free group."""
        raise NotImplementedError

    def _eliminate(self) -> None:
        """Compute L and Y of the eliminated variables."""
        raise NotImplementedError

    def _assembled(self) -> ReducedFactorisation:
        """Return the matrix of the kept variables."""
        raise NotImplementedError

    def solve(self, B: Columns) -> Columns:
        """Return M B."""
        raise NotImplementedError

    def of_kept(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """Return the blocks (k, d, e) of v[i] and w[j], or raise a LookupError if they need another solution."""
        raise NotImplementedError

    def of_eliminated(self) -> np.ndarray:
        """Return the diagonal blocks (n, d, d) of the eliminated variables."""
        raise NotImplementedError

    # ------------------------------------------------------------ null space

    def _K(self) -> np.ndarray:
        """Return the regularisation of the diagonal blocks of all kept variables, block after block."""
        return np.concatenate([self.regularisation.single[v].K.ravel() for v in self.structure.kept])

    def _regularise_null_space(self) -> None:
        """Compute N, and select unknowns E that fix it."""
        from scipy.linalg import qr

        N = self._null_space()
        q = N.shape[1]
        if q:
            _, order = qr(N.T, mode="r", pivoting=True)
            E = np.sort(order[:q])
            self.regularisation = self.regularisation._replace(unknowns=E, weights=self.regularisation.scale[E] ** 2)

    def _null_space(self) -> np.ndarray:
        """Return the directions of the kept variables that the data do not determine, scaled, (n, q)."""
        shift, scale = SHIFT, self.regularisation.scale
        while not self.kept.factorise(self._K(), shift * scale**2):
            shift *= 10
            if shift > MAX_SHIFT:
                raise SingularError("the matrix of the kept variables is not positive definite")
        k, n = min(INITIAL_DIRECTIONS, len(scale)), len(scale)
        while True:
            with one_blas_thread():
                X, sizes = self._largest(k, 1 / shift)
            N = X[:, sizes > 1 / (2 * shift)]
            if N.shape[1] < k or k == n:
                return N
            if k >= MAX_DIRECTIONS:
                raise SingularError(
                    f"the data leave more than {MAX_DIRECTIONS} directions undetermined in which several variables move"
                )
            k = min(4 * k, MAX_DIRECTIONS, n)

    def _largest(self, k: int, null_size: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the k largest eigenvalues of the shifted inverse with their vectors, ascending, by subspace iteration.

        A null direction has an eigenvalue of about `null_size` and converges at once.  If none has appeared after a few
        iterations, there is none, and the other eigenvalues are not needed.
        """
        scale = self.regularisation.scale[:, None]
        X = np.linalg.qr(np.random.default_rng(0).standard_normal((len(scale), k)))[0]
        sizes = np.zeros(k)
        for iteration in range(MAX_ITERATIONS):
            Y = scale * self.kept.solve(scale * X)
            before, (sizes, U) = sizes, np.linalg.eigh((X.T @ Y + Y.T @ X) / 2)
            X = np.linalg.qr(Y @ U)[0]
            large = sizes > sizes[-1] * 1e-4
            no_null_space = iteration >= NULL_CHECK_ITERATION and sizes[-1] < MAX_NON_NULL_RATIO * null_size
            if no_null_space or np.allclose(sizes[large], before[large], rtol=ITERATION_TOL):
                break
        return X, sizes

    def _factorise(self) -> None:
        diagonal = np.zeros(self.structure.n_kept)
        diagonal[self.regularisation.unknowns] = self.regularisation.weights
        if not self.kept.factorise(self._K(), diagonal):
            raise SingularError("the matrix of the kept variables is not positive definite")

    @property
    def nullity(self) -> int:
        """Dimension of the joint null space N."""
        return len(self.regularisation.unknowns)

    @cached_property
    def null_space(self) -> Columns:
        """Joint null space N."""
        B = np.zeros((self.structure.n_kept, self.nullity))
        B[self.regularisation.unknowns, np.arange(self.nullity)] = self.regularisation.weights
        zeros = {v: np.zeros((len(v), v.manifold.tangent, self.nullity)) for v in self.regularisation.single}
        return self.solve(zeros | self._columns(B))

    def _columns(self, X: np.ndarray) -> Columns:
        """Return the columns of a matrix over the kept unknowns, by variable group."""
        return {v: X[s : s + len(v) * v.manifold.tangent].reshape(len(v), -1, X.shape[1])
                for v, s in self.structure.first.items()}  # fmt: skip

    # ------------------------------------------------------------ blocks

    @cached_property
    def values(self) -> Any:
        """Blocks of M_KK of kept variables that share a factor or an eliminated variable."""
        return self.kept.values()

    @cached_property
    def _of_eliminated(self) -> np.ndarray:
        return self.of_eliminated()

    def blocks(self, v: Variables) -> np.ndarray:
        """Return the diagonal blocks (n, d, d) of a group of variables."""
        if v is self.structure.eliminated:
            return self._of_eliminated
        return self.of_kept(v, np.arange(len(v)), v, np.arange(len(v)))

    def pairs(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """Return the blocks (k, d, e) of any variables v[i] and w[j]."""
        try:
            return self.of_kept(v, i, w, j)
        except LookupError:  # not kept, or outside of the sparsity pattern
            return self._solved(v, i, w, j)

    def _solved(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        """Return blocks from a solution for every direction of every w[j]."""
        out = np.empty((len(i), v.manifold.tangent, w.manifold.tangent))
        for number in np.unique(j):
            B = {u: np.zeros((len(u), u.manifold.tangent, w.manifold.tangent)) for u in self.regularisation.single}
            B[w][number] = np.eye(w.manifold.tangent)
            pairs = np.flatnonzero(j == number)
            out[pairs] = self.solve(B)[v][i[pairs]]
        return out


def _block_regularisation(structure: Structure, blocks: dict[Variables, np.ndarray]) -> Regularisation:
    """Return the regularisation of single variables, from their diagonal blocks."""
    single = {v: regularised(v, B) for v, B in blocks.items()}
    diagonals = [np.einsum("nqq->nq", blocks[v] + single[v].K).ravel() for v in structure.kept]
    scale = np.sqrt(np.concatenate([*diagonals, np.zeros(0)]))
    return Regularisation(single, scale, np.zeros(0, dtype=np.int64), np.zeros(0))
