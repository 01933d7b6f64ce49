"""Variables whose values are dictionaries, named tuples or dataclasses, as products of manifolds with named parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.geometry.manifolds import Euclidean, Manifold, Product
from asker.tracing.array_namespace import Array
from asker.tracing.trees import Tree, tree_of


@dataclass(frozen=True, init=False, repr=False)
class Structured(Product):
    """Product of manifolds whose values and views have the structure of a tree; each leaf has its manifold."""

    tree: Tree

    def __init__(self, tree: Tree, *parts: Manifold):
        super().__init__(*parts)
        object.__setattr__(self, "tree", tree)

    def __repr__(self) -> str:
        pairs = zip(self.tree.names(), self.parts, strict=True)
        return "{" + ", ".join(f"{name.strip('.')}: {part}" for name, part in pairs) + "}"

    def pack(self, values: Any) -> np.ndarray:
        leaves, rows = self.tree.leaves(values), []
        for name, part, leaf in zip(self.tree.names(), self.parts, leaves, strict=True):
            try:
                rows.append(part.pack(leaf))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} {error}") from None
        if len({len(x) for x in rows}) > 1:
            sizes = ", ".join(f"{name} has {len(x)}" for name, x in zip(self.tree.names(), rows, strict=True))
            raise ValueError(f"have different numbers of variables: {sizes}")
        return np.concatenate(rows, axis=1)

    def unpack(self, rows: np.ndarray) -> Any:
        return self.tree.build(super().unpack(rows))

    def view(self, x: Array) -> Any:
        return self.tree.build(super().view(x))


def structured(values: Any, manifold: Any = None) -> Structured:
    """Return the manifold of nested values.

    Parameters
    ----------
    values
        Initial guess: each leaf has one row per variable.
    manifold
        Manifolds of the leaves, in (nested) dictionaries; leaves without one are Euclidean.
    """
    tree = tree_of(values)
    leaves = tree.leaves(values)
    parts = [Euclidean(np.shape(x)[1:]) if m is None else m for m, x in zip(_each(tree, manifold), leaves, strict=True)]
    return Structured(tree, *parts)


def _each(tree: Tree, manifold: Any) -> list[Any]:
    """Return the manifold of each leaf, None where none is given; dictionaries may leave out fields."""
    if tree.is_leaf:
        return [manifold]
    if manifold is not None and not isinstance(manifold, Mapping):
        raise ValueError(f"have several fields: manifold must be a dictionary with those of {tree}")
    given = manifold or {}
    for key in given:
        if key not in tree.keys:
            raise ValueError(f"have no field {key!r}, for which there is a manifold")
    pairs = zip(tree.keys, tree.children, strict=True)
    return [m for key, child in pairs for m in _each(child, given.get(key))]
