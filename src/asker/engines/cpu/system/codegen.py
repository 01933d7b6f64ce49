"""Code generation: loops printed as straight-line code for the given block sizes.

Each loop processes the items start…stop and writes only data of these items, so that threads can share the work.  All
other arguments are passed by name (`run_loop`).

Performance-critical statements use explicit SIMD vectors.  In other code, adjacent statements access adjacent addresses
and all loads precede the stores, so that LLVM's SLP vectoriser combines them.  A block of 6 columns is computed in 8
lanes; the last lanes read past the block and write to columns of the strip that are never read.  J and Y therefore end
in padding (`SLACK`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asker.engines.cpu.compiler import Printed, compile_source
from asker.engines.cpu.threads import SPIN_ITERATIONS, run_together

INDENT = "    "
SLACK = 16  # numbers of padding
CACHE_LINE_BYTES = 64  # bytes
MAX_VECTOR_LENGTH = 8  # numbers in a SIMD vector
LOOP_CACHE_SIZE = 100  # loops that contain a user's function, cached for other problems with the same function


def lanes(dim: int) -> int:
    """Return the number of columns that a variable of dimension `dim` takes in a strip."""
    return dim if dim <= 2 else -(-dim // 4) * 4


def aligned(*shape: int) -> np.ndarray:
    """Return an uninitialised array that is aligned to a cache line, so that no SIMD vector straddles two lines."""
    n = math.prod(shape)
    flat = np.empty(n + CACHE_LINE_BYTES // 8)
    first = -flat.ctypes.data % CACHE_LINE_BYTES // 8
    return flat[first : first + n].reshape(shape)


def padded_rows(n: int, width: int) -> np.ndarray:
    """Return an uninitialised array (n, width) with readable padding behind its end."""
    flat = aligned(n * width + SLACK)
    flat[n * width :] = 0.0
    return flat[: n * width].reshape(n, width)


def text_of(name: str, parameters: str, *lines: str | Sequence[str]) -> str:
    """Return the source of the loop `name` over the items start…stop."""
    flat: list[str] = []
    for line in lines:
        flat += [line] if isinstance(line, str) else list(line)
    text = "".join(f"{INDENT}{line}\n" for line in flat)
    return f"def {name}(start, stop, {parameters}):\n{text}"


def printed(name: str, parameters: str, *lines: str | Sequence[str]) -> Printed:
    """Return the compiled loop `name` over the items start…stop."""
    return compile_source(name, text_of(name, parameters, *lines))


WAIT_FOR = f"""
def wait_for(finished, place, value):
    iterations = 0
    while load_acquire(finished, place) < value:
        iterations += 1
        if iterations > {SPIN_ITERATIONS}:
            yield_thread()
"""
"""Wait until finished[place] has reached a value.  A task may only wait for a value that an earlier task stores: tasks
are started in order, so the earlier task is running or has ended."""


def run_loop(loop: Printed, bounds: np.ndarray, **named: object) -> None:
    """Call `loop(start, stop, **named)` for each task delimited by `bounds`, on all threads."""
    counter, arguments = np.zeros(1, dtype=np.int64), loop.in_order(named)
    loop.prepare(counter, bounds, *arguments)
    run_together(lambda: loop.share(counter, bounds, *arguments), len(bounds) - 1)


def run_loop_with(loop: Printed, bounds: np.ndarray, private: Callable[[], dict[str, Any]], **shared: Any) -> None:
    """Call a loop as `run_loop` does, with additional arguments `private()` that are created for each thread."""
    counter = np.zeros(1, dtype=np.int64)

    def work() -> None:
        loop.share(counter, bounds, *loop.in_order(shared | private()))

    if loop.last is None:
        loop.prepare(counter, bounds, *loop.in_order(shared | private()))
    run_together(work, len(bounds) - 1)


def indented(depth: int, lines: Sequence[str]) -> list[str]:
    """Indent lines by `depth` levels."""
    return [INDENT * depth + line for line in lines]


def load_jacobian(x: str, p: int, D: int, offset: int, d: int) -> list[str]:
    """Load x_iq, the block of d columns from `offset` of J of observation k."""
    return [f"{x}{i}_{q} = J[k, {i * D + offset + q}]" for i in range(p) for q in range(d)]


def load_residual(p: int) -> list[str]:
    """Load r_i of observation k."""
    return [f"r{i} = r[k, {i}]" for i in range(p)]


def weighted(x: str, p: int, d: int, radial: bool, m: str) -> list[str]:
    """Compute m = M x for the block x, m_iq = a x_iq + b r_i (rᵀx)_q, and xg_q = (rᵀx)_q."""
    lines = [f"{x}g_{q} = " + " + ".join(f"r{i} * {x}{i}_{q}" for i in range(p)) for q in range(d)]
    if radial:
        lines += [f"{m}{i}_{q} = a_k * {x}{i}_{q} + b_k * r{i} * {x}g_{q}" for i in range(p) for q in range(d)]
    else:
        lines += [f"{m}{i}_{q} = a_k * {x}{i}_{q}" for i in range(p) for q in range(d)]
    return lines


def dot(p: int, x: str, q: int, y: str, s: int) -> str:
    """Return the product of column q of the block x and column s of the block y."""
    return " + ".join(f"{x}{i}_{q} * {y}{i}_{s}" for i in range(p))


def load_model(radial: bool) -> list[str]:
    """Load a, c and, if `radial`, b of observation k."""
    return ["a_k = a[k]", "c_k = c[k]"] + (["b_k = b[k]"] if radial else [])


def packed(q: int, s: int) -> int:
    """Return the position of (q, s ≤ q) in a lower triangle stored row by row."""
    return q * (q + 1) // 2 + s


def vectors(name: str, row: str, at: str, size: int) -> list[str]:
    """Load name_t, the SIMD vectors of a variable of `size` numbers in a row; `at` is the column of its number t."""
    return [f"{name}_{t} = {_vector(row, at.format(t=t), n)}" for t, n in _vector_lengths(size)]


def _vector_lengths(size: int) -> list[tuple[int, int]]:
    """Return the first column and the length of each SIMD vector of a variable of `size` numbers."""
    return [(t, min(MAX_VECTOR_LENGTH, lanes(size) - t)) for t in range(0, lanes(size), MAX_VECTOR_LENGTH)]


def _vector(row: str, first: str, n: int) -> str:
    """Return the expression of the SIMD vector or number at row[first]."""
    return f"vector({row}, {first}, {n})" if n > 1 else f"{row}[{first}]"


def add_products(sign: str, dim: int, size: int, pairs: list[tuple[str, str]], row: str, at: str) -> list[str]:
    """Add ± Σ x_q y_t to row_q[at_t] for all q and t, with SIMD vectors y."""
    lines = []
    for q in range(dim):
        for t, n in _vector_lengths(size):
            cells, first, end = row.format(q=q), at.format(t=t), at.format(t=t + n)
            terms = "".join(f" {sign} {x}{q} * {y}_{t}" for x, y in pairs)
            lines.append(f"{cells}[{f'{first} : {end}' if n > 1 else first}] = {_vector(cells, first, n)}{terms}")
    return lines
