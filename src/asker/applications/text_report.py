"""Lines and tables that describe data and results; the command line prints them."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Table:
    """A table with a header; the first column is text, the others are numbers."""

    header: tuple[str, ...]
    rows: list[list[str]]


ReportItems = list[str | Table]
TAU_FACTOR = 2.0
"""Another τ is recommended if the one used differs from that of the estimated noise by more than this factor."""
MAX_RELATIVE_UNCERTAINTY = 0.2
"""Two standard errors of an estimated noise scale, relative to it, above which the estimate is called rough."""
MAX_BORDER_RATIO = 0.05
"""The fraction of observations between one and two inlier limits above which inliers and outliers are said to overlap.
It is below 0.01 for Gaussian noise and uniform outliers."""


def percent(ratio: Any) -> str:
    """Return a ratio as a percentage."""
    return f"{100 * ratio:.3g} %"


def number_of(n: int, what: str) -> str:
    """Return a count with its noun, in the plural unless n is 1."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def count_table(*rows: tuple[str, np.ndarray, int]) -> Table:
    """Return a table of occurrence statistics; each row is (title, index array, number of distinct values)."""
    body = []
    for title, index, n in rows:
        times = np.bincount(index, minlength=n)
        middle = f"{np.median(times):g}", f"{times.mean():.1f}"
        body.append([title, f"{times.min()}", *middle, f"{times.max()}"])
    return Table(("", "min", "median", "mean", "max"), body)


def method_line(record: dict[str, Any], unit: str) -> str:
    """Return the method, kernel and τ that the user has specified, or that the noise was estimated instead."""
    if record["finds_noise"]:
        return "estimated noise"
    return f"{record['method']}, {record['kernel']} kernel, tau {record['tau']:g} {unit}"


def before_and_after(record: dict[str, Any], *rows: list[str]) -> Table:
    """Return a table of the cost before and after a solve, with further rows."""
    costs = [f"{record[key]:.7g}" for key in ("initial_cost", "cost")]
    return Table(("", "before", "after"), [["cost", *costs], *rows])


def inliers_within(radius: float | None, unit: str) -> str:
    """Return the title of a row of inlier ratios; `radius` is None if no observation can be rejected."""
    return "inliers" if radius is None else f"inliers ({radius:.3g} {unit})"


def noise_report(record: dict[str, Any], unit: str) -> ReportItems:
    """Return the estimated noise, its uncertainty, a better τ if the one used does not fit, and doubts."""
    items: ReportItems = []
    for name, noise in record["noise"].items():
        of, ratio = f" of {name}" if len(record["noise"]) > 1 else "", percent(noise["inlier_ratio"])
        if noise["sigma"] is None:
            all_count = f": all residuals count as noise, tau is {record['tau']:.2g} {unit}"
            done = all_count if record["finds_noise"] else ""
            items.append(f"The noise{of} cannot be estimated, since too few observations agree{done}.")
        elif noise["sigma"] == 0:
            items.append(f"There is no noise{of}: {ratio} of the observations are fitted exactly.")
        else:
            sigma, advice = f"{noise['sigma']:.2g} {unit}", _advice(record, noise)
            items.append(
                f"The estimated noise{of} is {sigma} in each coordinate of {ratio} of the observations{advice}."
            )
            items.append(f"This estimate {_reliability(noise, unit)}.")
    return items + [f"Note: {doubt}." for doubt in record.get("doubts", ())]


def _advice(record: dict[str, Any], noise: dict[str, Any]) -> str:
    fits = (
        record["tau"] / TAU_FACTOR <= noise["tau"] <= TAU_FACTOR * record["tau"]
        or record["kernel"] != "smooth-truncated"
    )
    return "" if fits else f" (--tau {noise['tau']:.2g} would fit it)"


def _reliability(noise: dict[str, Any], unit: str) -> str:
    """Return the uncertainty of an estimated noise scale, or the reason why it is doubtful, in words."""
    margin = 2 * noise["uncertainty"]
    if margin > MAX_RELATIVE_UNCERTAINTY:
        return f"is rough: it is based on few observations, with an uncertainty of {100 * margin:.0f} %"
    if noise["border_ratio"] > MAX_BORDER_RATIO:
        limit, ratio = noise["inlier_limit"], percent(noise["border_ratio"])
        errors = f"{ratio} have errors of {limit:.3g} to {2 * limit:.3g} {unit}"
        return f"is doubtful: inliers and outliers overlap, and {errors}"
    few = ", but most observations are outliers" if noise["inlier_ratio"] < 0.5 else ""
    return f"has an uncertainty of {100 * max(margin, 0.01):.0f} % if the solution is correct{few}"


def termination_line(record: dict[str, Any]) -> str:
    """Return the iterations, time and termination of a solve."""
    n = record["iterations"]
    return f"{n} iteration{'' if n == 1 else 's'} in {record['seconds']:.3g} s: {record['message']}"


def compilation_note(record: dict[str, Any]) -> ReportItems:
    """Return a note if the time includes compilation."""
    return ["The time includes compilation, which is cached for later runs."] if record["compiled"] else []
