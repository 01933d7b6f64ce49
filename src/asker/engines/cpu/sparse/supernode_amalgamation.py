"""Amalgamation of supernodes to few wide fronts that store few zeros, for an engine that processes many in parallel."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from asker.engines.cpu.sparse.elimination_tree import MAX_VERTICES_FOR_BOTH, Tree, amalgamate, elimination_trees
from asker.engines.cpu.sparse.symbolic import children_of, coupled_later, graph_of, pointers


class WideFronts(NamedTuple):
    """Fronts in postorder; unknowns are numbered in the order of elimination."""

    order: np.ndarray
    """The unknowns in the order of elimination."""
    first: np.ndarray
    """Front k eliminates the unknowns first[k] … first[k + 1] − 1."""
    parent: np.ndarray
    """The parent of each front, −1 for none."""
    coupled_ptr: np.ndarray
    coupled: np.ndarray
    """The unknowns that each front is coupled to when it is eliminated, ascending."""


def wide_fronts(
    block_pattern: tuple[np.ndarray, np.ndarray], dims: np.ndarray, narrow: Sequence[int], zeros: float
) -> Iterator[WideFronts]:
    """Yield several sets of fronts for a pattern: with dissection and without, and with fronts of different sizes.

    `block_pattern` and `dims` are as in `analyse`.  For each size in `narrow`, fronts of up to this many rows may
    contain any number of zeros, larger ones the fraction `zeros`.
    """
    for tree in elimination_trees(graph_of(*block_pattern, dims.astype(np.int64)), MAX_VERTICES_FOR_BOTH):
        if tree is None:
            continue
        ptr, coupled = _coupled(tree, block_pattern)
        sizes = dims[tree.order].astype(np.int64)
        load = _summed(sizes[coupled], ptr)
        for size in narrow:
            width = _summed(sizes, tree.first)
            names = amalgamate(np.arange(len(load)), tree.parent, load, width, size, zeros)
            yield _of_unknowns(_renamed(tree, *names), block_pattern, dims)


def _of_unknowns(tree: Tree, block_pattern: tuple[np.ndarray, np.ndarray], dims: np.ndarray) -> WideFronts:
    """Return the fronts of a tree of blocks in terms of scalar unknowns."""
    ptr, coupled = _coupled(tree, block_pattern)
    sizes = dims[tree.order].astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    starts = np.concatenate([[0], np.cumsum(dims)])
    return WideFronts(
        order=_spelled_out(starts[tree.order], sizes),
        first=begins[tree.first],
        parent=tree.parent,
        coupled_ptr=np.concatenate([[0], np.cumsum(sizes[coupled])])[ptr],
        coupled=_spelled_out(begins[coupled], sizes[coupled]),
    )


def _coupled(tree: Tree, block_pattern: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the variables that each front is coupled to, by their position in the order."""
    n_fronts = len(tree.parent)
    rank = np.empty_like(tree.order)
    rank[tree.order] = np.arange(len(rank))
    i, j = rank[np.repeat(np.arange(len(rank)), np.diff(block_pattern[0]))], rank[block_pattern[1]]
    i, j = np.minimum(i, j), np.maximum(i, j)
    front = np.searchsorted(tree.first, i, side="right") - 1
    child_ptr, child = children_of(tree.parent)
    return coupled_later(tree.first, child_ptr, child, pointers(front, n_fronts), j[np.argsort(front, kind="stable")])


def _renamed(tree: Tree, front: np.ndarray, above: np.ndarray) -> Tree:
    """Return the tree of amalgamated fronts, each identified by its topmost front."""
    names = np.flatnonzero(front == np.arange(len(front)))
    number = np.full(len(front), -1)
    number[names] = np.arange(len(names))
    new_front = np.repeat(number[front], np.diff(tree.first))
    by_front = np.argsort(new_front, kind="stable")
    parent = np.where(above[names] >= 0, number[above[names]], -1)
    return Tree(tree.order[by_front], pointers(new_front, len(names)), parent)


def _summed(x: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """Return the sum of x over each range of `ptr`."""
    return np.diff(np.concatenate([[0], np.cumsum(x)])[ptr])


def _spelled_out(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenate the ranges begins[k] … begins[k] + sizes[k] − 1."""
    return np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
