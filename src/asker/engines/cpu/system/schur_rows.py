"""Loops for the rows of the Schur complement, S = H_KK − YYᵀ."""

from dataclasses import dataclass
from functools import cache

from asker.engines.cpu.compiler import Printed, compile_source
from asker.engines.cpu.system.codegen import (
    WAIT_FOR,
    add_products,
    dot,
    indented,
    lanes,
    load_residual,
    printed,
    text_of,
    vectors,
    weighted,
)

LANE = "lane + np.uint64({t})"


@dataclass(frozen=True)
class RowsSpec:
    """The dimensions that determine the loop of a kept slot A; all other data are arguments, so that slots share it."""

    p: int
    D: int
    dim: int
    gram: tuple[int, ...]
    """Sizes of the kept slots B of the same factor whose J_AᵀMJ_B is added here."""
    d: int
    """Size of the eliminated variables; 0 if there are none: then the diagonal blocks and g are computed here too."""
    in_Y: tuple[int, int]
    """First row of A in its factor's Y, and K of that factor."""
    schur: tuple[tuple[int, int, int, bool], ...]
    """(first row in Y, size, K, whether its lanes ascend within an eliminated variable) of every kept slot that may
    share an eliminated variable."""
    dense: bool


@cache
def matrix_rows(spec: RowsSpec) -> Printed:
    """Return the loop of a kept slot: S += J_AᵀMJ_B − Y_A Y_Bᵀ, g += cJ_Aᵀr − Y_A z, diagonal += diag J_AᵀMJ_A.

    An item is one variable, or a part of its observations (`RowPasses`); only the lower triangle is computed.  A dense
    S is the matrix with its columns in lanes.  For a sparse S, rows are summed in a private strip and then added to S,
    the values of the blocks listed in `pattern`, row by row.  U and G are the diagonal blocks and gradients of
    `eliminate`, one for each of its tasks.  `at` and `gram_at` are the first Jacobian columns of A and of each B.
    `clear` means that dense rows are uninitialised.
    """
    dim, special = spec.dim, [f"{name}{n}" for n in range(len(spec.gram)) for name in ("gram_lane", "gram_at")]
    if spec.gram:
        special += ["at", "J", "r", "a", "b", "c", "radial"]
    if spec.d:
        special += ["index", "YA", "z", "U", "G"]
        special += [f"{name}{n}" for n in range(len(spec.schur)) for name in ("first", "ptr", "schur_lane", "Y")]
    text = text_of(
        "matrix_rows",
        f"{'' if spec.dense else 'strip, '}items, finished, first_lane, observations, clear, {', '.join(special)}, "
        "starts, dims, lane_of, pattern_ptr, pattern, g, diagonal, S",
        [] if spec.dense else [f"s{q} = strip[{q}]" for q in range(dim)],
        "for item in range(start, stop):",
        "    wait_for(finished, items[item, 0], items[item, 6])",
        indented(1, [f"s{q} = S[items[item, 3] + {q}]" for q in range(dim)] if spec.dense else []),
        f"    own_lane = np.uint64(first_lane + items[item, 0] * {lanes(dim)})",
        indented(1, [f"g{q}, h{q} = 0.0, 0.0" for q in range(dim)]),
        "    target = items[item, 3]",
        "    if target == items[item, 5]:",
        indented(2, ["pass", *(_cleared(dim) if spec.dense else []), *(_diagonal_block(dim) if spec.d else [])]),
        "    for entry in range(np.uint64(items[item, 1]), np.uint64(items[item, 2])):",
        "        k = np.uint64(observations[entry])",
        indented(2, _gram_body(spec) + (_schur_body(spec) if spec.d else [])),
        indented(1, [f"g[target + {q}] += g{q}" for q in range(dim)]),
        indented(1, [f"diagonal[target + {q}] += h{q}" for q in range(dim)]),
        indented(1, [] if spec.dense else _flush(dim)),
        "    store_release(finished, items[item, 0], items[item, 6] + 1)",
    )
    return compile_source("matrix_rows", WAIT_FOR + text)


def _gram_body(spec: RowsSpec) -> list[str]:
    """Return the statements that add J_AᵀMJ_B of one observation, for every B."""
    if not spec.gram:
        return []
    p, D, dim = spec.p, spec.D, spec.dim
    body = ["a_k, c_k, b_k = a[k], c[k], b[k] if radial else 0.0", *load_residual(p)]
    body += _columns("x", p, D, "at", dim) + weighted("x", p, dim, True, "m")
    if not spec.d:
        body += [f"g{q} += c_k * xg_{q}" for q in range(dim)]
        body += [f"h{q} += {dot(p, 'm', q, 'x', q)}" for q in range(dim)]
    for n, size in enumerate(spec.gram):
        inner = [line for i in range(p) for line in vectors(f"y{n}_{i}", "J[k]", f"gram_at{n} + {i * D} + {{t}}", size)]
        inner += add_products("+", dim, size, [(f"m{i}_", f"y{n}_{i}") for i in range(p)], "s{q}", LANE)
        if size == dim:  # B may be another slot of the same group, with the same variable
            more = _columns("z", p, D, f"gram_at{n}", dim)
            more += [f"h{q} += {dot(p, 'm', q, 'z', q)}" for q in range(dim)]
            inner += [f"if gram_at{n} != at:", "    if lane == own_lane:", *indented(2, more)]
        body += [f"lane = np.uint64(gram_lane{n}[k])", "if lane <= own_lane:", *indented(1, inner)]
    return body


def _columns(x: str, p: int, D: int, at: str, n: int) -> list[str]:
    """Load x_iq, the block of n columns from `at` of J of observation k."""
    return [f"{x}{i}_{q} = J[k, {at} + {i * D + q}]" for i in range(p) for q in range(n)]


def _cleared(dim: int) -> list[str]:
    """Return the statements that set the lower triangle of an item's rows to zero."""
    rows = [f"for t in range(own_lane + np.uint64({lanes(dim)})):", *[f"    s{q}[t] = 0.0" for q in range(dim)]]
    return ["if clear:", *indented(1, rows)]


def _diagonal_block(dim: int) -> list[str]:
    """Return the statements that add the diagonal block and gradient of an item's variable, once per row."""
    lines = ["v = items[item, 0]", "for t in range(len(U)):"]
    for q in range(dim):
        lines += [f"    g{q} += G[t, v, {q}]", f"    h{q} += U[t, v, {q}, {q}]"]
        lines += [f"    s{q}[own_lane + np.uint64({n})] += U[t, v, {q}, {n}]" for n in range(lanes(dim))]
    return lines


def _schur_body(spec: RowsSpec) -> list[str]:
    """Return the statements that add −Y_A Y_Bᵀ, for every B with the same eliminated variable, and −Y_A z."""
    d, (at_x, K) = spec.d, spec.in_Y
    body = ["j = np.uint64(index[k])"]
    body += [f"w{s}_{q} = YA[k, {s * K + at_x + q}]" for s in range(d) for q in range(spec.dim)]
    body += [f"g{q} -= " + " + ".join(f"w{s}_{q} * z[j, {s}]" for s in range(d)) for q in range(spec.dim)]
    for n, (at, size, K, ascending) in enumerate(spec.schur):
        inner = [line for s in range(d) for line in vectors(f"v{n}_{s}", f"Y{n}[o]", f"{s * K + at} + {{t}}", size)]
        inner += add_products("-", spec.dim, size, [(f"w{s}_", f"v{n}_{s}") for s in range(d)], "s{q}", LANE)
        body += [
            f"for o in range(np.uint64(first{n}[entry]), np.uint64(ptr{n}[j + np.uint64(1)])):",
            f"    lane = np.uint64(schur_lane{n}[o])",
            "    if lane > own_lane:",
            "        break" if ascending else "        continue",
            *indented(1, inner),
        ]
    return body


def _flush(dim: int) -> list[str]:
    """Return the statements that add the strip to the values of a sparse row, block by block, and clear it."""
    return [
        "variable = items[item, 4]",
        "value = pattern_ptr[variable, 2]",
        "width = pattern_ptr[variable, 3]",
        "for m in range(pattern_ptr[variable, 0], pattern_ptr[variable, 1]):",
        "    block = pattern[m]",
        "    first = lane_of[block]",
        "    for t in range(dims[block]):",
        *[f"        S[value + {q} * width + t] += s{q}[first + t]" for q in range(dim)],
        "    for t in range(lane_of[block + 1] - first):",
        *[f"        s{q}[first + t] = 0.0" for q in range(dim)],
        "    value += dims[block]",
    ]


@cache
def scaled_lower() -> Printed:
    """Return the loop that copies the lower triangle of a dense matrix out of lanes, with rows and columns scaled."""
    return printed(
        "scaled_lower",
        "starts, dims, lane_of, S, scale, out",
        "for v in range(start, stop):",
        "    for row in range(starts[v], starts[v] + dims[v]):",
        "        for block in range(v + np.uint64(1)):",
        "            lane = lane_of[block] - starts[block]",
        "            for column in range(starts[block], starts[block] + dims[block]):",
        "                out[row, column] = S[row, lane + column] * scale[row] * scale[column]",
    )


@cache
def unit_scale() -> Printed:
    """Return the loop that computes the scale 1/√(damped diagonal), the scaled diagonal, and −g scaled."""
    return printed(
        "unit_scale",
        "S, diagonal_lane, damping, g, scale, unit, right",
        "for row in range(start, stop):",
        "    x = S[row, diagonal_lane[row]] + damping[row]",
        "    d = 1.0 / math.sqrt(x if x > 0.0 else 1.0)",
        "    scale[row] = d",
        "    unit[row] = x * d * d",
        "    right[row] = -d * g[row]",
    )


@cache
def scaled_upper(strip: int) -> Printed:
    """Return the loop of `scaled_lower` transposed, with a given diagonal and a right-hand side in a further column.

    Entries to the left of the diagonal within a strip of columns are set to zero.
    """
    return printed(
        "scaled_upper",
        "starts, dims, lane_of, S, scale, unit, right, column_of_right, out",
        "for v in range(start, stop):",
        "    for row in range(starts[v], starts[v] + dims[v]):",
        f"        for column in range(row // {strip} * {strip}, row):",
        "            out[row, column] = 0.0",
        "    for block in range(v + np.uint64(1)):",
        "        lane = lane_of[block] - starts[block]",
        "        for column in range(starts[block], starts[block] + dims[block]):",
        "            for row in range(starts[v], starts[v] + dims[v]):",
        "                out[column, row] = S[row, lane + column] * scale[row] * scale[column]",
        "    for row in range(starts[v], starts[v] + dims[v]):",
        "        out[row, row] = unit[row]",
        "        out[row, column_of_right] = right[row]",
    )
