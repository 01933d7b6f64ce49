"""Checks of scalar arguments and settings; errors name the argument, the expectation and the actual value."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

PLAIN = (type(None), str, bool, int, float, complex, list, tuple, dict, type)
"""Types that are neither a strategy nor a schedule of one."""


def is_number(x: Any) -> bool:
    """Return whether x is a real number; booleans are not."""
    return np.ndim(x) == 0 and (x if hasattr(x, "dtype") else np.asarray(x)).dtype.kind in "fiu"


def check_number(name: str, value: Any, least: float = 0.0, whole: bool = False) -> None:
    """Raise a `ValueError` unless value is a number ≥ `least`, which NaN is not; 1e3 is a whole number."""
    if not is_number(value) or not value >= least or (whole and float(value) % 1 != 0):
        bound = f"at least {least:g} and " if least > -np.inf else ""
        raise ValueError(f"{name} must be {bound}a {'whole ' if whole else ''}number, not {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Raise a `ValueError` unless value is a positive, finite number."""
    if not is_number(value) or not 0 < value < np.inf:
        raise ValueError(f"{name} must be positive, finite and a number, not {value!r}")


def check_function(name: str, value: Any) -> None:
    """Raise a `ValueError` unless value is callable."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, not {value!r}")


def check_settings(settings: Any) -> None:
    """Raise a `ValueError` if a setting of a built-in strategy has the wrong type, is NaN, or is a count below 1.

    Nested strategies are checked as well; strategies of users are not.
    """
    if not is_dataclass(settings) or type(settings).__module__.split(".")[0] != "asker":
        return
    for field in fields(settings):
        name, value = f"{type(settings).__name__}: {field.name}", getattr(settings, field.name)
        if field.type is float:
            check_number(name, value, -np.inf)
        elif field.type is bool and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, not {value!r}")
        elif field.type is int and (not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1):
            raise ValueError(f"{name} must be at least 1 and a whole number, not {value!r}")
        elif field.type not in (bool, int) and isinstance(field.type, type) and isinstance(value, PLAIN):
            raise ValueError(f"{name} must be of type {field.type.__name__}, not {value!r}")
        check_settings(value)
