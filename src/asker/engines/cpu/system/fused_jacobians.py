"""Residuals and Jacobians evaluated inside a printed loop, one chunk of observations at a time.

A loop that uses r and J of factor group m has the `parameters(m, …)` and the statements `evaluation(m, …)` at the
beginning of a chunk, after which r{m}_ and J{m}_ are those of its observations.  They are slices of arrays
(`Linearization`), or evaluated into small arrays of the thread, which stay in its cache (`FusedJacobian`).
"""

from typing import Any

import numpy as np

from asker.engines.cpu.system.codegen import padded_rows
from asker.engines.cpu.system.linearization import Derivatives, FusedJacobian
from asker.engines.sparsity import FactorStructure

CHUNK_OBSERVATIONS = 256
"""Observations in a chunk, plus at most those of one more variable."""

Fusion = tuple[str, tuple[bool, ...]] | None
"""The source of the function that evaluates r and J, and whether each of its arguments has a row per observation; None
if r and J are stored in arrays."""


def fusion(lin: Derivatives) -> Fusion:
    """Return how a loop obtains r and J."""
    return (lin.text, lin.by_observation) if isinstance(lin, FusedJacobian) else None


def text(m: int, fused: Fusion) -> str:
    """Return the source of the function that the loop calls."""
    return "" if fused is None else fused[0].replace("def linearise(", f"def linearise{m}(", 1)


def parameters(m: int, fused: Fusion) -> str:
    """Return the parameters of the loop for r and J."""
    return ", ".join([f"r{m}", f"J{m}", *[f"x{m}_{k}" for k in range(0 if fused is None else len(fused[1]))]])


def evaluation(m: int, fused: Fusion, first: str, last: str) -> list[str]:
    """Return statements that define r{m}_ and J{m}_ of the observations first…last."""
    part = f"[{first}:{last}]"
    if fused is None:
        return [f"r{m}_ = r{m}{part}", f"J{m}_ = J{m}{part}"]
    arguments = [f"x{m}_{k}{part if by else ''}" for k, by in enumerate(fused[1])]
    return [
        f"r{m}_ = r{m}",
        f"J{m}_ = J{m}",
        f"linearise{m}(np.uint64(0), {last} - {first}, {', '.join(arguments)}, r{m}, J{m})",
    ]


def shared(m: int, lin: Derivatives) -> dict[str, Any]:
    """Return the arguments that are shared by all threads."""
    if isinstance(lin, FusedJacobian):
        return {f"x{m}_{k}": x for k, x in enumerate(lin.arguments)}
    return {f"r{m}": lin.r, f"J{m}": lin.J}


def private(m: int, lin: Derivatives, f: FactorStructure, size: int) -> dict[str, np.ndarray]:
    """Return the arguments that each thread allocates: r and J of `size` observations."""
    if not isinstance(lin, FusedJacobian):
        return {}
    return {f"r{m}": np.empty((size, f.p)), f"J{m}": padded_rows(size, f.p * f.width)}


def chunks(ptr: np.ndarray) -> np.ndarray:
    """Return the bounds of chunks of variables, where variable j has the observations ptr[j]…ptr[j + 1]."""
    cuts = np.searchsorted(ptr, np.arange(CHUNK_OBSERVATIONS, ptr[-1], CHUNK_OBSERVATIONS))
    return np.unique(np.concatenate([[0], cuts, [len(ptr) - 1]])).astype(np.int64)


def longest(ptr: np.ndarray, cuts: np.ndarray) -> int:
    """Return the maximum number of observations in a chunk."""
    return int(np.diff(ptr[cuts]).max(initial=0))
