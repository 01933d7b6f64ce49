"""Numbers that the data do not determine, in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asker.engines.null_space import TOUCHED, open_entries
from asker.geometry.manifolds import Euclidean
from asker.problem.variables import Variables

if TYPE_CHECKING:
    from asker.engines.cpu.linearized_problem import LinearModel
    from asker.engines.inverse_blocks import HeldInverse, Stiffening
    from asker.engines.xla.linearized_problem import DeviceModel

Mask = NDArray[np.bool_]
AT_ONCE = 10_000
"""Observations whose derivatives are added up at once."""
SHOWN = 3
"""How many are named."""


def named(open_: dict[Variables, Mask]) -> str:
    """The numbers (n, d) of each group of variables that are not determined, the first few by name; "" for none."""
    places = [(v, int(i), int(q)) for v, mask in open_.items() for i, q in np.argwhere(mask)]
    names = [_name(*place) for place in places[:SHOWN]]
    return ", ".join(names) + (f" and {len(places) - SHOWN} more" if len(places) > SHOWN else "")


def _name(v: Variables, i: int, q: int) -> str:
    """As a user would write it, where the directions of a step are the numbers of the variable."""
    if not isinstance(v.manifold, Euclidean):
        return f"direction {q} of {v.name}[{i}]"
    within = np.unravel_index(q, v.manifold.shape) if v.manifold.shape else ()
    return f"{v.name}[{', '.join(map(str, (i, *map(int, within))))}]"


def moved_numbers(
    N: dict[Variables, NDArray[np.float64]], scale: dict[Variables, NDArray[np.float64]]
) -> dict[Variables, Mask]:
    """Which numbers (n, d) of each group some directions N (n, d, k) move.

    A number of all variables of a group, such as x, has a part in a direction if one of them has, in units in which H
    has a unit diagonal: `scale` (n, d) are the roots of that.  Which of them have is told in its own unit.
    """
    sizes = {v: np.abs(x) for v, x in N.items()}
    scaled = {v: (scale[v][:, :, None] * x).max(axis=0, initial=0.0) for v, x in sizes.items()}  # (d, k)
    largest = np.max([x.max(axis=0, initial=0.0) for x in scaled.values()], axis=0)
    return {
        v: ((scaled[v] > TOUCHED * largest) & (x > TOUCHED * x.max(axis=0, initial=0.0))).any(axis=2)
        for v, x in sizes.items()
    }


def n_open(stiffening: "Stiffening") -> int:
    """Return how many directions of the unknowns are open: those of single variables, and those in which many move
    together."""
    return sum(int(h.free.sum()) for h in stiffening.single.values()) + len(stiffening.unknowns)


def not_pulled(
    model: "LinearModel | DeviceModel",
    weights: Sequence[NDArray[np.float64]],
    counted: Sequence[Mask],
    inverse: "HeldInverse",
) -> dict[Variables, Mask]:
    """Return the numbers (n, d) of each group that only observations of weight ω = 0 determine among those that count:
    these do not pull at the estimate, however near they are.

    `inverse`: that of the observations that count.
    """
    pulls = [mask & (w > 0) for mask, w in zip(counted, weights, strict=True)]
    if all(map(np.array_equal, pulls, counted)):
        return {}
    pulling = model.inverse([pull.astype(float) for pull in pulls])
    single = pulling.stiffening.single
    if n_open(pulling.stiffening) <= n_open(inverse.stiffening):
        return {}
    moved = {}
    if pulling.n_together:
        moved = moved_numbers(pulling.together, {v: h.scale for v, h in single.items()})
    return {v: h.is_open | moved.get(v, False) for v, h in single.items()}


def n_undetermined(model: "LinearModel | DeviceModel", weights: Sequence[NDArray[np.float64]]) -> int:
    """How many directions of the unknowns the observations leave open; a SingularError where there are too many in
    which many move together."""
    return n_open(model.inverse(list(weights)).stiffening)


def undetermined(model: "LinearModel", weights: Sequence[NDArray[np.float64]], of_inliers: bool = False) -> str:
    """What the observations of a problem with few unknowns leave open, in words; "" where that is nothing.

    `of_inliers`: those that have a weight are not all that pull, but the inliers.
    """
    free = [v for v in model.problem.variables if v.is_free]
    columns, n = {}, 0
    for v in free:
        d = v.manifold.tangent
        columns[v] = n + d * (np.cumsum(~v.fixed)[:, None] - 1) + np.arange(d)
        n += d * int(np.count_nonzero(~v.fixed))
    H = np.zeros((n, n))
    for f, linear, w in zip(model.structure.factors, model.linear, weights, strict=True):
        J = linear.J.reshape(f.n, f.p, f.width)
        counted = np.flatnonzero(f.sorted(w) > 0)
        for some in np.array_split(counted, 1 + len(counted) // AT_ONCE):
            rows = np.zeros((len(some), f.p, n))
            for k, offset in zip(f.free, f.offsets, strict=True):
                v, own = f.factors.slots[k].variables, f.indices[k][some]
                moves = np.flatnonzero(~v.fixed[own])
                at = (moves[:, None, None], np.arange(f.p)[:, None], columns[v][own[moves]][:, None, :])
                rows[at] += J[some[moves], :, offset : offset + v.manifold.tangent]
            flat = rows.reshape(-1, n)
            H += flat.T @ flat
    is_open, n_open = open_entries(H[None], np.zeros((1, n), dtype=bool))
    if not n_open[0]:
        return ""
    names = named({v: is_open[0][columns[v]] & ~v.fixed[:, None] for v in free})
    alone = int(is_open.sum()) == int(n_open[0])
    if of_inliers:
        why = "only outliers act on them" if alone else "they can move together without a change of their residuals"
        return f"the inliers do not determine {names}: {why}"
    if alone:
        return f"the data do not determine {names}: what stands there is from the start"
    return f"the data do not determine {names}: they can move together without a change of any residual"
