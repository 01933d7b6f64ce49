"""Pickles of the functions of factors: by reference if they can be imported, else by value with cloudpickle.

`pickle` stores a function by its module and name.  Lambdas, local functions, and functions of `__main__` such as those
of a notebook cannot be imported in another process; cloudpickle, if it is installed, stores their code.
"""

import pickle
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any


class PortableFunction:
    """Function in a pickle by value; unpickling returns the function itself."""

    def __init__(self, function: Callable[..., Any], what: str):
        self.function, self.what = function, what

    def __deepcopy__(self, memo: Any) -> "PortableFunction":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            import cloudpickle
        except ImportError:
            if is_importable(self.function):  # a function of __main__, which spawned processes import again
                return _same, (self.function,)
            name = getattr(self.function, "__qualname__", repr(self.function))
            raise pickle.PicklingError(
                f"Can't pickle the {self.what}, {name}: another process cannot import it. Define it with def at the "
                "top level of a module, or install cloudpickle, which stores lambdas and local functions by value"
            ) from None
        return cloudpickle.loads, (cloudpickle.dumps(self.function),)


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def is_importable(function: Any) -> bool:
    """Return whether the module of a function has it under its name."""
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def portable(function: Any, what: str) -> Any:
    """Return a function, or a `PortableFunction` in its place if other processes cannot import it."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    if not isinstance(inner, FunctionType) or (is_importable(inner) and inner.__module__ != "__main__"):
        return function
    return PortableFunction(function, what)


def restored(function: Any) -> Any:
    """Return the function of a state that `portable` has made."""
    return function.function if isinstance(function, PortableFunction) else function
