"""A problem linearised at a point, on a device: `asker.engines.cpu.linearized_problem` in plain JAX, with a dense
matrix.

The couplings W of a batch of eliminated variables are one matrix, (variables, d, kept unknowns), so that their parts of
the reduced matrix S and their blocks of the inverse M are products of large matrices:

    S = H_KK − Σ WᵀW,   M_EE = L⁻ᵀ (I + W S⁻¹ Wᵀ) L⁻¹,   M_KE = −S⁻¹ Wᵀ L⁻¹

`asker.engines.inverse_blocks` regularises the directions that the data do not determine.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular

from asker.engines.inverse_blocks import Columns, Regularisation, RegularisedInverse, SingularError
from asker.engines.sparsity import FactorStructure, Structure
from asker.engines.xla.residuals import FactorFunctions
from asker.engines.xla.solver_selection import MAX_DENSE_UNKNOWNS
from asker.problem.problem import Problem
from asker.problem.variables import Variables
from asker.tracing.array_namespace import as_argument, float64

MAX_BATCH_NUMBERS = 1 << 25
"""Number of entries of W in one batch."""
F = TypeVar("F", bound=Callable)


def in_float64(function: F) -> F:
    """Decorate a function so that JAX computes in double precision within it."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with float64():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


class Linear(NamedTuple):
    """Residuals and derivatives of one factor group at a point, in the order of the structure."""

    r: jax.Array  # (n, p)
    J: jax.Array  # (n, p, D)


class DeviceModel:
    """Derivatives of all residuals at one point.  Numbers per observation are in the user's order."""

    @in_float64
    def __init__(self, problem: Problem, theta: tuple[np.ndarray, ...]):
        self.problem, self.structure = problem, Structure(problem)
        rows = dict(zip(problem.variables, theta, strict=True))
        self.linear = [_linearised(f, rows) for f in self.structure.factors]

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Return whether the matrix of the kept variables is small enough to be dense."""
        return Structure(problem).n_kept <= MAX_DENSE_UNKNOWNS

    def inverse(
        self, a: list[np.ndarray], b: list[np.ndarray] | None = None, regularisation: Regularisation | None = None
    ) -> "DeviceInverse":
        """Return the inverse of Σ Jᵀ(aI + b rrᵀ)J."""
        sorted_b = None if b is None else self._sorted(b)
        return DeviceInverse(self.structure, self.linear, self._sorted(a), sorted_b, regularisation)

    def diagonal_blocks(self, a: list[np.ndarray]) -> dict[Variables, np.ndarray]:
        """Return the diagonal block Σ a JᵀJ of every variable, (n, d, d) for each free group."""
        return diagonal_hessian_blocks(self.structure, self.linear, self._sorted(a))

    def predicted(self, inverse: RegularisedInverse) -> list[np.ndarray]:
        """Return tr(J M Jᵀ) of every observation."""
        assert isinstance(inverse, DeviceInverse)
        return [f.unsorted(x) for f, x in zip(self.structure.factors, inverse.predicted(), strict=True)]

    def _sorted(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return arrays of observations in the order of the structure."""
        return [f.sorted(np.asarray(x, dtype=float)) for f, x in zip(self.structure.factors, arrays, strict=True)]


def _linearised(f: FactorStructure, rows: dict[Variables, np.ndarray]) -> Linear:
    """Return r and J of a factor group, weighted, with zero columns for constant variables."""
    gathered = [rows[slot.variables][index] for slot, index in zip(f.factors.slots, f.indices, strict=True)]
    data = [f.sorted(as_argument(x)) for x in f.factors.data]
    if not f.n or not f.width:  # no observations, or all variables are constant
        return Linear(jnp.zeros((f.n, f.p)), jnp.zeros((f.n, f.p, f.width)))
    r, J = jax.jit(FactorFunctions(f).derivatives)(*gathered, *data)
    if f.factors.weight is not None:
        root = np.sqrt(f.sorted(f.factors.weight))
        r, J = root[:, None] * r, root[:, None, None] * J
    moving = [(f.factors.slots[k].variables, f.indices[k]) for k in f.free]
    if any(v.fixed.any() for v, _ in moving):
        J = J * np.concatenate([np.tile(~v.fixed[i][:, None, None], v.manifold.tangent) for v, i in moving], axis=2)
    return Linear(r, J)


@in_float64
def diagonal_hessian_blocks(
    structure: Structure, linear: list[Linear], a: list[np.ndarray]
) -> dict[Variables, np.ndarray]:
    """Return the diagonal block Σ a JᵀJ of every variable, (n, d, d) for each free group."""
    free = [v for v in structure.problem.variables if v.is_free]
    blocks = {v: jnp.zeros((len(v), v.manifold.tangent, v.manifold.tangent)) for v in free}
    for f, (_, J), w in zip(structure.factors, linear, a, strict=True):
        for k, offset in zip(f.free, f.offsets, strict=True):
            v = f.factors.slots[k].variables
            part = J[:, :, offset : offset + v.manifold.tangent]
            blocks[v] = _with_squares(blocks[v], f.indices[k], w, part)
    return {v: np.array(B) for v, B in blocks.items()}


@jax.jit
def _with_squares(blocks: jax.Array, index: jax.Array, a: jax.Array, J: jax.Array) -> jax.Array:
    return blocks.at[index].add(jnp.einsum("n,npq,nps->nqs", a, J, J))


class _Kept:
    """The matrix S of the kept variables, factorised."""

    def __init__(self, S: jax.Array, dims: np.ndarray):
        self.S = S
        starts, counts = np.cumsum(dims**2) - dims**2, dims**2
        number = np.arange(int(counts.sum())) - np.repeat(starts, counts)
        d, first = np.repeat(dims, counts), np.repeat(np.cumsum(dims) - dims, counts)
        self.positions = first + number // d, first + number % d
        """Rows and columns of the entries of the diagonal blocks."""

    @in_float64
    def factorise(self, K: np.ndarray, diagonal: np.ndarray) -> bool:
        self.L = _cholesky(self.S, self.positions, K, diagonal)
        return bool(jnp.isfinite(self.L).all())

    @in_float64
    def solve(self, B: Any) -> np.ndarray:
        return np.array(cho_solve((self.L, True), jnp.asarray(B)))

    @in_float64
    def values(self) -> Any:
        """Inverse S⁻¹, on the device."""
        return cho_solve((self.L, True), jnp.eye(len(self.L)))


class _Coupled(NamedTuple):
    """The couplings Y = L⁻¹ J_EᵀMJ_K of one factor group, and their positions; dummies at the end."""

    Y: jax.Array  # (n + m, d, K)
    eliminated: jax.Array
    """(n + m,): eliminated variable of each observation."""
    columns: jax.Array
    """(n + m, K): kept unknowns of each observation."""
    starts: jax.Array
    """First observation of each batch."""
    m: int
    """Maximum number of observations of a batch."""


class DeviceInverse(RegularisedInverse):
    """The regularised inverse M on a device; only requested blocks are transferred to the host."""

    @in_float64
    def __init__(
        self, structure: Structure, linear: list[Linear], a: list[np.ndarray], b: list[np.ndarray] | None,
        regularisation: Regularisation | None,
    ):  # fmt: skip
        self.linear, self.a = linear, a
        none = [None] * len(a)
        self.weighted = [_weighted(lin, x, y) for lin, x, y in zip(linear, a, b or none, strict=True)]
        super().__init__(structure, regularisation)

    def _diagonal_blocks(self) -> dict[Variables, np.ndarray]:
        return diagonal_hessian_blocks(self.structure, self.linear, self.a)

    @in_float64
    def _eliminate(self) -> None:
        e = self.structure.eliminated
        if e is None:
            return
        V = jnp.asarray(self.regularisation.single[e].K)
        for f, (_, J), MJ in zip(self.structure.factors, self.linear, self.weighted, strict=True):
            if f.eliminated is not None:
                part = _part(f.eliminated)
                V = V.at[f.eliminated.index].add(jnp.einsum("npq,nps->nqs", J[:, :, part], MJ[:, :, part]))
        self.L = jnp.linalg.cholesky(V)
        if not bool(jnp.isfinite(self.L).all()):
            raise SingularError(f"the block of one of the {e.name} is not positive definite")
        self.size = max(1, min(len(e), MAX_BATCH_NUMBERS // max(e.manifold.tangent * self.structure.n_kept, 1)))
        """Number of eliminated variables of a batch."""
        self.n_batches = -(-len(e) // self.size)
        each = zip(self.structure.factors, self.linear, self.weighted, strict=True)
        self.coupled = [self._couplings(f, J, MJ) if f.eliminated is not None and f.kept else None
                        for f, (_, J), MJ in each]  # fmt: skip

    def _couplings(self, f: FactorStructure, J: jax.Array, MJ: jax.Array) -> _Coupled:
        """Return Y = L⁻¹Jᵀ(aI + brrᵀ)J of the reduced slots for each observation, padded to batches."""
        assert f.eliminated is not None
        variable, part = f.eliminated.index, _part(f.eliminated)
        kept = jnp.concatenate([MJ[:, :, _part(s)] for s in f.kept], axis=2)
        Y = jax.vmap(partial(solve_triangular, lower=True))(
            self.L[variable], jnp.einsum("npq,npk->nqk", J[:, :, part], kept)
        )
        columns = np.concatenate([s.columns[:, None] + np.arange(s.dim) for s in f.kept], axis=1)
        bounds = f.eliminated.ptr[np.minimum(np.arange(self.n_batches + 1) * self.size, self.structure.n_eliminated)]
        m = int(np.diff(bounds).max(initial=0))
        index = np.concatenate([variable, np.full(m, self.n_batches * self.size)])
        pad = ((0, m), (0, 0))
        return _Coupled(
            jnp.pad(Y, (*pad, (0, 0))), jnp.asarray(index), jnp.pad(columns, pad), jnp.asarray(bounds[:-1]), m
        )

    @in_float64
    def _assembled(self) -> _Kept:
        S = jnp.zeros((self.structure.n_kept, self.structure.n_kept))
        for f, (_, J), MJ in zip(self.structure.factors, self.linear, self.weighted, strict=True):
            for s in f.kept:
                for t in f.kept:
                    rows, columns = (x.columns[:, None] + np.arange(x.dim) for x in (s, t))
                    S = _with_products(S, rows, columns, J[:, :, _part(s)], MJ[:, :, _part(t)])
        if self.structure.eliminated is not None:

            def subtract(k: Any, S: jax.Array) -> jax.Array:
                W = self._rows(k)
                W = W.reshape(-1, W.shape[2])
                return S - W.T @ W

            S = jax.jit(lambda S: lax.fori_loop(0, self.n_batches, subtract, S))(S)
        return _Kept(S, self.structure.kept_variables[1])

    def _rows(self, k: Any) -> jax.Array:
        """Return W of batch k, (size, d, kept unknowns)."""
        d = self.L.shape[1]
        W = jnp.zeros((self.size, d, self.structure.n_kept))
        for c in self.coupled:
            if c is not None:
                Y, local, columns, _ = self._of_batch(c, k)
                at = local[:, None, None], jnp.arange(d)[:, None], columns[:, None, :]
                W = W.at[at].add(Y, mode="drop")
        return W

    def _of_batch(self, c: _Coupled, k: Any) -> tuple[jax.Array, ...]:
        """Return Y, index in the batch (out of range for other variables), columns and number of observations."""
        at = c.starts[k] + jnp.arange(c.m)
        return c.Y[at], c.eliminated[at] - k * self.size, c.columns[at], at

    # ------------------------------------------------------------ solutions and blocks

    @in_float64
    def solve(self, B: Columns) -> Columns:
        """Return M B."""
        e, n = self.structure.eliminated, next(iter(B.values())).shape[2]
        right = [B[v].reshape(-1, n) for v in self.structure.kept]
        X = jnp.asarray(np.concatenate([*right, np.zeros((0, n))]))
        if e is None:
            return self._columns(self.kept.solve(np.asarray(X)))
        Z = _solve_lower(self.L, jnp.asarray(B[e]), False)
        coupled = [c for c in self.coupled if c is not None]
        for c in coupled:
            X = _subtract_eliminated(X, c.columns, c.Y, Z, c.eliminated)
        X = jnp.asarray(self.kept.solve(np.asarray(X))) if len(X) else X
        for c in coupled:
            Z = _subtract_kept(Z, c.eliminated, c.Y, X, c.columns)
        return self._columns(np.array(X)) | {e: np.array(_solve_lower(self.L, Z, True))}

    @in_float64
    def of_kept(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        return np.array(self._between(*(self.structure.first[u] + np.asarray(k)[:, None] * u.manifold.tangent
                                        + np.arange(u.manifold.tangent) for u, k in ((v, i), (w, j)))))  # fmt: skip

    def _between(self, rows: Any, columns: Any) -> jax.Array:
        """Return blocks of S⁻¹."""
        return _entries(self.values, rows, columns)

    def of_eliminated(self) -> np.ndarray:
        return np.array(self._eliminated_blocks(False)[0])

    @in_float64
    def _eliminated_blocks(self, with_couplings: bool) -> tuple[jax.Array, list[jax.Array]]:
        """Return the blocks of the eliminated variables, and M_KE (n, K, d) of the observations by factor group."""
        n, d = self.structure.n_eliminated, self.L.shape[1]
        pad = jnp.tile(jnp.eye(d), (self.n_batches * self.size - n, 1, 1))
        L = jnp.concatenate([self.L, pad]).reshape(self.n_batches, self.size, d, d)
        values = self.values if self.structure.n_kept else jnp.zeros((0, 0))

        def step(cross: list[Any], at: tuple[jax.Array, jax.Array]) -> tuple[list[Any], jax.Array]:
            k, L = at
            W = self._rows(k)
            T = jnp.einsum("bdk,kl->bdl", W, values)
            G = _solve_lower(L, jnp.broadcast_to(jnp.eye(d), L.shape), False)
            blocks = jnp.einsum("bqi,bqr,brj->bij", G, jnp.eye(d) + jnp.einsum("bqk,brk->bqr", T, W), G)
            out = []
            for c, M_KE in zip(self.coupled, cross, strict=True):
                if c is not None and with_couplings:
                    _, local, columns, number = self._of_batch(c, k)
                    each = T.at[local[:, None, None], jnp.arange(d)[:, None], columns[:, None, :]].get(mode="clip")
                    each = -jnp.einsum("nqk,nqi->nki", each, G.at[local].get(mode="clip"))
                    M_KE = M_KE.at[jnp.where(local < self.size, number, len(M_KE))].set(each, mode="drop")
                out.append(M_KE)
            return out, blocks

        start = [
            jnp.zeros((len(c.eliminated), c.Y.shape[2], d)) if c is not None and with_couplings
            else jnp.zeros((0, 0, d))
            for c in self.coupled
        ]  # fmt: skip
        cross, blocks = jax.jit(lambda *batches: lax.scan(step, start, batches))(jnp.arange(self.n_batches), L)
        return blocks.reshape(-1, d, d)[:n], cross

    @in_float64
    def predicted(self) -> list[np.ndarray]:
        """Return tr(J M Jᵀ) of every observation of each factor group, in the order of the structure."""
        blocks, cross = self._eliminated_blocks(True) if self.structure.n_eliminated else (jnp.zeros(0), [])
        outs = []
        for k, (f, (_, J)) in enumerate(zip(self.structure.factors, self.linear, strict=True)):
            total = jnp.zeros(f.n)
            if f.kept:
                columns = np.concatenate([s.columns[:, None] + np.arange(s.dim) for s in f.kept], axis=1)
                JK = jnp.concatenate([J[:, :, _part(s)] for s in f.kept], axis=2)
                total += jnp.einsum("npq,nqs,nps->n", JK, self._between(columns, columns), JK)
            if f.eliminated is not None:
                JE = J[:, :, _part(f.eliminated)]
                total += jnp.einsum("npq,nqs,nps->n", JE, blocks[f.eliminated.index], JE)
                if f.kept:
                    total += 2 * jnp.einsum("npq,nqs,nps->n", JK, cross[k][: f.n], JE)
            outs.append(np.array(total))
        return outs


@jax.jit
def _cholesky(S: jax.Array, positions: tuple[jax.Array, jax.Array], K: jax.Array, diagonal: jax.Array) -> jax.Array:
    return jnp.linalg.cholesky(S.at[positions].add(K) + jnp.diag(diagonal))


@jax.jit
def _entries(S: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    return S[rows[:, :, None], columns[:, None, :]]


@jax.jit
def _with_products(S: jax.Array, rows: jax.Array, columns: jax.Array, A: jax.Array, B: jax.Array) -> jax.Array:
    """Return S with the blocks AᵀB added."""
    return S.at[rows[:, :, None], columns[:, None, :]].add(jnp.einsum("npq,nps->nqs", A, B))


@jax.jit
def _subtract_eliminated(X: jax.Array, columns: jax.Array, Y: jax.Array, Z: jax.Array, index: jax.Array) -> jax.Array:
    return X.at[columns].add(-jnp.einsum("ndk,ndc->nkc", Y, Z.at[index].get(mode="fill", fill_value=0.0)))


@jax.jit
def _subtract_kept(Z: jax.Array, index: jax.Array, Y: jax.Array, X: jax.Array, columns: jax.Array) -> jax.Array:
    return Z.at[index].add(-jnp.einsum("ndk,nkc->ndc", Y, X[columns]), mode="drop")


def _part(slot: Any) -> slice:
    """Return the range of columns of J that belong to a slot."""
    return slice(slot.offset, slot.offset + slot.dim)


@jax.jit
def _weighted(lin: Linear, a: jax.Array, b: jax.Array | None) -> jax.Array:
    """Return (aI + b rrᵀ) J."""
    MJ = a[:, None, None] * lin.J
    return MJ if b is None else MJ + jnp.einsum("n,np,nq,nqd->npd", b, lin.r, lin.r, lin.J)


@partial(jax.jit, static_argnums=2)
def _solve_lower(L: jax.Array, B: jax.Array, transposed: bool) -> jax.Array:
    """Return L⁻¹B, or L⁻ᵀB, of each block."""
    return jax.vmap(lambda L, B: solve_triangular(L, B, trans=int(transposed), lower=True))(L, B)
