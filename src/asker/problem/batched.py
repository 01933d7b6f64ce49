"""Checks of the values that batched NumPy functions of the user return, at every call."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from asker.problem.variables import Slot
from asker.tracing.array_namespace import ProblemError, real_numbers, shaped


def size_of_batched(name: str, r: Any, n: int) -> int:
    """Return p of residuals (n,) or (n, p) of a batched function."""
    array = real_numbers(f"{name}: the batched residual", r)
    if array.ndim not in (1, 2) or len(array) != n or (not array.size and n):
        raise ProblemError(f"{name}: the batched residual has shape {array.shape}, expected ({n},) or ({n}, p)")
    return array.shape[1] if array.ndim == 2 else 1


def batched_residuals(name: str, r: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return the checked residuals (n, p) of a batched function."""
    return shaped(f"{name}: the batched residual", r, shape)


def batched_jacobians(name: str, J: Any, slots: Sequence[Slot], shape: tuple[int, int]) -> list[np.ndarray | None]:
    """Return the checked derivatives (n, p, tangent) for each slot of a user's `jacobian`; None for fixed variables."""
    arrays = J if isinstance(J, tuple) else (J,)
    if len(arrays) != len(slots):
        raise ProblemError(f"{name}: jacobian returns {len(arrays)} arrays for {len(slots)} arguments")

    def checked(k: int, J: Any) -> np.ndarray | None:
        v = slots[k].variables
        return shaped(f"{name}: jacobian[{k}]", J, (*shape, v.manifold.tangent)) if v.is_free else None

    return [checked(k, J) for k, J in enumerate(arrays)]
