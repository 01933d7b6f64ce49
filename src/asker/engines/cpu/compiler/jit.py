"""From a text in the small language to a function that can be called with arrays."""

import ctypes
import hashlib
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numpy as np

from asker.engines.cpu.background_compile import needed
from asker.engines.cpu.code_cache import Code, beside, vector_length
from asker.engines.cpu.compiler.expressions import CONTRACT, Kind
from asker.engines.cpu.compiler.llvm import REFUSED, to_llvm

HEAD = object.__basicsize__
"""The size of what every Python object begins with; the data of a NumPy array stand behind it."""
C_TYPES: dict[str, Any] = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool,
}  # fmt: skip


def kinds_of(arguments: tuple[Any, ...]) -> tuple[Kind, ...]:
    """The kind of each argument: arrays that are contiguous, and numbers."""
    return tuple(map(_kind, arguments))


def _kind(x: Any) -> Kind:
    if not isinstance(x, np.ndarray):
        return Kind(np.min_scalar_type(x).name if isinstance(x, bool | np.bool_) else np.asarray(x).dtype.name)
    if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype != np.dtype(x.dtype.name):
        raise TypeError(f"expected a contiguous array, got a {type(x).__name__} of {x.dtype} with strides {x.strides}")
    return Kind(x.dtype.name, x.ndim)


def with_known_type(x: Any) -> Any:
    """The same array with NumPy's own object for its type, by whose address compiled code knows it.

    Arrays from a pickle, and those of C's `long long`, have another object that is equal to it.
    """
    if type(x) is not np.ndarray:
        return x
    known = np.dtype(x.dtype.name)
    return x.view(known) if x.dtype is not known and x.dtype == known else x


class Native:
    """The machine code of the last function of a source, for one kind of arguments."""

    def __init__(
        self,
        name: str,
        source: str,
        kinds: tuple[Kind, ...],
        told: Callable[[str], None],
        fast: str = CONTRACT,
        packed: bool = True,
    ):
        """`told` and `packed` as in `Code`; `fast` as in `to_llvm`."""
        given = (kinds, HEAD, fast, vector_length())
        made_of = (source, *given, _compiler())
        self.kinds = kinds
        self.code = Code(name, made_of, lambda symbol: to_llvm(source, symbol, *given), told, packed)
        expected = [np.ndarray, *[np.dtype(kind.dtype) for kind in kinds if kind.ndim]]
        self._types = (ctypes.c_void_p * len(expected))(*map(id, expected))

    @cached_property
    def _call(self) -> Callable[..., int]:
        types = [ctypes.py_object if kind.ndim else C_TYPES[kind.dtype] for kind in self.kinds]
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *types)  # lets other threads run
        return prototype(needed(self.code))

    def prepare(self) -> None:
        """Have the code made, where it is not."""
        self._call  # noqa: B018

    def __call__(self, *arguments: Any) -> int | None:
        """What the function returns, 0 where that is nothing; None where the arguments are of other kinds."""
        try:
            returned: int = self._call(self._types, *arguments)
        except ctypes.ArgumentError:  # a number in place of an array, or the other way round
            return None
        return None if returned == REFUSED else returned


@cache
def _compiler() -> str:
    """What decides the code beside the source."""
    return hashlib.sha256(beside(__file__).encode()).hexdigest()
