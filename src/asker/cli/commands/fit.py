"""`asker fit`: fit of a curve to the columns of a table."""

import csv
import io
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from asker.cli.checks import Json, Quiet, Seed, check_outputs, complain, number, one_of, write_outputs
from asker.cli.terminal import ProgressLine
from asker.curves.fit_table import METHODS, TableFit, fit_table, similar_columns
from asker.curves.page import write_page
from asker.curves.table import read_table
from asker.io.files import write_whole
from asker.io.json import write_json

MAX_LISTED_LINES = 8
"""Largest number of lines with missing values that are listed."""

Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV or TSV file; with pandas also Parquet and Excel.")]
Equations = Annotated[
    str,
    typer.Argument(
        metavar="EXPRESSION",
        help='Equation such as "y = a*exp(-b*x) + c"; names that are no column are parameters. Several outputs are '
        "separated by semicolons; C(group) is a term for categories; names with spaces stand in backticks.",
    ),
]
Sigma = Annotated[
    str | None, typer.Option("--sigma", metavar="COLUMN", help="Standard deviations of the observations.")
]
Fix = Annotated[list[str] | None, typer.Option("--fix", metavar="NAME=VALUE", help="Keep a parameter; repeatable.")]
Bounds = Annotated[
    list[str] | None,
    typer.Option("--bounds", metavar="NAME=LOW:HIGH", help="Bounds of a parameter, either may be empty; repeatable."),
]
Start = Annotated[
    list[str] | None,
    typer.Option("--start", metavar="NAME=VALUE", help="Starting value; repeatable; others follow from the data."),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help=f"One of {', '.join(METHODS)}: mm is robust with an efficiency of 95 %, noise estimates the noise scale.",
    ),
]
Level = Annotated[float, typer.Option("--level", help="Level of the confidence intervals.")]
Sheet = Annotated[str | None, typer.Option("--sheet", help="Sheet of an Excel file; by default the first.")]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights", help="Write a CSV file with fit, residual, standardised residual and weight of each row."
    ),
]
Page = Annotated[Path | None, typer.Option("--page", help="Write an HTML page with the report and figures.")]


def fit(
    file: Data,
    expression: Equations,
    sigma: Sigma = None,
    fix: Fix = None,
    bounds: Bounds = None,
    start: Start = None,
    method: Method = "mm",
    level: Level = 0.95,
    sheet: Sheet = None,
    seed: Seed = 0,
    json_file: Json = None,
    weights: Weights = None,
    page: Page = None,
    quiet: Quiet = False,
) -> int:
    """The command `asker fit`."""
    one_of("--method", method, METHODS)
    if not 0 < level < 1:
        raise ValueError(f"--level must lie between 0 and 1, not {level}")
    given: dict[str, Any] = {
        "sigma": sigma,
        "fixed": _values("--fix", fix),
        "bounds": _pairs(bounds),
        "start": _values("--start", start),
        "method": method,
        "seed": seed,
    }
    check_outputs(file, json_file, weights, page)
    with ProgressLine(quiet) as progress:
        progress.say(f"reading {file}")
        table = read_table(file, sheet)
        progress.say(f"fitting {len(table.lines)} rows")
        try:
            found = fit_table(table, expression, **given)
        except RuntimeError as error:
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise
            return complain(f"{file}: {error}; give starting values with --start, or another --method", 1)
    print(f"{file}: {expression}")
    print(_rows_used(found, len(table.lines)))
    for note in similar_columns(table, found):
        print(f"note: {note}")
    print(f"\n{found.fit.summary(level)}")
    record = _record(file, expression, found, level, len(table.lines))
    write_outputs(
        (json_file, partial(write_json, record=record)),
        (weights, partial(write_weights, found=found, lines=table.lines)),
        (page, partial(write_page, found=found, title=file.name, text=expression)),
    )
    return 0


def write_weights(path: Path, found: TableFit, lines: tuple[int, ...]) -> None:
    """Write a CSV file with one row for each observation: line of the file, columns, fit, residuals, weight, class."""
    regression = found.fit.regression
    fitted = np.broadcast_to(regression.fitted(regression.xdata), regression.ydata.shape)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(found.columns)
    header = ["line", "output", *names, "observed", "fitted", "residual", "standardised_residual", "leverage", "weight"]
    writer.writerow([*header, "class"])
    n = len(found.rows)
    for k, row in enumerate(regression.indices):
        kind = "outlier" if regression.outliers[k] else "doubtful" if regression.doubtful[k] else "inlier"
        values = [found.columns[name][k % n] for name in names]
        y, value = float(regression.ydata[k]), float(fitted[k])
        numbers = (y, value, y - value, regression.standardised_residuals[k], regression.leverage[k])
        cells = [lines[row], found.equations[k // n].left.text, *map(float, values), *map(float, numbers)]
        writer.writerow([*cells, float(regression.weights[k]), kind])
    with write_whole(path) as file:
        file.write(text.getvalue().encode())


def _record(file: Path, expression: str, found: TableFit, level: float, n_rows: int) -> dict[str, Any]:
    """Return the content of the JSON file."""
    return {
        "file": str(file),
        "expression": expression,
        "rows": n_rows,
        "rows_used": len(found.rows),
        "omitted_lines": list(found.omitted_lines),
        "units": found.units,
        "start": found.start,
        "output_scales": list(found.output_scales),
        **found.fit.as_dict(level),
    }


def _rows_used(found: TableFit, n_rows: int) -> str:
    """Return a sentence on the rows, those with missing values, and the columns with their units."""
    names = [f"{name} ({found.units[name]})" if name in found.units else name for name in found.columns]
    text = f"{len(found.rows)} of {n_rows} rows; columns {', '.join(names) or 'none'}"
    if found.omitted_lines:
        listed = ", ".join(map(str, found.omitted_lines[:MAX_LISTED_LINES]))
        more = ", …" if len(found.omitted_lines) > MAX_LISTED_LINES else ""
        text += f"\nomitted {len(found.omitted_lines)} rows with missing values: lines {listed}{more}"
    if found.output_scales:
        scales = zip(found.equations, found.output_scales, strict=True)
        text += "\nscale of each output: " + ", ".join(f"{e.left.text} {scale:.4g}" for e, scale in scales)
    return text


def _values(option: str, given: list[str] | None) -> dict[str, float]:
    """Return the values of `NAME=VALUE` options."""
    values: dict[str, float] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{option} is {text!r}, expected NAME=VALUE")
        if name.strip() in values:
            raise ValueError(f"{option} names {name.strip()!r} twice")
        values[name.strip()] = _number(option, value)
    return values


def _pairs(given: list[str] | None) -> dict[str, tuple[float, float]]:
    """Return the bounds of `NAME=LOW:HIGH` options."""
    pairs: dict[str, tuple[float, float]] = {}
    for text in given or ():
        name, equals, both = text.partition("=")
        low, colon, high = both.partition(":")
        if not equals or not colon or not name.strip():
            raise ValueError(f"--bounds is {text!r}, expected NAME=LOW:HIGH")
        lower = _number("--bounds", low) if low.strip() else -math.inf
        upper = _number("--bounds", high) if high.strip() else math.inf
        if not lower < upper:
            raise ValueError(f"--bounds is {text!r}: the lower bound must be below the upper one")
        pairs[name.strip()] = lower, upper
    return pairs


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a number") from None
    number(option, abs(value))
    return value
