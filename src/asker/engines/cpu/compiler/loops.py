"""Compiled loops over observations (or variables), made from a JAX function of one item.

`Loop(name, arguments, function)` traces `function` once, prints it as straight-line scalar code inside a loop and
compiles that.  The function returns `(stores, sums)`: arrays written per item, and numbers summed over all items.

A function that cannot be compiled is run by XLA (`BatchedLoop`), which is slower; the user is warned.
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

from asker.engines.cpu.code_cache import folder_source
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
    """One argument of the traced function."""

    kind: Literal["each", "gathered", "scalar"]
    """The value for item k: `each` is row k of an array, `gathered` is row index[k] of an array, and `scalar` is the
    same number for all items."""
    shape: tuple[int, ...] = ()
    dtype: str = "float64"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def inputs(self, program: Program, j: int) -> np.ndarray:
        """Declare the inputs of the program that the printed loop reads for this argument."""
        if self.kind == "scalar":
            texts = [f"a{j}"]
        else:
            row = "k" if self.kind == "each" else f"k{j}"
            texts = [f"a{j}[{row}, {i}]" for i in range(self.size)] if self.shape else [f"a{j}[{row}]"]
        return np.array([program.input(t) for t in texts], dtype=object).reshape(self.shape)


class Loop:
    """A compiled loop, called with n, the arrays in the order of the arguments, and the arrays to store into."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[Argument],
        *functions: Callable[..., Any],
        digest: bytes = b"",
        shortest: bool = True,
    ):
        """Compile one of several functions that compute the same.

        functions  at least one of them must be traceable: JAX differentiates some functions in one mode only
        digest     of the functions; if not empty, the printed text is cached and tracing is skipped
        shortest   choose the shortest program, otherwise the first that can be traced
        """
        self.arguments = tuple(arguments)
        for argument in self.arguments:
            if argument.dtype in UNSUPPORTED_DTYPES:
                raise UnsupportedPrimitive("convert_element_type", f" of data in {argument.dtype}")
        make = partial(_cached_print, digest) if digest else _print_shortest
        text = make(name, self.arguments, functions, shortest)
        self.source = text.source
        self.kernel = compile_source(name, text.source, slp_vectorize=False)  # traced code has little to vectorise
        self.store_shapes, self.n_sums = [tuple(shape) for shape in text.store_shapes], text.n_sums
        self._rows = tuple((np.dtype(a.dtype), a.size if a.shape else None) for a in self.arguments)
        kinds = {"each": (True,), "gathered": (False, True), "scalar": (False,)}
        self.by_item = tuple(by for argument in self.arguments for by in kinds[argument.kind])
        """Flags of the input parameters after start and stop: true if there is a row per item, as in all outputs."""

    def in_order(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs in the order of the parameters after start and stop."""
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
        """Run over the items 0…n and return the sums.  A gathered argument is a pair (rows, index)."""
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
    """The same loop by `jit(vmap(function))`, for functions that the compiler does not support."""

    def __init__(self, arguments: Sequence[Argument], *functions: Callable[..., Any]):
        """Use the first of the functions that JAX can trace."""
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
        self._batch_size = max(1, min(BATCH_SIZE, MAX_BATCH_NUMBERS // max(largest, 1)))
        axes = [None if a.kind == "scalar" else 0 for a in arguments]
        self._run = jax.jit(jax.vmap(function, in_axes=axes))
        self._compiled: dict[int, Callable[..., Any]] = {}
        """Compiled programs by the number of items in a batch."""

    def __call__(self, n: int, inputs: Sequence[Any], stores: Sequence[np.ndarray] = ()) -> np.ndarray:
        """Run as `Loop` does, batch by batch, which bounds the memory that XLA needs.

        XLA compiles the function for each batch length.  All batches therefore have the same length, a power of 2, and
        the last one may overlap the one before.
        """
        sums = np.zeros(self.n_sums)
        length = 1 << min(max(n, 1).bit_length(), self._batch_size.bit_length()) - 1
        for start in range(0, n, length):
            first = min(start, n - length)
            items = slice(first, first + length)
            batch = [_batch(a, x, items) for a, x in zip(self.arguments, inputs, strict=True)]
            stored, terms = self._run_compiled(batch, length)
            for store, value, shape in zip(stores, stored, self.store_shapes, strict=True):
                store.reshape(n, *shape)[items] = value
            sums += [np.broadcast_to(np.asarray(s), length)[start - first :].sum() for s in terms]
        return sums

    def _run_compiled(self, arguments: list[Any], length: int) -> Any:
        with float64():
            if length not in self._compiled:
                self._compiled[length] = interruptible(self._run.lower(*arguments).compile)
            return self._compiled[length](*arguments)


BATCH_SIZE = 1 << 16  # items
MAX_BATCH_NUMBERS = 1 << 22  # numbers in the largest intermediate array of XLA
UNSUPPORTED_DTYPES = ("float16", "uint64")  # their arithmetic is missing, or differs from that of JAX


def _batch(argument: Argument, value: Any, items: slice) -> Any:
    if argument.kind == "scalar":
        return float(value)
    rows = value[0][value[1][items]] if argument.kind == "gathered" else value[items]
    return rows.reshape(len(rows), *argument.shape)


def make_loop(
    name: str,
    arguments: Sequence[Argument],
    *functions: Callable[..., Any],
    what: str,
    digest: bytes = b"",
    shortest: bool = True,
) -> Loop | BatchedLoop:
    """Return a compiled loop, or one that XLA runs if a primitive is not supported or the program is too long.

    The latter warns about `what`, unless it is empty.
    """
    try:
        return Loop(name, arguments, *functions, digest=digest, shortest=shortest)
    except NotCompiled as e:
        if what:
            warnings.warn(f"{what}: {e}", stacklevel=2)
        return BatchedLoop(arguments, *functions)


def _as_rows(array: np.ndarray, dtype: np.dtype, size: int | None) -> np.ndarray:
    """Return an array as rows of `size` numbers, or of one number each if `size` is None."""
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise TypeError(f"expected contiguous {dtype}, got {array.dtype}")
    return array if size is None else array.reshape(len(array), size)


class _PrintedLoop(NamedTuple):
    """The source of a printed loop, the shapes of its stored arrays per item, and the number of its sums."""

    source: str
    store_shapes: Sequence[Sequence[int]]
    n_sums: int


def _print_shortest(
    name: str, arguments: Sequence[Argument], functions: Sequence[Callable[..., Any]], shortest: bool
) -> _PrintedLoop:
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


def _cached_print(
    digest: bytes,
    name: str,
    arguments: Sequence[Argument],
    functions: Sequence[Callable[..., Any]],
    shortest: bool,
) -> _PrintedLoop:
    """Return the printed loop from the cache, or print and cache it; the key contains the versions of JAX and asker."""
    versions = f"{name} {arguments} {shortest} {traced_with()}\0{folder_source(__file__)}"
    key = f"text-{name}-{hashlib.sha256(digest + versions.encode()).hexdigest()}"
    content = kept_code().read(key)
    if content is not None:
        return _PrintedLoop(*json.loads(content))
    text = _print_shortest(name, arguments, functions, shortest)
    kept_code().write(key, json.dumps(text).encode())
    return text


class _Traced:
    """A traced function of one item, as a scalar program."""

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

    def text(self, name: str) -> "_PrintedLoop":
        """Print the loop."""
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
        return _PrintedLoop(source, [out.shape for out in self.stores], len(self.sums))
