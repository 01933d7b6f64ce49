"""What a person reads of data or of a result: lines and tables, which the shell prints."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Table:
    """Titles and rows; the first column is text, the others are numbers."""

    header: tuple[str, ...]
    rows: list[list[str]]


ReportItems = list[str | Table]
FITS = 2.0
"""A τ within this factor of the one that the noise asks for is left alone."""
ROUGH = 0.2
"""Twice the uncertainty of a noise, from which on it is a rough figure."""
BLURRED = 0.05
"""The part of the observations just beyond the limit of inliers, from which on that is no clear border.  Where the
noise is Gaussian and outliers are anywhere, it is below 0.01."""


def percent(ratio: Any) -> str:
    return f"{100 * ratio:.3g} %"


def number_of(n: int, what: str) -> str:
    """In the plural but for one."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def count_table(*rows: tuple[str, np.ndarray, int]) -> Table:
    """How often each of n things is named in an index: (title, index, n)."""
    told = []
    for title, index, n in rows:
        times = np.bincount(index, minlength=n)
        middle = f"{np.median(times):g}", f"{times.mean():.1f}"
        told.append([title, f"{times.min()}", *middle, f"{times.max()}"])
    return Table(("", "fewest", "median", "mean", "most"), told)


def before_and_after(record: dict[str, Any], *rows: list[str]) -> Table:
    """The cost before and after, and more rows."""
    costs = [f"{record[key]:.7g}" for key in ("initial_cost", "cost")]
    return Table(("", "before", "after"), [["cost", *costs], *rows])


def inliers_within(radius: float | None, unit: str) -> str:
    """Return the title of a count of inliers; `radius` is None where nothing is rejected."""
    return "inliers" if radius is None else f"inliers ({radius:.3g} {unit})"


def noise_report(record: dict[str, Any], unit: str) -> ReportItems:
    """The noise that was found, how sure it is, and the τ that follows where the one that was used does not fit it."""
    told: ReportItems = []
    for name, noise in record["noise"].items():
        of, ratio = f" of {name}" if len(record["noise"]) > 1 else "", percent(noise["inlier_ratio"])
        if noise["sigma"] is None:
            all_count = f": all residuals count as noise, tau is {record['tau']:.2g} {unit}"
            done = all_count if record["finds_noise"] else ""
            told.append(f"The noise{of} cannot be told, since too few observations agree{done}.")
        elif noise["sigma"] == 0:
            told.append(f"There is no noise{of}: {ratio} of the observations are fitted exactly.")
        else:
            sigma, advice = f"{noise['sigma']:.2g} {unit}", _advice(record, noise)
            told.append(f"The noise{of} is {sigma} in each coordinate of {ratio} of the observations{advice}.")
            told.append(f"That is {_how_sure(noise, unit)}.")
    return told + [f"Note: {doubt}." for doubt in record.get("doubts", ())]


def _advice(record: dict[str, Any], noise: dict[str, Any]) -> str:
    fits = record["tau"] / FITS <= noise["tau"] <= FITS * record["tau"] or record["kernel"] != "smooth-truncated"
    return "" if fits else f" (--tau {noise['tau']:.2g} would fit it)"


def _how_sure(noise: dict[str, Any], unit: str) -> str:
    """In words.  What most often makes the noise doubtful is not that it rests on few, but that it has no border."""
    margin = 2 * noise["uncertainty"]
    if margin > ROUGH:
        return f"a rough figure: it rests on few observations, and may be {100 * margin:.0f} % off"
    if noise["border_ratio"] > BLURRED:
        limit, ratio = noise["inlier_limit"], percent(noise["border_ratio"])
        errors = f"{ratio} have errors of {limit:.3g} to {2 * limit:.3g} {unit}"
        return f"not sure: inliers and outliers are not clearly apart, and {errors}"
    few = ", but most observations do not agree with it" if noise["inlier_ratio"] < 0.5 else ""
    return f"sure to {100 * max(margin, 0.01):.0f} %, if the solution is right{few}"


def termination_line(record: dict[str, Any]) -> str:
    """How a solve ended."""
    n = record["iterations"]
    return f"{n} iteration{'' if n == 1 else 's'} in {record['seconds']:.3g} s: {record['message']}"


def compilation_note(record: dict[str, Any]) -> ReportItems:
    """A word on a time that is longer than the next one."""
    return ["The time includes compiling, which is done once on this machine."] if record["compiled"] else []
