"""Dense Jacobians of random problems by finite differences in NumPy, independent of asker.

The Jacobian has a column for each direction of each variable.  Its entries are central differences of fourth order with
a step of STEP, whose error is about 1e-12 of the second to fifth derivatives, which are about 1 in the pool.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asker.geometry.manifolds import Euclidean
from asker.problem.bounds import Bounded
from random_problems import Block, RandomProblem, gathered

STEP = 1e-3
STENCIL = ((1, 8 / 12), (2, -1 / 12))
"""Multiples of the step, and the coefficient of the symmetric difference; it is exactly 0 for independent functions."""
ZERO, NONZERO = 1e-9, 1e-5
"""Thresholds of the singular values of a matrix with unit columns, relative to the largest: values up to ZERO count as
0, values from NONZERO on as nonzero; matrices with a value in between are undecided.  asker's threshold is 3e-7."""


def plain(block: Block) -> Any:
    """Return the manifold of a group of variables, without bounds."""
    return Euclidean(block.manifold.shape) if isinstance(block.manifold, Bounded) else block.manifold


def moved(block: Block, values: Any, delta: np.ndarray) -> Any:
    """Return the values after a step (n, tangent), which may violate bounds."""
    manifold = plain(block)
    rows = manifold.pack(values)
    if isinstance(manifold, Euclidean):
        return manifold.unpack(rows + delta)
    return manifold.unpack(np.array([manifold.retract(x, d) for x, d in zip(rows, delta, strict=True)]))


def columns(problem: RandomProblem) -> list[np.ndarray]:
    """Return the column indices (n, tangent) of the Jacobian for each group of variables."""
    indices, first = [], 0
    for block in problem.blocks:
        shape = len(block), plain(block).tangent
        indices.append(first + np.arange(shape[0] * shape[1]).reshape(shape))
        first += shape[0] * shape[1]
    return indices


def jacobians(problem: RandomProblem, values: Sequence[Any]) -> list[np.ndarray]:
    """Return the Jacobian (n, p, unknowns) of each factor group, including the columns of constant variables."""
    at = columns(problem)
    width = int(at[-1].max()) + 1
    stencils = [_stencil(block, x) for block, x in zip(problem.blocks, values, strict=True)]
    all_jacobians = []
    for g in problem.groups:
        arguments = [gathered(values[k], index) for k, index in g.slots]
        J = np.zeros((*g.reference(values).shape, width))
        for slot, (k, index) in enumerate(g.slots):
            for q, steps in enumerate(stencils[k]):
                slope = np.zeros(J.shape[:2])
                for (_, factor), pair in zip(STENCIL, steps, strict=True):
                    forth, back = (
                        g.kind.reference(*arguments[:slot], gathered(x, index), *arguments[slot + 1 :], *g.data)
                        for x in pair
                    )
                    slope += factor / STEP * (forth - back)
                J[np.arange(g.n), :, at[k][index, q]] += slope
        all_jacobians.append(J)
    return all_jacobians


def _stencil(block: Block, values: Any) -> list[list[tuple[Any, Any]]]:
    """Return the values at the points of the stencil, in pairs, for each direction."""
    n, d = len(block), plain(block).tangent

    def at(q: int, k: int) -> Any:
        return moved(block, values, STEP * k * np.eye(d)[[q] * n])

    return [[(at(q, k), at(q, -k)) for k, _ in STENCIL] for q in range(d)]


class Undetermined(NamedTuple):
    """Unknowns that a matrix does not determine."""

    is_open: np.ndarray
    """Mask of the unknowns with a nonzero component in the null space."""
    n: int
    """Dimension of the null space."""


def undetermined_unknowns(A: np.ndarray, elsewhere: np.ndarray, scale: float) -> Undetermined | None:
    """Return the unknowns that the rows of A do not determine; None if that is numerically undecided.

    It is undecided if a column is small compared with `scale`, or 0 in A but not in `elsewhere`, the matrix at another
    point: finite differences may not resolve it.
    """
    norms = np.linalg.norm(A, axis=0)
    has_entries = norms > 0
    if (norms[has_entries] < NONZERO * scale).any() or elsewhere[:, ~has_entries].any():
        return None
    unit = A[:, has_entries] / norms[has_entries]
    _, sizes, Vt = np.linalg.svd(np.linalg.qr(unit, mode="r"), full_matrices=True)
    sizes = np.concatenate([sizes, np.zeros(len(Vt) - len(sizes))])
    if ((sizes > ZERO * sizes[:1]) & (sizes < NONZERO * sizes[:1])).any():
        return None
    null = Vt[sizes <= ZERO * sizes[:1]] if sizes.size else Vt[:0]
    moved_by = np.linalg.norm(null, axis=0)
    if ((moved_by > ZERO) & (moved_by < NONZERO)).any():
        return None
    is_open = ~has_entries
    is_open[has_entries] = moved_by > ZERO
    return Undetermined(is_open, int((~has_entries).sum()) + len(null))
