"""Preconditioned conjugate gradients on the implicit Schur complement S = H_KK − YYᵀ."""

from collections.abc import Callable
from typing import Any

import numpy as np

from asker.engines.cpu.system.linearization import Delta
from asker.engines.cpu.system.schur_complement import ReducedMatrix
from asker.engines.cpu.system.schur_elimination import Elimination
from asker.engines.cpu.system.schur_solve import Symmetric, if_finite
from asker.engines.solvers import CG
from asker.engines.sparsity import Structure
from asker.tracing.array_namespace import dot

Product = Callable[[np.ndarray], np.ndarray]


class ConjugateGradients:
    """The matrix-free solver of the reduced system, with a block Jacobi or power series preconditioner."""

    def __init__(self, structure: Structure, reduced: ReducedMatrix, settings: CG):
        """`reduced` contains H_KK only."""
        self.structure, self.reduced, self.settings = structure, reduced, settings
        self.symmetric = Symmetric(structure.n_kept, *reduced.coordinates())

    def __call__(self, e: Elimination, damping: np.ndarray, last_gradient: float) -> tuple[np.ndarray | None, float]:
        """Return x, or None if a number is not finite, and ‖g‖, which sets the tolerance of the next solve."""
        H, g = self.symmetric(self.reduced.values, damping), self.reduced.gradient
        if not (np.isfinite(H.data).all() and np.isfinite(g).all()):
            return None, last_gradient
        t, is_coupled = np.empty_like(e.z), any(True for _ in e.coupled())

        def product(x: np.ndarray) -> np.ndarray:
            y = H @ x
            if is_coupled:
                t[...] = 0.0
                e.couple_back(x, t)
                e.couple_forward(t, y)
            return y

        inverse = self._inverse_diagonal_blocks(H, e)

        def divide(r: np.ndarray) -> np.ndarray:
            parts = self.structure.parts(r)
            return np.concatenate([np.einsum("nij,nj->ni", inverse[v], parts[v]).ravel() for v in parts])

        def precondition(r: np.ndarray) -> np.ndarray:
            z = divide(r)
            for _ in range(self.settings.order):  # Σ (B⁻¹(B − S))ⁱ B⁻¹ r
                z += divide(r - product(z))
            return z

        size = float(np.linalg.norm(g))
        tol = self.settings.forcing(size / last_gradient)
        return conjugate_gradients(product, precondition, -g, tol, self.settings.max_iterations), size

    def _inverse_diagonal_blocks(self, H: Any, e: Elimination) -> Delta:
        """Return the inverse diagonal blocks (n, d, d) of S for each kept group.

        A block of S that is not safely positive definite is replaced by that of H_KK.
        """
        inverse = {}
        for v, first in self.structure.first.items():
            d, n = v.manifold.tangent, len(v)
            at = first + np.arange(n * d).reshape(n, d)
            B = np.asarray(H[np.repeat(at, d, axis=1).ravel(), np.tile(at, (1, d)).ravel()]).reshape(n, d, d).copy()
            whole = B.copy()
            if self.settings.order == 0:  # a power series needs the blocks of H_KK
                e.subtract_diagonal(first, B)
            bad = ~_positive(B)
            B[bad] = whole[bad]
            bad[bad] = ~_positive(whole[bad])
            B[bad] = np.eye(d)
            inverse[v] = np.linalg.inv(B)
        return inverse


def _positive(B: np.ndarray) -> np.ndarray:
    """Return which of the symmetric blocks (n, d, d) are safely positive definite."""
    min_size = np.linalg.eigvalsh(B)[:, 0]
    return min_size > 1e-12 * np.abs(B).max(axis=(1, 2))


def conjugate_gradients(
    product: Product,
    precondition: Product,
    b: np.ndarray,
    tol: float,
    max_iterations: int,
) -> np.ndarray | None:
    """Solve Ax = b by preconditioned conjugate gradients until ‖b − Ax‖ ≤ tol ‖b‖; return None if x is not finite."""
    x = np.zeros_like(b)
    r = b.copy()
    z = precondition(r)
    p = z.copy()
    rz = dot(r, z)
    target = tol * np.linalg.norm(b)
    for _ in range(max_iterations):
        if np.linalg.norm(r) <= target:
            break
        Ap = product(p)
        curvature = dot(p, Ap)
        if not curvature > 0:  # rounding, or not positive definite: x is a descent direction anyway
            break
        step = rz / curvature
        x += step * p
        r -= step * Ap
        z = precondition(r)
        rz, before = dot(r, z), rz
        p = z + (rz / before) * p
    return if_finite(x)
