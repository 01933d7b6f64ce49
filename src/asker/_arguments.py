"""Checks of arguments that are no arrays: an error names the argument, what would be right, and what was given."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

PLAIN = (type(None), str, bool, int, float, complex, list, tuple, dict, type)
"""What is no strategy and no schedule of one."""


def is_number(x: Any) -> bool:
    """Whether this is one real number; True and False are none."""
    return np.ndim(x) == 0 and (x if hasattr(x, "dtype") else np.asarray(x)).dtype.kind in "fiu"


def check_number(name: str, value: Any, least: float = 0.0, whole: bool = False) -> None:
    """Refuse what is no number of at least this size, NaN included; a whole one may be written as 1e3."""
    if not is_number(value) or not value >= least or (whole and float(value) % 1 != 0):
        bound = f"at least {least:g} and " if least > -np.inf else ""
        raise ValueError(f"{name} must be {bound}a {'whole ' if whole else ''}number, not {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no positive and finite number."""
    if not is_number(value) or not 0 < value < np.inf:
        raise ValueError(f"{name} must be positive, finite and a number, not {value!r}")


def check_function(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, not {value!r}")


def check_settings(settings: Any) -> None:
    """Refuse fields of a strategy of asker's whose values are of another type than the fields, NaN and counts below 1.

    The strategies inside of it are looked at, too; those that users write may annotate their fields as they like.
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
