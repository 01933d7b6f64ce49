"""Detection and description of parameters that the data do not determine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asker.engines.null_space import MIN_COMPONENT, open_entries
from asker.geometry.manifolds import Euclidean
from asker.problem.variables import Variables
from asker.solver.doubts import Doubt

if TYPE_CHECKING:
    from asker.engines.cpu.linearized_problem import LinearModel
    from asker.engines.inverse_blocks import Regularisation, RegularisedInverse
    from asker.engines.xla.linearized_problem import DeviceModel

Mask = NDArray[np.bool_]
MAX_OBSERVATIONS_PER_CHUNK = 10_000
"""Number of observations whose derivatives are summed at once."""
MAX_NAMED_PARAMETERS = 3
"""Number of parameters that a message names."""


def format_parameters(masks: dict[Variables, Mask]) -> str:
    """Return the names of the parameters in the masks (n, d) of each group, abbreviated after the first; "" if none."""
    places = [(v, int(i), int(q)) for v, mask in masks.items() for i, q in np.argwhere(mask)]
    names = [_name(*place) for place in places[:MAX_NAMED_PARAMETERS]]
    n_more = len(places) - MAX_NAMED_PARAMETERS
    return ", ".join(names) + (f" and {n_more} more" if n_more > 0 else "")


def _name(v: Variables, i: int, q: int) -> str:
    """Return the index expression of parameter q of v[i], or "direction q" on a manifold that is not Euclidean."""
    if not isinstance(v.manifold, Euclidean):
        return f"direction {q} of {v.name}[{i}]"
    within = np.unravel_index(q, v.manifold.shape) if v.manifold.shape else ()
    return f"{v.name}[{', '.join(map(str, (i, *map(int, within))))}]"


def moved_parameters(
    N: dict[Variables, NDArray[np.float64]], scale: dict[Variables, NDArray[np.float64]]
) -> dict[Variables, Mask]:
    """Return masks (n, d) of the parameters of each group that the directions N (n, d, k) move.

    Coordinate q of a group, such as x, takes part in a direction if it does so in one variable, in units in which H has
    a unit diagonal; `scale` (n, d) are the square roots of the diagonal.  The variables in which it does so are then
    determined in the units of coordinate q.
    """
    sizes = {v: np.abs(x) for v, x in N.items()}
    scaled = {v: (scale[v][:, :, None] * x).max(axis=0, initial=0.0) for v, x in sizes.items()}  # (d, k)
    largest = np.max([x.max(axis=0, initial=0.0) for x in scaled.values()], axis=0)
    return {
        v: ((scaled[v] > MIN_COMPONENT * largest) & (x > MIN_COMPONENT * x.max(axis=0, initial=0.0))).any(axis=2)
        for v, x in sizes.items()
    }


def n_open(regularisation: "Regularisation") -> int:
    """Return the number of undetermined directions: those of single variables, and those of many together."""
    return sum(int(h.free.sum()) for h in regularisation.single.values()) + len(regularisation.unknowns)


def unsupported_parameters(
    model: "LinearModel | DeviceModel",
    weights: Sequence[NDArray[np.float64]],
    counted: Sequence[Mask],
    inverse: "RegularisedInverse",
) -> dict[Variables, Mask]:
    """Return masks (n, d) of the parameters that only inliers of weight ω = 0 determine.

    Such observations have no influence on the estimate.  `inverse` is that of all counted observations.
    """
    influential = [mask & (w > 0) for mask, w in zip(counted, weights, strict=True)]
    if all(map(np.array_equal, influential, counted)):
        return {}
    of_influential = model.inverse([mask.astype(float) for mask in influential])
    single = of_influential.regularisation.single
    if n_open(of_influential.regularisation) <= n_open(inverse.regularisation):
        return {}
    moved = {}
    if of_influential.nullity:
        moved = moved_parameters(of_influential.null_space, {v: h.scale for v, h in single.items()})
    return {v: h.is_open | moved.get(v, False) for v, h in single.items()}


def n_undetermined(model: "LinearModel | DeviceModel", weights: Sequence[NDArray[np.float64]]) -> int:
    """Return the number of directions that the weighted observations do not determine.

    Raises a `SingularError` if there are too many directions in which many variables move together.
    """
    return n_open(model.inverse(list(weights)).regularisation)


def undetermined(
    model: "LinearModel", weights: Sequence[NDArray[np.float64]], of_inliers: bool = False
) -> Doubt | None:
    """Return a doubt that names the unknowns that the observations do not determine; None if all are determined.

    The normal matrix is dense: this is for problems with few unknowns.  With `of_inliers`, the weights are those of the
    inliers rather than of all observations with influence.
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
        for chunk in np.array_split(counted, 1 + len(counted) // MAX_OBSERVATIONS_PER_CHUNK):
            rows = np.zeros((len(chunk), f.p, n))
            for k, offset in zip(f.free, f.offsets, strict=True):
                v, index = f.factors.slots[k].variables, f.indices[k][chunk]
                moves = np.flatnonzero(~v.fixed[index])
                at = (moves[:, None, None], np.arange(f.p)[:, None], columns[v][index[moves]][:, None, :])
                rows[at] += J[chunk[moves], :, offset : offset + v.manifold.tangent]
            flat = rows.reshape(-1, n)
            H += flat.T @ flat
    is_open, n_directions = open_entries(H[None], np.zeros((1, n), dtype=bool))
    if not n_directions[0]:
        return None
    names = format_parameters({v: is_open[0][columns[v]] & ~v.fixed[:, None] for v in free})
    n_parameters, n_open_directions = int(is_open.sum()), int(n_directions[0])
    is_separate = n_parameters == n_open_directions
    if of_inliers:
        why = "only outliers depend on them" if is_separate else "they can move together without a change of residuals"
        text = f"the inliers do not determine {names}: {why}"
    elif is_separate:
        text = f"the data do not determine {names}: their values are still those of the initial guess"
    else:
        text = f"the data do not determine {names}: they can move together without a change of any residual"
    return Doubt(text, Doubt.UNDETERMINED, n_parameters=n_parameters, n_directions=n_open_directions)
