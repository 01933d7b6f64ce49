"""What a person reads of data or of a result: lines and tables, which the shell prints."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Table:
    """Titles and rows; the first column is text, the others are numbers."""

    header: tuple[str, ...]
    rows: list[list[str]]


Told = list[str | Table]
FITS = 2.0
"""A τ within this factor of the one that the noise asks for is left alone."""


def percent(ratio: Any) -> str:
    return f"{100 * ratio:.3g} %"


def spread(*rows: tuple[str, np.ndarray, int]) -> Table:
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


def noise_told(record: dict[str, Any], unit: str) -> Told:
    """The noise that was found, and the τ that follows where the one that was used does not fit it."""
    told = []
    for name, noise in record["noise"].items():
        of = f" of {name}" if len(record["noise"]) > 1 else ""
        if noise["sigma"] is None:
            told.append(f"The noise{of} cannot be told: too few observations agree.")
            continue
        sigma = f"{noise['sigma']:.2g} {unit}"
        fits = record["tau"] / FITS <= noise["tau"] <= FITS * record["tau"] or record["kernel"] != "smooth-truncated"
        advice = "" if fits else f"; --tau {noise['tau']:.2g} would fit it"
        told.append(
            f"The noise{of} seems to be {sigma} in {percent(noise['inlier_ratio'])} of the observations{advice}."
        )
    return [*told]


def ended(record: dict[str, Any]) -> str:
    """How a solve ended."""
    n = record["iterations"]
    return f"{n} iteration{'' if n == 1 else 's'} in {record['seconds']:.3g} s: {record['message']}"


def compiling(record: dict[str, Any]) -> Told:
    """A word on a time that is longer than the next one."""
    return ["The time includes compiling, which is done once on this machine."] if record["compiled"] else []
