"""Those numbers of A⁻¹ that lie where the factor of A has some, from its fronts.

Takahashi, Fagan, Chin: Formation of a Sparse Bus Impedance Matrix and its Application to Short Circuit Study, 1973.
Campbell, Davis: Computing the Sparse Inverse Subset: an Inverse Multifrontal Approach, 1995.

With F the unknowns that a front eliminates, B those they are coupled to, R = [R₁₁ R₁₂] its panel and Z = A⁻¹:

    G = R₁₁⁻¹ R₁₂,   Z_FB = −G Z_BB,   Z_FF = R₁₁⁻¹ R₁₁⁻ᵀ − Z_FB Gᵀ

Z_BB is a part of what the parent has found: the fronts are gone through from the last to the first, and each hands its
children what they need.  That lies where the factorisation had left the children's updates, whose times of use are the
same, backwards.
"""

import numpy as np

from asker.engines.cpu import cholesky
from asker.engines.cpu.machine_code import compiled
from asker.engines.cpu.sparse.multifrontal import JIT, Multifrontal, substitute_forward, substitute_fronts
from asker.engines.cpu.threads import run_tasks


def solve_again(fronts: Multifrontal, B: np.ndarray) -> np.ndarray:
    """X with A X = B, (n, k), once A is factorised."""
    out = np.empty_like(B)
    for column in range(B.shape[1]):
        x = np.ascontiguousarray(B[fronts.order, column])
        n = len(fronts.fronts.first) - 1
        _forward(n, fronts.fronts, fronts.panels, fronts.left, x)
        substitute_fronts(0, n, fronts.fronts, fronts.panels, fronts.left, x)
        out[fronts.order, column] = x
    return out


def selected_inverse(fronts: Multifrontal, n_values: int) -> np.ndarray:
    """The numbers of A⁻¹ in the places of the values of A, once A is factorised; 0 for those above the diagonal."""
    F, Z = fronts.fronts, np.empty_like(fronts.panels)
    with cholesky.one_blas_thread():
        for begin, end, is_small in reversed(fronts.top):
            if is_small:
                _invert_fronts(begin, end, F, fronts.panels, fronts.updates, Z)
            else:
                _invert_large(begin, fronts, Z)
        run_tasks(lambda t: _invert_fronts(*fronts.tasks[t], F, fronts.panels, fronts.updates, Z), len(fronts.tasks))
    values = np.zeros(n_values)
    values[F.source] = Z[F.target]
    return values


def _invert_large(k: int, fronts: Multifrontal, Z: np.ndarray) -> None:
    """A large front: its products are shared out by columns."""
    from scipy.linalg import blas, lapack

    F = fronts.fronts
    pivots, left, R, P, Z_BB = _parts(k, F, fronts.panels, fronts.updates, Z)
    R11 = np.asfortranarray(R[:, :pivots])
    T, _ = lapack.dtrtri(R11, lower=0)
    T = np.triu(T)
    G = np.ascontiguousarray(blas.dtrmm(1.0, T, R[:, pivots:])) if left else np.zeros((pivots, 0))
    cuts = np.linspace(0, pivots, max(1, min(16, pivots // 32)) + 1).astype(int)

    def rows(t: int) -> None:
        own = slice(cuts[t], cuts[t + 1])
        P[own, pivots:] = -(G[own] @ Z_BB)
        P[own, :pivots] = T[own] @ T.T - P[own, pivots:] @ G.T

    run_tasks(rows, len(cuts) - 1)
    _hand_down(k, F, fronts.updates, P, Z_BB)


@compiled(**JIT)
def _forward(n, F, panels, left_over, x):
    """Substitute forward, from the first front to the last."""
    for k in range(n):
        pivots, left = F.first[k + 1] - F.first[k], F.coupled_ptr[k + 1] - F.coupled_ptr[k]
        R = panels[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
        y, t = x[F.first[k] : F.first[k + 1]], left_over[F.coupled_ptr[k] : F.coupled_ptr[k + 1]]
        t[:] = 0.0
        for c in F.child[F.child_ptr[k] : F.child_ptr[k + 1]]:
            for m in range(F.coupled_ptr[c], F.coupled_ptr[c + 1]):
                place = np.int64(F.place[m])
                if place < pivots:
                    y[place] += left_over[m]
                else:
                    t[place - pivots] += left_over[m]
        substitute_forward(R, y, t)


@compiled(**JIT)
def _parts(k, F, panels, updates, Z):
    """Sizes of a front, its panel, the panel of the inverse, and Z_BB; the children may overwrite where that lay."""
    pivots, left = F.first[k + 1] - F.first[k], F.coupled_ptr[k + 1] - F.coupled_ptr[k]
    R = panels[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
    P = Z[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
    Z_BB = updates[F.rest[k] : F.rest[k] + left * left].copy().reshape(left, left)
    return pivots, left, R, P, Z_BB


@compiled(**JIT)
def _hand_down(k, F, updates, P, Z_BB):
    """To each child the part of the inverse that belongs to its B."""
    pivots = len(P)
    for c in F.child[F.child_ptr[k] : F.child_ptr[k + 1]]:
        place = F.place[F.coupled_ptr[c] : F.coupled_ptr[c + 1]]
        n = len(place)
        out = updates[F.rest[c] : F.rest[c] + n * n].reshape(n, n)
        for i in range(n):
            p = np.int64(place[i])
            for j in range(i, n):
                q = np.int64(place[j])  # ascending: p < q
                z = P[p, q] if p < pivots else Z_BB[p - pivots, q - pivots]
                out[i, j] = z
                out[j, i] = z


@compiled(**JIT)
def _invert_fronts(begin, end, F, panels, updates, Z):
    for k in range(end - 1, begin - 1, -1):
        pivots, left, R, P, Z_BB = _parts(k, F, panels, updates, Z)
        W = np.zeros((pivots, pivots + left))  # R₁₁⁻¹ [I R₁₂]
        for i in range(pivots - 1, -1, -1):
            w = W[i]
            w[i] = 1.0
            w[pivots:] = R[i, pivots:]
            for j in range(i + 1, pivots):
                factor, below = R[i, j], W[j]
                for m in range(j, pivots + left):
                    w[m] -= factor * below[m]
            for m in range(i, pivots + left):
                w[m] /= R[i, i]
        T, G = W[:, :pivots].copy(), W[:, pivots:].copy()
        if left:
            across = -np.dot(G, Z_BB)
            P[:, pivots:] = across
            P[:, :pivots] = np.dot(T, T.T.copy()) - np.dot(across, G.T.copy())
        else:
            P[:, :pivots] = np.dot(T, T.T.copy())
        _hand_down(k, F, updates, P, Z_BB)
