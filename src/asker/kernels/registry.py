"""Kernels by name, as a user types them."""

import difflib
from collections.abc import Iterable
from dataclasses import fields

from asker.kernels.kernels import (
    Barron,
    Cauchy,
    GemanMcClure,
    Huber,
    Kernel,
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
    "truncated-quadratic": TruncatedQuadratic,
    "barron": Barron,
    "mixture": Mixture,
}
"""What `--kernel` takes: a name, and the class."""


def kernel_named(text: str, tau: float = 1.0, option: str = "kernel") -> Kernel:
    """The kernel that a user types: a name of `KERNELS`, then its parameters but for τ, as in `barron:alpha=-2`.

    Several are separated by commas.  `option` is what an error calls the text.
    """
    if not isinstance(text, str):
        raise ValueError(f"{option} must be the name of a kernel, not {text!r}")
    name, colon, listed = text.partition(":")
    if name not in KERNELS:
        raise ValueError(f"{option} is {text!r}, which is not one of {', '.join(KERNELS)}{_meant(name, KERNELS)}")
    known = [f.name for f in fields(KERNELS[name]) if f.name != "tau"]
    values: dict[str, float] = {}
    for part in listed.split(",") if colon and (known or listed) else ():
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in known or key in values:
            takes = f"{', '.join(known)} after the colon, each once" if known else "nothing after a colon"
            hint = " (tau is given by itself)" if key == "tau" else _meant(key, known)
            raise ValueError(f"{option} is {text!r}: {name} takes {takes}, not {part!r}{hint}")
        try:
            values[key] = float(value)
        except ValueError:
            raise ValueError(f"{option} is {text!r}: {key} is {value!r}, expected {key}=NUMBER") from None
    try:
        return KERNELS[name](tau=tau, **values)
    except ValueError as error:
        raise ValueError(f"{option} is {text!r}: {error}") from error


def _meant(given: str, known: Iterable[str]) -> str:
    """The known name that a wrong one is near to, as a hint."""
    near = difflib.get_close_matches(given.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near and near[0] != given else ""
