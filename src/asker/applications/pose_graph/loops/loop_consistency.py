"""Consistency of loop closures: probability that a false one would agree as well with other loop closures.

Two loop closures a = (i, j) and b = (k, l) with odometry from i to k and from l to j form a cycle,

    C = Mₐ⁻¹ Oᵢₖ M_b Oₗⱼ,

which is the identity up to noise.  The consistency test is that of PCM (Mangelson, Dominic, Eustice, Vasudevan:
Pairwise Consistent Measurement Set Maximization for Robust Multi-Robot Map Merging, ICRA 2018): c = log C has a
covariance Σ, from the information matrices, and cᵀΣ⁻¹c is χ² distributed if both are true.  The ranking is our own: the
probability that a false loop closure agrees as well is proportional to the volume of the ellipsoid xᵀΣ⁻¹x ≤ cᵀΣ⁻¹c.
It does not depend on a common factor of the matrices, and long cycles, which agree with anything, have large volumes.

The score of a loop closure is the smallest such volume over cycles with its nearest loop closures in time, and with
odometry alone from i to j.  Most true loop closures have a small one; false ones have only if they agree with each
other.

The covariance of odometry from pose i to pose k is P_k − P_i in the map frame, to first order, so that cumulative sums
along the trajectory are computed once.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.loops.noise_scale import CHI2_SIGNIFICANCE, SELECTION_FACTOR
from asker.geometry import poses
from asker.geometry.poses import N_AXES, N_DOF, Floats, Kind
from asker.geometry.spanning import connected_parts, spanning_forest

N_NEIGHBOURS = 8
"""Number of loop closures with which each one is compared."""
GROUPED_FRACTION = 0.9
"""Fraction of the loop closures that are connected to groups by consistent cycles."""
MAX_ANGLE_ERROR = np.pi
"""Largest possible error of an angle; that of a position is the length of the trajectory, that of a log scale 1."""


class RelativePoses(NamedTuple):
    """Relative poses from an earlier to a later pose, with covariances in the frame of the later one."""

    i: NDArray[np.intp]
    """Ranks of the ids of the earlier poses."""
    j: NDArray[np.intp]
    """Ranks of the ids of the later poses."""
    M: Floats
    covariance: Floats


class OdometryChain(NamedTuple):
    """Poses by odometry from the first one, with covariances."""

    T: Floats
    """(n, d, d): homogeneous matrices."""
    P: Floats
    """(n, dof, dof): covariances, in the frame of the first pose."""
    segment: NDArray[np.intp]
    """(n,): index of the segment, which increases where odometry is missing; poses are comparable within a segment."""


class Cycles(NamedTuple):
    """Cycles of loop closures, and how well they close."""

    a: NDArray[np.intp]
    """Indices of loop closures."""
    b: NDArray[np.intp]
    """Indices of the second loop closures; the number of loop closures for cycles with odometry alone."""
    u: Floats
    """cᵀΣ⁻¹c: χ² distributed if both loop closures are true."""
    log_volume: Floats
    """Logarithm of the ellipsoid's volume, up to a constant."""


class LoopConsistency:
    """Loop closures of a graph, ranked by consistency."""

    def __init__(self, graph: PoseGraph):
        self.graph = graph
        self.edges = np.flatnonzero(~graph.is_odometry)
        covariances = _covariances(graph)
        self.loops = _relative_poses(graph, self.edges, covariances)
        odometry = _relative_poses(graph, np.flatnonzero(graph.is_odometry), covariances)
        self.chain = _odometry_chain(graph.kind, odometry, self.loops, graph.n_poses)

    @property
    def n(self) -> int:
        """Number of loop closures."""
        return len(self.edges)

    @property
    def has_inconsistent_loops(self) -> bool:
        """True if a loop closure is inconsistent with odometry and with all nearby loop closures."""
        smallest = np.full(self.n, np.inf)
        np.minimum.at(smallest, self._odometry_cycles.a, self._odometry_cycles.u)
        if not self._has_outlier(smallest):
            return False
        for cycles in self._neighbour_cycles:
            np.minimum.at(smallest, cycles.a, cycles.u)
        return self._has_outlier(smallest)

    def _has_outlier(self, u: Floats) -> bool:
        """Return whether an entry exceeds its χ² quantile for the stated noise, or for the observed one if less."""
        from scipy.special import chdtri

        n_dof = N_DOF[self.graph.kind]
        factor = min(SELECTION_FACTOR**2 * np.median(u) / chdtri(n_dof, 0.5), 1.0)
        return bool((u > factor * chdtri(n_dof, CHI2_SIGNIFICANCE)).any())

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Edge indices of the loop closures, the most consistent ones first.

        The most consistent cycles, at least one for `GROUPED_FRACTION` of the loop closures, connect these to groups.
        Members of large groups come first.
        """
        cycles = Cycles(*map(np.concatenate, zip(self._odometry_cycles, *self._neighbour_cycles, strict=True)))
        score = np.full(self.n, np.inf)
        np.minimum.at(score, cycles.a, cycles.log_volume)
        is_grouped = cycles.log_volume <= np.quantile(score, GROUPED_FRACTION, method="lower")
        _, group = connected_parts(cycles.a[is_grouped], cycles.b[is_grouped], self.n + 1)
        sizes = np.bincount(group[:-1])[group[:-1]]
        return self.edges[np.lexsort((score, -sizes))]

    def most_consistent(self, n: int) -> NDArray[np.bool_]:
        """Return a mask (n_edges,) of odometry, the first n loop closures, and others required for connectivity."""
        cost = np.ones(self.graph.n_edges)
        cost[self.order] = 2 + np.arange(self.n)
        chosen = cost < 2 + n
        chosen[spanning_forest(self.graph.i, self.graph.j, cost, self.graph.n_poses)] = True
        return chosen

    @cached_property
    def _odometry_cycles(self) -> Cycles:
        """Cycles of single loop closures with odometry."""
        segment = self.chain.segment
        a = np.flatnonzero(segment[self.loops.i] == segment[self.loops.j])
        C, S = _close_with_odometry(self.graph.kind, self.chain, _select(self.loops, a))
        return _cycle_statistics(a, np.full(len(a), self.n), C, S, self.graph.kind)

    @cached_property
    def _neighbour_cycles(self) -> list[Cycles]:
        """Cycles with the nearest loop closure, with the second nearest, and so on."""
        from scipy.spatial import cKDTree

        i, j, segment = self.loops.i, self.loops.j, self.chain.segment
        at = np.stack([i, j], axis=1)
        _, near = cKDTree(at).query(at, min(N_NEIGHBOURS + 1, self.n), p=1)
        cycles = []
        for b in near.reshape(self.n, -1).T:  # one of them is the loop closure itself
            is_connected = (segment[i] == segment[i[b]]) & (segment[j] == segment[j[b]]) & (b != np.arange(self.n))
            a = np.flatnonzero(is_connected)
            C, S = _close_pairs(self.graph.kind, self.chain, _select(self.loops, a), _select(self.loops, b[a]))
            cycles.append(_cycle_statistics(a, b[a], C, S, self.graph.kind))
        return cycles


def _cycle_statistics(a: NDArray[np.intp], b: NDArray[np.intp], C: Floats, S: Floats, kind: Kind) -> Cycles:
    """Return the statistics of cycles, without those lost in rounding errors."""
    c, (sign, size) = _logarithms(kind, C), np.linalg.slogdet(S)
    u, is_sound = np.full(len(c), np.nan), (sign > 0) & np.isfinite(size)
    u[is_sound] = np.einsum("ni,ni->n", c[is_sound], np.linalg.solve(S[is_sound], c[is_sound, :, None])[:, :, 0])
    is_sound &= np.isfinite(u) & (u >= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_volume = (c.shape[1] * np.log(u) + size) / 2
    return Cycles(*(array[is_sound] for array in (a, b, u, log_volume)))


def _relative_poses(graph: PoseGraph, edges: NDArray[np.intp], covariances: Floats) -> RelativePoses:
    """Return the relative poses of edges, each from its earlier to its later pose."""
    kind = graph.kind
    rank = np.empty(graph.n_poses, np.intp)
    rank[np.argsort(graph.ids)] = np.arange(graph.n_poses)
    i, j = rank[graph.i[edges]], rank[graph.j[edges]]
    M, S = poses.matrices(kind, graph.measurements[edges]), covariances[edges]
    back = i > j
    S[back] = _transform_covariance(_adjoints(kind, M[back]), S[back])
    M[back] = poses.inverses(kind, M[back])
    return RelativePoses(np.minimum(i, j), np.maximum(i, j), M, S)


def _select(m: RelativePoses, index: np.ndarray) -> RelativePoses:
    return RelativePoses(*(array[index] for array in m))


def _covariances(graph: PoseGraph) -> Floats:
    """Return the covariances of all edges; the prior of the largest possible errors bounds unmeasured directions."""
    d, n = N_AXES[graph.kind], N_DOF[graph.kind]
    steps = poses.positions(graph.kind, graph.measurements[graph.is_odometry])
    length = max(float(np.linalg.norm(steps, axis=1).sum()), np.finfo(float).tiny)
    max_error = np.array([length] * d + [MAX_ANGLE_ERROR] * (2 * d - 3) + [1.0])[:n]
    covariances: Floats = np.linalg.inv(graph.information + np.diag(max_error**-2.0)).astype(np.float64)
    return covariances


def _odometry_chain(kind: Kind, odometry: RelativePoses, loops: RelativePoses, n: int) -> OdometryChain:
    """Chain the most informative odometry edges; where one is missing, use a short loop closure around the gap."""
    order = np.lexsort((np.linalg.slogdet(odometry.covariance)[1], odometry.i))
    best = order[np.append(True, np.diff(odometry.i[order]) > 0)[: len(order)]]
    at = odometry.i[best]
    steps, noise = np.tile(np.eye(N_AXES[kind] + 1), (n - 1, 1, 1)), np.zeros((n - 1, N_DOF[kind], N_DOF[kind]))
    steps[at], noise[at] = odometry.M[best], odometry.covariance[best]
    is_missing = np.ones(n - 1, np.bool_)
    is_missing[at] = False
    for k, loop in _detours(is_missing, loops):
        steps[k] = _product(poses.inverses(kind, steps[loops.i[loop] : k])[::-1], N_AXES[kind]) @ loops.M[loop]
        steps[k] = steps[k] @ _product(poses.inverses(kind, steps[k + 1 : loops.j[loop]])[::-1], N_AXES[kind])
        noise[k], is_missing[k] = loops.covariance[loop], False
    T = np.tile(np.eye(N_AXES[kind] + 1), (n, 1, 1))
    for k, M in enumerate(steps):
        T[k + 1] = T[k] @ M
    P = np.zeros((n, *noise.shape[1:]))
    P[1:] = np.cumsum(_transform_covariance(_adjoints(kind, T[1:]), noise), axis=0)
    return OdometryChain(T, P, np.concatenate([[0], np.cumsum(is_missing)]))


def _detours(is_missing: NDArray[np.bool_], loops: RelativePoses) -> list[tuple[int, int]]:
    """Return the indices of missing steps, each with the shortest loop closure that spans no other missing step."""
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


def _close_with_odometry(kind: Kind, chain: OdometryChain, a: RelativePoses) -> tuple[Floats, Floats]:
    """Return the cycle of each loop closure with odometry from i to j, and its covariance in the frame of j."""
    back = poses.inverses(kind, chain.T[a.j])
    C = poses.inverses(kind, a.M) @ poses.inverses(kind, chain.T[a.i]) @ chain.T[a.j]
    return C, a.covariance + _transform_covariance(_adjoints(kind, back), chain.P[a.j] - chain.P[a.i])


def _close_pairs(kind: Kind, chain: OdometryChain, a: RelativePoses, b: RelativePoses) -> tuple[Floats, Floats]:
    """Return the cycle of each pair of loop closures, and its covariance in the frame of the end of a."""
    to_a, from_j = poses.inverses(kind, chain.T[a.i]), poses.inverses(kind, chain.T[a.j])
    back = poses.inverses(kind, a.M)
    through = back @ to_a @ chain.T[b.i] @ b.M
    C = through @ poses.inverses(kind, chain.T[b.j]) @ chain.T[a.j]
    S = a.covariance + _transform_covariance(_adjoints(kind, back @ to_a), _chain_covariance(chain, a.i, b.i))
    S += _transform_covariance(_adjoints(kind, through), b.covariance)
    return C, S + _transform_covariance(_adjoints(kind, from_j), _chain_covariance(chain, a.j, b.j))


def _chain_covariance(chain: OdometryChain, i: np.ndarray, k: np.ndarray) -> Floats:
    return chain.P[np.maximum(i, k)] - chain.P[np.minimum(i, k)]


def _logarithms(kind: Kind, T: Floats) -> Floats:
    """Return logarithms (n, dof) of transformations near the identity, with translations to first order."""
    rows = poses.rows(kind, T)
    if kind == "SE2":
        return rows
    sine, cosine = np.linalg.norm(rows[:, 3:6], axis=1), rows[:, 6]
    angle = 2 * np.arctan2(sine, cosine)
    rotation = rows[:, 3:6] * np.where(sine > 0, angle / np.where(sine > 0, sine, 1.0), 2.0)[:, None]
    return np.concatenate([rows[:, :3], rotation, np.log(rows[:, 7:])], axis=1)


def _generators(kind: Kind) -> Floats:
    """Return the derivatives (dof, d, d) of a homogeneous matrix at the identity with respect to the tangent vector."""
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
    """Return the adjoint matrices (n, dof, dof): T exp(x) = exp(Ad x) T."""
    G = _generators(kind)
    moved = T[:, None] @ G @ poses.inverses(kind, T)[:, None]  # (n, dof, d, d)
    flat = G.reshape(len(G), -1)
    parts = moved.reshape(len(T), *flat.shape) @ (flat.T / (flat**2).sum(axis=1))
    return np.swapaxes(parts, 1, 2)


def _transform_covariance(A: Floats, S: Floats) -> Floats:
    """Return A S Aᵀ."""
    return A @ S @ np.swapaxes(A, 1, 2)
