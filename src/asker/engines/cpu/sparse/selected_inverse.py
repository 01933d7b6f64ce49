"""The entries of A⁻¹ on the pattern of the Cholesky factor of A, from its fronts.

Takahashi, Fagan, Chin: Formation of a Sparse Bus Impedance Matrix and its Application to Short Circuit Study, 1973.
Campbell, Davis: Computing the Sparse Inverse Subset: an Inverse Multifrontal Approach, 1995.

With F the unknowns that a front eliminates, B those they are coupled to, R = [R₁₁ R₁₂] its panel and Z = A⁻¹:

    G = R₁₁⁻¹ R₁₂,   Z_FB = −G Z_BB,   Z_FF = R₁₁⁻¹ R₁₁⁻ᵀ − Z_FB Gᵀ

Z_BB is a submatrix of the inverse in the parent.  The fronts are therefore processed from the last to the first, and
each passes its children their Z_BB.  It is stored in the memory of the children's updates, whose lifetimes are the same
in reverse.
"""

import numpy as np

from asker.engines.cpu import cholesky
from asker.engines.cpu.compiler import compiled
from asker.engines.cpu.sparse.multifrontal import (
    Multifrontal,
    substitute_forward,
    substitute_fronts,
    subtract_rows,
)
from asker.engines.cpu.sparse.symbolic import Fronts
from asker.engines.cpu.threads import run_tasks


def solve_factorised(fronts: Multifrontal, B: np.ndarray) -> np.ndarray:
    """Return X with A X = B, (n, k), after A has been factorised."""
    out = np.empty_like(B)
    for column in range(B.shape[1]):
        x = np.ascontiguousarray(B[fronts.order, column])
        n = len(fronts.fronts.first) - 1
        _forward(n, fronts.fronts, fronts.panels, fronts.left, x)
        substitute_fronts(0, n, fronts.fronts, fronts.panels, fronts.left, x)
        out[fronts.order, column] = x
    return out


def selected_inverse(fronts: Multifrontal, n_values: int) -> np.ndarray:
    """Return the entries of A⁻¹ on the pattern of A, after A has been factorised; 0 above the diagonal."""
    F, Z = fronts.fronts, np.empty_like(fronts.panels)
    with cholesky.one_blas_thread():
        for begin, end, is_small in reversed(fronts.top):
            if is_small:
                _invert_run(begin, end, fronts, Z)
            else:
                _invert_large(begin, fronts, Z)
        run_tasks(lambda t: _invert_run(*fronts.tasks[t], fronts, Z), len(fronts.tasks))
    values = np.zeros(n_values)
    values[F.source] = Z[F.target]
    return values


def _invert_run(begin: int, end: int, fronts: Multifrontal, Z: np.ndarray) -> None:
    """Invert a range of small fronts, one after the other."""
    F = fronts.fronts
    left = np.diff(F.coupled_ptr[begin : end + 1]).max(initial=0)
    work, Z_BB = np.empty(np.diff(F.panel[begin : end + 1]).max(initial=0)), np.empty(left**2)
    _invert_fronts(begin, end, F, fronts.panels, fronts.updates, Z, work, Z_BB)


def _invert_large(k: int, fronts: Multifrontal, Z: np.ndarray) -> None:
    """Invert a large front, with its matrix products split among the threads by rows."""
    from scipy.linalg import blas, lapack

    F = fronts.fronts
    pivots, left, R, P, Z_BB = _parts.python(k, F, fronts.panels, fronts.updates, Z)
    Z_BB = Z_BB.copy()  # its memory may be overwritten by the children
    R11 = np.asfortranarray(R[:, :pivots])
    T, _ = lapack.dtrtri(R11, lower=0)
    T = np.triu(T)
    G = np.ascontiguousarray(blas.dtrmm(1.0, T, R[:, pivots:])) if left else np.zeros((pivots, 0))
    cuts = np.linspace(0, pivots, max(1, min(16, pivots // 32)) + 1).astype(int)

    def invert_rows(t: int) -> None:
        rows = slice(cuts[t], cuts[t + 1])
        P[rows, pivots:] = -(G[rows] @ Z_BB)
        P[rows, :pivots] = T[rows] @ T.T - P[rows, pivots:] @ G.T

    run_tasks(invert_rows, len(cuts) - 1)
    _pass_to_children(k, F, fronts.updates, P, Z_BB)


@compiled
def _forward(n: int, F: Fronts, panels: np.ndarray, left_over: np.ndarray, x: np.ndarray) -> None:
    """Substitute forward, from the first front to the last."""
    for k in range(n):
        pivots, left = F.first[k + 1] - F.first[k], F.coupled_ptr[k + 1] - F.coupled_ptr[k]
        R = panels[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
        y, t = x[F.first[k] : F.first[k + 1]], left_over[F.coupled_ptr[k] : F.coupled_ptr[k + 1]]
        for q in range(left):
            t[q] = 0.0
        for c in F.child[F.child_ptr[k] : F.child_ptr[k + 1]]:
            for m in range(F.coupled_ptr[c], F.coupled_ptr[c + 1]):
                place = F.place[m]
                if place < pivots:
                    y[place] += left_over[m]
                else:
                    t[place - pivots] += left_over[m]
        substitute_forward(R, y, t)


@compiled
def _parts(
    k: int, F: Fronts, panels: np.ndarray, updates: np.ndarray, Z: np.ndarray
) -> tuple[int, int, np.ndarray, np.ndarray, np.ndarray]:
    """Return the sizes of a front, its panel, the panel of the inverse, and Z_BB."""
    pivots, left = F.first[k + 1] - F.first[k], F.coupled_ptr[k + 1] - F.coupled_ptr[k]
    R = panels[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
    P = Z[F.panel[k] : F.panel[k + 1]].reshape(pivots, pivots + left)
    return pivots, left, R, P, updates[F.rest[k] : F.rest[k] + left * left].reshape(left, left)


@compiled
def _pass_to_children(k: int, F: Fronts, updates: np.ndarray, P: np.ndarray, Z_BB: np.ndarray) -> None:
    """Copy to each child the block Z_BB of the inverse."""
    pivots = len(P)
    for c in F.child[F.child_ptr[k] : F.child_ptr[k + 1]]:
        place = F.place[F.coupled_ptr[c] : F.coupled_ptr[c + 1]]
        n = len(place)
        out = updates[F.rest[c] : F.rest[c] + n * n].reshape(n, n)
        for i in range(n):
            p = place[i]
            for j in range(i, n):
                q = place[j]  # ascending: p < q
                if p < pivots:  # noqa: SIM108  one of them may be read, not both
                    z = P[p, q]
                else:
                    z = Z_BB[p - pivots, q - pivots]
                out[i, j] = z
                out[j, i] = z


@compiled
def _invert_fronts(
    begin: int, end: int, F: Fronts, panels: np.ndarray, updates: np.ndarray, Z: np.ndarray, work: np.ndarray,
    work_BB: np.ndarray,
) -> None:  # fmt: skip
    """Invert a range of fronts; `work` and `work_BB` have the sizes of the largest panel and of the largest Z_BB."""
    for k in range(end - 1, begin - 1, -1):
        pivots, left, R, P, passed = _parts(k, F, panels, updates, Z)
        W = work[: F.panel[k + 1] - F.panel[k]].reshape(pivots, pivots + left)  # R₁₁⁻¹ [I R₁₂]
        Z_BB = work_BB[: left * left].reshape(left, left)  # a copy, since the children may overwrite its memory
        for i in range(left):
            for j in range(left):
                Z_BB[i, j] = passed[i, j]
        for i in range(pivots - 1, -1, -1):
            w = W[i]
            for m in range(pivots):
                w[m] = 1.0 if m == i else 0.0
            for m in range(pivots, pivots + left):
                w[m] = R[i, m]
            subtract_rows(w[i + 1 :], R[i, i + 1 : pivots], W[i + 1 : pivots, i + 1 :])
            for m in range(i, pivots + left):
                w[m] /= R[i, i]
        for i in range(pivots):
            for q in range(left):
                P[i, pivots + q] = 0.0
            subtract_rows(P[i, pivots:], W[i, pivots:], Z_BB)
        for i in range(pivots):  # T Tᵀ − Z_FB Gᵀ
            for m in range(pivots):
                P[i, m] = 0.0
            _add_products(P[i], W[i, :pivots], W, 0, 1.0)
            _add_products(P[i], P[i, pivots:], W, pivots, -1.0)
        _pass_to_children(k, F, updates, P, Z_BB)


@compiled
def _add_products(out: np.ndarray, x: np.ndarray, A: np.ndarray, begin: int, sign: float) -> None:
    """Add sign · Σ_m x[m] A[j, begin + m] to out[j], for each row j of A."""
    j = 0
    while j + 4 <= len(A):
        a, b, c, d = A[j, begin:], A[j + 1, begin:], A[j + 2, begin:], A[j + 3, begin:]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for m in range(len(x)):
            s0 += x[m] * a[m]
            s1 += x[m] * b[m]
            s2 += x[m] * c[m]
            s3 += x[m] * d[m]
        out[j] += sign * s0
        out[j + 1] += sign * s1
        out[j + 2] += sign * s2
        out[j + 3] += sign * s3
        j += 4
    while j < len(A):
        row, s = A[j, begin:], 0.0
        for m in range(len(x)):
            s += x[m] * row[m]
        out[j] += sign * s
        j += 1
