"""Poses from all edges of a graph by linear systems alone: where least squares should begin.

Carlone, Tron, Daniilidis, Dellaert: Initialization Techniques for 3D SLAM, ICRA 2015 (their chordal relaxation).

Problem     min over R, t of Σ a ‖Rⱼ − Rᵢ M‖² + b ‖tⱼ − tᵢ − Rᵢ m‖²  over the edges (i, j), with measurement (M, m)
Algorithm   (1) R as any matrices: one linear system for each row of them, all of them with the same matrix
            (2) the nearest rotations
            (3) t with these: one more linear system
Deviations  similarities have the logarithms of their scales by one more linear system, between (2) and (3).

Along odometry errors add up, until least squares end in a poor minimum; from these poses, all loops are nearly closed.
Where no edge is turned by a right angle (`is_turned`), that is not to be feared: within it ‖Rⱼ − Rᵢ M‖² is a convex
function of the angle.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.problem import PoseGraphProblem
from asker.applications.pose_graph.residuals import stored
from asker.geometry import poses
from asker.geometry.poses import N_AXES, Floats
from asker.solver.initial_values import rows_to_start


def chordal_rows(made: PoseGraphProblem, weights: tuple[Floats, ...]) -> tuple[Floats, ...] | None:
    """The rows of the poses that `chordal` finds with a weight for each edge: for `asker.Exchanges`."""
    w = made.per_edge(weights)
    part = made.graph.with_edges(w > 0)
    found = chordal(replace(part, information=w[w > 0, None, None] * part.information))
    return None if found is None else rows_to_start(made.problem, {"poses": stored(found)})


def chordal(graph: PoseGraph) -> PoseGraph | None:
    """The graph with the poses of (1) to (3); None where its edges alone do not determine them."""
    if graph.measured:
        return None
    stay = np.flatnonzero(graph.fixed) if graph.fixed.any() else np.zeros(1, np.intp)
    d, given = N_AXES[graph.kind], poses.matrices(graph.kind, graph.poses[stay])
    M = poses.matrices(graph.kind, graph.measurements)
    a, b, c = _weights(graph)
    try:
        R = _rotations(graph, M[:, :d, :d], a, stay, given[:, :d, :d])  # (1), (2)
        if graph.kind == "SIM3":
            s = _solved(graph, c, np.log(poses.scales(M))[:, None], stay, np.log(poses.scales(given))[:, None])
            R = np.exp(s)[:, :, None] * R
        m = np.einsum("nij,nj->ni", R[graph.i], M[:, :d, d])
        t = _solved(graph, b, m, stay, given[:, :d, d])  # (3)
    except (RuntimeError, np.linalg.LinAlgError):  # the system is singular
        return None
    T = np.tile(np.eye(d + 1), (graph.n_poses, 1, 1))
    T[:, :d, :d], T[:, :d, d] = R, t
    found = poses.rows(graph.kind, T)
    found[stay] = graph.poses[stay]
    return replace(graph, poses=found) if np.isfinite(found).all() else None


def is_turned(graph: PoseGraph) -> bool:
    """Whether the poses turn an edge by a right angle or more."""
    d = N_AXES[graph.kind]
    R, M = (_turns(poses.matrices(graph.kind, of)[:, :d, :d]) for of in (graph.poses, graph.measurements))
    trace = np.einsum("nij,nij->n", R[graph.i] @ M, R[graph.j])  # of a rotation by φ: d − 2 + 2 cos φ
    return bool((trace <= d - 2).any())


def _weights(graph: PoseGraph) -> tuple[Floats, Floats, Floats]:
    """The weights a and b of each edge, and the weight of its scale: means of its information."""
    d, diagonal = N_AXES[graph.kind], np.einsum("nii->ni", graph.information)
    turned = diagonal[:, d : 3 * (d - 1)]
    return turned.mean(axis=1), diagonal[:, :d].mean(axis=1), diagonal[:, -1]


def _turns(M: Floats) -> Floats:
    """Matrices without their scales."""
    found: Floats = M / np.cbrt(np.linalg.det(M))[:, None, None]
    return found


def _rotations(graph: PoseGraph, M: Floats, a: Floats, stay: NDArray[np.intp], given: Floats) -> Floats:
    """The rotations of (1) and (2), one for each pose."""
    d = M.shape[1]
    at = np.swapaxes(_turns(given), 1, 2).reshape(-1, d)
    columns = _solved(graph, a, np.zeros((graph.n_edges * d, d)), stay, at, _turns(M))
    U, _, Vt = np.linalg.svd(np.swapaxes(columns.reshape(-1, d, d), 1, 2))
    U[:, :, -1] *= np.linalg.det(U @ Vt)[:, None]
    found: Floats = U @ Vt
    return found


def _solved(
    graph: PoseGraph, w: Floats, y: Floats, stay: NDArray[np.intp], given: Floats, turn: Floats | None = None
) -> Floats:
    """The x that minimise Σ w ‖xⱼ − Mᵀxᵢ − y‖²; M are the `turn`, 1 when not given, and the x of `stay` are `given`."""
    from scipy.sparse import bsr_array
    from scipy.sparse.linalg import splu

    d = 1 if turn is None else turn.shape[1]
    n, root = graph.n_edges, np.sqrt(w)[:, None, None]
    back = -np.ones((n, 1, 1)) if turn is None else -np.swapaxes(turn, 1, 2)
    blocks = np.stack([root * back, root * np.eye(d)], axis=1).reshape(-1, d, d)
    ends, begins = np.stack([graph.i, graph.j], axis=1).ravel(), 2 * np.arange(n + 1)
    A: Any = bsr_array((blocks, ends, begins), shape=(n * d, graph.n_poses * d)).tocsc()
    is_free = np.ones(graph.n_poses, np.bool_)
    is_free[stay] = False
    x = np.zeros((graph.n_poses * d, y.shape[1]))
    free = np.repeat(is_free, d)
    x[(stay[:, None] * d + np.arange(d)).ravel()] = given
    B = A[:, free]
    rest = np.repeat(root[:, 0], d, axis=0) * y - A[:, ~free] @ x[~free]
    H = (B.T @ B).tocsc()
    how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    x[free] = splu(H, **how).solve(B.T @ rest)
    return x
