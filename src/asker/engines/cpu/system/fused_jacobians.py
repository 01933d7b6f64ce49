"""Residuals and derivatives inside of a printed loop, a stretch of observations at a time.

A loop that needs r and J of factor group m names `parameters(m, …)` and has `made(m, …)` where a stretch begins: behind
that, r{m}_ and J{m}_ are those of its observations.  They are parts of arrays (`Linearization`), or made on the spot in
arrays of the thread, which stay in its cache (`InPassing`).
"""

from typing import Any

import numpy as np

from asker.engines.cpu.system.codegen import spacious
from asker.engines.cpu.system.linearization import Derivatives, InPassing
from asker.engines.sparsity import FactorStructure

STRETCH = 256
"""Observations whose derivatives are made at a time; one more variable's at most."""

How = tuple[str, tuple[bool, ...]] | None
"""What a printed loop has to know of the derivatives: the text that makes them and its arguments; None: arrays."""


def how(lin: Derivatives) -> How:
    return (lin.text, lin.by_observation) if isinstance(lin, InPassing) else None


def text(m: int, how: How) -> str:
    """The function that the loop calls."""
    return "" if how is None else how[0].replace("def linearise(", f"def linearise{m}(", 1)


def parameters(m: int, how: How) -> str:
    return ", ".join([f"r{m}", f"J{m}", *[f"x{m}_{k}" for k in range(0 if how is None else len(how[1]))]])


def made(m: int, how: How, first: str, last: str) -> list[str]:
    """Lines behind which r{m}_ and J{m}_ are of the observations first…last."""
    part = f"[{first}:{last}]"
    if how is None:
        return [f"r{m}_ = r{m}{part}", f"J{m}_ = J{m}{part}"]
    given = [f"x{m}_{k}{part if by else ''}" for k, by in enumerate(how[1])]
    return [
        f"r{m}_ = r{m}",
        f"J{m}_ = J{m}",
        f"linearise{m}(np.uint64(0), {last} - {first}, {', '.join(given)}, r{m}, J{m})",
    ]


def shared(m: int, lin: Derivatives) -> dict[str, Any]:
    """The arguments that all threads have."""
    if isinstance(lin, InPassing):
        return {f"x{m}_{k}": x for k, x in enumerate(lin.arguments)}
    return {f"r{m}": lin.r, f"J{m}": lin.J}


def own(m: int, lin: Derivatives, f: FactorStructure, longest: int) -> dict[str, np.ndarray]:
    """The arguments that each thread has for itself: room for the longest stretch."""
    if not isinstance(lin, InPassing):
        return {}
    return {f"r{m}": np.empty((longest, f.p)), f"J{m}": spacious(longest, f.p * f.width)}


def stretches(ptr: np.ndarray) -> np.ndarray:
    """Cut the variables whose observations are ptr[j]…ptr[j + 1] into stretches."""
    cuts = np.searchsorted(ptr, np.arange(STRETCH, ptr[-1], STRETCH))
    return np.unique(np.concatenate([[0], cuts, [len(ptr) - 1]])).astype(np.int64)


def longest(ptr: np.ndarray, cuts: np.ndarray) -> int:
    """How many observations a stretch has at most."""
    return int(np.diff(ptr[cuts]).max(initial=0))
