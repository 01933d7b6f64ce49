"""Loops for the block-wise elimination of one group of variables.

    Hᵢ = Jᵢᵀ Mᵢ Jᵢ,   Mᵢ = aᵢ I + bᵢ rᵢ rᵢᵀ,   gᵢ = cᵢ Jᵢᵀ rᵢ

J has one row of p·D numbers per observation.  An eliminated variable of dimension d has a block V = L Lᵀ, stored as
d(d+1)/2 numbers row by row.  Its coupling to the K unknowns of the kept slots is Yᵀ = L⁻¹Wᵀ with W = J_Kᵀ M J_E, d rows
of K numbers per observation.
"""

from functools import cache, lru_cache
from typing import NamedTuple

from asker.engines.cpu.compiler import Printed, compile_source
from asker.engines.cpu.system import fused_jacobians
from asker.engines.cpu.system.codegen import (
    LOOP_CACHE_SIZE,
    add_products,
    dot,
    indented,
    lanes,
    load_jacobian,
    load_model,
    load_residual,
    packed,
    printed,
    text_of,
    vectors,
    weighted,
)
from asker.engines.cpu.system.fused_jacobians import Fusion


class Group(NamedTuple):
    """The dimensions of a factor group with an eliminated slot."""

    fused: Fusion
    p: int
    D: int
    kept: tuple[tuple[int, int], ...]
    """(offset, size) of the kept slots."""
    offset: int
    """First Jacobian column of the eliminated slot."""
    d: int
    radial: bool


@lru_cache(LOOP_CACHE_SIZE)  # `fused` contains the source of a user's function
def eliminate(groups: tuple[Group, ...], relative: bool, stiff: bool) -> Printed:
    """Return the loop that computes L, z, Y and the diagonal blocks of kept variables.

    It processes the eliminated variables in chunks whose derivatives fit into the cache.
    """
    d, texts, parameters, cleared, sums, couplings = groups[0].d, [], [], [], [], []
    for m, g in enumerate(groups):
        n_kept, part = len(g.kept), f"[first{m}:last{m}]"
        texts += [fused_jacobians.text(m, g.fused), _eliminated_blocks(f"eliminated_blocks{m}", g)]
        parameters += [f"ptr{m}, a{m}, b{m}, c{m}, {fused_jacobians.parameters(m, g.fused)}"]
        model = f"J{m}_, r{m}_, a{m}{part}, b{m}{part}, c{m}{part}"
        sums += [f"first{m} = np.uint64(ptr{m}[first])", f"last{m} = np.uint64(ptr{m}[last])"]
        sums += fused_jacobians.evaluation(m, g.fused, f"first{m}", f"last{m}")
        sums += [f"eliminated_blocks{m}(first, last, first{m}, ptr{m}, {model}, V, g)"]
        if n_kept:
            texts += [_coupling(f"coupling{m}", g)]
            parameters += [f"index{m}, Y{m}", *[f"variable{m}_{n}, U{m}_{n}, G{m}_{n}" for n in range(n_kept)]]
            kept_arguments = ", ".join(f"variable{m}_{n}{part}, U{m}_{n}[task], G{m}_{n}[task]" for n in range(n_kept))
            cleared += [line for n in range(n_kept) for line in _cleared(f"{m}_{n}", g.kept[n][1])]
            whole = f"np.uint64(0), last{m} - first{m}"
            couplings += [f"coupling{m}({whole}, index{m}{part}, {model}, V, Y{m}{part}, {kept_arguments})"]
    size = d * (d + 1) // 2
    add = ["for j in range(first, last):", *[f"    V[j, {q}] += stiffness[j, {q}]" for q in range(size)]]
    driver = text_of(
        "eliminate",
        f"task, chunks, damping, V, g, failed, {'stiffness, ' if stiff else ''}{', '.join(parameters)}",
        cleared,
        "for chunk in range(start, stop):",
        "    first, last = np.uint64(chunks[chunk]), np.uint64(chunks[chunk + np.uint64(1)])",
        "    for j in range(first, last):",
        indented(2, [f"V[j, {q}] = 0.0" for q in range(size)] + [f"g[j, {q}] = 0.0" for q in range(d)]),
        indented(1, sums + (add if stiff else []) + ["factor_blocks(first, last, damping, V, g, failed)"] + couplings),
    )
    return compile_source("eliminate", "\n".join([*texts, _factor_blocks(d, relative), driver]))


def _cleared(name: str, dim: int) -> list[str]:
    """Return statements that set the sums of a task to zero."""
    lines = [f"U{name}[task, v, {q}, {t}] = 0.0" for q in range(dim) for t in range(lanes(dim))]
    return [
        f"for v in range(len(U{name}[task])):",
        *indented(1, [*lines, *[f"G{name}[task, v, {q}] = 0.0" for q in range(dim)]]),
    ]


def _eliminated_blocks(name: str, group: Group) -> str:
    """Return the loop V += Σ JᵀMJ, g += Σ cJᵀr over eliminated variables; row 0 of J is observation `first`."""
    _, p, D, _, offset, d, radial = group
    lower = [(q, s) for q in range(d) for s in range(q + 1)]
    return text_of(
        name,
        "first, ptr, J, r, a, b, c, V, g",
        "for j in range(start, stop):",
        indented(1, [f"v{q}_{s} = V[j, {packed(q, s)}]" for q, s in lower]),
        indented(1, [f"g{q} = g[j, {q}]" for q in range(d)]),
        "    for k in range(np.uint64(ptr[j]) - first, np.uint64(ptr[j + np.uint64(1)]) - first):",
        indented(2, load_model(radial) + load_residual(p) + load_jacobian("e", p, D, offset, d)),
        indented(2, weighted("e", p, d, radial, "m")),
        indented(2, [f"v{q}_{s} += {dot(p, 'm', q, 'e', s)}" for q, s in lower]),
        indented(2, [f"g{q} += c_k * eg_{q}" for q in range(d)]),
        indented(1, [f"V[j, {packed(q, s)}] = v{q}_{s}" for q, s in lower]),
        indented(1, [f"g[j, {q}] = g{q}" for q in range(d)]),
    )


def _factor_blocks(d: int, relative: bool) -> str:
    """Return the loop that factorises V + λI (relative: V + λ diag V) = L Lᵀ and replaces g by z = L⁻¹g, in place.

    It sets failed[0] if a pivot is not positive.
    """
    lines = []
    for q in range(d):
        for s in range(q):
            terms = "".join(f" - l{q}_{m} * l{s}_{m}" for m in range(s))
            lines.append(f"l{q}_{s} = (V[j, {packed(q, s)}]{terms}) / l{s}_{s}")
        terms = "".join(f" - l{q}_{m} * l{q}_{m}" for m in range(q))
        entry = f"V[j, {packed(q, q)}]"
        unit = f"({entry} if {entry} > 0.0 else 1.0)" if relative else "1.0"
        lines.append(f"added = damping * {unit}")
        lines.append(f"pivot = V[j, {packed(q, q)}] + added{terms}")
        lines.append("pivot = added if pivot < added else pivot")  # it can only be smaller by rounding
        lines += ["bad |= not pivot > 0.0", f"l{q}_{q} = math.sqrt(pivot) if pivot > 0.0 else 1.0"]
    for q in range(d):
        terms = "".join(f" - l{q}_{s} * z{s}" for s in range(q))
        lines.append(f"z{q} = (g[j, {q}]{terms}) / l{q}_{q}")
    return text_of(
        "factor_blocks",
        "damping, V, g, failed",
        "n_failed = 0",
        "for j in range(start, stop):",
        "    bad = False",
        indented(1, lines),
        indented(1, [f"V[j, {packed(q, s)}] = l{q}_{s}" for q in range(d) for s in range(q + 1)]),
        indented(1, [f"g[j, {q}] = z{q}" for q in range(d)]),
        "    n_failed += bad",
        "if n_failed:",
        "    failed[0] = True",
    )


def _coupling(name: str, group: Group) -> str:
    """Return the loop Yᵀ = L⁻¹ (J_KᵀMJ_E)ᵀ over observations.

    It also accumulates the diagonal blocks and gradients of the kept variables, U += J_AᵀMJ_A and G += cJ_Aᵀr, since it
    reads J in memory order.
    """
    _, p, D, kept, offset, d, radial = group
    K = sum(size for _, size in kept)
    lines = [f"l{q}_{s} = L[j, {packed(q, s)}]" for q in range(d) for s in range(q + 1)]
    lines += [f"i{q} = 1.0 / l{q}_{q}" for q in range(d)]
    row = 0
    for n, (at, size) in enumerate(kept):
        lines += [f"x{i}_{t} = J[k, {i * D + at + t}]" for i in range(p) for t in range(lanes(size))]
        for s in range(d):
            for q in range(lanes(size)):
                terms = "".join(f" - y{q}_{m} * l{s}_{m}" for m in range(s))
                lines.append(f"y{q}_{s} = ({dot(p, 'x', q, 'm', s)}{terms}) * i{s}")
        wide = lanes(size) if len(kept) == 1 else size  # excess numbers are overwritten by the next row
        lines += [f"Y[k, {s * K + row + q}] = y{q}_{s}" for s in range(d) for q in range(wide if s < d - 1 else size)]
        lines += [f"v = np.uint64(variable{n}[k])", *weighted("x", p, size, radial, "n")]
        lines += [f"G{n}[v, {q}] += c_k * xg_{q}" for q in range(size)]
        lines += [line for i in range(p) for line in vectors(f"u{n}_{i}", "J[k]", f"{i * D + at} + {{t}}", size)]
        lines += add_products("+", size, size, [(f"n{i}_", f"u{n}_{i}") for i in range(p)], f"U{n}[v, {{q}}]", "{t}")
        row += size
    kept_arguments = ", ".join(f"variable{n}, U{n}, G{n}" for n in range(len(kept)))
    return text_of(
        name,
        f"index, J, r, a, b, c, L, Y, {kept_arguments}",
        "for k in range(start, stop):",
        "    j = np.uint64(index[k])",
        indented(1, load_model(radial) + load_residual(p) + load_jacobian("e", p, D, offset, d)),
        indented(1, weighted("e", p, d, radial, "m")),
        indented(1, lines),
    )


Slots = tuple[tuple[int, int], ...]
"""(first row in Y, size) of all kept slots of a factor group."""


@cache
def couple_back(d: int, slots: Slots) -> Printed:
    """Return the loop t += Yᵀx over eliminated variables."""
    return compile_source("couple_back", _couple_back("couple_back", d, slots))


def _couple_back(name: str, d: int, slots: Slots) -> str:
    """Return the loop that adds Y x, over the observations of each eliminated variable, to t."""
    K = sum(dim for _, dim in slots)
    body = []
    for m, (at, dim) in enumerate(slots):
        body.append(f"column = np.uint64(columns{m}[k])")
        body += [f"x{q} = x[column + np.uint64({q})]" for q in range(dim)]
        for s in range(d):
            body.append(f"t{s} += " + " + ".join(f"Y[k, {s * K + at + q}] * x{q}" for q in range(dim)))
    columns = ", ".join(f"columns{m}" for m in range(len(slots)))
    return text_of(
        name,
        f"ptr, {columns}, Y, x, t",
        "for j in range(start, stop):",
        indented(1, [f"t{s} = t[j, {s}]" for s in range(d)]),
        "    for k in range(np.uint64(ptr[j]), np.uint64(ptr[j + np.uint64(1)])):",
        indented(2, body),
        indented(1, [f"t[j, {s}] = t{s}" for s in range(d)]),
    )


@cache
def couple_forward(d: int, at: int, dim: int, K: int) -> Printed:
    """Return the loop y −= Y t over the kept variables of one slot."""
    return printed(
        "couple_forward",
        "ptr, observations, index, Y, t, first_row, y",
        "for v in range(start, stop):",
        indented(1, [f"y{q} = 0.0" for q in range(dim)]),
        "    for entry in range(np.uint64(ptr[v]), np.uint64(ptr[v + np.uint64(1)])):",
        "        k = np.uint64(observations[entry])",
        "        j = np.uint64(index[k])",
        indented(2, [f"t{s} = t[j, {s}]" for s in range(d)]),
        indented(
            2,
            [f"y{q} += " + " + ".join(f"Y[k, {s * K + at + q}] * t{s}" for s in range(d)) for q in range(dim)],
        ),
        f"    row = first_row + np.int64(v) * {dim}",
        indented(1, [f"y[row + {q}] -= y{q}" for q in range(dim)]),
    )


@cache
def schur_diagonal(d: int, at: int, dim: int, K: int) -> Printed:
    """Return the loop B −= Y Yᵀ over the diagonal blocks of the kept variables of one slot.

    It is exact if each kept variable shares at most one observation with each eliminated variable.
    """
    lower = [(q, s) for q in range(dim) for s in range(q + 1)]
    return printed(
        "schur_diagonal",
        "ptr, observations, Y, B",
        "for v in range(start, stop):",
        indented(1, [f"b{q}_{s} = 0.0" for q, s in lower]),
        "    for entry in range(np.uint64(ptr[v]), np.uint64(ptr[v + np.uint64(1)])):",
        "        k = np.uint64(observations[entry])",
        indented(2, [f"y{q}_{m} = Y[k, {m * K + at + q}]" for q in range(dim) for m in range(d)]),
        indented(2, [f"b{q}_{s} += " + " + ".join(f"y{q}_{m} * y{s}_{m}" for m in range(d)) for q, s in lower]),
        indented(1, [f"B[v, {q}, {s}] -= b{q}_{s}" for q, s in lower]),
        indented(1, [f"B[v, {s}, {q}] -= b{q}_{s}" for q, s in lower if q != s]),
    )


@cache
def substitute(d: int, groups: tuple[Slots, ...]) -> Printed:
    """Return the loop δ = −L⁻ᵀ(z + Yᵀx) over eliminated variables."""
    texts, parameters, calls = [], [], []
    for m, slots in enumerate(groups):
        columns = ", ".join(f"columns{m}_{n}" for n in range(len(slots)))
        texts.append(_couple_back(f"couple_back{m}", d, slots))
        parameters.append(f", ptr{m}, {columns}, Y{m}")
        calls.append(f"couple_back{m}(start, stop, ptr{m}, {columns}, Y{m}, x, delta)")
    driver = text_of(
        "substitute",
        f"L, z, x, delta{''.join(parameters)}",
        "for j in range(start, stop):",
        indented(1, [f"delta[j, {q}] = z[j, {q}]" for q in range(d)]),
        calls,
        "solve_transposed(start, stop, L, delta, delta)",
    )
    return compile_source("substitute", "\n".join([*texts, _solve_transposed(d), driver]))


@cache
def solve_transposed(d: int) -> Printed:
    """Return the loop δ = −L⁻ᵀ t over eliminated variables; δ and t may be the same array."""
    return compile_source("solve_transposed", _solve_transposed(d))


def _solve_transposed(d: int) -> str:
    """Return the loop that computes δ = −L⁻ᵀt of each eliminated variable."""
    lines = []
    for q in reversed(range(d)):
        terms = "".join(f" - L[j, {packed(m, q)}] * x{m}" for m in range(q + 1, d))
        lines.append(f"x{q} = (t[j, {q}]{terms}) / L[j, {packed(q, q)}]")
    return text_of(
        "solve_transposed",
        "L, t, delta",
        "for j in range(start, stop):",
        indented(1, lines),
        indented(1, [f"delta[j, {q}] = -x{q}" for q in range(d)]),
    )
