"""The page of a fit of a table: report and figures, in one HTML file that loads nothing."""

import base64
import html
import io
from dataclasses import replace
from typing import Any

import numpy as np

from asker import plot
from asker.curves.fit_table import TableFit
from asker.io.files import FilePath, write_whole
from asker.scipy_compat.fitted_curve import CurveFit

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h4 { margin: 0 0 .5rem; }
code { background: #f2f2f2; padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: .5rem 0 1rem; }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
.figures img { width: 100%; } .scroll { overflow-x: auto; }
"""
DPI = 130


def single_curve(found: TableFit) -> tuple[CurveFit, str, str] | None:
    """Return the fit as a curve of one column, with the names of the axes; None if there is no such column."""
    right, left = found.equations[0].right, found.equations[0].left
    inputs = [name for name in right.names if name in found.columns]
    if len(found.equations) > 1 or len(inputs) != 1 or right.categories:
        return None
    name = inputs[0]
    others = {key: column for key, column in found.columns.items() if key != name}
    if any(key in right.names for key in others):
        return None

    def model(x: Any, *parameters: Any) -> Any:
        values = {name: np.asarray(x, dtype=float)} | dict(zip(found.parameters, parameters, strict=True))
        return np.broadcast_to(right(values), np.shape(x))

    regression = replace(found.fit.regression, xdata=found.columns[name], model=model)
    curve = CurveFit(tuple(found.fit), regression, found.fit.result, found.fit.info)
    return curve, _label(found, name), _label(found, left.text)


def write_page(path: FilePath, found: TableFit, title: str, text: str) -> None:
    """Write the page of a fit.

    Parameters
    ----------
    path
        HTML file.
    found
        Fit of a table.
    title
        Name of the data.
    text
        Equations as given.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p><code>{html.escape(text)}</code></p>",
        f'<div class="scroll">{found.fit._repr_html_()}</div>',
        '<h2>Figures</h2><div class="figures">',
    ]
    parts += [f'<img alt="{html.escape(name)}" src="{_image(ax)}">' for name, ax in figures(found).items()]
    parts.append("</div></body></html>")
    with write_whole(path) as file:
        file.write("\n".join(parts).encode("utf-8"))


def figures(found: TableFit) -> dict[str, Any]:
    """Return the axes of the figures by title."""
    axes = {}
    if (single := single_curve(found)) is not None:
        curve, xlabel, ylabel = single
        axes["Data and curve"] = plot.fit(curve, xlabel=xlabel, ylabel=ylabel)
    drawn = {"Residuals": plot.residuals, "Leverage": plot.leverage, "Weights": plot.weights}
    axes |= {name: draw(found.fit) for name, draw in drawn.items()}
    for name, ax in axes.items():
        ax.set_title(name)
    return axes


def _label(found: TableFit, name: str) -> str:
    unit = found.units.get(name, "")
    return f"{name} ({unit})" if unit else name


def _image(ax: Any) -> str:
    """Return a figure as the address of an image in the page."""
    file = io.BytesIO()
    ax.figure.savefig(file, format="png", dpi=DPI)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
