"""Kernels for the blocks of the linear system, printed as straight-line code for the block sizes at hand.

    Hᵢ = Jᵢᵀ Mᵢ Jᵢ,   Mᵢ = aᵢ I + bᵢ rᵢ rᵢᵀ,   gᵢ = cᵢ Jᵢᵀ rᵢ

J holds one row of p·D numbers per observation.  An eliminated variable of d numbers has a block V = L Lᵀ, kept as
d(d+1)/2 numbers row by row; its coupling to the kept variables is Y = W L⁻ᵀ with W = J_Kᵀ M J_E.  Every kernel works
on items start…stop and writes only what belongs to them, so that any number of threads can share the work.
"""

from collections.abc import Callable, Sequence
from functools import cache

from asker.engines.cpu.compile import compile_source

INDENT = "    "


def _source(name: str, parameters: str, *lines: str | Sequence[str]) -> Callable[..., None]:
    flat: list[str] = []
    for line in lines:
        flat += [line] if isinstance(line, str) else list(line)
    return compile_source(name, f"def {name}({parameters}):\n" + "".join(f"{INDENT}{line}\n" for line in flat))


def _indented(depth: int, lines: Sequence[str]) -> list[str]:
    return [INDENT * depth + line for line in lines]


def _load_jacobian(x: str, p: int, D: int, offset: int, d: int) -> list[str]:
    return [f"{x}{i}_{q} = J[k, {i * D + offset + q}]" for i in range(p) for q in range(d)]


def _load_residual(p: int) -> list[str]:
    return [f"r{i} = r[k, {i}]" for i in range(p)]


def _weighted(x: str, p: int, d: int, radial: bool) -> list[str]:
    """m = M J for the block `x`: m_iq = a x_iq + b r_i (rᵀx)_q; and its gradient part x_g_q = (rᵀx)_q."""
    lines = [f"{x}g_{q} = " + " + ".join(f"r{i} * {x}{i}_{q}" for i in range(p)) for q in range(d)]
    if radial:
        lines += [f"m{i}_{q} = a_k * {x}{i}_{q} + b_k * r{i} * {x}g_{q}" for i in range(p) for q in range(d)]
    else:
        lines += [f"m{i}_{q} = a_k * {x}{i}_{q}" for i in range(p) for q in range(d)]
    return lines


def _dot(p: int, x: str, q: int, y: str, s: int) -> str:
    return " + ".join(f"{x}{i}_{q} * {y}{i}_{s}" for i in range(p))


def _model(radial: bool) -> list[str]:
    return ["a_k = a[k]", "c_k = c[k]"] + (["b_k = b[k]"] if radial else [])


def packed(q: int, s: int) -> int:
    """Where (q, s ≤ q) stands in a lower triangle kept row by row."""
    return q * (q + 1) // 2 + s


@cache
def eliminated_blocks(p: int, D: int, offset: int, d: int, radial: bool):
    """V += Σ JᵀMJ and g += Σ cJᵀr for each eliminated variable."""
    lower = [(q, s) for q in range(d) for s in range(q + 1)]
    return _source(
        "eliminated_blocks",
        "start, stop, ptr, J, r, a, b, c, V, g",
        "for j in range(start, stop):",
        _indented(1, [f"v{q}_{s} = V[j, {packed(q, s)}]" for q, s in lower]),
        _indented(1, [f"g{q} = g[j, {q}]" for q in range(d)]),
        "    for k in range(np.uint64(ptr[j]), np.uint64(ptr[j + np.uint64(1)])):",
        _indented(2, _model(radial) + _load_residual(p) + _load_jacobian("e", p, D, offset, d)),
        _indented(2, _weighted("e", p, d, radial)),
        _indented(2, [f"v{q}_{s} += {_dot(p, 'm', q, 'e', s)}" for q, s in lower]),
        _indented(2, [f"g{q} += c_k * eg_{q}" for q in range(d)]),
        _indented(1, [f"V[j, {packed(q, s)}] = v{q}_{s}" for q, s in lower]),
        _indented(1, [f"g[j, {q}] = g{q}" for q in range(d)]),
    )


SMALLEST_DIAGONAL = 1e-6  # of H where the damping is relative to it, as in Ceres


@cache
def factor_blocks(d: int, relative: bool):
    """V + λI (relative: V + λ diag V) = L Lᵀ in place, z = L⁻¹g in place of g; failed[0] where V is not positive."""
    lines = []
    for q in range(d):
        for s in range(q):
            terms = "".join(f" - l{q}_{m} * l{s}_{m}" for m in range(s))
            lines.append(f"l{q}_{s} = (V[j, {packed(q, s)}]{terms}) / l{s}_{s}")
        terms = "".join(f" - l{q}_{m} * l{q}_{m}" for m in range(q))
        unit = f"max(V[j, {packed(q, q)}], {SMALLEST_DIAGONAL!r})" if relative else "1.0"
        lines += [f"pivot = V[j, {packed(q, q)}] + damping * {unit}{terms}", "bad |= not pivot > 0.0"]
        lines.append(f"l{q}_{q} = math.sqrt(pivot) if pivot > 0.0 else 1.0")
    for q in range(d):
        terms = "".join(f" - l{q}_{s} * z{s}" for s in range(q))
        lines.append(f"z{q} = (g[j, {q}]{terms}) / l{q}_{q}")
    return _source(
        "factor_blocks",
        "start, stop, damping, V, g, failed",
        "n_failed = 0",
        "for j in range(start, stop):",
        "    bad = False",
        _indented(1, lines),
        _indented(1, [f"V[j, {packed(q, s)}] = l{q}_{s}" for q in range(d) for s in range(q + 1)]),
        _indented(1, [f"g[j, {q}] = z{q}" for q in range(d)]),
        "    n_failed += bad",
        "if n_failed:",
        "    failed[0] = True",
    )


@cache
def coupling(p: int, D: int, kept: tuple[tuple[int, int], ...], offset: int, d: int, radial: bool):
    """Y = (J_KᵀMJ_E) L⁻ᵀ for each observation; `kept` lists (offset, size) of the kept slots."""
    lines = [f"l{q}_{s} = L[j, {packed(q, s)}]" for q in range(d) for s in range(q + 1)]
    lines += [f"i{q} = 1.0 / l{q}_{q}" for q in range(d)]
    row = 0
    for at, size in kept:
        lines += _load_jacobian("x", p, D, at, size)
        for q in range(size):
            for s in range(d):
                terms = "".join(f" - y{m} * l{s}_{m}" for m in range(s))
                lines.append(f"y{s} = ({_dot(p, 'x', q, 'm', s)}{terms}) * i{s}")
                lines.append(f"Y[k, {(row + q) * d + s}] = y{s}")
        row += size
    return _source(
        "coupling",
        "start, stop, index, J, r, a, b, c, L, Y",
        "for k in range(start, stop):",
        "    j = np.uint64(index[k])",
        _indented(1, _model(radial) + _load_residual(p) + _load_jacobian("e", p, D, offset, d)),
        _indented(1, _weighted("e", p, d, radial)),
        _indented(1, lines),
    )


def _rows_kernel(name: str, parameters: str, dim: int, dense: bool, body: list[str]):
    """A loop over items (one variable, or a part of its observations), each with a strip of the reduced matrix.

    Dense: the strip is the matrix itself.  Sparse: a private strip, added to the values of the row afterwards.
    """
    if dense:
        strips = [f"s{q} = S[target + np.uint64({q})]" for q in range(dim)]
        store = "S"
        before, after = [], []
    else:
        strips = []
        store = "S, S_ptr, S_columns, n"
        before = [f"strip = np.zeros(({dim}, n))"] + [f"s{q} = strip[{q}]" for q in range(dim)]
        after = [
            "pattern = S_columns[S_ptr[v, 0] : S_ptr[v, 1]]",
            "for m in range(len(pattern)):",
            "    column = np.uint64(pattern[m])",
            *[
                line
                for q in range(dim)
                for line in (
                    f"    S[S_ptr[v, 2] + {q} * len(pattern) + m] += s{q}[column]",
                    f"    s{q}[column] = 0.0",
                )
            ],
        ]
    return _source(
        name,
        f"start, stop, items, first_row, {parameters}, g, {store}",
        before,
        "for item in range(start, stop):",
        "    v = items[item, 0]",
        f"    own = np.uint64(first_row + v * {dim})",
        "    target = np.uint64(items[item, 3])",
        _indented(1, strips),
        "    for entry in range(np.uint64(items[item, 1]), np.uint64(items[item, 2])):",
        "        k = np.uint64(rows[entry])",
        _indented(2, body),
        _indented(1, after),
    )


@cache
def gram_rows(p: int, D: int, offset: int, dim: int, others: tuple[tuple[int, int], ...], dense: bool, radial: bool):
    """S += J_AᵀMJ_B for the slot A and each kept slot B of `others` at or below the diagonal; g += cJ_Aᵀr."""
    body = _model(radial) + _load_residual(p) + _load_jacobian("x", p, D, offset, dim)
    body += _weighted("x", p, dim, radial)
    body += [f"g[target + np.uint64({q})] += c_k * xg_{q}" for q in range(dim)]
    for m, (at, size) in enumerate(others):
        inner = _load_jacobian("y", p, D, at, size)
        inner += [
            f"s{q}[column + np.uint64({s})] += {_dot(p, 'm', q, 'y', s)}" for q in range(dim) for s in range(size)
        ]
        body += [f"column = np.uint64(columns{m}[k])", "if column <= own:", *_indented(1, inner)]
    columns = ", ".join(f"columns{m}" for m in range(len(others)))
    return _rows_kernel("gram_rows", f"rows, {columns}, J, r, a, b, c", dim, dense, body)


@cache
def schur_rows(d: int, at_x: int, dim: int, at_y: int, other: int, dense: bool, gradient: bool):
    """S −= Y_A Y_Bᵀ over all observations B of the same eliminated variable; g −= Y_A z where `gradient`."""
    body = ["j = np.uint64(index[k])"]
    body += [f"x{q}_{s} = YA[k, {(at_x + q) * d + s}]" for q in range(dim) for s in range(d)]
    if gradient:
        body += [f"z{s} = z[j, {s}]" for s in range(d)]
        dots = [" + ".join(f"x{q}_{s} * z{s}" for s in range(d)) for q in range(dim)]
        body += [f"g[target + np.uint64({q})] -= {dot}" for q, dot in enumerate(dots)]
    inner = [f"y{q}_{s} = YB[o, {(at_y + q) * d + s}]" for q in range(other) for s in range(d)]
    for q in range(dim):
        for t in range(other):
            dot = " + ".join(f"x{q}_{s} * y{t}_{s}" for s in range(d))
            inner.append(f"s{q}[column + np.uint64({t})] -= {dot}")
    body += [
        "for o in range(np.uint64(ptr[j]), np.uint64(ptr[j + np.uint64(1)])):",
        "    column = np.uint64(columns[o])",
        "    if column <= own:",
        *_indented(2, inner),
    ]
    return _rows_kernel("schur_rows", "rows, index, ptr, columns, YA, YB, z", dim, dense, body)


@cache
def couple_back(d: int, slots: tuple[tuple[int, int], ...]):
    """t += Yᵀx for each eliminated variable."""
    body = []
    for m, (at, dim) in enumerate(slots):
        body.append(f"column = np.uint64(columns{m}[k])")
        body += [f"x{q} = x[column + np.uint64({q})]" for q in range(dim)]
        for s in range(d):
            body.append(f"t{s} += " + " + ".join(f"Y[k, {(at + q) * d + s}] * x{q}" for q in range(dim)))
    columns = ", ".join(f"columns{m}" for m in range(len(slots)))
    return _source(
        "couple_back",
        f"start, stop, ptr, {columns}, Y, x, t",
        "for j in range(start, stop):",
        _indented(1, [f"t{s} = t[j, {s}]" for s in range(d)]),
        "    for k in range(np.uint64(ptr[j]), np.uint64(ptr[j + np.uint64(1)])):",
        _indented(2, body),
        _indented(1, [f"t[j, {s}] = t{s}" for s in range(d)]),
    )


@cache
def couple_forward(d: int, at: int, dim: int):
    """y −= Y t for each kept variable of one slot."""
    return _source(
        "couple_forward",
        "start, stop, rows_ptr, rows, index, Y, t, first_row, y",
        "for v in range(start, stop):",
        _indented(1, [f"y{q} = 0.0" for q in range(dim)]),
        "    for entry in range(np.uint64(rows_ptr[v]), np.uint64(rows_ptr[v + np.uint64(1)])):",
        "        k = np.uint64(rows[entry])",
        "        j = np.uint64(index[k])",
        _indented(2, [f"t{s} = t[j, {s}]" for s in range(d)]),
        _indented(
            2,
            [f"y{q} += " + " + ".join(f"Y[k, {(at + q) * d + s}] * t{s}" for s in range(d)) for q in range(dim)],
        ),
        f"    own = first_row + np.int64(v) * {dim}",
        _indented(1, [f"y[own + {q}] -= y{q}" for q in range(dim)]),
    )


@cache
def schur_diagonal(d: int, at: int, dim: int):
    """B −= Y Yᵀ for each kept variable of one slot: the diagonal blocks, as if it saw each eliminated one once."""
    lower = [(q, s) for q in range(dim) for s in range(q + 1)]
    return _source(
        "schur_diagonal",
        "start, stop, rows_ptr, rows, Y, B",
        "for v in range(start, stop):",
        _indented(1, [f"b{q}_{s} = 0.0" for q, s in lower]),
        "    for entry in range(np.uint64(rows_ptr[v]), np.uint64(rows_ptr[v + np.uint64(1)])):",
        "        k = np.uint64(rows[entry])",
        _indented(2, [f"y{q}_{m} = Y[k, {(at + q) * d + m}]" for q in range(dim) for m in range(d)]),
        _indented(
            2, [f"b{q}_{s} += " + " + ".join(f"y{q}_{m} * y{s}_{m}" for m in range(d)) for q, s in lower]
        ),
        _indented(1, [f"B[v, {q}, {s}] -= b{q}_{s}" for q, s in lower]),
        _indented(1, [f"B[v, {s}, {q}] -= b{q}_{s}" for q, s in lower if q != s]),
    )


@cache
def solve_transposed(d: int):
    """δ = −L⁻ᵀ t for each eliminated variable."""
    lines = []
    for q in reversed(range(d)):
        terms = "".join(f" - L[j, {packed(m, q)}] * x{m}" for m in range(q + 1, d))
        lines.append(f"x{q} = (t[j, {q}]{terms}) / L[j, {packed(q, q)}]")
    return _source(
        "solve_transposed",
        "start, stop, L, t, delta",
        "for j in range(start, stop):",
        _indented(1, lines),
        _indented(1, [f"delta[j, {q}] = -x{q}" for q in range(d)]),
    )


@cache
def radial_change(p: int, D: int, slots: tuple[tuple[int, int], ...]):
    """rᵀJδ for each observation."""
    lines = _load_residual(p)
    for m, (_, dim) in enumerate(slots):
        lines.append(f"i = np.uint64(index{m}[k])")
        lines += [f"d{m}_{q} = delta{m}[i, {q}]" for q in range(dim)]
    terms = []
    for i in range(p):
        moved = [f"J[k, {i * D + at + q}] * d{m}_{q}" for m, (at, dim) in enumerate(slots) for q in range(dim)]
        terms.append(f"r{i} * ({' + '.join(moved)})")
    pairs = ", ".join(f"index{m}, delta{m}" for m in range(len(slots)))
    return _source(
        "radial_change",
        f"start, stop, J, r, {pairs}, out",
        "for k in range(start, stop):",
        _indented(1, lines),
        f"    out[k] = {' + '.join(terms)}",
    )


@cache
def gradients(p: int, D: int, offset: int, dim: int):
    """G += Σ c Jᵀr for each variable of one slot, for two sets of weights c at once."""
    body = [*_load_residual(p), *_load_jacobian("x", p, D, offset, dim)]
    for q in range(dim):
        body.append(f"x_{q} = " + " + ".join(f"r{i} * x{i}_{q}" for i in range(p)))
        body += [f"g{q} += c_k * x_{q}", f"h{q} += d_k * x_{q}"]
    return _source(
        "gradients",
        "start, stop, rows_ptr, rows, J, r, c, d, G",
        "for v in range(start, stop):",
        _indented(1, [f"g{q}, h{q} = G[v, 0, {q}], G[v, 1, {q}]" for q in range(dim)]),
        "    for entry in range(np.uint64(rows_ptr[v]), np.uint64(rows_ptr[v + np.uint64(1)])):",
        "        k = np.uint64(rows[entry])",
        "        c_k, d_k = c[k], d[k]",
        _indented(2, body),
        _indented(1, [f"G[v, 0, {q}], G[v, 1, {q}] = g{q}, h{q}" for q in range(dim)]),
    )
