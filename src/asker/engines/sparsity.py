"""Sparsity structure of the linear system, computed once per problem.

One group of variables can be *eliminated* by the Schur complement: a group no two of whose variables share a factor,
such as the points of a bundle adjustment.  All other free variables are *kept* and numbered consecutively.  The
observations of each factor group are sorted by their eliminated variable, so that those of one point are contiguous.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import Variables

MOST_DERIVATIVES = 256
"""Number of derivatives of one observation, p·D, up to which its loops are straight-line code.  LLVM takes about 2 s
for all loops of a problem with so many, and the time grows faster than linearly (benchmarks/compile_time.py)."""


@dataclass(frozen=True, eq=False)
class KeptSlot:
    """A slot whose variables stay in the reduced system."""

    number: int
    """Number of the argument of the residual function."""
    variables: Variables
    offset: int
    """First column in the factor's Jacobian."""
    dim: int
    offset_in_Y: int
    """First row in the factor's coupling blocks Y."""
    index: np.ndarray
    """Index of the variable of each observation, (n,)."""
    columns: np.ndarray
    """First column in the reduced system for each observation, (n,)."""
    first: int
    """First column of the whole group in the reduced system."""
    ptr: np.ndarray
    """The observations of variable v are observations[ptr[v]:ptr[v + 1]]."""
    observations: np.ndarray

    @property
    def n_variables(self) -> int:
        return len(self.ptr) - 1


@dataclass(frozen=True, eq=False)
class EliminatedSlot:
    """The slot whose variables are eliminated."""

    number: int
    """Number of the argument of the residual function."""
    variables: Variables
    offset: int
    """First column in the factor's Jacobian."""
    dim: int
    index: np.ndarray
    """Index of the variable of each observation, (n,), ascending."""
    ptr: np.ndarray
    """The observations of variable j are ptr[j]:ptr[j + 1]."""


@dataclass(frozen=True, eq=False)
class FactorStructure:
    """One factor group, with its observations in the order of the engine."""

    factors: Factors
    order: np.ndarray | None
    """The user's number of each observation; None if the order is that of the user."""
    indices: tuple[np.ndarray, ...]
    """The index array of each slot, in the engine's order."""
    free: tuple[int, ...]
    """Numbers of the slots with derivatives."""
    offsets: tuple[int, ...]
    """First Jacobian column of each free slot."""
    width: int
    """Number of Jacobian columns."""
    kept: tuple[KeptSlot, ...]
    eliminated: EliminatedSlot | None

    @property
    def n(self) -> int:
        return self.factors.n

    @property
    def p(self) -> int:
        return self.factors.residual_size

    @property
    def is_long(self) -> bool:
        """True if an observation has so many derivatives that XLA computes them instead of a compiled loop."""
        return is_long(self.p, self.width)

    @property
    def height(self) -> int:
        """Number of rows of J in the linear system: p, or at most D if J is long and is replaced by R of J = QR."""
        return height(self.p, self.width)

    @property
    def is_wide(self) -> bool:
        """True if J is large in the linear system too, which is then assembled by general matrix products."""
        return is_long(self.height, self.width)

    @property
    def kept_width(self) -> int:
        return sum(slot.dim for slot in self.kept)

    def sorted(self, per_observation: np.ndarray) -> np.ndarray:
        """Return numbers per observation in the engine's order, from the user's order."""
        return per_observation if self.order is None else per_observation[self.order]

    def unsorted(self, per_observation: np.ndarray) -> np.ndarray:
        """Return numbers per observation in the user's order, from the engine's order."""
        if self.order is None:
            return per_observation
        out = np.empty_like(per_observation)
        out[self.order] = per_observation
        return out


class Structure:
    """Sparsity structure of a problem."""

    def __init__(self, problem: Problem, eliminate: Variables | bool = True):
        self.problem = problem
        self.eliminated = _choose(problem, eliminate)
        self.kept = tuple(v for v in problem.variables if v.is_free and v is not self.eliminated)
        sizes = [len(v) * v.manifold.tangent for v in self.kept]
        self.first = dict(zip(self.kept, np.cumsum([0, *sizes]).tolist(), strict=False))
        self.n_kept = sum(sizes)
        self.factors = tuple(self._of_factors(f) for f in problem.factors)
        self._patterns: dict[bool, tuple[np.ndarray, np.ndarray]] = {}

    def _of_factors(self, f: Factors) -> FactorStructure:
        """Return the slots of a factor group: constant, reduced and eliminated, and the order of its observations."""
        free = tuple(k for k, slot in enumerate(f.slots) if slot.variables.is_free)
        dims = [f.slots[k].variables.manifold.tangent for k in free]
        offsets = tuple(np.cumsum([0, *dims])[:-1].tolist())
        order = self._order(f)
        indices = tuple(s.index if order is None else s.index[order] for s in f.slots)
        kept: list[KeptSlot] = []
        eliminated = None
        for k, offset, dim in zip(free, offsets, dims, strict=True):
            v, index = f.slots[k].variables, indices[k]
            if v is self.eliminated:
                eliminated = EliminatedSlot(k, v, offset, dim, index, _pointers(index, len(v)))
                continue
            ptr, observations = _pointers(index, len(v)), np.argsort(index, kind="stable").astype(np.int32)
            columns = (self.first[v] + index.astype(np.int64) * dim).astype(np.int32)
            in_Y = sum(s.dim for s in kept)
            kept.append(KeptSlot(k, v, offset, dim, in_Y, index, columns, self.first[v], ptr, observations))
        return FactorStructure(f, order, indices, free, offsets, sum(dims), tuple(kept), eliminated)

    def _order(self, f: Factors) -> np.ndarray | None:
        """Return the observations sorted by eliminated variable, then by the first kept one; None if they are."""
        keys = [s.index for s in f.slots if s.variables is self.eliminated]
        if not keys:
            return None
        keys += [s.index for s in f.slots if s.variables in self.first][:1]
        rank = keys[0].astype(np.int64) << 32 | (keys[1] if len(keys) > 1 else 0)
        return None if (np.diff(rank) >= 0).all() else np.argsort(rank, kind="stable")

    @cached_property
    def n_eliminated(self) -> int:
        return 0 if self.eliminated is None else len(self.eliminated)

    @cached_property
    def kept_variables(self) -> tuple[np.ndarray, np.ndarray]:
        """First column and number of unknowns of every kept variable, in the order of the columns."""
        dims = np.concatenate([np.full(len(v), v.manifold.tangent) for v in self.kept] or [np.zeros(0, int)])
        return np.concatenate([[0], np.cumsum(dims)[:-1]]).astype(np.int64)[: len(dims)], dims

    def parts(self, x: Any) -> dict[Variables, Any]:
        """Return views of a vector of the reduced system, one (n, tangent) array per kept group."""
        return {
            v: x[start : start + len(v) * v.manifold.tangent].reshape(len(v), -1) for v, start in self.first.items()
        }

    def pattern(self, after_elimination: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the block sparsity pattern of the lower triangle, as CSR (pointers, columns) over kept variables.

        Without elimination, a block is nonzero if its variables share a factor; after it, also if they share an
        eliminated variable.
        """
        if after_elimination not in self._patterns:
            self._patterns[after_elimination] = self._computed_pattern(after_elimination)
        return self._patterns[after_elimination]

    def _computed_pattern(self, after_elimination: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the block pattern of the system as (ptr, columns), with or without blocks that elimination adds."""
        from scipy import sparse

        starts, _ = self.kept_variables
        n = len(starts)
        coupled = sparse.eye_array(n, dtype=bool, format="csr")
        by_eliminated = sparse.csr_array((max(self.n_eliminated, 1), n), dtype=bool)
        for f in self.factors:
            columns = [np.searchsorted(starts, slot.columns) for slot in f.kept]
            together = [(np.arange(f.n), c) for c in columns]
            if len(columns) > 1:
                touches = _incidence(together, (f.n, n))
                coupled = coupled + touches.T @ touches
            if f.eliminated is not None and after_elimination:
                by_eliminated = by_eliminated + _incidence(
                    [(f.eliminated.index, c) for c in columns], (self.n_eliminated, n)
                )
        if after_elimination and self.n_eliminated:
            coupled = coupled + by_eliminated.T @ by_eliminated
        lower = sparse.csr_array(sparse.tril(coupled, format="csr"))
        lower.sort_indices()
        return lower.indptr.astype(np.int64), lower.indices.astype(np.int64)


def _incidence(pairs: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, int]) -> Any:
    """Return the sparse incidence matrix of pairs of row and column."""
    from scipy import sparse

    rows = np.concatenate([i for i, _ in pairs] or [np.zeros(0, int)])
    columns = np.concatenate([j for _, j in pairs] or [np.zeros(0, int)])
    return sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape)


def _pointers(index: np.ndarray, n: int) -> np.ndarray:
    """Return the first position of each of `n` numbers in the sorted index, and its length."""
    return np.concatenate([[0], np.cumsum(np.bincount(index, minlength=n))]).astype(np.int64)


def is_long(p: int, width: int) -> bool:
    """Return True if an observation with p residuals and `width` unknowns has too many derivatives for a loop."""
    return p * max(width, 1) > MOST_DERIVATIVES


def height(p: int, width: int) -> int:
    """Return the number of rows of J in the linear system: p, or at most `width` if J = QR is replaced by R."""
    return min(p, width) if is_long(p, width) else p


def _is_wide(f: Factors) -> bool:
    width = sum(slot.variables.manifold.tangent for slot in f.slots if slot.variables.is_free)
    return is_long(height(f.residual_size, width), width)


def is_narrow(problem: Problem, v: Variables) -> bool:
    """Return True if no factors of these variables are wide, so that they can be eliminated."""
    return not any(_is_wide(f) for f in problem.factors if any(s.variables is v for s in f.slots))


def _choose(problem: Problem, eliminate: Variables | bool) -> Variables | None:
    """Return the largest group that can be eliminated, or None if no elimination reduces the problem."""
    if not isinstance(eliminate, bool | Variables):
        raise ValueError(f"eliminate must be variables of the problem, True or False, not {eliminate!r}")
    if eliminate is False:
        return None

    def possible(v: Variables) -> bool:
        return all(sum(s.variables is v for s in f.slots) <= 1 for f in problem.factors)

    if isinstance(eliminate, Variables):
        if eliminate not in problem.variables:
            raise ValueError(f"{eliminate.name} cannot be eliminated: they are not in the problem")
        if not possible(eliminate):
            raise ValueError(f"{eliminate.name} cannot be eliminated: two of them share a factor")
        if not is_narrow(problem, eliminate):
            limit = f"more than {MOST_DERIVATIVES} derivatives, also after a QR decomposition"
            raise ValueError(f"{eliminate.name} cannot be eliminated: their observations have {limit}")
        return eliminate
    free = [v for v in problem.variables if v.is_free]
    size = {v: len(v) * v.manifold.tangent for v in free}
    good = [v for v in free if possible(v) and is_narrow(problem, v) and v.manifold.tangent <= 6 and len(v) >= 8]
    best = max(good, key=lambda v: size[v], default=None)
    return best if best is not None and 2 * size[best] > sum(size.values()) else None
