"""Kernels for the blocks of the linear system, printed as straight-line code for the block sizes at hand.

    Hᵢ = Jᵢᵀ Mᵢ Jᵢ,   Mᵢ = aᵢ I + bᵢ rᵢ rᵢᵀ,   gᵢ = cᵢ Jᵢᵀ rᵢ

J holds one row of p·D numbers per observation.  An eliminated variable of d numbers has a block V = L Lᵀ, kept as
d(d+1)/2 numbers row by row; its coupling to the K numbers of the kept slots is Yᵀ = L⁻¹Wᵀ with W = J_Kᵀ M J_E, d rows
of K numbers per observation.  Every kernel works on items start…stop and writes only what belongs to them, so that any
number of threads can share the work.

Where it counts, neighbouring statements differ by neighbouring addresses only, and all loads stand before the stores:
then LLVM makes vector instructions of them.  A block of 6 columns is computed in 8 lanes; the last lanes read past the
block and write to columns of the strip that nobody reads.  J and Y therefore end in a few spare numbers (`SLACK`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from asker.engines.cpu.compile import compile_source
from asker.engines.solvers import SMALLEST_DIAGONAL

INDENT = "    "
SLACK = 16


def lanes(dim: int) -> int:
    """How many columns of a strip a variable of `dim` numbers takes."""
    return dim if dim <= 2 else -(-dim // 4) * 4


def spacious(n: int, width: int) -> np.ndarray:
    """An uninitialised array (n, width) with readable numbers behind its end."""
    flat = np.empty(n * width + SLACK)
    flat[n * width :] = 0.0
    return flat[: n * width].reshape(n, width)


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


def _weighted(x: str, p: int, d: int, radial: bool, m: str) -> list[str]:
    """m = M x for the block x: m_iq = a x_iq + b r_i (rᵀx)_q; and its gradient part xg_q = (rᵀx)_q."""
    lines = [f"{x}g_{q} = " + " + ".join(f"r{i} * {x}{i}_{q}" for i in range(p)) for q in range(d)]
    if radial:
        lines += [f"{m}{i}_{q} = a_k * {x}{i}_{q} + b_k * r{i} * {x}g_{q}" for i in range(p) for q in range(d)]
    else:
        lines += [f"{m}{i}_{q} = a_k * {x}{i}_{q}" for i in range(p) for q in range(d)]
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
        _indented(2, _weighted("e", p, d, radial, "m")),
        _indented(2, [f"v{q}_{s} += {_dot(p, 'm', q, 'e', s)}" for q, s in lower]),
        _indented(2, [f"g{q} += c_k * eg_{q}" for q in range(d)]),
        _indented(1, [f"V[j, {packed(q, s)}] = v{q}_{s}" for q, s in lower]),
        _indented(1, [f"g[j, {q}] = g{q}" for q in range(d)]),
    )


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
        lines.append(f"added = damping * {unit}")
        lines.append(f"pivot = V[j, {packed(q, q)}] + added{terms}")
        lines.append("pivot = added if pivot < added else pivot")  # never below, but for rounding
        lines += ["bad |= not pivot > 0.0", f"l{q}_{q} = math.sqrt(pivot) if pivot > 0.0 else 1.0"]
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
    """Yᵀ = L⁻¹ (J_KᵀMJ_E)ᵀ for each observation; `kept` lists (offset, size) of the kept slots.

    On the way, the own blocks of the kept variables: U += J_AᵀMJ_A and G += cJ_Aᵀr, since J is at hand here in the
    order in which it lies.  U and G belong to one task alone.
    """
    K = sum(size for _, size in kept)
    lines = [f"l{q}_{s} = L[j, {packed(q, s)}]" for q in range(d) for s in range(q + 1)]
    lines += [f"i{q} = 1.0 / l{q}_{q}" for q in range(d)]
    row = 0
    for n, (at, size) in enumerate(kept):
        lines += [f"x{i}_{t} = J[k, {i * D + at + t}]" for i in range(p) for t in range(lanes(size))]
        for s in range(d):
            for q in range(size):
                terms = "".join(f" - y{q}_{m} * l{s}_{m}" for m in range(s))
                lines.append(f"y{q}_{s} = ({_dot(p, 'x', q, 'm', s)}{terms}) * i{s}")
        lines += [f"Y[k, {s * K + row + q}] = y{q}_{s}" for s in range(d) for q in range(size)]
        lines += [f"v = np.uint64(variable{n}[k])", *_weighted("x", p, size, radial, "n")]
        lines += [f"G{n}[v, {q}] += c_k * xg_{q}" for q in range(size)]
        lines += _add_products("+", size, size, [(f"n{i}_", f"x{i}_") for i in range(p)], f"U{n}[v, {{q}}, {{t}}]")
        row += size
    own = ", ".join(f"variable{n}, U{n}, G{n}" for n in range(len(kept)))
    return _source(
        "coupling",
        f"start, stop, index, J, r, a, b, c, L, Y, {own}",
        "for k in range(start, stop):",
        "    j = np.uint64(index[k])",
        _indented(1, _model(radial) + _load_residual(p) + _load_jacobian("e", p, D, offset, d)),
        _indented(1, _weighted("e", p, d, radial, "m")),
        _indented(1, lines),
    )


@dataclass(frozen=True)
class RowsSpec:
    """What the rows of one kept slot A are made of."""

    p: int
    D: int
    offset: int
    """First Jacobian column of A."""
    dim: int
    gram: tuple[tuple[int, int], ...]
    """(offset, size) of the kept slots B of the same factor whose J_AᵀMJ_B is added here."""
    d: int
    """Size of the eliminated variables; 0 where none are eliminated: then the own blocks and g are made here too."""
    in_Y: tuple[int, int]
    """First row of A in its factor's Y, and K of that factor."""
    schur: tuple[tuple[int, int, int, bool], ...]
    """(first row in Y, size, K, whether its lanes ascend within an eliminated variable) of every kept slot that may
    share an eliminated variable."""
    radial: bool
    dense: bool


@cache
def rows(spec: RowsSpec):
    """The rows of one kept slot: S += J_AᵀMJ_B − Y_A Y_Bᵀ, g += cJ_Aᵀr − Y_A z, diagonal += diag J_AᵀMJ_A.

    An item is one variable, or a part of its observations; only columns at or below the diagonal count.
    Dense: S is the matrix with its columns in lanes.  Sparse: the rows are summed in a private strip and then added to
    S, which holds the values of the blocks that `pattern` lists, row after row.  U and G are the own blocks and
    gradients that `coupling` made.
    """
    dim = spec.dim
    body: list[str] = []
    parameters: list[str] = []
    if spec.gram:
        body += _model(spec.radial) + _load_residual(spec.p)
        body += _load_jacobian("x", spec.p, spec.D, spec.offset, dim) + _weighted("x", spec.p, dim, spec.radial, "m")
        if not spec.d:
            body += [f"g{q} += c_k * xg_{q}" for q in range(dim)]
            body += [f"h{q} += {_dot(spec.p, 'm', q, 'x', q)}" for q in range(dim)]
    for n, (at, size) in enumerate(spec.gram):
        parameters.append(f"gram_lane{n}")
        inner = [f"y{i}_{t} = J[k, {i * spec.D + at + t}]" for i in range(spec.p) for t in range(lanes(size))]
        inner += _add_products("+", dim, size, [(f"m{i}_", f"y{i}_") for i in range(spec.p)])
        if at != spec.offset and size == dim:  # another slot, with perhaps the same variable
            inner += ["if lane == own:", *[f"    h{q} += {_dot(spec.p, 'm', q, 'y', q)}" for q in range(dim)]]
        body += [f"lane = np.uint64(gram_lane{n}[k])", "if lane <= own:", *_indented(1, inner)]
    own_blocks = []
    if spec.d:
        body += _schur_body(spec)
        parameters += ["index", "YA", "z", "U", "G"]
        parameters += [f"{name}{n}" for n in range(len(spec.schur)) for name in ("ptr", "schur_lane", "Y")]
        own_blocks = ["if target == items[item, 5]:", "    v = items[item, 0]"]  # once a row
        for q in range(dim):
            own_blocks += [f"    g{q} += G[v, {q}]", f"    h{q} += U[v, {q}, {q}]"]
            own_blocks += [f"    s{q}[own + np.uint64({t})] += U[v, {q}, {t}]" for t in range(dim)]
    return _source(
        "rows",
        f"start, stop, items, first_lane, rows, J, r, a, b, c, {', '.join(parameters)}, "
        "starts, dims, lane_of, pattern_ptr, pattern, g, diagonal, S, n_lanes",
        [] if spec.dense else [f"strip = np.zeros(({dim}, n_lanes))", *[f"s{q} = strip[{q}]" for q in range(dim)]],
        "for item in range(start, stop):",
        _indented(1, [f"s{q} = S[items[item, 3] + {q}]" for q in range(dim)] if spec.dense else []),
        f"    own = np.uint64(first_lane + items[item, 0] * {lanes(dim)})",
        _indented(1, [f"g{q}, h{q} = 0.0, 0.0" for q in range(dim)]),
        "    for entry in range(np.uint64(items[item, 1]), np.uint64(items[item, 2])):",
        "        k = np.uint64(rows[entry])",
        _indented(2, body),
        "    target = items[item, 3]",
        _indented(1, own_blocks),
        _indented(1, [f"g[target + {q}] += g{q}" for q in range(dim)]),
        _indented(1, [f"diagonal[target + {q}] += h{q}" for q in range(dim)]),
        _indented(1, [] if spec.dense else _flush(dim)),
    )


STRIP = "s{q}[lane + np.uint64({t})]"


def _add_products(sign: str, dim: int, size: int, pairs: list[tuple[str, str]], cell: str = STRIP) -> list[str]:
    """cell ± Σ x_q y_t for all q and t, row by row in whole vectors."""
    lines = []
    for q in range(dim):
        for t in range(lanes(size)):
            terms = "".join(f" {sign} {x}{q} * {y}{t}" for x, y in pairs)
            lines.append(f"sum{t} = {cell.format(q=q, t=t)}{terms}")
        lines += [f"{cell.format(q=q, t=t)} = sum{t}" for t in range(lanes(size))]
    return lines


def _schur_body(spec: RowsSpec) -> list[str]:
    d, (at_x, K) = spec.d, spec.in_Y
    body = ["j = np.uint64(index[k])"]
    body += [f"w{s}_{q} = YA[k, {s * K + at_x + q}]" for s in range(d) for q in range(spec.dim)]
    body += [f"g{q} -= " + " + ".join(f"w{s}_{q} * z[j, {s}]" for s in range(d)) for q in range(spec.dim)]
    for n, (at, size, K, ascending) in enumerate(spec.schur):
        inner = [f"y{s}_{t} = Y{n}[o, {s * K + at + t}]" for s in range(d) for t in range(lanes(size))]
        inner += _add_products("-", spec.dim, size, [(f"w{s}_", f"y{s}_") for s in range(d)])
        body += [
            f"for o in range(np.uint64(ptr{n}[j]), np.uint64(ptr{n}[j + np.uint64(1)])):",
            f"    lane = np.uint64(schur_lane{n}[o])",
            "    if lane > own:",
            "        break" if ascending else "        continue",
            *_indented(1, inner),
        ]
    return body


def _flush(dim: int) -> list[str]:
    """Add the strip to the values of a sparse row, block by block, and clear it."""
    return [
        "variable = items[item, 4]",
        "value = pattern_ptr[variable, 2]",
        "width = pattern_ptr[variable, 3]",
        "for m in range(pattern_ptr[variable, 0], pattern_ptr[variable, 1]):",
        "    block = pattern[m]",
        "    lane = lane_of[block]",
        "    for t in range(dims[block]):",
        *[f"        S[value + {q} * width + t] += s{q}[lane + t]" for q in range(dim)],
        "    for t in range(lane_of[block + 1] - lane):",
        *[f"        s{q}[lane + t] = 0.0" for q in range(dim)],
        "    value += dims[block]",
    ]


@cache
def scaled_lower():
    """The lower triangle of a dense matrix whose columns are in lanes, out of them, rows and columns scaled."""
    return _source(
        "scaled_lower",
        "start, stop, starts, dims, lane_of, S, scale, out",
        "for v in range(start, stop):",
        "    for row in range(starts[v], starts[v] + dims[v]):",
        "        for block in range(v + np.uint64(1)):",
        "            lane = lane_of[block] - starts[block]",
        "            for column in range(starts[block], starts[block] + dims[block]):",
        "                out[row, column] = S[row, lane + column] * scale[row] * scale[column]",
    )


@cache
def couple_back(d: int, slots: tuple[tuple[int, int], ...]):
    """t += Yᵀx for each eliminated variable; `slots` lists (first row in Y, size) of all kept slots."""
    K = sum(dim for _, dim in slots)
    body = []
    for m, (at, dim) in enumerate(slots):
        body.append(f"column = np.uint64(columns{m}[k])")
        body += [f"x{q} = x[column + np.uint64({q})]" for q in range(dim)]
        for s in range(d):
            body.append(f"t{s} += " + " + ".join(f"Y[k, {s * K + at + q}] * x{q}" for q in range(dim)))
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
def couple_forward(d: int, at: int, dim: int, K: int):
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
            [f"y{q} += " + " + ".join(f"Y[k, {s * K + at + q}] * t{s}" for s in range(d)) for q in range(dim)],
        ),
        f"    own = first_row + np.int64(v) * {dim}",
        _indented(1, [f"y[own + {q}] -= y{q}" for q in range(dim)]),
    )


@cache
def schur_diagonal(d: int, at: int, dim: int, K: int):
    """B −= Y Yᵀ for each kept variable of one slot: the diagonal blocks, as if it saw each eliminated one once."""
    lower = [(q, s) for q in range(dim) for s in range(q + 1)]
    return _source(
        "schur_diagonal",
        "start, stop, rows_ptr, rows, Y, B",
        "for v in range(start, stop):",
        _indented(1, [f"b{q}_{s} = 0.0" for q, s in lower]),
        "    for entry in range(np.uint64(rows_ptr[v]), np.uint64(rows_ptr[v + np.uint64(1)])):",
        "        k = np.uint64(rows[entry])",
        _indented(2, [f"y{q}_{m} = Y[k, {m * K + at + q}]" for q in range(dim) for m in range(d)]),
        _indented(2, [f"b{q}_{s} += " + " + ".join(f"y{q}_{m} * y{s}_{m}" for m in range(d)) for q, s in lower]),
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
def gradients(p: int, D: int, kept: tuple[tuple[int, int], ...], offset: int, d: int):
    """G += Σ c Jᵀr for two sets of weights c at once, in the order in which J lies.

    Items are the eliminated variables (at `offset`, of size d), or the observations where d is 0.  The arrays of the
    kept slots belong to one task alone.
    """
    body = _load_residual(p)
    for n, (at, size) in enumerate(kept):
        body += [*_load_jacobian("x", p, D, at, size), f"v = np.uint64(variable{n}[k])"]
        for q in range(size):
            body.append(f"x_{q} = " + " + ".join(f"r{i} * x{i}_{q}" for i in range(p)))
            body += [f"G{n}[0, v, {q}] += c_k * x_{q}", f"G{n}[1, v, {q}] += d_k * x_{q}"]
    body = ["c_k, d_k = c[k], d[k]", *body]
    body += _load_jacobian("e", p, D, offset, d)
    for q in range(d):
        body.append(f"e_{q} = " + " + ".join(f"r{i} * e{i}_{q}" for i in range(p)))
        body += [f"c{q} += c_k * e_{q}", f"d{q} += d_k * e_{q}"]
    own = "".join(f", variable{n}, G{n}" for n in range(len(kept)))
    observations = "range(np.uint64(ptr[j]), np.uint64(ptr[j + np.uint64(1)]))"
    return _source(
        "gradients",
        f"start, stop, ptr, J, r, c, d, E{own}",
        "for j in range(start, stop):",
        _indented(1, [f"c{q}, d{q} = E[0, j, {q}], E[1, j, {q}]" for q in range(d)]),
        f"    for k in {observations if d else '(j,)'}:",
        _indented(2, body),
        _indented(1, [f"E[0, j, {q}], E[1, j, {q}] = c{q}, d{q}" for q in range(d)]),
    )
