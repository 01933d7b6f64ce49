"""Dense derivatives of random problems by differences in NumPy: what the laws know of a solution without asker.

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
"""Steps forth and back, and the factor of their difference, which is 0 where nothing depends on the variable."""
ZERO, NONZERO = 1e-9, 1e-5
"""Singular values of a matrix with unit columns, in parts of the largest: at most ZERO is 0, and at least NONZERO is
not; nothing is said of a matrix with one in between.  asker's own border is 3e-7 (`stiffness.NOTHING`)."""


def plain(block: Block) -> Any:
    """The manifold of a group of variables, without bounds."""
    return Euclidean(block.manifold.shape) if isinstance(block.manifold, Bounded) else block.manifold


def moved(block: Block, values: Any, delta: np.ndarray) -> Any:
    """The values after a step (n, tangent), which may cross bounds."""
    manifold = plain(block)
    rows = manifold.pack(values)
    if isinstance(manifold, Euclidean):
        return manifold.unpack(rows + delta)
    return manifold.unpack(np.array([manifold.retract(x, d) for x, d in zip(rows, delta, strict=True)]))


def columns(problem: RandomProblem) -> list[np.ndarray]:
    """(n, tangent) of each group of variables: the columns of the Jacobian."""
    found, first = [], 0
    for block in problem.blocks:
        shape = len(block), plain(block).tangent
        found.append(first + np.arange(shape[0] * shape[1]).reshape(shape))
        first += shape[0] * shape[1]
    return found


def jacobians(problem: RandomProblem, values: Sequence[Any]) -> list[np.ndarray]:
    """(n, p, unknowns) of each factor group, with columns of held variables, too."""
    at = columns(problem)
    width = int(at[-1].max()) + 1
    around = [_around(block, x) for block, x in zip(problem.blocks, values, strict=True)]
    found = []
    for g in problem.groups:
        arguments = [gathered(values[k], index) for k, index in g.slots]
        J = np.zeros((*g.reference(values).shape, width))
        for slot, (k, index) in enumerate(g.slots):
            for q, steps in enumerate(around[k]):
                slope = np.zeros(J.shape[:2])
                for (_, factor), pair in zip(STENCIL, steps, strict=True):
                    forth, back = (
                        g.kind.reference(*arguments[:slot], gathered(x, index), *arguments[slot + 1 :], *g.data)
                        for x in pair
                    )
                    slope += factor / STEP * (forth - back)
                J[np.arange(g.n), :, at[k][index, q]] += slope
        found.append(J)
    return found


def _around(block: Block, values: Any) -> list[list[tuple[Any, Any]]]:
    """For each direction the values at the points of the stencil, in pairs."""
    n, d = len(block), plain(block).tangent

    def at(q: int, k: int) -> Any:
        return moved(block, values, STEP * k * np.eye(d)[[q] * n])

    return [[(at(q, k), at(q, -k)) for k, _ in STENCIL] for q in range(d)]


class Open(NamedTuple):
    """What a matrix leaves open."""

    is_open: np.ndarray
    """Which of its unknowns a direction of the null space moves."""
    n: int
    """The dimension of the null space."""


def open_unknowns(A: np.ndarray, elsewhere: np.ndarray, scale: float) -> Open | None:
    """What the rows of A leave open; None where that is not clear.

    That is where a column is small beside `scale`, or 0 here and not `elsewhere`: it may be too small for differences.
    """
    norms = np.linalg.norm(A, axis=0)
    seen = norms > 0
    if (norms[seen] < NONZERO * scale).any() or elsewhere[:, ~seen].any():
        return None
    unit = A[:, seen] / norms[seen]
    _, sizes, Vt = np.linalg.svd(np.linalg.qr(unit, mode="r"), full_matrices=True)
    sizes = np.concatenate([sizes, np.zeros(len(Vt) - len(sizes))])
    if ((sizes > ZERO * sizes[:1]) & (sizes < NONZERO * sizes[:1])).any():
        return None
    null = Vt[sizes <= ZERO * sizes[:1]] if sizes.size else Vt[:0]
    moved_by = np.linalg.norm(null, axis=0)
    if ((moved_by > ZERO) & (moved_by < NONZERO)).any():
        return None
    is_open = ~seen
    is_open[seen] = moved_by > ZERO
    return Open(is_open, int((~seen).sum()) + len(null))
