"""Structure of the data of a factor group: one or several arguments of its residual function, which may be nested."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asker.tracing.array_namespace import ProblemError
from asker.tracing.trees import Tree, is_tree, tree_of


@dataclass(frozen=True)
class DataLayout:
    """Structures of the arguments of a residual function that are data; arrays are their leaves, in order."""

    trees: tuple[Tree, ...]
    is_single: bool
    """True if the data were given as a single argument, not as a tuple of arguments."""

    @classmethod
    def of(cls, data: Any) -> "DataLayout":
        """Return the layout of data as the user passes them: an argument, or a tuple of arguments."""
        is_single = not isinstance(data, tuple) or is_tree(data)
        return cls(tuple(map(tree_of, (data,) if is_single else data)), is_single)

    @property
    def names(self) -> list[str]:
        """Name of each array, such as "data[0]" or "data['uv']"."""
        if self.is_single and not self.trees[0].is_leaf:
            return self.trees[0].names("data")
        return [name for k, tree in enumerate(self.trees) for name in tree.names(f"data[{k}]")]

    @property
    def is_flat(self) -> bool:
        """True if every argument is an array."""
        return all(tree.is_leaf for tree in self.trees)

    def arrays(self, data: Any, what: str = "data") -> tuple[Any, ...]:
        """Return the arrays of data of this layout, or of a tuple of all arrays."""
        is_tuple = isinstance(data, tuple) and not is_tree(data)
        if is_tuple and len(data) == len(self.names) and (self.is_flat or not any(map(is_tree, data))):
            return data
        arguments = data if is_tuple else (data,)
        if len(arguments) != len(self.trees):
            raise ProblemError(f"{what} has {len(arguments)} arrays, expected {len(self.trees)}")
        pairs = enumerate(zip(self.trees, arguments, strict=True))
        single = self.is_single
        return tuple(x for k, (tree, d) in pairs for x in tree.leaves(d, what if single else f"{what}[{k}]"))

    def arguments(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arguments of the residual function, with these arrays as leaves."""
        if self.is_flat:
            return list(arrays)
        left = iter(arrays)
        return [tree._built(left) for tree in self.trees]

    def like_given(self, arrays: Sequence[Any]) -> Any:
        """Return arrays as the user passes data: nested if the data are, else a tuple."""
        arguments = tuple(self.arguments(arrays))
        return arguments[0] if self.is_single and not self.is_flat else arguments
