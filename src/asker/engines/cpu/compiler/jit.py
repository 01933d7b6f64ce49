"""Compilation of a source text in the Python subset to a function that is called with arrays."""

import ctypes
import hashlib
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numpy as np

from asker.engines.cpu.background_compile import compiled_address
from asker.engines.cpu.code_cache import Code, folder_source, vector_length
from asker.engines.cpu.compiler.expressions import CONTRACT, Kind
from asker.engines.cpu.compiler.llvm import BAD_ARGUMENTS, to_llvm

HEAD = object.__basicsize__
"""Size of the header of a Python object in bytes; the fields of a NumPy array follow it."""
C_TYPES: dict[str, Any] = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool,
}  # fmt: skip


def kinds_of(arguments: tuple[Any, ...]) -> tuple[Kind, ...]:
    """Return the kind of each argument, which must be a number or a contiguous array."""
    return tuple(map(_kind, arguments))


def _kind(x: Any) -> Kind:
    if not isinstance(x, np.ndarray):
        return Kind(np.min_scalar_type(x).name if isinstance(x, bool | np.bool_) else np.asarray(x).dtype.name)
    if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype != np.dtype(x.dtype.name):
        raise TypeError(f"expected a contiguous array, got a {type(x).__name__} of {x.dtype} with strides {x.strides}")
    return Kind(x.dtype.name, x.ndim)


def with_known_type(x: Any) -> Any:
    """Return a view of an array with NumPy's canonical dtype object, which compiled code identifies by its address.

    Arrays from a pickle, and those of C's `long long`, have another dtype object that is equal to it.
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
        on_miss: Callable[[str], None],
        fast: str = CONTRACT,
        slp_vectorize: bool = True,
    ):
        """`on_miss` and `slp_vectorize` as in `Code`; `fast` as in `to_llvm`."""
        options = (kinds, HEAD, fast, vector_length())
        key = (source, *options, _compiler_digest())
        self.kinds = kinds
        self.code = Code(name, key, lambda symbol: to_llvm(source, symbol, *options), on_miss, slp_vectorize)
        expected = [np.ndarray, *[np.dtype(kind.dtype) for kind in kinds if kind.ndim]]
        self._types = (ctypes.c_void_p * len(expected))(*map(id, expected))

    @cached_property
    def _call(self) -> Callable[..., int]:
        types = [ctypes.py_object if kind.ndim else C_TYPES[kind.dtype] for kind in self.kinds]
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *types)  # releases the interpreter's lock
        return prototype(compiled_address(self.code))

    def prepare(self) -> None:
        """Compile the code unless it has been compiled before."""
        self._call  # noqa: B018

    def __call__(self, *arguments: Any) -> int | None:
        """Return the function's value, 0 if it returns nothing, or None if the arguments are of other kinds."""
        try:
            returned: int = self._call(self._types, *arguments)
        except ctypes.ArgumentError:  # a number in place of an array, or vice versa
            return None
        return None if returned == BAD_ARGUMENTS else returned


@cache
def _compiler_digest() -> str:
    """Return a digest of this package's source, which determines the generated code."""
    return hashlib.sha256(folder_source(__file__).encode()).hexdigest()
