"""Fit of equations to the columns of a table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.curves.expression import Equation, category_parameter, category_term, parse
from asker.curves.table import DataTable, identifier
from asker.estimators.m_scale import MAD_FACTOR
from asker.io.files import FileError
from asker.models.curve_model import CurveModel
from asker.models.starting_values import starting_values
from asker.problem.variables import ProblemError
from asker.scipy_compat.curve_fit import curve_fit
from asker.scipy_compat.fitted_curve import CurveFit

Floats = NDArray[np.float64]
METHODS = ("mm", "least-squares", "noise", "s", "lts", "tau")
"""Names of the methods: `noise` estimates the noise scale as `asker.solve` does."""
SIMILARITY, MIN_SIMILAR = 0.75, 3
"""Smallest similarity, and length, of names of which one may be the other misspelt."""
N_SCALE_ROUNDS = 3
"""Number of fits of several outputs, each with the scales of the residuals of the last."""


@dataclass(frozen=True)
class TableFit:
    """A fit of equations to a table."""

    fit: CurveFit
    equations: list[Equation]
    parameters: tuple[str, ...]
    rows: NDArray[np.intp]
    """Rows of the table that were used."""
    omitted_lines: tuple[int, ...]
    """Lines of the file with missing values in a column that is used."""
    start: dict[str, float]
    """Starting values."""
    columns: dict[str, Floats]
    """Numbers of the columns that occur, in the rows that were used."""
    output_scales: tuple[float, ...]
    """Scale of the residuals of each output, relative to one another, for several outputs; else ()."""
    units: dict[str, str]
    """Units of the columns that have one."""


def fit_table(
    table: DataTable,
    text: str,
    *,
    sigma: str | None = None,
    fixed: Mapping[str, float] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    start: Mapping[str, float] | None = None,
    method: str = "mm",
    seed: int = 0,
) -> TableFit:
    """Fit the parameters of equations to a table.

    Parameters
    ----------
    table
        Data.
    text
        Equations, see `asker.curves.expression`.  Names that are no column are parameters.
    sigma
        Column of the standard deviations.
    fixed, bounds, start
        Values, pairs of bounds, and starting values of parameters, by names.
    method
        One of `METHODS`.
    seed
        Seed of the starting values and of the random subsets.

    Returns
    -------
    TableFit

    Raises
    ------
    FileError
        If the table lacks a column or has text in place of numbers.
    ProblemError
        If the equations or the arguments are invalid.
    RuntimeError
        If the fit does not converge.
    """
    equations = parse(text)
    fixed, bounds = dict(fixed or {}), dict(bounds or {})
    data = _Data(table, equations, sigma)
    curve = _model(text, equations, data)
    for what, given in (("--fix", fixed), ("--bounds", bounds), ("--start", start or {})):
        for name in given:
            if name not in curve.parameters:
                listed = ", ".join(curve.parameters)
                raise ProblemError(f"{what} names {name!r}, which is not among the parameters {listed}")
    x, y = np.arange(len(data.rows), dtype=float), np.concatenate(data.left)
    guess = _start(curve, x, y, fixed, bounds, dict(start or {}), data, seed)
    options: dict[str, Any] = {"p0": guess, "fixed": fixed, "bounds": bounds}
    if method not in ("least-squares", "noise"):
        options |= {"method": method, "seed": seed}
    elif method == "noise":
        options["loss"] = None
    fit, scales = _fitted(curve, x, y, data, options)
    rows = np.tile(data.rows, len(equations))
    regression = replace(fit.regression, indices=rows)
    whole = CurveFit(tuple(fit), regression, fit.result, fit.info)
    omitted = tuple(table.lines[k] for k in np.setdiff1d(np.arange(len(table.lines)), data.rows))
    return TableFit(whole, equations, curve.parameters, data.rows, omitted, guess, data.columns, scales, data.units)


class _Data:
    """The columns that the equations use, without rows with missing values."""

    def __init__(self, table: DataTable, equations: list[Equation], sigma: str | None):
        values, labels = self._read(table, equations)
        for equation in equations:
            _check_columns(table, equation, values)
        units = {name: table.known(name).unit for name in values}
        self.units = {name: unit for name, unit in units.items() if unit}
        deviations = None if sigma is None else table.numbers(sigma)
        numbers = [*values.values(), *([] if deviations is None else [deviations])]
        used = np.all([np.isfinite(column) for column in numbers], axis=0)
        for texts in labels.values():
            used &= np.array([t != "" for t in texts])
        if deviations is not None:
            bad = np.flatnonzero(used & ~(deviations > 0))
            if bad.size:
                what = f"column {sigma!r} has a standard deviation of {deviations[bad[0]]:g}, expected positive numbers"
                raise FileError(table.path, what, table.lines[bad[0]])
        self.rows = np.flatnonzero(used)
        if not self.rows.size:
            raise FileError(table.path, "no row has values in all columns that the expression uses")
        self.columns = {name: column[used] for name, column in values.items()}
        self.sigma = None if deviations is None else deviations[used]
        self.categories: dict[str, Any] = {}
        for name, texts in labels.items():
            kept = [texts[k] for k in self.rows]
            levels = sorted(set(kept))
            self.categories[f"C({name})"] = category_term(name, kept, levels)
            self.parameters += [category_parameter(name, level) for level in levels[1:]]
        self.left = self._outputs(table, equations)

    def _read(self, table: DataTable, equations: list[Equation]) -> tuple[dict[str, Floats], dict[str, list[str]]]:
        """Return the numbers and the categories that occur; other names are parameters."""
        self.parameters: list[str] = []
        values: dict[str, Floats] = {}
        labels: dict[str, list[str]] = {}
        for equation in equations:
            for name in equation.left.names:
                values[name] = table.numbers(name)
            if equation.left.categories or not equation.left.names:
                raise ProblemError(f"{equation.left.text!r}: the left side consists of columns of numbers")
            for name in equation.right.names:
                if table.column(name) is not None:
                    values[name] = table.numbers(name)
                elif name not in self.parameters:
                    self.parameters.append(name)
            for name in equation.right.categories:
                labels[name] = table.labels(name)
        return values, labels

    def _outputs(self, table: DataTable, equations: list[Equation]) -> list[Floats]:
        """Return the values of the left sides."""
        with np.errstate(all="ignore"):
            left = [np.broadcast_to(np.asarray(e.left(self.columns), dtype=float), self.rows.shape) for e in equations]
        for equation, values in zip(equations, left, strict=True):
            bad = np.flatnonzero(~np.isfinite(values))
            if bad.size:
                raise FileError(table.path, f"{equation.left.text!r} is not finite", table.lines[self.rows[bad[0]]])
        return left


def _check_columns(table: DataTable, equation: Equation, columns: Mapping[str, Floats]) -> None:
    """Raise a `ProblemError` if the right side has several parameters but no column: a name may be misspelt."""
    right = equation.right
    if right.categories or any(name in columns for name in right.names) or len(right.names) < 2:
        return
    names = [identifier(c.name) for c in table.columns]
    raise ProblemError(f"{right.text!r} has no column, only parameters; the columns are {', '.join(names)}")


def similar_columns(table: DataTable, found: TableFit) -> list[str]:
    """Return sentences on parameters whose names are similar to those of columns that do not occur."""
    unused = [
        n for n in (identifier(c.name) for c in table.columns) if n not in found.columns and len(n) >= MIN_SIMILAR
    ]
    near = {name: get_close_matches(name, unused, n=1, cutoff=SIMILARITY) for name in found.parameters}
    return [f"{name} is a parameter; there is a column {match[0]}" for name, match in near.items() if match]


def _model(text: str, equations: list[Equation], data: _Data) -> CurveModel:
    """Return the right sides of all equations, one after the other, as a function of the parameters."""
    names, n = tuple(data.parameters), len(data.rows)
    if not names:
        raise ProblemError(f"{text!r} has no parameters: every name is a column")
    fixed_values = data.columns | data.categories

    def function(x: Any, *parameters: Any) -> Any:
        values = fixed_values | dict(zip(names, parameters, strict=True))
        with np.errstate(all="ignore"):
            return np.concatenate([np.broadcast_to(e.right(values), (n,)) for e in equations])

    return CurveModel("expression", text, function, names, lambda x, y: {})


def _start(
    curve: CurveModel,
    x: Floats,
    y: Floats,
    fixed: dict[str, float],
    bounds: dict[str, tuple[float, float]],
    given: dict[str, float],
    data: _Data,
    seed: int,
) -> dict[str, float]:
    """Return starting values: those that are given, and for the other parameters those from the data."""
    if set(fixed) | set(given) >= set(curve.parameters):
        return given | fixed
    columns = list(data.columns.values())
    units = np.stack([np.resize(column, y.shape) for column in columns]) if columns else x

    def at(_: Any, *parameters: Any) -> Any:
        return curve.function(x, *parameters)

    candidates = {name: [value] for name, value in given.items()}
    return starting_values(at, units, y, curve.parameters, bounds=bounds, known=fixed, candidates=candidates, seed=seed)


def _fitted(
    curve: CurveModel, x: Floats, y: Floats, data: _Data, options: dict[str, Any]
) -> tuple[CurveFit, tuple[float, ...]]:
    """Return the fit, and for several outputs the scale of the residuals of each."""
    n, n_outputs = len(x), len(data.left)
    sigma = None if data.sigma is None else np.tile(data.sigma, n_outputs)
    if n_outputs == 1:
        return curve_fit(curve, x, y, sigma=sigma, **options), ()
    scales = np.array([MAD_FACTOR * np.median(np.abs(left - np.median(left))) or 1.0 for left in data.left])
    for _ in range(N_SCALE_ROUNDS):
        own = np.repeat(scales, n)
        fit = curve_fit(curve, x, y, sigma=own if sigma is None else own * sigma, **options)
        r = (fit.regression.residuals * own).reshape(n_outputs, n)
        spreads = MAD_FACTOR * np.median(np.abs(r), axis=1)
        options = options | {"p0": fit.params}
        if not (spreads > 0).all() or np.allclose(spreads / scales, (spreads / scales)[0], rtol=1e-2):
            break
        scales = spreads
    return fit, tuple(map(float, scales))
