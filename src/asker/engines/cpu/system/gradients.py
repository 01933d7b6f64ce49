"""Gradients, and how residuals change along a step: what needs J, and no linear system."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from asker.engines.cpu.compiler import Printed, compile_source
from asker.engines.cpu.system import fused_jacobians, wide_residuals
from asker.engines.cpu.system.codegen import (
    LOOPS_KEPT,
    indented,
    load_jacobian,
    load_residual,
    run_loop_with,
    spacious,
    text_of,
)
from asker.engines.cpu.system.fused_jacobians import How
from asker.engines.cpu.system.linearization import Delta, Derivatives, Linearization
from asker.engines.cpu.threads import even_bounds
from asker.engines.sparsity import FactorStructure, Structure

Each = Sequence[np.ndarray]
"""One array for each factor group, or for each group of variables."""


def two_gradients(structure: Structure, linear: Sequence[Derivatives], c: Each, d: Each) -> Delta:
    """Σ c Jᵀr and Σ d Jᵀr, (2, n, tangent) for each group of variables that can move."""
    G = {v: np.zeros((2, len(v), v.manifold.tangent)) for v in structure.problem.variables if v.is_free}
    for f, lin, c_of, d_of in zip(structure.factors, linear, c, d, strict=True):
        _add_gradients(f, lin, c_of, d_of, G)
    return G


def barred_out(structure: Structure, linear: Sequence[Derivatives], c: Each, theta: Each) -> Sequence[Derivatives]:
    """The same derivatives without the directions that the descent −Σ c Jᵀr is barred in by bounds."""
    variables = structure.problem.variables
    if not any(v.is_free and v.bounds for v in variables):
        return linear
    G = two_gradients(structure, linear, c, c)
    rows = zip(variables, theta, strict=True)
    barred = {v: v.bounds.is_active(x, G[v][0]) for v, x in rows if v.is_free and v.bounds}
    if not any(each.any() for each in barred.values()):
        return linear
    return [_without(f, lin, barred) for f, lin in zip(structure.factors, linear, strict=True)]


def _without(f: FactorStructure, lin: Derivatives, barred: Delta) -> Linearization:
    assert isinstance(lin, Linearization)  # where there are bounds (engine.py)
    J = spacious(f.n, f.height * f.width)
    J[:] = lin.J
    columns = J.reshape(f.n, f.height, f.width)
    for k, start in zip(f.free, f.offsets, strict=True):
        v = f.factors.slots[k].variables
        if v in barred:
            block = columns[:, :, start : start + v.manifold.tangent]
            block[...] = np.where(barred[v][f.indices[k]][:, None], 0.0, block)
    return Linearization(lin.r, J)


def _add_gradients(f: FactorStructure, lin: Derivatives, c: np.ndarray, d: np.ndarray, G: Delta) -> None:
    """G += Σ c Jᵀr and Σ d Jᵀr of one factor group, (2, n, tangent) for each group of variables.

    Each task sums the kept variables in a copy of its own; the eliminated ones are nobody else's anyway.
    """
    if not f.free:
        return
    if f.is_wide:
        assert isinstance(lin, Linearization)  # what is long is made by XLA, and held
        wide_residuals.add_gradients(f, lin, (c, d), G)
        return
    e, kept = f.eliminated, [(s.index, G[s.variables]) for s in f.kept]
    spec = f.height, f.width, tuple((s.offset, s.dim) for s in f.kept), e.offset if e else 0, e.dim if e else 0
    ptr = e.ptr if e else np.arange(f.n + 1)
    cuts = fused_jacobians.stretches(ptr)
    bounds = even_bounds(len(cuts) - 1, smallest=8, most=16)
    sums = [np.zeros((len(bounds) - 1, *g.shape)) for _, g in kept]
    named = {f"variable{n}": index for n, (index, _) in enumerate(kept)}
    named |= {f"G{n}": total for n, total in enumerate(sums)}
    named |= {"ptr": ptr, "stretches": cuts, "c": c, "d": d, "E": G[e.variables] if e else np.zeros((2, 0, 0))}

    def own() -> dict[str, np.ndarray]:
        return fused_jacobians.own(0, lin, f, fused_jacobians.longest(ptr, cuts))

    run_loop_with(
        _gradient_loop(fused_jacobians.how(lin), *spec), bounds, own, **named, **fused_jacobians.shared(0, lin)
    )
    for (_, g), total in zip(kept, sums, strict=True):
        g += total.sum(axis=0)


def radial_change(f: FactorStructure, lin: Derivatives, delta: Delta, out: np.ndarray) -> None:
    """out = rᵀJδ of one factor group."""
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

    def own() -> dict[str, np.ndarray]:
        return fused_jacobians.own(0, lin, f, fused_jacobians.STRETCH)

    loop = _radial_loop(fused_jacobians.how(lin), fused_jacobians.STRETCH, f.height, f.width, places)
    run_loop_with(loop, even_bounds(f.n), own, out=out, **named)


@lru_cache(LOOPS_KEPT)  # `how` holds the text of a user's function
def _radial_loop(how: How, stretch: int, p: int, D: int, slots: tuple[tuple[int, int], ...]) -> Printed:
    """rᵀJδ for each observation."""
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
        "radial_of_stretch",
        f"J, r, {pairs}, out",
        "for k in range(start, stop):",
        indented(1, lines),
        f"    out[k] = {' + '.join(terms)}",
    )
    parts = ", ".join(f"index{m}[first:last], delta{m}" for m in numbers)
    driver = text_of(
        "radial_change",
        f"{fused_jacobians.parameters(0, how)}, {pairs}, out",
        f"for first in range(start, stop, {stretch}):",
        f"    last = min(first + np.uint64({stretch}), stop)",
        indented(1, fused_jacobians.made(0, how, "first", "last")),
        f"    radial_of_stretch(np.uint64(0), last - first, J0_, r0_, {parts}, out[first:last])",
    )
    return compile_source("radial_change", "\n".join([fused_jacobians.text(0, how), one, driver]))


@lru_cache(LOOPS_KEPT)  # `how` holds the text of a user's function
def _gradient_loop(how: How, p: int, D: int, kept: tuple[tuple[int, int], ...], offset: int, d: int) -> Printed:
    """G += Σ c Jᵀr for two sets of weights c at once, in the order in which J lies.

    Items are stretches of the eliminated variables (at `offset`, of size d), or of the observations where d is 0.  Each
    task sums the kept slots in arrays of its own.
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
    own = "".join(f", variable{n}, G{n}" for n in numbers)
    one = text_of(
        "gradients_of_stretch",
        f"first, ptr, J, r, c, d, E{own}",
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
        f"task, stretches, ptr, c, d, E{own}, {fused_jacobians.parameters(0, how)}",
        "for stretch in range(start, stop):",
        "    begin, end = np.uint64(stretches[stretch]), np.uint64(stretches[stretch + np.uint64(1)])",
        "    first, last = np.uint64(ptr[begin]), np.uint64(ptr[end])",
        indented(1, fused_jacobians.made(0, how, "first", "last")),
        f"    gradients_of_stretch(begin, end, first, ptr, J0_, r0_, c{part}, d{part}, E{parts})",
    )
    return compile_source("gradients", "\n".join([fused_jacobians.text(0, how), one, driver]))
