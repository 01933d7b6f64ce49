"""Loops over observations (or variables) made from a JAX function of one of them.

`Loop(name, arguments, function)` traces `function` once, prints it as straight-line scalar code inside one loop and
compiles that.  The function returns `(stores, sums)`: arrays written per item, and numbers added up over all items.

What cannot be printed is run by XLA, `BatchedLoop`: slower, and the user is told.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from asker.engines.cpu.code_cache import beside
from asker.engines.cpu.compiler.arithmetic_rules import UnsupportedPrimitive
from asker.engines.cpu.compiler.compile import compile_source
from asker.engines.cpu.compiler.jaxprs import scalarise
from asker.engines.cpu.compiler.scalars import NotCompiled, Program, literal
from asker.engines.cpu.threads import even_bounds, run_together
from asker.io.cache import kept_code
from asker.io.interrupts import interruptible
from asker.tracing.array_namespace import float64
from asker.tracing.jax_compat import check_xla, traced_with


@dataclass(frozen=True)
class Argument:
    """One argument of the traced function, and where item k finds it."""

    kind: Literal["each", "gathered", "scalar"]
    """`each`: row k of an array.  `gathered`: row index[k] of an array.  `scalar`: the same number for all."""
    shape: tuple[int, ...] = ()
    dtype: str = "float64"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def inputs(self, program: Program, j: int) -> np.ndarray:
        """The names that the printed loop reads this argument from."""
        if self.kind == "scalar":
            texts = [f"a{j}"]
        else:
            row = "k" if self.kind == "each" else f"k{j}"
            texts = [f"a{j}[{row}, {i}]" for i in range(self.size)] if self.shape else [f"a{j}[{row}]"]
        return np.array([program.input(t) for t in texts], dtype=object).reshape(self.shape)


class Loop:
    """A compiled loop.  Call it with n, the arrays in the order of the arguments, and the arrays to store into."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[Argument],
        *functions: Callable[..., Any],
        known_by: bytes = b"",
        shortest: bool = True,
    ):
        """Functions that compute the same are tried in turn; the shortest program is compiled, or else the first.

        One that fails is passed over where another works: JAX differentiates some functions in one mode only.
        What they compute may be `known_by` a digest: then the printed text is kept, and nothing is traced again.
        """
        self.arguments = tuple(arguments)
        for argument in self.arguments:
            if argument.dtype in NOT_COMPILED:
                raise UnsupportedPrimitive("convert_element_type", f" of data in {argument.dtype}")
        make = partial(_kept_text, known_by) if known_by else _text
        text = make(name, self.arguments, functions, shortest)
        self.source = text.source
        self.kernel = compile_source(name, text.source, packed=False)  # of what JAX traces there is little to pack
        self.store_shapes, self.n_sums = [tuple(shape) for shape in text.store_shapes], text.n_sums
        self._rows = tuple((np.dtype(a.dtype), a.size if a.shape else None) for a in self.arguments)
        kinds = {"each": (True,), "gathered": (False, True), "scalar": (False,)}
        self.by_item = tuple(by for argument in self.arguments for by in kinds[argument.kind])
        """Which of the parameters behind start and stop have a row for each item; those to store into all have."""

    def in_order(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs as they follow start and stop."""
        flat: list[Any] = []
        for argument, rows, value in zip(self.arguments, self._rows, inputs, strict=True):
            if argument.kind == "scalar":
                flat.append(float(value))
            elif argument.kind == "gathered":
                flat += [_as_rows(value[0], *rows), value[1]]
            else:
                flat.append(_as_rows(value, *rows))
        return flat

    def __call__(self, n: int, inputs: Sequence[Any], stores: Sequence[np.ndarray] = ()) -> np.ndarray:
        """Runs over items 0…n; returns the sums.  A gathered argument is given as a pair (rows, index)."""
        outs = [
            s.reshape(n, math.prod(shape)) if shape else s for s, shape in zip(stores, self.store_shapes, strict=True)
        ]
        bounds, counter = even_bounds(n), np.zeros(1, dtype=np.int64)
        sums = np.zeros((len(bounds) - 1, self.n_sums))
        flat = [*self.in_order(inputs), *outs, *([sums] if self.n_sums else [])]
        if n:
            self.kernel.prepare(counter, bounds, *flat)
            run_together(lambda: self.kernel.share(counter, bounds, *flat), len(sums))
        return sums.sum(axis=0)


class BatchedLoop:
    """The same by `jit(vmap(function))`: for what the compiler does not know."""

    def __init__(self, arguments: Sequence[Argument], *functions: Callable[..., Any]):
        """The first of the functions that JAX can trace is taken."""
        import jax

        check_xla()
        self.arguments = tuple(arguments)
        examples = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
        errors = []
        for function in functions:
            try:
                with float64():
                    trace, (stores, sums) = jax.make_jaxpr(function, return_shape=True)(*examples)
                break
            except Exception as e:
                errors.append(e)
        else:
            raise errors[0]
        self.store_shapes, self.n_sums = [s.shape for s in stores], len(sums)
        largest = max((var.aval.size for eqn in trace.jaxpr.eqns for var in eqn.outvars), default=1)
        self._piece = max(1, min(PIECE, LARGEST_PIECE // max(largest, 1)))
        axes = [None if a.kind == "scalar" else 0 for a in arguments]
        self._run = jax.jit(jax.vmap(function, in_axes=axes))
        self._compiled: dict[int, Callable[..., Any]] = {}
        """By the number of items."""

    def __call__(self, n: int, inputs: Sequence[Any], stores: Sequence[np.ndarray] = ()) -> np.ndarray:
        """As `Loop`'s, a piece at a time: the memory that XLA needs is bounded.

        XLA compiles the function for each length of a piece.  So all pieces have the same, which is a power of 2, and
        the last one may overlap another.
        """
        sums = np.zeros(self.n_sums)
        length = 1 << min(max(n, 1).bit_length(), self._piece.bit_length()) - 1
        for start in range(0, n, length):
            first = min(start, n - length)
            piece = slice(first, first + length)
            found, added = self._called(
                [_piece(a, x, piece) for a, x in zip(self.arguments, inputs, strict=True)], length
            )
            for store, value, shape in zip(stores, found, self.store_shapes, strict=True):
                store.reshape(n, *shape)[piece] = value
            sums += [np.broadcast_to(np.asarray(s), length)[start - first :].sum() for s in added]
        return sums

    def _called(self, arguments: list[Any], length: int) -> Any:
        with float64():
            if length not in self._compiled:
                self._compiled[length] = interruptible(self._run.lower(*arguments).compile)
            return self._compiled[length](*arguments)


PIECE = 1 << 16  # items
LARGEST_PIECE = 1 << 22  # numbers of the largest array that XLA makes
NOT_COMPILED = ("float16", "uint64")  # no such arithmetic, or another one than that of JAX


def _piece(argument: Argument, value: Any, piece: slice) -> Any:
    if argument.kind == "scalar":
        return float(value)
    rows = value[0][value[1][piece]] if argument.kind == "gathered" else value[piece]
    return rows.reshape(len(rows), *argument.shape)


def make_loop(
    name: str,
    arguments: Sequence[Argument],
    *functions: Callable[..., Any],
    what: str,
    known_by: bytes = b"",
    shortest: bool = True,
) -> Loop | BatchedLoop:
    """A compiled loop; where the compiler does not know a primitive, or the program is too long, one that XLA runs,
    with a warning about `what`, unless that is empty."""
    try:
        return Loop(name, arguments, *functions, known_by=known_by, shortest=shortest)
    except NotCompiled as e:
        if what:
            warnings.warn(f"{what}: {e}", stacklevel=2)
        return BatchedLoop(arguments, *functions)


def _as_rows(array: np.ndarray, dtype: np.dtype, size: int | None) -> np.ndarray:
    """Rows of `size` numbers, or one number each."""
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise TypeError(f"expected contiguous {dtype}, got {array.dtype}")
    return array if size is None else array.reshape(len(array), size)


class _Text(NamedTuple):
    """A printed loop, the shapes of what it stores, and how many sums it returns."""

    source: str
    store_shapes: Sequence[Sequence[int]]
    n_sums: int


def _text(name: str, arguments: Sequence[Argument], functions: Sequence[Callable[..., Any]], shortest: bool) -> _Text:
    traced, errors = [], []
    for function in functions:
        try:
            traced.append(_Traced(function, tuple(arguments)))
        except Exception as e:
            errors.append(e)
        if traced and not shortest:
            break
    if not traced:
        raise next((e for e in errors if isinstance(e, NotCompiled)), errors[0])
    return min(traced, key=lambda t: len(t.lines)).text(name)


def _kept_text(
    known_by: bytes,
    name: str,
    arguments: Sequence[Argument],
    functions: Sequence[Callable[..., Any]],
    shortest: bool,
) -> _Text:
    """The text as it was printed on this machine before, by the same versions."""
    versions = f"{name} {arguments} {shortest} {traced_with()}\0{beside(__file__)}"
    kept = f"text-{name}-{hashlib.sha256(known_by + versions.encode()).hexdigest()}"
    content = kept_code().read(kept)
    if content is not None:
        return _Text(*json.loads(content))
    text = _text(name, arguments, functions, shortest)
    kept_code().write(kept, json.dumps(text).encode())
    return text


class _Traced:
    """A function of one item as a scalar program."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Argument, ...]):
        import jax

        examples = [np.zeros(a.shape, a.dtype) for a in arguments]
        program = Program()
        with float64():
            jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*examples)
            outs = scalarise(program, jaxpr, [a.inputs(program, j) for j, a in enumerate(arguments)])
        self.arguments = arguments
        self.stores, self.sums = outs[: len(shapes[0])], outs[len(shapes[0]) :]
        self.lines = program.lines([v for out in outs for v in out.ravel()])

    def text(self, name: str) -> "_Text":
        parameters, before, after = ["start", "stop"], [], []
        for j, a in enumerate(self.arguments):
            parameters.append(f"a{j}")
            if a.kind == "gathered":
                parameters.append(f"i{j}")
                before.append(f"k{j} = np.uint64(i{j}[k])")
        parameters += [f"out{j}" for j in range(len(self.stores))] + (["task", "sums"] if self.sums else [])
        for j, out in enumerate(self.stores):
            targets = [f"out{j}[k, {i}]" for i in range(out.size)] if out.shape else [f"out{j}[k]"]
            after += [f"{t} = {literal(v)}" for t, v in zip(targets, out.ravel(), strict=True)]
        after += [f"sum{j} += {literal(s.item())}" for j, s in enumerate(self.sums)]
        is_gathered = any(a.kind == "gathered" for a in self.arguments)
        body = "".join(f"        {line}\n" for line in before + self.lines + after)
        source = (
            f"def {name}({', '.join(parameters)}):\n"
            + "".join(f"    sum{j} = 0.0\n" for j in range(len(self.sums)))
            + f"    for k in {'lanes' if is_gathered else 'range'}(start, stop):\n{body or '        pass'}\n"
            + "".join(f"    sums[task, {j}] = sum{j}\n" for j in range(len(self.sums)))
        )
        return _Text(source, [out.shape for out in self.stores], len(self.sums))
