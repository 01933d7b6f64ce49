"""Functions of asker's own: what they compute is told by the text of the package, so that nothing need be traced again.

A function of a user's may read anything that can change, and is traced in every solve.  One of asker's own reads what
stands in the package, and what it closes over.  Where these are plain values, and others of asker's own, a digest of
all of it stands for the function in every process: an edited package has another digest.
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
_known: dict[bytes, Any] = {}


def known_by(*things: Any) -> bytes:
    """A digest that is the same for the same things in every process; empty where one of them is not asker's own."""
    try:
        told = "\n".join(_told(things))
    except _NotOwn:
        return b""
    text = _text_of_package()
    return text and hashlib.sha256(text + told.encode()).digest()


def remembered(key: bytes, find: Callable[[], Any]) -> Any:
    """What was found under this key, in this process or another; it must be made of lists, texts and numbers."""
    if key not in _known:
        name = f"known-{key.hex()}"
        content = kept_code().read(name)
        _known[key] = find() if content is None else json.loads(content)
        if content is None:
            kept_code().write(name, json.dumps(_known[key]).encode())
    return _known[key]


class _NotOwn(Exception):
    """Something that the text of the package does not tell."""


def _told(x: Any) -> Iterator[str]:
    """All that a value is, in words."""
    if type(x) in PLAIN:
        yield repr(x)
    elif isinstance(x, np.ndarray | np.generic) and x.dtype != object:
        array = np.asarray(x)
        yield f"{array.dtype} {array.shape} {array.tobytes().hex()}"
    elif type(x) in (tuple, list):
        yield f"{len(x)} items"
        for item in x:
            yield from _told(item)
    elif type(x) is dict:
        yield from _told(list(x.items()))
    elif type(x) is partial:
        yield "partial"
        yield from _told((x.func, x.args, x.keywords))
    elif isinstance(x, FunctionType) and x.__code__.co_filename.startswith(PACKAGE):
        yield from _code(x.__code__)
        closure = [cell.cell_contents for cell in x.__closure__ or ()]
        yield from _told((x.__defaults__, x.__kwdefaults__, closure))
    elif is_dataclass(x) and not isinstance(x, type) and type(x).__module__.split(".")[0] == "asker":
        yield f"{type(x).__module__} {type(x).__qualname__}"
        yield from _told([getattr(x, field.name) for field in fields(x)])
    else:
        raise _NotOwn


def _code(code: CodeType) -> Iterator[str]:
    """Which function of the package it is; lambdas may share a line."""
    yield f"{code.co_filename[len(PACKAGE) :]} {code.co_qualname} {code.co_firstlineno}"
    yield f"{code.co_code.hex()} {code.co_names}"
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from _code(x)
        else:
            yield str(sorted(map(repr, x))) if isinstance(x, frozenset) else repr(x)


@cache
def _text_of_package() -> bytes:
    """A digest of all its files, and the versions of what it is traced with.

    Empty where a file has changed since this process began: then what was imported may be another text.
    """
    digest = hashlib.sha256(traced_with().encode())
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if max(info.st_mtime, info.st_ctime) > IMPORTED:
                return b""
            digest.update(str(path)[len(PACKAGE) :].encode() + b"\0" + file.read() + b"\0")
    return digest.digest()
