"""Reference formulas of ψ and ω of every kernel for τ = 1 in NumPy, as functions of v = ‖r‖²/τ²."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asker.kernels import kernels

Formula = Callable[[Any, np.ndarray], np.ndarray]


class Reference(NamedTuple):
    """Formulas of a kernel; the first argument is the kernel, for its parameters."""

    psi: Formula
    omega: Formula


def _huber(k: Any, v: np.ndarray) -> np.ndarray:
    r = np.sqrt(v)
    return np.where(r <= 1, r**2 / 2, r - 1 / 2)


def _tukey(k: Any, v: np.ndarray) -> np.ndarray:
    return np.where(v < 1, (3 * v - 3 * v**2 + v**3) / 6, 1 / 6)


def _barron(k: Any, v: np.ndarray) -> np.ndarray:
    a = k.alpha
    if a in (2.0, 0.0):
        return v / 2 if a else np.log1p(v / 2)
    if a == -np.inf:
        return -np.expm1(-v / 2)
    return abs(a - 2) / a * np.expm1(a / 2 * np.log1p(v / abs(a - 2)))


def _barron_weight(k: Any, v: np.ndarray) -> np.ndarray:
    a = k.alpha
    if a == -np.inf:
        return np.exp(-v / 2)
    return np.ones_like(v) if a == 2 else (1 + v / (2 - a)) ** (a / 2 - 1)


def _mixture(k: Any, v: np.ndarray) -> np.ndarray:
    """Return the negative log density of a mixture of inliers and outliers, 0 at v = 0."""
    e = np.exp(-k.c)
    near = np.log1p(np.expm1(-k.c * v) / (1 + e))
    far = np.logaddexp(-k.c * v, -k.c) - np.log1p(e)
    return -(1 + e) / (2 * k.c) * np.where(k.c * v < 1, near, far)


def _mixture_weight(k: Any, v: np.ndarray) -> np.ndarray:
    e = np.exp(-k.c)
    return (1 + e) / (1 + e * np.exp(np.minimum(k.c * v, 700.0)))


REFERENCES: dict[type, Reference] = {
    kernels.Quadratic: Reference(lambda k, v: v / 2, lambda k, v: np.ones_like(v)),
    kernels.Huber: Reference(_huber, lambda k, v: 1 / np.maximum(np.sqrt(v), 1)),
    kernels.PseudoHuber: Reference(lambda k, v: v / (np.sqrt(1 + v) + 1), lambda k, v: (1 + v) ** -0.5),
    kernels.Cauchy: Reference(lambda k, v: np.log1p(v) / 2, lambda k, v: (1 + v) ** -1.0),
    kernels.GemanMcClure: Reference(lambda k, v: v / (2 * (1 + v)), lambda k, v: (1 + v) ** -2.0),
    kernels.Welsch: Reference(lambda k, v: -np.expm1(-v) / 2, lambda k, v: np.exp(-v)),
    kernels.Tukey: Reference(_tukey, lambda k, v: np.clip(1 - v, 0, 1) ** 2),
    kernels.TruncatedQuadratic: Reference(lambda k, v: np.minimum(v, 1) / 2, lambda k, v: 1.0 * (v <= 1)),
    kernels.SmoothTruncated: Reference(
        lambda k, v: 1 / 4 - (1 - np.minimum(v, 1)) ** 2 / 4, lambda k, v: np.clip(1 - v, 0, 1)
    ),
    kernels.Barron: Reference(_barron, _barron_weight),
    kernels.Mixture: Reference(_mixture, _mixture_weight),
}


def psi(kernel: Any, v: np.ndarray) -> np.ndarray:
    """Return ψ for τ = 1."""
    return REFERENCES[type(kernel)].psi(kernel, v)


def omega(kernel: Any, v: np.ndarray) -> np.ndarray:
    """Return ω for τ = 1."""
    return REFERENCES[type(kernel)].omega(kernel, v)
