"""Report on a result: estimates with standard errors and intervals, and the observations that are not inliers."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from asker.problem.variables import ProblemError
from asker.solver.result_table import table

if TYPE_CHECKING:
    from asker.solver.result import Result

WIDTH = 80
"""Columns of a terminal."""
MAX_ROWS = 40
"""Largest number of coordinates of variables that are listed."""
MAX_OUTLIERS = 12
"""Largest number of outliers of a factor group that are listed."""
COLUMNS = ("coordinate", "estimate", "std. error", "t", "p-value", "from", "to")


def summary(result: "Result", level: float) -> str:
    """Return the report as text of at most 80 columns."""
    rows = table(result)
    width = max(len(title) for title, _ in rows)
    lines: list[str] = []
    for title, text in rows:
        lines += textwrap.wrap(f"{title:{width}}  {text}", WIDTH, subsequent_indent=" " * (width + 2))
    lines += _estimates(result, level)
    for name, inliers, r in zip(result.residuals.names, result.inliers, result.residuals, strict=True):
        lines += _outliers(str(name), result, inliers, r)
    return "\n".join(lines)


def _estimates(result: "Result", level: float) -> list[str]:
    """Return the table of the estimates of Euclidean variables; nothing for large problems and loaded results."""
    from scipy.special import stdtr

    if result.problem is None:
        return []
    cells: list[tuple[str, ...]] = []
    df = min((noise.n_spare for noise in result.noise), default=0.0)
    for v in result.problem.variables:
        if not v.is_free or isinstance(values := result.values[v], tuple):
            continue
        x = np.reshape(np.asarray(values, dtype=float), (len(v), -1))
        if x.size + len(cells) > MAX_ROWS:
            return ["", f"more than {MAX_ROWS} unknowns: use `result.interval` for their intervals"]
        try:
            se, half = result.standard_errors(v), result.interval(v, level)
        except (ProblemError, AttributeError):
            continue
        if se.shape != x.shape:  # a manifold whose steps have other coordinates
            continue
        for index in np.ndindex(x.shape):
            value, error, extent = float(x[index]), float(se[index]), float(half[index])
            t = value / error if error > 0 else np.nan
            p = 2 * float(stdtr(df, -abs(t))) if df > 0 else np.nan
            place = ",".join(map(str, index if len(v) > 1 else index[1:]))
            ends = f"{value - extent:.6g}", f"{value + extent:.6g}"
            cells.append((f"{v.name}[{place}]", f"{value:.6g}", f"{error:.3g}", f"{t:.4g}", f"{p:.2g}", *ends))
    return ["", f"{100 * level:g} % intervals", *aligned([COLUMNS, *cells])] if cells else []


def _outliers(name: str, result: "Result", inliers: Any, r: Any) -> list[str]:
    """Return the outliers of a factor group with their residuals and weights, by decreasing residual."""
    at = np.flatnonzero(~np.asarray(inliers) & np.asarray(result.informative[name]))
    if not at.size:
        return []
    sigma = result.noise[name].sigma
    size = np.linalg.norm(r, axis=1)
    order = at[np.argsort(-size[at], kind="stable")]
    columns = ("observation", "|r|", "|r|/sigma", "weight")
    cells = [
        (str(i), f"{size[i]:.4g}", f"{size[i] / sigma:.3g}" if sigma > 0 else "", f"{result.weights[name][i]:.3f}")
        for i in order[:MAX_OUTLIERS]
    ]
    more = [f"and {len(at) - MAX_OUTLIERS} more"] if len(at) > MAX_OUTLIERS else []
    return ["", f"outliers of {name}, counted from 0", *aligned([columns, *cells]), *more]


def aligned(cells: list[tuple[str, ...]]) -> list[str]:
    """Return the rows with the first column aligned to the left and the others to the right."""
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else " "
    return [
        gap.join([f"{row[0]:{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]
