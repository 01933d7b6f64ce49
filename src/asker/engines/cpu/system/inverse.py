"""Blocks of the inverse of the Hessian.

Those of kept variables come from the inverse of the Schur complement (schur_inverse.py), those of eliminated variables
from one pass over their couplings.  `asker.engines.inverse_blocks` has the formulas and the regularisation.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from asker.engines.cpu.system import blocks
from asker.engines.cpu.system.codegen import run_loop
from asker.engines.cpu.system.diagonal_blocks import diagonal_hessian_blocks
from asker.engines.cpu.system.linearization import Linearization, Weights
from asker.engines.cpu.system.schur_complement import ReducedMatrix
from asker.engines.cpu.system.schur_elimination import Eliminator
from asker.engines.cpu.system.schur_inverse import (
    NO_LAYOUT,
    DenseInverse,
    PlacedInverse,
    SparseInverse,
    blocks_of_pairs,
    invert_eliminated,
)
from asker.engines.cpu.threads import balanced_bounds, even_bounds, run_tasks
from asker.engines.inverse_blocks import Columns, Regularisation, RegularisedInverse, SingularError
from asker.engines.null_space import packed_lower
from asker.engines.sparsity import Structure
from asker.problem.variables import Variables


class Couplings(NamedTuple):
    """The couplings of each eliminated variable to kept ones, in CSR form."""

    ptr: np.ndarray
    number: np.ndarray
    """The number of the kept variable among all kept variables."""
    where: np.ndarray
    """The position of its first number in Y, over all factor groups."""
    stride: np.ndarray
    entry: tuple[tuple[np.ndarray, ...], ...]
    """The coupling of each observation, for each factor group and kept slot."""


class Inverse(RegularisedInverse):
    """The factorised inverse M of the regularised Hessian."""

    kept: PlacedInverse

    def __init__(
        self, structure: Structure, linear: list[Linearization], a: list[np.ndarray], b: list[np.ndarray] | None,
        dense: bool, regularisation: Regularisation | None = None,
    ):  # fmt: skip
        zero = [np.zeros_like(x) for x in a]
        self.model = [Weights(x, y, z, b is not None) for x, y, z in zip(a, b or zero, zero, strict=True)]
        self.linear, self.dense = linear, dense
        super().__init__(structure, regularisation)

    def _diagonal_blocks(self) -> dict[Variables, np.ndarray]:
        return diagonal_hessian_blocks(self.structure, self.linear, self.model)

    def _assembled(self) -> PlacedInverse:
        reduced = ReducedMatrix(self.structure, self.dense)
        reduced.assemble(self.linear, self.model, self.elimination)
        return DenseInverse(reduced) if self.dense else SparseInverse(reduced)

    def _eliminate(self) -> None:
        e = self.structure.eliminated
        K = None if e is None else packed_lower(self.regularisation.single[e].K)
        elimination = Eliminator(self.structure, False)(self.linear, self.model, 0.0, K)
        if elimination is None:
            raise SingularError(f"the block of one of the {e.name if e else 'variables'} is not positive definite")
        self.elimination = elimination

    # ------------------------------------------------------------ solutions

    def solve(self, B: Columns) -> Columns:
        """Return M B."""
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
        """Return L⁻¹ B."""
        L, Z = self.elimination.L, np.empty_like(B)
        for q in range(B.shape[1]):
            first = q * (q + 1) // 2
            Z[:, q] = B[:, q] - np.einsum("ns,nsk->nk", L[:, first : first + q], Z[:, :q])
            Z[:, q] /= L[:, first + q, None]
        return Z

    def _backward(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ (Z − Yᵀ X)."""
        out = np.empty_like(Z)
        for column in range(Z.shape[2]):
            t = -Z[:, :, column]
            self.elimination.couple_back(np.ascontiguousarray(X[:, column]), t)
            delta = np.empty_like(t)
            loop = blocks.solve_transposed(t.shape[1])
            run_loop(loop, even_bounds(len(t), min_size=1024), L=self.elimination.L, t=t, delta=delta)
            out[:, :, column] = delta
        return out

    # ------------------------------------------------------------ blocks

    def _number(self, v: Variables) -> int:
        """Return the number of the group's first variable among all kept variables."""
        return int(np.searchsorted(self.structure.kept_variables[0], self.structure.first[v]))

    def of_kept(self, v: Variables, i: np.ndarray, w: Variables, j: np.ndarray) -> np.ndarray:
        out = np.empty((len(i), v.manifold.tangent, w.manifold.tangent))
        first, second = self._number(v) + i.astype(np.int64), self._number(w) + j.astype(np.int64)
        if blocks_of_pairs(first, second, self.kept.layout, self.values, out):
            raise LookupError("the block of two variables is not on the sparsity pattern of the inverse")
        return out

    @cached_property
    def couplings(self) -> Couplings:
        """The couplings of all factor groups."""
        parts = [np.zeros((4, 0), dtype=np.int64)]  # eliminated variable, number, where and stride of each
        begin = 0
        for f, e, Y in self.elimination.coupled():
            for s in f.kept:
                where = begin + np.arange(f.n) * Y.shape[1] + s.offset_in_Y
                parts.append(
                    np.array([e.index, self._number(s.variables) + s.index, where, np.full(f.n, f.kept_width)])
                )
            begin += Y.size
        index, *rest = np.concatenate(parts, axis=1)
        order = np.argsort(index, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        entries = iter(np.split(place, np.cumsum([part.shape[1] for part in parts])))
        next(entries)
        of = [tuple(next(entries) for _ in f.kept) if f.eliminated is not None else () for f in self.structure.factors]
        ptr = np.concatenate([[0], np.cumsum(np.bincount(index, minlength=self.structure.n_eliminated))])
        number, where, stride = (np.ascontiguousarray(x[order]) for x in rest)
        return Couplings(ptr, number, where, stride, tuple(of))

    def of_eliminated(self) -> np.ndarray:
        return self.inverted(with_couplings=False)[0]

    def inverted(self, with_couplings: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the diagonal blocks of eliminated variables and, if requested, the blocks of their couplings."""
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
