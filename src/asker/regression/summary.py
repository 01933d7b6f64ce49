"""The report on a fitted curve, as text of at most 80 columns and as HTML."""

import html
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asker.regression.fit import Observation, Regression
from asker.regression.inference import quantile, r_squared

WIDTH = 80
"""Columns of a terminal."""
MAX_NAME = 18
"""Longest name of a parameter that is printed in full."""
MAX_OBSERVATIONS = 12
"""Largest number of outliers and doubtful observations that are listed."""
SMALLEST_P_VALUE = 1e-16


@dataclass(frozen=True)
class Table:
    """A titled table of texts."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


@dataclass(frozen=True)
class Report:
    """Content of the report: facts, tables and sentences."""

    title: str
    facts: list[tuple[str, str]]
    tables: list[Table]
    doubts: tuple[str, ...]


def report(fit: Regression, level: float = 0.95) -> Report:
    """Return the report on a fit with confidence intervals of this level."""
    observations = [*fit.observations(fit.outliers), *fit.observations(fit.doubtful)]
    tables = [_parameters(fit, level)]
    if observations:
        tables.append(_observations(fit, observations))
    undetermined = "; ".join(fit.undetermined) or "none"
    facts = [
        ("observations", f"{fit.n}, parameters {fit.n_parameters}, degrees of freedom {fit.degrees_of_freedom}"),
        ("residual scale", f"{fit.scale:.5g} ({fit.scale_kind})"),
        ("R²" if fit.consistency == 1 else "robust R²", f"{r_squared(fit):.5f}"),
        (
            "inliers",
            f"{fit.n - int(fit.outliers.sum()) - int(fit.doubtful.sum())}, doubtful {int(fit.doubtful.sum())}, "
            f"outliers {int(fit.outliers.sum())}",
        ),
        ("condition number", f"{fit.condition:.3g}; directions not determined: {undetermined}"),
        *([("candidates", fit.search)] if fit.search else []),
        ("converged", f"{'yes' if fit.success else 'no'}: {fit.message}"),
    ]
    return Report(fit.method, facts, tables, fit.doubts)


def _parameters(fit: Regression, level: float) -> Table:
    """Return the table of the parameters."""
    from scipy.special import stdtr

    t = quantile(fit, level)
    rows: list[tuple[str, ...]] = []
    for name, x, se, is_fixed in zip(fit.names, fit.x, fit.standard_errors, fit.fixed, strict=True):
        short = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
        if is_fixed:
            rows.append((short, _number(x), "fixed", "", "", "", ""))
            continue
        ratio = x / se if se > 0 else np.nan
        p = 2 * float(stdtr(fit.degrees_of_freedom, -abs(ratio))) if fit.degrees_of_freedom > 0 else np.nan
        shown = "< 1e-16" if p < SMALLEST_P_VALUE else f"{p:.2g}"
        rows.append((short, _number(x), f"{se:.3g}", f"{ratio:.4g}", shown, _number(x - t * se), _number(x + t * se)))
    columns = ("parameter", "estimate", "std. error", "t", "p-value", f"{100 * level:g} % from", "to")
    return Table("", columns, rows)


def _observations(fit: Regression, listed: list[Observation]) -> Table:
    """Return the table of the outliers and of the doubtful observations."""
    shown = listed[:MAX_OBSERVATIONS]
    rows: list[tuple[str, ...]] = [
        (str(o.index), f"{o.standardised_residual:.2f}", f"{o.leverage:.3f}", f"{o.weight:.3f}", _kind(o))
        for o in shown
    ]
    left = len(listed) - len(shown)
    note = f"and {left} more: see `.observations(.outliers | .doubtful)`" if left else ""
    columns = ("observation", "std. residual", "leverage", "weight", "")
    return Table("Observations that are not inliers, counted from 0", columns, rows, note)


def _kind(observation: Observation) -> str:
    from asker.regression.fit import OUTLIER

    return "outlier" if abs(observation.standardised_residual) > OUTLIER else "doubtful"


def _number(x: float) -> str:
    return f"{x:.6g}"


def as_text(content: Report) -> str:
    """Return the report as text of at most 80 columns."""
    width = max(len(name) for name, _ in content.facts)
    lines = [content.title, "=" * min(len(content.title), WIDTH)]
    for name, text in content.facts:
        lines += textwrap.wrap(f"{name:{width}}  {text}", WIDTH, subsequent_indent=" " * (width + 2))
    for table in content.tables:
        lines += ["", *([table.title] if table.title else []), *_aligned(table)]
        if table.note:
            lines.append(table.note)
    for doubt in content.doubts:
        lines += ["", *textwrap.wrap(f"Doubt: {doubt}", WIDTH)]
    return "\n".join(line.rstrip() for line in lines)


def _aligned(table: Table) -> list[str]:
    """Return the rows with the first column aligned to the left and the others to the right."""
    cells = [table.columns, *table.rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(table.columns))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else 1
    lines = []
    for row in cells:
        rest = (f"{text:>{w}}" for text, w in zip(row[1:], widths[1:], strict=True))
        lines.append((" " * gap).join([f"{row[0]:{widths[0]}}", *rest]))
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def as_html(content: Report) -> str:
    """Return the report as HTML."""
    parts = [f"<h4>{html.escape(content.title)}</h4>", "<table>"]
    parts += [f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in content.facts]
    parts.append("</table>")
    for table in content.tables:
        parts += [f"<p>{html.escape(table.title)}</p>" if table.title else "", "<table>", _row(table.columns, "th")]
        parts += [*(_row(row, "td") for row in table.rows), "</table>"]
        parts.append(f"<p>{html.escape(table.note)}</p>" if table.note else "")
    parts += [f"<p><b>Doubt:</b> {html.escape(doubt)}</p>" for doubt in content.doubts]
    return "\n".join(part for part in parts if part)


def _row(cells: tuple[str, ...], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def as_dict(fit: Regression, level: float = 0.95) -> dict[str, Any]:
    """Return the numbers of the report, for JSON."""
    t = quantile(fit, level)
    parameters = [
        {
            "name": name,
            "estimate": float(x),
            "standard_error": float(se),
            "fixed": bool(is_fixed),
            "interval": [float(x - t * se), float(x + t * se)],
        }
        for name, x, se, is_fixed in zip(fit.names, fit.x, fit.standard_errors, fit.fixed, strict=True)
    ]
    return {
        "method": fit.method,
        "level": level,
        "parameters": parameters,
        "covariance": fit.covariance.tolist(),
        "n_observations": fit.n,
        "degrees_of_freedom": fit.degrees_of_freedom,
        "scale": float(fit.scale),
        "scale_kind": fit.scale_kind,
        "r_squared": r_squared(fit),
        "condition": fit.condition,
        "undetermined": list(fit.undetermined),
        "outliers": [asdict(o) for o in fit.observations(fit.outliers)],
        "doubtful": [asdict(o) for o in fit.observations(fit.doubtful)],
        "converged": bool(fit.success),
        "message": fit.message,
        "search": fit.search,
        "doubts": list(fit.doubts),
    }
