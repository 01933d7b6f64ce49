"""Formulas that run on NumPy arrays and on JAX tracers alike, in double precision."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np


def namespace(x: Any) -> Any:
    """The module whose `sqrt`, `where`, … fit `x`: `jax.numpy` while JAX traces, else NumPy."""
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else np


def float64() -> AbstractContextManager:
    """While this is open JAX works in float64; the user's own JAX settings stay as they are."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]

    return enable_x64(True)
