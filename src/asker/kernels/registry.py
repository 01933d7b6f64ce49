"""Registry of kernels by name, and the parser of the option `--kernel`."""

import difflib
from collections.abc import Iterable
from dataclasses import fields

from asker.kernels.kernel import Kernel
from asker.kernels.kernels import (
    LQQ,
    Barron,
    Cauchy,
    GemanMcClure,
    Huber,
    Mixture,
    PseudoHuber,
    Quadratic,
    SmoothTruncated,
    TruncatedQuadratic,
    Tukey,
    Welsch,
)

KERNELS: dict[str, type[Kernel]] = {
    "smooth-truncated": SmoothTruncated,
    "quadratic": Quadratic,
    "huber": Huber,
    "pseudo-huber": PseudoHuber,
    "cauchy": Cauchy,
    "geman-mcclure": GemanMcClure,
    "welsch": Welsch,
    "tukey": Tukey,
    "lqq": LQQ,
    "truncated-quadratic": TruncatedQuadratic,
    "barron": Barron,
    "mixture": Mixture,
}
"""Classes of kernels by the name that `--kernel` accepts."""


def kernel_named(text: str, tau: float = 1.0, option: str = "kernel") -> Kernel:
    """Return the kernel that a text describes.

    Parameters
    ----------
    text
        A name of `KERNELS`, then parameters except τ after a colon, separated by commas, as in `barron:alpha=-2`.
    tau
        Width of the kernel.
    option
        Name of the option in error messages.

    Raises
    ------
    ValueError
        If the name or a parameter is unknown or out of range.

    Examples
    --------
    >>> kernel_named("barron:alpha=-2", tau=0.5)
    Barron(tau=0.5, alpha=-2.0)
    """
    if not isinstance(text, str):
        raise ValueError(f"{option} must be the name of a kernel, not {text!r}")
    name, colon, listed = text.partition(":")
    if name not in KERNELS:
        raise ValueError(f"{option} is {text!r}, which is not one of {', '.join(KERNELS)}{_hint(name, KERNELS)}")
    known = [f.name for f in fields(KERNELS[name]) if f.name != "tau"]
    values: dict[str, float] = {}
    for part in listed.split(",") if colon and (known or listed) else ():
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in known or key in values:
            takes = f"{', '.join(known)} after the colon, each once" if known else "nothing after a colon"
            hint = " (tau has an option of its own)" if key == "tau" else _hint(key, known)
            raise ValueError(f"{option} is {text!r}: {name} takes {takes}, not {part!r}{hint}")
        try:
            values[key] = float(value)
        except ValueError:
            raise ValueError(f"{option} is {text!r}: {key} is {value!r}, expected {key}=NUMBER") from None
    try:
        return KERNELS[name](tau=tau, **values)
    except ValueError as error:
        raise ValueError(f"{option} is {text!r}: {error}") from error


def _hint(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name closest to a misspelt one, or ""."""
    near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near and near[0] != name else ""
