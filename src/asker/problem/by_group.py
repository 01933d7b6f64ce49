"""Items of a result for each group of a problem, indexed by position, by name, or by the group itself."""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

from asker.problem.factors import Factors
from asker.problem.variables import Variables
from asker.tracing.trees import is_tree, leaves_of

T = TypeVar("T")


class Groups(Sequence[T], Generic[T]):
    """One item for each group, in the problem's order.

        result.weights[0]           by position, as in a tuple
        result.weights["loops"]     by the name of the factors
        result.values[cameras]      by the group itself

    A name that several groups share raises a `KeyError`; use the position then.  A loaded result has only names: a
    group of a newly built problem is matched by its name and size.
    """

    def __init__(
        self,
        items: Sequence[T],
        names: Sequence[str],
        groups: Sequence[Variables] | Sequence[Factors] | None = None,
    ):
        self._items, self.names, self._groups = tuple(items), tuple(names), groups
        if len(self._items) != len(self.names):
            raise ValueError(f"{len(self._items)} items for {len(self.names)} names")

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        """Iterate over pairs of a name and its item."""
        return zip(self.names, self._items, strict=True)

    def __contains__(self, key: object) -> bool:
        """Return whether `self[key]` exists."""
        try:
            self[key]  # type: ignore[call-overload]
        except (KeyError, IndexError, TypeError):
            return False
        return True

    @overload
    def __getitem__(self, key: int | str | Variables | Factors) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[T, ...]: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._items[self._position_of(key)]
        if isinstance(key, Variables | Factors):
            return self._of(key)
        if isinstance(key, slice | int | np.integer):
            return self._items[key]
        raise TypeError(f"a group is indexed by its name, its position or itself, not by {type(key).__name__}")

    def __repr__(self) -> str:
        shapes = (f"{name!r}: {shape_of(item)}" for name, item in self.items())
        return f"Groups({', '.join(shapes)})"

    def _position_of(self, name: str) -> int:
        n = self.names.count(name)
        if n == 1:
            return self.names.index(name)
        if n:
            raise KeyError(f"{n} groups are called {name!r}: use the position, or give them different names")
        raise KeyError(f"no group is called {name!r}; there are {', '.join(map(repr, self.names))}")

    def _of(self, group: Variables | Factors) -> T:
        if self._groups is not None:
            for known, item in zip(self._groups, self._items, strict=True):
                if _origin(known) is _origin(group):
                    return item
            raise KeyError(f"{group!r} is not part of the problem that was solved")
        item = self._items[self._position_of(group.name)]
        n = group.n if isinstance(group, Factors) else len(group)
        if count(item) != n:
            raise KeyError(f"{group.name!r} had {count(item)} rows when this result was saved, and now has {n}")
        return item


def _origin(group: Any) -> Any:
    """Return the group that the user created, of which `group` may be a copy under another kernel."""
    return getattr(group, "origin", group)


def count(item: Any) -> int:
    """Return the number of rows; all parts of a `Product` and all leaves of nested values have the same number."""
    return len(leaves_of(item)[0])


def shape_of(item: Any) -> str:
    """Return text with the shape of an array, or of each part of several; other items are formatted by `str`."""
    has_own_text = "__str__" in vars(type(item))  # as that of `Noise`
    if isinstance(item, tuple) or (is_tree(item) and not has_own_text):
        return " and ".join(map(shape_of, leaves_of(item)))
    return "×".join(map(str, item.shape)) if hasattr(item, "shape") else str(item)
