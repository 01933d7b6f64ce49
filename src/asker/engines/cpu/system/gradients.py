"""Gradients, and how residuals change along a step: what needs J, and no linear system."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from asker.engines.cpu.compiler import Printed
from asker.engines.cpu.system.linearization import Delta, Linearization
from asker.engines.cpu.system.printing import (
    indented,
    load_jacobian,
    load_residual,
    printed,
    run_loop,
    spacious,
)
from asker.engines.cpu.threads import even_bounds
from asker.engines.structure import FactorStructure, Structure

Each = Sequence[np.ndarray]
"""One array for each factor group, or for each group of variables."""


def two_gradients(structure: Structure, linear: Sequence[Linearization], c: Each, d: Each) -> Delta:
    """Σ c Jᵀr and Σ d Jᵀr, (2, n, tangent) for each group of variables that can move."""
    G = {v: np.zeros((2, len(v), v.manifold.tangent)) for v in structure.problem.variables if v.is_free}
    for f, lin, c_of, d_of in zip(structure.factors, linear, c, d, strict=True):
        _add_gradients(f, lin, c_of, d_of, G)
    return G


def barred_out(structure: Structure, linear: list[Linearization], c: Each, theta: Each) -> list[Linearization]:
    """The same derivatives without the directions that the descent −Σ c Jᵀr is barred in by bounds."""
    variables = structure.problem.variables
    if not any(v.is_free and v.bounds for v in variables):
        return linear
    G = two_gradients(structure, linear, c, c)
    rows = zip(variables, theta, strict=True)
    barred = {v: v.bounds.barred(x, G[v][0]) for v, x in rows if v.is_free and v.bounds}
    if not any(each.any() for each in barred.values()):
        return linear
    return [_without(f, lin, barred) for f, lin in zip(structure.factors, linear, strict=True)]


def _without(f: FactorStructure, lin: Linearization, barred: Delta) -> Linearization:
    J = spacious(f.n, f.p * f.width)
    J[:] = lin.J
    columns = J.reshape(f.n, f.p, f.width)
    for k, start in zip(f.free, f.offsets, strict=True):
        v = f.factors.slots[k].variables
        if v in barred:
            block = columns[:, :, start : start + v.manifold.tangent]
            block[...] = np.where(barred[v][f.indices[k]][:, None], 0.0, block)
    return Linearization(lin.r, J)


def _add_gradients(f: FactorStructure, lin: Linearization, c: np.ndarray, d: np.ndarray, G: Delta) -> None:
    """G += Σ c Jᵀr and Σ d Jᵀr of one factor group, (2, n, tangent) for each group of variables.

    Each task sums the kept variables in a copy of its own; the eliminated ones are nobody else's anyway.
    """
    if not f.free:
        return
    e = f.eliminated
    kept = [(s.index, G[s.variables]) for s in f.kept]
    loop = _gradient_loop(
        f.p, f.width, tuple((s.offset, s.dim) for s in f.kept), e.offset if e else 0, e.dim if e else 0
    )
    ptr = e.ptr if e else np.zeros(1, dtype=np.int64)
    E = G[e.variables] if e else np.zeros((2, 0, 0))
    bounds = even_bounds(E.shape[1] if e else f.n, smallest=2048, most=16)
    sums = [np.zeros((len(bounds) - 1, *g.shape)) for _, g in kept]

    variables = {f"variable{n}": index for n, (index, _) in enumerate(kept)}

    variables |= {f"G{n}": total for n, total in enumerate(sums)}
    run_loop(loop, bounds, ptr=ptr, J=lin.J, r=lin.r, c=c, d=d, E=E, **variables)
    for (_, g), total in zip(kept, sums, strict=True):
        g += total.sum(axis=0)


def radial_change(f: FactorStructure, lin: Linearization, delta: Delta, out: np.ndarray) -> None:
    """out = rᵀJδ of one factor group."""
    if not f.free:
        out[:] = 0.0
        return
    slots = [f.factors.slots[k].variables for k in f.free]
    loop = _radial_loop(f.p, f.width, tuple((o, v.manifold.tangent) for o, v in zip(f.offsets, slots, strict=True)))
    steps = {f"index{m}": f.indices[k] for m, k in enumerate(f.free)}
    steps |= {f"delta{m}": delta[v] for m, v in enumerate(slots)}
    run_loop(loop, even_bounds(f.n), J=lin.J, r=lin.r, out=out, **steps)


@cache
def _radial_loop(p: int, D: int, slots: tuple[tuple[int, int], ...]) -> Printed:
    """rᵀJδ for each observation."""
    lines = load_residual(p)
    for m, (_, dim) in enumerate(slots):
        lines.append(f"i = np.uint64(index{m}[k])")
        lines += [f"d{m}_{q} = delta{m}[i, {q}]" for q in range(dim)]
    terms = []
    for i in range(p):
        moved = [f"J[k, {i * D + at + q}] * d{m}_{q}" for m, (at, dim) in enumerate(slots) for q in range(dim)]
        terms.append(f"r{i} * ({' + '.join(moved)})")
    pairs = ", ".join(f"index{m}, delta{m}" for m in range(len(slots)))
    return printed(
        "radial_change",
        f"J, r, {pairs}, out",
        "for k in range(start, stop):",
        indented(1, lines),
        f"    out[k] = {' + '.join(terms)}",
    )


@cache
def _gradient_loop(p: int, D: int, kept: tuple[tuple[int, int], ...], offset: int, d: int) -> Printed:
    """G += Σ c Jᵀr for two sets of weights c at once, in the order in which J lies.

    Items are the eliminated variables (at `offset`, of size d), or the observations where d is 0.  Each task sums the
    kept slots in arrays of its own.
    """
    body = load_residual(p)
    for n, (at, size) in enumerate(kept):
        body += [*load_jacobian("x", p, D, at, size), f"v = np.uint64(variable{n}[k])"]
        for q in range(size):
            body.append(f"x_{q} = " + " + ".join(f"r{i} * x{i}_{q}" for i in range(p)))
            body += [f"own{n}[0, v, {q}] += c_k * x_{q}", f"own{n}[1, v, {q}] += d_k * x_{q}"]
    body = ["c_k, d_k = c[k], d[k]", *body]
    body += load_jacobian("e", p, D, offset, d)
    for q in range(d):
        body.append(f"e_{q} = " + " + ".join(f"r{i} * e{i}_{q}" for i in range(p)))
        body += [f"c{q} += c_k * e_{q}", f"d{q} += d_k * e_{q}"]
    own = "".join(f", variable{n}, G{n}" for n in range(len(kept)))
    observations = "range(np.uint64(ptr[j]), np.uint64(ptr[j + np.uint64(1)]))"
    return printed(
        "gradients",
        f"task, ptr, J, r, c, d, E{own}",
        [f"own{n} = G{n}[task]" for n in range(len(kept))],
        "for j in range(start, stop):",
        indented(1, [f"c{q}, d{q} = E[0, j, {q}], E[1, j, {q}]" for q in range(d)]),
        f"    for k in {observations if d else 'range(j, j + np.uint64(1))'}:",
        indented(2, body),
        indented(1, [f"E[0, j, {q}], E[1, j, {q}] = c{q}, d{q}" for q in range(d)]),
    )
