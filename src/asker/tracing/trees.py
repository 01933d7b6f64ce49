"""Nested values: dictionaries, named tuples and dataclasses with arrays as leaves, in any nesting.

A `Tree` is the structure of such a value.  Its leaves are in the order in which the value has them, and each has a name
for error messages, such as "['pose'].rotation".  Lists and plain tuples are leaves: they are arrays written in Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from asker.tracing.array_namespace import ProblemError


@dataclass(frozen=True)
class Tree:
    """Structure of a nested value."""

    kind: Any = None
    """Type of the value: `dict`, a named tuple or a dataclass; None for a leaf."""
    keys: tuple[Any, ...] = ()
    children: tuple["Tree", ...] = ()

    @property
    def is_leaf(self) -> bool:
        """True if the value is an array."""
        return self.kind is None

    def names(self, before: str = "") -> list[str]:
        """Return the name of each leaf."""
        if self.is_leaf:
            return [before]
        form = "{}[{!r}]" if self.kind is dict else "{}.{}"
        pairs = zip(self.keys, self.children, strict=True)
        return [name for key, child in pairs for name in child.names(form.format(before, key))]

    def leaves(self, value: Any, what: str = "values") -> list[Any]:
        """Return the leaves of a value of this structure; raise a `ProblemError` that names what differs."""
        if self.is_leaf:
            if is_tree(value):
                raise ProblemError(f"{what} is {_kind(value).__name__}, expected an array")
            return [value]
        if not is_tree(value) or _keys(value) != set(self.keys):
            given = f"the fields {_listed(_keys(value))}" if is_tree(value) else f"the type {type(value).__name__}"
            raise ProblemError(f"{what} has {given}, expected the fields {_listed(self.keys)}")
        form = "{}[{!r}]" if self.kind is dict else "{}.{}"
        pairs = zip(self.keys, self.children, strict=True)
        return [x for k, child in pairs for x in child.leaves(_item(value, k), form.format(what, k))]

    def build(self, leaves: Sequence[Any]) -> Any:
        """Return the value of this structure with these leaves."""
        return self._built(iter(leaves))

    def _built(self, leaves: Iterator[Any]) -> Any:
        if self.is_leaf:
            return next(leaves)
        items = {key: child._built(leaves) for key, child in zip(self.keys, self.children, strict=True)}
        if self.kind is dict:
            return items
        if issubclass(self.kind, tuple):
            return self.kind(**items)
        value = object.__new__(self.kind)  # a dataclass may check its fields, which are traced here
        for key, item in items.items():
            object.__setattr__(value, key, item)
        return value

    def __repr__(self) -> str:
        return _listed(self.names()) if not self.is_leaf else "array"


LEAF = Tree()
"""Structure of an array."""


def is_tree(value: Any) -> bool:
    """Return whether a value is a dictionary, a named tuple or a dataclass, and not an array."""
    if isinstance(value, Mapping):
        return True
    if isinstance(value, tuple):
        return hasattr(value, "_fields")
    return is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__array__")


def tree_of(value: Any) -> Tree:
    """Return the structure of a value."""
    if not is_tree(value):
        return LEAF
    keys = tuple(_ordered_keys(value))
    return Tree(_kind(value), keys, tuple(tree_of(_item(value, key)) for key in keys))


def leaves_of(value: Any) -> list[Any]:
    """Return the arrays of values of variables, which may be plain tuples (of a `Product`) as well."""
    if isinstance(value, tuple) and not is_tree(value):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [leaf for _, part in items_of(value) for leaf in leaves_of(part)] if is_tree(value) else [value]


def items_of(value: Any) -> list[tuple[Any, Any]]:
    """Return the fields of a nested value, with their names."""
    return [(key, _item(value, key)) for key in _ordered_keys(value)]


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return values of variables with a function applied to each of their arrays."""
    return like(value, [function(leaf) for leaf in leaves_of(value)])


def like(value: Any, leaves: Sequence[Any]) -> Any:
    """Return other arrays in the structure of values of variables."""
    left = iter(leaves)

    def build(value: Any) -> Any:
        if isinstance(value, tuple) and not is_tree(value):
            return tuple(build(part) for part in value)
        if not is_tree(value):
            return next(left)
        keys, parts = zip(*items_of(value), strict=True)
        return Tree(_kind(value), keys, (LEAF,) * len(keys)).build([build(part) for part in parts])

    return build(value)


def _kind(value: Any) -> type:
    return dict if isinstance(value, Mapping) else type(value)


def _ordered_keys(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value)
    return list(value._fields) if hasattr(value, "_fields") else [f.name for f in fields(value)]


def _keys(value: Any) -> set[Any]:
    return set(_ordered_keys(value))


def _item(value: Any, key: Any) -> Any:
    return value[key] if isinstance(value, Mapping) else getattr(value, key)


def _listed(keys: Any) -> str:
    return ", ".join(sorted(str(key) for key in keys))
