"""Fronts for those who want few and wide ones: whole variables, put together as far as that stores few zeros."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from asker.engines.cpu.sparse.elimination_tree import BOTH, Tree, elimination_trees, put_together
from asker.engines.cpu.sparse.symbolic import children_of, coupled_later, graph_of, pointers


class WideFronts(NamedTuple):
    """Unknowns are numbered in the order of elimination; children come before their parents."""

    order: np.ndarray
    """The unknown that comes in each place."""
    first: np.ndarray
    """Front k eliminates the unknowns first[k] … first[k + 1] − 1."""
    parent: np.ndarray
    """−1 for none."""
    coupled_ptr: np.ndarray
    coupled: np.ndarray
    """Those unknowns that they are still coupled to, ascending."""


def wide_fronts(
    meeting: tuple[np.ndarray, np.ndarray], dims: np.ndarray, narrow: Sequence[int], zeros: float
) -> Iterator[WideFronts]:
    """Several ways to factorise a pattern: with cuts and without, and with fronts of different sizes.

    `meeting` and `dims` as in `analyse`; a front of up to `narrow` unknowns may hold any zeros, a larger one a share.
    """
    for tree in elimination_trees(graph_of(*meeting, dims.astype(np.int64)), BOTH):
        if tree is None:
            continue
        ptr, coupled = _coupled(tree, meeting)
        sizes = dims[tree.order].astype(np.int64)
        load = _summed(sizes[coupled], ptr)
        for size in narrow:
            own = _summed(sizes, tree.first)
            names = put_together(np.arange(len(load)), tree.parent, load, own, size, zeros)
            yield _of_unknowns(_renamed(tree, *names), meeting, dims)


def _of_unknowns(tree: Tree, meeting: tuple[np.ndarray, np.ndarray], dims: np.ndarray) -> WideFronts:
    ptr, coupled = _coupled(tree, meeting)
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


def _coupled(tree: Tree, meeting: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The variables that each front is coupled to, by their place in the order."""
    n_fronts = len(tree.parent)
    rank = np.empty_like(tree.order)
    rank[tree.order] = np.arange(len(rank))
    i, j = rank[np.repeat(np.arange(len(rank)), np.diff(meeting[0]))], rank[meeting[1]]
    i, j = np.minimum(i, j), np.maximum(i, j)
    front = np.searchsorted(tree.first, i, side="right") - 1
    child_ptr, child = children_of(tree.parent)
    return coupled_later(tree.first, child_ptr, child, pointers(front, n_fronts), j[np.argsort(front, kind="stable")])


def _renamed(tree: Tree, front: np.ndarray, above: np.ndarray) -> Tree:
    """The tree of fronts that were put together, each named after its highest."""
    names = np.flatnonzero(front == np.arange(len(front)))
    number = np.full(len(front), -1)
    number[names] = np.arange(len(names))
    own = np.repeat(number[front], np.diff(tree.first))
    by_front = np.argsort(own, kind="stable")
    parent = np.where(above[names] >= 0, number[above[names]], -1)
    return Tree(tree.order[by_front], pointers(own, len(names)), parent)


def _summed(x: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    return np.diff(np.concatenate([[0], np.cumsum(x)])[ptr])


def _spelled_out(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """begins[k], begins[k] + 1, … sizes[k] of them, for each k."""
    return np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
