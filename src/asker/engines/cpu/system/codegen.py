"""How loops over observations are printed as straight-line code, for the block sizes at hand.

Every loop works on items start…stop and writes only what belongs to them, so that any number of threads can share the
work.  All other arguments are given by name (`run_loop`).

Where it counts, what stands side by side is one vector; elsewhere, neighbouring statements differ by neighbouring
addresses only, and all loads stand before the stores: then LLVM makes vector instructions of them.  A block of 6
columns is computed in 8 lanes; the last lanes read past the block and write to columns of the strip that nobody reads.
J and Y therefore end in a few spare numbers (`SLACK`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asker.engines.cpu.compiler import Printed, compile_source
from asker.engines.cpu.threads import LOOKS, run_together

INDENT = "    "
SLACK = 16
LINE = 64  # bytes
WIDEST = 8  # numbers of a vector
LOOPS_KEPT = 100  # with the text of a user's function in them, for other problems with the same function


def lanes(dim: int) -> int:
    """How many columns of a strip a variable of `dim` numbers takes."""
    return dim if dim <= 2 else -(-dim // 4) * 4


def aligned(*shape: int) -> np.ndarray:
    """An uninitialised array that begins where a line of the cache does, so that no vector lies in two of them."""
    n = math.prod(shape)
    flat = np.empty(n + LINE // 8)
    first = -flat.ctypes.data % LINE // 8
    return flat[first : first + n].reshape(shape)


def spacious(n: int, width: int) -> np.ndarray:
    """An uninitialised array (n, width) with readable numbers behind its end."""
    flat = aligned(n * width + SLACK)
    flat[n * width :] = 0.0
    return flat[: n * width].reshape(n, width)


def text_of(name: str, parameters: str, *lines: str | Sequence[str]) -> str:
    """The loop `name` of items start…stop."""
    flat: list[str] = []
    for line in lines:
        flat += [line] if isinstance(line, str) else list(line)
    text = "".join(f"{INDENT}{line}\n" for line in flat)
    return f"def {name}(start, stop, {parameters}):\n{text}"


def printed(name: str, parameters: str, *lines: str | Sequence[str]) -> Printed:
    """The same, compiled."""
    return compile_source(name, text_of(name, parameters, *lines))


WAIT_FOR = f"""
def wait_for(finished, place, value):
    looks = 0
    while seen(finished, place) < value:
        looks += 1
        if looks > {LOOKS}:
            let_others_run()
"""
"""Wait until finished[place] has come to a value.  Only what an earlier task tells may be waited for: tasks are begun
in order, so that somebody is at work on it."""


def run_loop(loop: Printed, bounds: np.ndarray, **named: object) -> None:
    """Call `loop(start, stop, **named)` for each task between `bounds`."""
    counter, arguments = np.zeros(1, dtype=np.int64), loop.in_order(named)
    loop.prepare(counter, bounds, *arguments)
    run_together(lambda: loop.share(counter, bounds, *arguments), len(bounds) - 1)


def run_loop_with(loop: Printed, bounds: np.ndarray, own: Callable[[], dict[str, Any]], **shared: Any) -> None:
    """The same with arguments `own()` that belong to one thread alone."""
    counter = np.zeros(1, dtype=np.int64)

    def work() -> None:
        loop.share(counter, bounds, *loop.in_order(shared | own()))

    if loop.last is None:
        loop.prepare(counter, bounds, *loop.in_order(shared | own()))
    run_together(work, len(bounds) - 1)


def indented(depth: int, lines: Sequence[str]) -> list[str]:
    """The lines, some steps further in."""
    return [INDENT * depth + line for line in lines]


def load_jacobian(x: str, p: int, D: int, offset: int, d: int) -> list[str]:
    """x_iq, the numbers of a block of J of observation k: d columns from `offset`."""
    return [f"{x}{i}_{q} = J[k, {i * D + offset + q}]" for i in range(p) for q in range(d)]


def load_residual(p: int) -> list[str]:
    """r_i of observation k."""
    return [f"r{i} = r[k, {i}]" for i in range(p)]


def weighted(x: str, p: int, d: int, radial: bool, m: str) -> list[str]:
    """m = M x for the block x: m_iq = a x_iq + b r_i (rᵀx)_q; and its gradient part xg_q = (rᵀx)_q."""
    lines = [f"{x}g_{q} = " + " + ".join(f"r{i} * {x}{i}_{q}" for i in range(p)) for q in range(d)]
    if radial:
        lines += [f"{m}{i}_{q} = a_k * {x}{i}_{q} + b_k * r{i} * {x}g_{q}" for i in range(p) for q in range(d)]
    else:
        lines += [f"{m}{i}_{q} = a_k * {x}{i}_{q}" for i in range(p) for q in range(d)]
    return lines


def dot(p: int, x: str, q: int, y: str, s: int) -> str:
    """Column q of the block x times column s of the block y."""
    return " + ".join(f"{x}{i}_{q} * {y}{i}_{s}" for i in range(p))


def load_model(radial: bool) -> list[str]:
    """a, c and, where there is one, b of observation k."""
    return ["a_k = a[k]", "c_k = c[k]"] + (["b_k = b[k]"] if radial else [])


def packed(q: int, s: int) -> int:
    """Where (q, s ≤ q) stands in a lower triangle stored row by row."""
    return q * (q + 1) // 2 + s


def vectors(name: str, row: str, at: str, size: int) -> list[str]:
    """name_t, vectors of a row where a variable of `size` numbers stands; number t of it is at `at`."""
    return [f"{name}_{t} = {_vector(row, at.format(t=t), n)}" for t, n in _pieces(size)]


def _pieces(size: int) -> list[tuple[int, int]]:
    """First column and length of the vectors that a variable of `size` numbers takes."""
    return [(t, min(WIDEST, lanes(size) - t)) for t in range(0, lanes(size), WIDEST)]


def _vector(row: str, first: str, n: int) -> str:
    return f"vector({row}, {first}, {n})" if n > 1 else f"{row}[{first}]"


def add_products(sign: str, dim: int, size: int, pairs: list[tuple[str, str]], row: str, at: str) -> list[str]:
    """row_q[at_t] ± Σ x_q y_t for all q and t, with vectors y."""
    lines = []
    for q in range(dim):
        for t, n in _pieces(size):
            cells, first, end = row.format(q=q), at.format(t=t), at.format(t=t + n)
            terms = "".join(f" {sign} {x}{q} * {y}_{t}" for x, y in pairs)
            lines.append(f"{cells}[{f'{first} : {end}' if n > 1 else first}] = {_vector(cells, first, n)}{terms}")
    return lines
