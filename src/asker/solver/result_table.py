"""Table that `print(result)` and a notebook display."""

import html
from typing import Any

from asker.problem.by_group import shape_of

Rows = list[tuple[str, str]]
"""Pairs of a title and a text."""


def as_text(rows: Rows) -> str:
    """Return one line for each row."""
    width = max(len(title) for title, _ in rows)
    return "\n".join(f"{title:{width}}  {text}" for title, text in rows)


def as_html(rows: Rows) -> str:
    """Return an HTML table."""
    cells = (f"<tr><th>{html.escape(title)}</th><td>{html.escape(text)}</td></tr>" for title, text in rows)
    return f"<table>{''.join(cells)}</table>"


def table(result: Any) -> Rows:
    """Return the rows of an `asker.Result`."""
    strategy = result.strategy if isinstance(result.strategy, str) else type(result.strategy).__name__
    method = "estimation of the noise scale" if result.estimated_noise else strategy.partition("(")[0]
    n = result.iterations
    continued = f", continued from iteration {result.continued_from}" if result.continued_from else ""
    classified = result.classified
    counts = zip(result.residuals.names, classified.n_inliers, classified.n_informative, strict=True)
    inliers = [f"{name} {k} of {of} ({k / of:.1%})" if of else f"{name} none" for name, k, of in counts]
    return [
        ("method", _printable(f"{method}, {result.engine} engine, {result.linear_solver}")),
        ("cost", f"{result.initial_cost:.7g} -> {result.cost:.7g}"),
        ("inliers", _printable(", ".join(inliers))),
        *(
            [("noise", _printable("; ".join(f"{name} {x}" for name, x in result.noise.items())))]
            if result.estimated_noise
            else []
        ),
        ("variables", _printable(", ".join(f"{name} {shape_of(x)}" for name, x in result.values.items()))),
        ("iterations", f"{n} in {result.seconds['total']:.3g} s{continued}"),
        ("status", f"{result.status.name.lower().replace('_', ' ')}: {result.message}"),
        *(("doubt", _printable(doubt)) for doubt in result.doubts),
    ]


def _printable(text: str) -> str:
    """Return the text with control characters escaped, so that a name cannot break the line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
