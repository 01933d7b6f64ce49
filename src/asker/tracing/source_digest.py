"""Cache keys of asker's built-in functions: a digest of the package source replaces tracing.

A user's function may depend on anything that can change, and is traced in every solve.  A built-in function depends
only on the package and on the values that it closes over.  If these are plain values and built-in functions, a digest
of them and of the package source identifies the function in every process; an edited package has another digest.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from asker.io.cache import kept_code
from asker.tracing.jax_compat import traced_with
from asker.version import IMPORTED

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
PLAIN = (type(None), bool, int, float, str, bytes)
_values: dict[bytes, Any] = {}


def digest_of(*things: Any) -> bytes:
    """Return a digest of functions and values that is the same in every process; b"" unless all are built-in."""
    try:
        description = "\n".join(_described(things))
    except _NotBuiltin:
        return b""
    package = _digest_of_package()
    return package and hashlib.sha256(package + description.encode()).digest()


def cached_value(key: bytes, compute: Callable[[], Any]) -> Any:
    """Return the cached value of a key, of this process or the cache folder; it must be representable in JSON."""
    if key not in _values:
        name = f"known-{key.hex()}"
        content = kept_code().read(name)
        _values[key] = compute() if content is None else json.loads(content)
        if content is None:
            kept_code().write(name, json.dumps(_values[key]).encode())
    return _values[key]


class _NotBuiltin(Exception):
    """Value that the package source does not determine."""


def _described(x: Any) -> Iterator[str]:
    """Yield text that identifies a value."""
    if type(x) in PLAIN:
        yield repr(x)
    elif isinstance(x, np.ndarray | np.generic) and x.dtype != object:
        array = np.asarray(x)
        yield f"{array.dtype} {array.shape} {array.tobytes().hex()}"
    elif type(x) in (tuple, list):
        yield f"{len(x)} items"
        for item in x:
            yield from _described(item)
    elif type(x) is dict:
        yield from _described(list(x.items()))
    elif type(x) is partial:
        yield "partial"
        yield from _described((x.func, x.args, x.keywords))
    elif isinstance(x, FunctionType) and x.__code__.co_filename.startswith(PACKAGE):
        yield from _code(x.__code__)
        closure = [cell.cell_contents for cell in x.__closure__ or ()]
        yield from _described((x.__defaults__, x.__kwdefaults__, closure))
    elif is_dataclass(x) and not isinstance(x, type) and type(x).__module__.split(".")[0] == "asker":
        yield f"{type(x).__module__} {type(x).__qualname__}"
        yield from _described([getattr(x, field.name) for field in fields(x)])
    else:
        raise _NotBuiltin


def _code(code: CodeType) -> Iterator[str]:
    """Yield text that identifies a function of the package; lambdas may share a line."""
    yield f"{code.co_filename[len(PACKAGE) :]} {code.co_qualname} {code.co_firstlineno}"
    yield f"{code.co_code.hex()} {code.co_names}"
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from _code(x)
        else:
            yield str(sorted(map(repr, x))) if isinstance(x, frozenset) else repr(x)


@cache
def _digest_of_package() -> bytes:
    """Return a digest of all files of the package and of the versions of JAX and NumPy.

    It is b"" if a file has changed since this process began: the imported code may then differ from the files.
    """
    digest = hashlib.sha256(traced_with().encode())
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if max(info.st_mtime, info.st_ctime) > IMPORTED:
                return b""
            digest.update(str(path)[len(PACKAGE) :].encode() + b"\0" + file.read() + b"\0")
    return digest.digest()
