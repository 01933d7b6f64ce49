"""Rules for factorisations of small matrices, which are unrolled; rows are exchanged by `select` statements.

They support `jnp.linalg.solve`, `inv` and `det` of small matrices, and their derivatives.
"""

from typing import Any

import numpy as np

from asker.engines.cpu.compiler.arithmetic_rules import UnsupportedPrimitive, Values, rule
from asker.engines.cpu.compiler.scalars import Program

MAX_MATRIX_ROWS = 6
"""Rows of the largest matrix that is unrolled: the number of statements grows with their third power."""


def _check_size(name: str, n: int) -> None:
    if n > MAX_MATRIX_ROWS:
        raise UnsupportedPrimitive(name, f" for a matrix of {n} rows (at most {MAX_MATRIX_ROWS} are unrolled)")


@rule("lu", uses="pivot_size")
def _lu(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    """Factorise P A = L U; return L and U in one matrix, the exchanges and the permutation."""
    a = args[0].astype(object)
    *batch, m, n = a.shape
    _check_size("lu", m)
    out, k = a.copy(), min(m, n)
    pivots, permutation = np.empty((*batch, k), dtype=object), np.empty((*batch, m), dtype=object)
    for b in np.ndindex(*batch):
        out[b], pivots[b], permutation[b] = _factorised(program, a[b])
    return [out, pivots, permutation]


def _factorised(program: Program, a: Values) -> tuple[Values, list[Any], Values]:
    emit = program.emit
    a, (m, n) = a.copy(), a.shape
    pivots, order = [], np.array(range(m), dtype=object)
    for k in range(min(m, n)):
        largest, pivot = emit("abs", a[k, k]), k
        for i in range(k + 1, m):  # the first one among equals, as in LAPACK
            size = emit("abs", a[i, k])
            larger = emit("gt", size, largest)
            largest, pivot = emit("select", larger, size, largest), emit("select", larger, i, pivot)
        for i in range(k + 1, m):
            here = emit("eq", pivot, i)
            for j in range(n):
                a[k, j], a[i, j] = emit("select", here, a[i, j], a[k, j]), emit("select", here, a[k, j], a[i, j])
            order[k], order[i] = emit("select", here, order[i], order[k]), emit("select", here, order[k], order[i])
        pivots.append(pivot)
        is_zero = emit("eq", a[k, k], 0.0)  # then the whole column is 0 and is not divided
        for i in range(k + 1, m):
            a[i, k] = emit("select", is_zero, a[i, k], emit("div", a[i, k], a[k, k]))
            for j in range(k + 1, n):
                a[i, j] = emit("sub", a[i, j], emit("mul", a[i, k], a[k, j]))
    return a, pivots, order


@rule("lu_pivots_to_permutation", uses="permutation_size")
def _pivots_to_permutation(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    pivots, m = args[0].astype(object), eqn.params["permutation_size"]
    out = np.empty((*pivots.shape[:-1], m), dtype=object)
    for b in np.ndindex(*pivots.shape[:-1]):
        order = np.array(range(m), dtype=object)
        for k, pivot in enumerate(pivots[b]):
            for i in range(k + 1, m):
                here = program.emit("eq", pivot, i)
                first, second = order[k], order[i]
                order[k] = program.emit("select", here, second, first)
                order[i] = program.emit("select", here, first, second)
        out[b] = order
    return [out]


@rule("triangular_solve", uses="left_side lower transpose_a unit_diagonal")
def _triangular_solve(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    """Return x with A x = b, or x A = b, for a triangular A; both have the same leading axes."""
    a, b = (x.astype(object) for x in args)
    p = eqn.params
    _check_size("triangular_solve", a.shape[-1])
    lower = p["lower"]
    if p["transpose_a"]:
        a, lower = np.swapaxes(a, -1, -2), not lower
    if not p["left_side"]:  # x A = b is Aᵀ xᵀ = bᵀ
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    out = np.empty(b.shape, dtype=object)
    for k in np.ndindex(*a.shape[:-2]):
        out[k] = _substituted(program, a[k], b[k], lower, p["unit_diagonal"])
    return [out if p["left_side"] else np.swapaxes(out, -1, -2)]


@rule("cholesky", uses="symmetrize_input")
def _cholesky(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    """Return the lower factor; the root of a negative pivot is NaN, as in JAX."""
    a, n = args[0].astype(object), args[0].shape[-1]
    _check_size("cholesky", n)
    out = np.full(a.shape, 0.0, dtype=object)
    for b in np.ndindex(*a.shape[:-2]):
        L = out[b]
        for i in range(n):
            for j in range(i + 1):
                rest = a[b][i, j]
                for k in range(j):
                    rest = program.emit("sub", rest, program.emit("mul", L[i, k], L[j, k]))
                L[i, j] = program.emit("sqrt", rest) if i == j else program.emit("div", rest, L[j, j])
    return [out]


def _substituted(program: Program, a: Values, b: Values, lower: bool, unit_diagonal: bool) -> Values:
    x, n = b.copy(), len(a)
    for i in range(n) if lower else reversed(range(n)):
        before = range(i) if lower else range(i + 1, n)
        for j in range(b.shape[1]):
            total = x[i, j]
            for k in before:
                total = program.emit("sub", total, program.emit("mul", a[i, k], x[k, j]))
            x[i, j] = total if unit_diagonal else program.emit("div", total, a[i, i])
    return x
