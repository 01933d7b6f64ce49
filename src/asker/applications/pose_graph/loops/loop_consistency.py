"""Support: how surely a loop of a pose graph agrees with others, by odometry between them.

Two loops a = (i, j) and b = (k, l) with odometry from i to k and from l to j close a cycle,

    C = Mₐ⁻¹ Oᵢₖ M_b Oₗⱼ,

which is the identity but for noise.  The information matrices say how much noise, Σ, and the chance that a false loop
agrees as well is in proportion to the volume of the ellipsoid xᵀΣ⁻¹x ≤ cᵀΣ⁻¹c, with c = log C.  How far off the
matrices are as a whole drops out of it.  So long ways between loops, which agree with anything, support nothing.

The support of a loop is the smallest such volume over the loops that are nearest to it in time, and over odometry
alone from i to j.  Right loops have some that is near; a false one has none, but where false ones agree with each
other.

A covariance of odometry from pose i to pose k is P_k − P_i in the frame of the map, to first order: sums along the way
are made once.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.loops.noise_scale import CLOSE, UNLIKELY
from asker.geometry import poses
from asker.geometry.poses import N_AXES, N_DOF, Floats, Kind
from asker.geometry.spanning import connected_parts, spanning_forest

NEAREST = 8
"""Loops that one is compared with."""
TIED = 0.9
"""The part of the loops that are put together in groups."""
TURN = np.pi
"""Nothing is further off, in angles; nor, in positions, by more than the way is long; nor, in scale, e times."""


class Measured(NamedTuple):
    """Poses seen from others, from the earlier one to the later, with covariances in the frame of the later one."""

    i: NDArray[np.intp]
    """Ranks of the ids."""
    j: NDArray[np.intp]
    M: Floats
    covariance: Floats


class Way(NamedTuple):
    """Odometry from the first pose on."""

    T: Floats
    """(n, d, d): where it leads."""
    P: Floats
    """(n, dof, dof): covariances, in the frame of the first pose."""
    part: NDArray[np.intp]
    """(n,): grows where odometry is missing; what it says holds within a part."""


class Ties(NamedTuple):
    """Pairs of loops that odometry ties, and loops that it ties by itself."""

    a: NDArray[np.intp]
    """Numbers among the loops."""
    b: NDArray[np.intp]
    """The same; as many as there are loops for odometry itself."""
    u: Floats
    """cᵀΣ⁻¹c: distributed as χ² where both are right."""
    chance: Floats
    """The logarithm of the chance to agree as well, but for a constant."""


class LoopSupport:
    """The loops of a graph, and what supports each of them."""

    def __init__(self, graph: PoseGraph):
        self.graph = graph
        self.edges = np.flatnonzero(~graph.is_odometry)
        covariances = _covariances(graph)
        self.loops = _measured(graph, self.edges, covariances)
        odometry = _measured(graph, np.flatnonzero(graph.is_odometry), covariances)
        self.way = _way(graph.kind, odometry, self.loops, graph.n_poses)

    @property
    def n(self) -> int:
        """How many loops there are."""
        return len(self.edges)

    @property
    def contradicts(self) -> bool:
        """Whether a loop contradicts odometry, and all loops that are near, by far more than others do."""
        least = np.full(self.n, np.inf)
        np.minimum.at(least, self._with_odometry.a, self._with_odometry.u)
        if not self._has_far(least):
            return False
        for ties in self._with_others:
            np.minimum.at(least, ties.a, ties.u)
        return self._has_far(least)

    def _has_far(self, u: Floats) -> bool:
        """By the announced noise, or what half of the loops show if that is less."""
        from scipy.special import chdtri

        n_dof = N_DOF[self.graph.kind]
        share = min(CLOSE**2 * np.median(u) / chdtri(n_dof, 0.5), 1.0)
        return bool((u > share * chdtri(n_dof, UNLIKELY)).any())

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The loops, as numbers of the graph's edges, the best supported ones first.

        Ties that leave but few loops without any put loops together in groups; those of the large groups come first.
        """
        ties = Ties(*map(np.concatenate, zip(self._with_odometry, *self._with_others, strict=True)))
        support = np.full(self.n, np.inf)
        np.minimum.at(support, ties.a, ties.chance)
        sure = ties.chance <= np.quantile(support, TIED, method="lower")
        _, group = connected_parts(ties.a[sure], ties.b[sure], self.n + 1)
        sizes = np.bincount(group[:-1])[group[:-1]]
        return self.edges[np.lexsort((support, -sizes))]

    def first(self, n: int) -> NDArray[np.bool_]:
        """(n_edges,): odometry, the first n loops, and those of the others that tie what would fall apart."""
        price = np.ones(self.graph.n_edges)
        price[self.order] = 2 + np.arange(self.n)
        chosen = price < 2 + n
        chosen[spanning_forest(self.graph.i, self.graph.j, price, self.graph.n_poses)] = True
        return chosen

    @cached_property
    def _with_odometry(self) -> Ties:
        part = self.way.part
        a = np.flatnonzero(part[self.loops.i] == part[self.loops.j])
        cycles = _with_odometry(self.graph.kind, self.way, _chosen(self.loops, a))
        return _ties(a, np.full(len(a), self.n), *cycles, self.graph.kind)

    @cached_property
    def _with_others(self) -> list[Ties]:
        """With the nearest one, with the second, …"""
        from scipy.spatial import cKDTree

        i, j, part = self.loops.i, self.loops.j, self.way.part
        at = np.stack([i, j], axis=1)
        _, near = cKDTree(at).query(at, min(NEAREST + 1, self.n), p=1)
        found = []
        for b in near.reshape(self.n, -1).T:  # the loop itself is one of them
            is_tied = (part[i] == part[i[b]]) & (part[j] == part[j[b]]) & (b != np.arange(self.n))
            a = np.flatnonzero(is_tied)
            cycles = _with_another(self.graph.kind, self.way, _chosen(self.loops, a), _chosen(self.loops, b[a]))
            found.append(_ties(a, b[a], *cycles, self.graph.kind))
        return found


def _ties(a: NDArray[np.intp], b: NDArray[np.intp], C: Floats, S: Floats, kind: Kind) -> Ties:
    """From cycles and their covariances; without those that are lost in rounding."""
    c, (sign, size) = _logarithms(kind, C), np.linalg.slogdet(S)
    u, is_sound = np.full(len(c), np.nan), (sign > 0) & np.isfinite(size)
    u[is_sound] = np.einsum("ni,ni->n", c[is_sound], np.linalg.solve(S[is_sound], c[is_sound, :, None])[:, :, 0])
    is_sound &= np.isfinite(u) & (u >= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = (c.shape[1] * np.log(u) + size) / 2
    return Ties(*(array[is_sound] for array in (a, b, u, chance)))


def _measured(graph: PoseGraph, edges: NDArray[np.intp], covariances: Floats) -> Measured:
    kind = graph.kind
    rank = np.empty(graph.n_poses, np.intp)
    rank[np.argsort(graph.ids)] = np.arange(graph.n_poses)
    i, j = rank[graph.i[edges]], rank[graph.j[edges]]
    M, S = poses.matrices(kind, graph.measurements[edges]), covariances[edges]
    back = i > j
    S[back] = _seen_through(_adjoints(kind, M[back]), S[back])
    M[back] = poses.inverses(kind, M[back])
    return Measured(np.minimum(i, j), np.maximum(i, j), M, S)


def _chosen(m: Measured, index: np.ndarray) -> Measured:
    return Measured(*(array[index] for array in m))


def _covariances(graph: PoseGraph) -> Floats:
    """Of all edges; what is not measured is off by as much as can be."""
    d, n = N_AXES[graph.kind], N_DOF[graph.kind]
    steps = poses.positions(graph.kind, graph.measurements[graph.is_odometry])
    length = max(float(np.linalg.norm(steps, axis=1).sum()), np.finfo(float).tiny)
    most = np.array([length] * d + [TURN] * (2 * d - 3) + [1.0])[:n]
    found: Floats = np.linalg.inv(graph.information + np.diag(most**-2.0)).astype(np.float64)
    return found


def _way(kind: Kind, odometry: Measured, loops: Measured, n: int) -> Way:
    """By the most informative of several edges between two poses; where there is none, by a short loop around."""
    order = np.lexsort((np.linalg.slogdet(odometry.covariance)[1], odometry.i))
    first = order[np.append(True, np.diff(odometry.i[order]) > 0)[: len(order)]]
    at = odometry.i[first]
    steps, noise = np.tile(np.eye(N_AXES[kind] + 1), (n - 1, 1, 1)), np.zeros((n - 1, N_DOF[kind], N_DOF[kind]))
    steps[at], noise[at] = odometry.M[first], odometry.covariance[first]
    is_missing = np.ones(n - 1, np.bool_)
    is_missing[at] = False
    for k, loop in _around(is_missing, loops):
        steps[k] = _product(poses.inverses(kind, steps[loops.i[loop] : k])[::-1], N_AXES[kind]) @ loops.M[loop]
        steps[k] = steps[k] @ _product(poses.inverses(kind, steps[k + 1 : loops.j[loop]])[::-1], N_AXES[kind])
        noise[k], is_missing[k] = loops.covariance[loop], False
    T = np.tile(np.eye(N_AXES[kind] + 1), (n, 1, 1))
    for k, M in enumerate(steps):
        T[k + 1] = T[k] @ M
    P = np.zeros((n, *noise.shape[1:]))
    P[1:] = np.cumsum(_seen_through(_adjoints(kind, T[1:]), noise), axis=0)
    return Way(T, P, np.concatenate([[0], np.cumsum(is_missing)]))


def _around(is_missing: NDArray[np.bool_], loops: Measured) -> list[tuple[int, int]]:
    """Missing steps, each with the shortest loop that leads around it alone."""
    missing = np.concatenate([[0], np.cumsum(is_missing)])
    alone = np.flatnonzero(missing[loops.j] - missing[loops.i] == 1)
    alone = alone[np.argsort((loops.j - loops.i)[alone], kind="stable")]
    number, first = np.unique(missing[loops.i[alone]], return_index=True)
    return list(zip(np.flatnonzero(is_missing)[number].tolist(), alone[first].tolist(), strict=True))


def _product(T: Floats, d: int) -> Floats:
    out = np.eye(d + 1)
    for one in T:
        out = out @ one
    return out


def _with_odometry(kind: Kind, way: Way, a: Measured) -> tuple[Floats, Floats]:
    """The cycle of each loop with odometry from i to j, and its covariance in the frame of j."""
    back = poses.inverses(kind, way.T[a.j])
    C = poses.inverses(kind, a.M) @ poses.inverses(kind, way.T[a.i]) @ way.T[a.j]
    return C, a.covariance + _seen_through(_adjoints(kind, back), way.P[a.j] - way.P[a.i])


def _with_another(kind: Kind, way: Way, a: Measured, b: Measured) -> tuple[Floats, Floats]:
    """The cycle of each pair of loops, and its covariance in the frame of a's end."""
    to_a, from_j = poses.inverses(kind, way.T[a.i]), poses.inverses(kind, way.T[a.j])
    back = poses.inverses(kind, a.M)
    through = back @ to_a @ way.T[b.i] @ b.M
    C = through @ poses.inverses(kind, way.T[b.j]) @ way.T[a.j]
    S = a.covariance + _seen_through(_adjoints(kind, back @ to_a), _between(way, a.i, b.i))
    S += _seen_through(_adjoints(kind, through), b.covariance)
    return C, S + _seen_through(_adjoints(kind, from_j), _between(way, a.j, b.j))


def _between(way: Way, i: np.ndarray, k: np.ndarray) -> Floats:
    return way.P[np.maximum(i, k)] - way.P[np.minimum(i, k)]


def _logarithms(kind: Kind, T: Floats) -> Floats:
    """(n, dof): of poses near the identity; translations are taken as they are."""
    rows = poses.rows(kind, T)
    if kind == "SE2":
        return rows
    sine, cosine = np.linalg.norm(rows[:, 3:6], axis=1), rows[:, 6]
    angle = 2 * np.arctan2(sine, cosine)
    turned = rows[:, 3:6] * np.where(sine > 0, angle / np.where(sine > 0, sine, 1.0), 2.0)[:, None]
    return np.concatenate([rows[:, :3], turned, np.log(rows[:, 7:])], axis=1)


def _generators(kind: Kind) -> Floats:
    """(dof, d, d): how a homogeneous matrix at the identity changes with each number."""
    d = N_AXES[kind]
    shifts = [(k, d, 0.0) for k in range(d)]
    turns = [(1, 0, -1.0)] if d == 2 else [(2, 1, -1.0), (0, 2, -1.0), (1, 0, -1.0)]
    G = np.zeros((N_DOF[kind], d + 1, d + 1))
    for g, (row, column, mirrored) in zip(G, [*shifts, *turns], strict=False):
        g[row, column] = 1.0
        if mirrored:
            g[column, row] = mirrored
    if kind == "SIM3":
        G[6, :3, :3] = np.eye(3)
    return G


def _adjoints(kind: Kind, T: Floats) -> Floats:
    """(n, dof, dof): T exp(x) = exp(Ad x) T"""
    G = _generators(kind)
    moved = T[:, None] @ G @ poses.inverses(kind, T)[:, None]  # (n, dof, d, d)
    flat = G.reshape(len(G), -1)
    parts = moved.reshape(len(T), *flat.shape) @ (flat.T / (flat**2).sum(axis=1))
    return np.swapaxes(parts, 1, 2)


def _seen_through(A: Floats, S: Floats) -> Floats:
    """A S Aᵀ"""
    return A @ S @ np.swapaxes(A, 1, 2)
