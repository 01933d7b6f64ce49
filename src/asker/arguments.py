"""Checks of arguments that are no arrays: an error names the argument, what would be right, and what was given."""

from typing import Any

import numpy as np


def is_number(x: Any) -> bool:
    """Whether this is one real number; True and False are none."""
    return np.ndim(x) == 0 and (x if hasattr(x, "dtype") else np.asarray(x)).dtype.kind in "fiu"


def check_number(name: str, value: Any, least: float = 0.0, whole: bool = False) -> None:
    """Refuse what is no number of at least this size, NaN included; a whole one may be written as 1e3."""
    if not is_number(value) or not value >= least or (whole and float(value) % 1 != 0):
        raise ValueError(f"{name} must be at least {least:g} and a {'whole ' if whole else ''}number, not {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no positive and finite number."""
    if not is_number(value) or not 0 < value < np.inf:
        raise ValueError(f"{name} must be positive, finite and a number, not {value!r}")


def check_function(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, not {value!r}")
