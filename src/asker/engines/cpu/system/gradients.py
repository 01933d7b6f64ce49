"""Gradients and directional derivatives, which need J but no linear system."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from asker.engines.cpu.compiler import Printed, compile_source
from asker.engines.cpu.system import fused_jacobians, wide_residuals
from asker.engines.cpu.system.codegen import (
    LOOP_CACHE_SIZE,
    indented,
    load_jacobian,
    load_residual,
    padded_rows,
    run_loop_with,
    text_of,
)
from asker.engines.cpu.system.fused_jacobians import Fusion
from asker.engines.cpu.system.linearization import Delta, Derivatives, Linearization
from asker.engines.cpu.threads import even_bounds
from asker.engines.sparsity import FactorStructure, Structure

Each = Sequence[np.ndarray]
"""One array for each factor group, or for each group of variables."""


def two_gradients(structure: Structure, linear: Sequence[Derivatives], c: Each, d: Each) -> Delta:
    """Return Σ c Jᵀr and Σ d Jᵀr, (2, n, tangent) for each free variable group."""
    G = {v: np.zeros((2, len(v), v.manifold.tangent)) for v in structure.problem.variables if v.is_free}
    for f, lin, c_of, d_of in zip(structure.factors, linear, c, d, strict=True):
        _add_gradients(f, lin, c_of, d_of, G)
    return G


def without_active_bounds(
    structure: Structure, linear: Sequence[Derivatives], c: Each, theta: Each
) -> Sequence[Derivatives]:
    """Return the derivatives with zero columns for the coordinates at which −Σ c Jᵀr points out of a bound."""
    variables = structure.problem.variables
    if not any(v.is_free and v.bounds for v in variables):
        return linear
    G = two_gradients(structure, linear, c, c)
    rows = zip(variables, theta, strict=True)
    active = {v: v.bounds.is_active(x, G[v][0]) for v, x in rows if v.is_free and v.bounds}
    if not any(each.any() for each in active.values()):
        return linear
    return [_without(f, lin, active) for f, lin in zip(structure.factors, linear, strict=True)]


def _without(f: FactorStructure, lin: Derivatives, active: Delta) -> Linearization:
    """Return a copy of a linearisation in which the columns of active bounds are 0."""
    assert isinstance(lin, Linearization)  # the engine stores Jacobians if there are bounds
    J = padded_rows(f.n, f.height * f.width)
    J[:] = lin.J
    columns = J.reshape(f.n, f.height, f.width)
    for k, start in zip(f.free, f.offsets, strict=True):
        v = f.factors.slots[k].variables
        if v in active:
            block = columns[:, :, start : start + v.manifold.tangent]
            block[...] = np.where(active[v][f.indices[k]][:, None], 0.0, block)
    return Linearization(lin.r, J)


def _add_gradients(f: FactorStructure, lin: Derivatives, c: np.ndarray, d: np.ndarray, G: Delta) -> None:
    """Add Σ c Jᵀr and Σ d Jᵀr of one factor group to G, (2, n, tangent) for each variable group.

    Each task has separate sums for the kept variables; an eliminated variable belongs to one task.
    """
    if not f.free:
        return
    if f.is_wide:
        assert isinstance(lin, Linearization)  # XLA evaluates it, and the engine stores it
        wide_residuals.add_gradients(f, lin, (c, d), G)
        return
    e, kept = f.eliminated, [(s.index, G[s.variables]) for s in f.kept]
    spec = f.height, f.width, tuple((s.offset, s.dim) for s in f.kept), e.offset if e else 0, e.dim if e else 0
    ptr = e.ptr if e else np.arange(f.n + 1)
    cuts = fused_jacobians.chunks(ptr)
    bounds = even_bounds(len(cuts) - 1, min_size=8, max_tasks=16)
    sums = [np.zeros((len(bounds) - 1, *g.shape)) for _, g in kept]
    named = {f"variable{n}": index for n, (index, _) in enumerate(kept)}
    named |= {f"G{n}": total for n, total in enumerate(sums)}
    named |= {"ptr": ptr, "chunks": cuts, "c": c, "d": d, "E": G[e.variables] if e else np.zeros((2, 0, 0))}

    def private() -> dict[str, np.ndarray]:
        return fused_jacobians.private(0, lin, f, fused_jacobians.longest(ptr, cuts))

    run_loop_with(
        _gradient_loop(fused_jacobians.fusion(lin), *spec), bounds, private, **named, **fused_jacobians.shared(0, lin)
    )
    for (_, g), total in zip(kept, sums, strict=True):
        g += total.sum(axis=0)


def radial_change(f: FactorStructure, lin: Derivatives, delta: Delta, out: np.ndarray) -> None:
    """Compute out = rᵀJδ for one factor group."""
    if not f.free:
        out[:] = 0.0
        return
    if f.is_wide:
        assert isinstance(lin, Linearization)
        wide_residuals.radial_change(f, lin, delta, out)
        return
    slots = [f.factors.slots[k].variables for k in f.free]
    places = tuple((o, v.manifold.tangent) for o, v in zip(f.offsets, slots, strict=True))
    named = {f"index{m}": f.indices[k] for m, k in enumerate(f.free)}
    named |= {f"delta{m}": delta[v] for m, v in enumerate(slots)} | fused_jacobians.shared(0, lin)

    def private() -> dict[str, np.ndarray]:
        return fused_jacobians.private(0, lin, f, fused_jacobians.CHUNK_OBSERVATIONS)

    loop = _radial_loop(fused_jacobians.fusion(lin), fused_jacobians.CHUNK_OBSERVATIONS, f.height, f.width, places)
    run_loop_with(loop, even_bounds(f.n), private, out=out, **named)


@lru_cache(LOOP_CACHE_SIZE)  # `fused` contains the source of a user's function
def _radial_loop(fused: Fusion, chunk: int, p: int, D: int, slots: tuple[tuple[int, int], ...]) -> Printed:
    """Return the loop that computes rᵀJδ over observations."""
    lines = load_residual(p)
    for m, (_, dim) in enumerate(slots):
        lines.append(f"i = np.uint64(index{m}[k])")
        lines += [f"d{m}_{q} = delta{m}[i, {q}]" for q in range(dim)]
    terms = []
    for i in range(p):
        moved = [f"J[k, {i * D + at + q}] * d{m}_{q}" for m, (at, dim) in enumerate(slots) for q in range(dim)]
        terms.append(f"r{i} * ({' + '.join(moved)})")
    numbers = range(len(slots))
    pairs = ", ".join(f"index{m}, delta{m}" for m in numbers)
    one = text_of(
        "radial_of_chunk",
        f"J, r, {pairs}, out",
        "for k in range(start, stop):",
        indented(1, lines),
        f"    out[k] = {' + '.join(terms)}",
    )
    parts = ", ".join(f"index{m}[first:last], delta{m}" for m in numbers)
    driver = text_of(
        "radial_change",
        f"{fused_jacobians.parameters(0, fused)}, {pairs}, out",
        f"for first in range(start, stop, {chunk}):",
        f"    last = min(first + np.uint64({chunk}), stop)",
        indented(1, fused_jacobians.evaluation(0, fused, "first", "last")),
        f"    radial_of_chunk(np.uint64(0), last - first, J0_, r0_, {parts}, out[first:last])",
    )
    return compile_source("radial_change", "\n".join([fused_jacobians.text(0, fused), one, driver]))


@lru_cache(LOOP_CACHE_SIZE)  # `fused` contains the source of a user's function
def _gradient_loop(fused: Fusion, p: int, D: int, kept: tuple[tuple[int, int], ...], offset: int, d: int) -> Printed:
    """Return the loop that adds Σ c Jᵀr and Σ d Jᵀr to G and E in one pass over J.

    Items are chunks of the eliminated variables (at `offset`, of size d), or of the observations if d is 0.  Each task
    has separate sums for the kept slots.
    """
    body = load_residual(p)
    for n, (at, size) in enumerate(kept):
        body += [*load_jacobian("x", p, D, at, size), f"v = np.uint64(variable{n}[k])"]
        for q in range(size):
            body.append(f"x_{q} = " + " + ".join(f"r{i} * x{i}_{q}" for i in range(p)))
            body += [f"G{n}[0, v, {q}] += c_k * x_{q}", f"G{n}[1, v, {q}] += d_k * x_{q}"]
    body = ["c_k, d_k = c[k], d[k]", *body]
    body += load_jacobian("e", p, D, offset, d)
    for q in range(d):
        body.append(f"e_{q} = " + " + ".join(f"r{i} * e{i}_{q}" for i in range(p)))
        body += [f"c{q} += c_k * e_{q}", f"d{q} += d_k * e_{q}"]
    numbers = range(len(kept))
    kept_arguments = "".join(f", variable{n}, G{n}" for n in numbers)
    one = text_of(
        "gradients_of_chunk",
        f"first, ptr, J, r, c, d, E{kept_arguments}",
        "for j in range(start, stop):",
        indented(1, [f"c{q}, d{q} = E[0, j, {q}], E[1, j, {q}]" for q in range(d)]),
        "    for k in range(np.uint64(ptr[j]) - first, np.uint64(ptr[j + np.uint64(1)]) - first):",
        indented(2, body),
        indented(1, [f"E[0, j, {q}], E[1, j, {q}] = c{q}, d{q}" for q in range(d)]),
    )
    part = "[first:last]"
    parts = "".join(f", variable{n}{part}, G{n}[task]" for n in numbers)
    driver = text_of(
        "gradients",
        f"task, chunks, ptr, c, d, E{kept_arguments}, {fused_jacobians.parameters(0, fused)}",
        "for chunk in range(start, stop):",
        "    begin, end = np.uint64(chunks[chunk]), np.uint64(chunks[chunk + np.uint64(1)])",
        "    first, last = np.uint64(ptr[begin]), np.uint64(ptr[end])",
        indented(1, fused_jacobians.evaluation(0, fused, "first", "last")),
        f"    gradients_of_chunk(begin, end, first, ptr, J0_, r0_, c{part}, d{part}, E{parts})",
    )
    return compile_source("gradients", "\n".join([fused_jacobians.text(0, fused), one, driver]))
