"""Chordal initialisation: initial poses from all edges of a graph by linear least squares.

Carlone, Tron, Daniilidis, Dellaert: Initialization Techniques for 3D SLAM, ICRA 2015 (chordal relaxation).

Problem     min over R, t of Σ a ‖Rⱼ − Rᵢ M‖² + b ‖tⱼ − tᵢ − Rᵢ m‖²  over the edges (i, j), with measurement (M, m)
Algorithm   (1) R as unconstrained matrices: one linear system per row, all with the same coefficient matrix
            (2) projection to the nearest rotations
            (3) t given R: one more linear system
Deviations  log scales of similarities are the solution of one more linear system, between (2) and (3).

Errors of odometry accumulate, until least squares converge to a poor minimum; with these poses, all loop closures have
small residuals.  If no edge has a rotation error of 90° or more (`is_turned`), this is unlikely: up to there,
‖Rⱼ − Rᵢ M‖² is a convex function of the angle.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.problem import PoseGraphProblem
from asker.applications.pose_graph.residuals import manifold_values
from asker.geometry import poses
from asker.geometry.poses import N_AXES, Floats
from asker.solver.initial_values import rows_to_start


def chordal_start(made: PoseGraphProblem, weights: tuple[Floats, ...]) -> tuple[Floats, ...] | None:
    """Return the initial values by `chordal` with a weight for each edge, for restarts of `asker.Exchanges`."""
    w = made.per_edge(weights)
    part = made.graph.with_edges(w > 0)
    graph = chordal_initialization(replace(part, information=w[w > 0, None, None] * part.information))
    return None if graph is None else rows_to_start(made.problem, {"poses": manifold_values(graph)})


def chordal_initialization(graph: PoseGraph) -> PoseGraph | None:
    """Return the graph with poses by steps (1) to (3), or None if its edges do not determine them."""
    if graph.measured:
        return None
    constant = np.flatnonzero(graph.fixed) if graph.fixed.any() else np.zeros(1, np.intp)
    d, values = N_AXES[graph.kind], poses.matrices(graph.kind, graph.poses[constant])
    M = poses.matrices(graph.kind, graph.measurements)
    a, b, c = _weights(graph)
    try:
        R = _rotations(graph, M[:, :d, :d], a, constant, values[:, :d, :d])  # (1), (2)
        if graph.kind == "SIM3":
            s = _solved(graph, c, np.log(poses.scales(M))[:, None], constant, np.log(poses.scales(values))[:, None])
            R = np.exp(s)[:, :, None] * R
        m = np.einsum("nij,nj->ni", R[graph.i], M[:, :d, d])
        t = _solved(graph, b, m, constant, values[:, :d, d])  # (3)
    except (RuntimeError, np.linalg.LinAlgError):  # the system is singular
        return None
    T = np.tile(np.eye(d + 1), (graph.n_poses, 1, 1))
    T[:, :d, :d], T[:, :d, d] = R, t
    rows = poses.rows(graph.kind, T)
    rows[constant] = graph.poses[constant]
    return replace(graph, poses=rows) if np.isfinite(rows).all() else None


def has_large_rotation_error(graph: PoseGraph) -> bool:
    """Return whether an edge has a rotation error of 90° or more."""
    d = N_AXES[graph.kind]
    R, M = (_turns(poses.matrices(graph.kind, of)[:, :d, :d]) for of in (graph.poses, graph.measurements))
    trace = np.einsum("nij,nij->n", R[graph.i] @ M, R[graph.j])  # of a rotation by φ: d − 2 + 2 cos φ
    return bool((trace <= d - 2).any())


def _weights(graph: PoseGraph) -> tuple[Floats, Floats, Floats]:
    """Return the weights a and b of each edge, and that of its scale: means of the information matrix's diagonal."""
    d, diagonal = N_AXES[graph.kind], np.einsum("nii->ni", graph.information)
    turned = diagonal[:, d : 3 * (d - 1)]
    return turned.mean(axis=1), diagonal[:, :d].mean(axis=1), diagonal[:, -1]


def _turns(M: Floats) -> Floats:
    """Return matrices without their scales."""
    rotations: Floats = M / np.cbrt(np.linalg.det(M))[:, None, None]
    return rotations


def _rotations(graph: PoseGraph, M: Floats, a: Floats, constant: NDArray[np.intp], values: Floats) -> Floats:
    """Return the rotations of steps (1) and (2), one per pose."""
    d = M.shape[1]
    at = np.swapaxes(_turns(values), 1, 2).reshape(-1, d)
    columns = _solved(graph, a, np.zeros((graph.n_edges * d, d)), constant, at, _turns(M))
    U, _, Vt = np.linalg.svd(np.swapaxes(columns.reshape(-1, d, d), 1, 2))
    U[:, :, -1] *= np.linalg.det(U @ Vt)[:, None]
    rotations: Floats = U @ Vt
    return rotations


def _solved(
    graph: PoseGraph, w: Floats, y: Floats, constant: NDArray[np.intp], values: Floats, turn: Floats | None = None
) -> Floats:
    """Return the minimiser x of Σ w ‖xⱼ − Mᵀxᵢ − y‖², with `values` at the poses `constant`; M is `turn` or 1."""
    from scipy.sparse import bsr_array
    from scipy.sparse.linalg import splu

    d = 1 if turn is None else turn.shape[1]
    n, root = graph.n_edges, np.sqrt(w)[:, None, None]
    back = -np.ones((n, 1, 1)) if turn is None else -np.swapaxes(turn, 1, 2)
    blocks = np.stack([root * back, root * np.eye(d)], axis=1).reshape(-1, d, d)
    ends, begins = np.stack([graph.i, graph.j], axis=1).ravel(), 2 * np.arange(n + 1)
    A: Any = bsr_array((blocks, ends, begins), shape=(n * d, graph.n_poses * d)).tocsc()
    is_free = np.ones(graph.n_poses, np.bool_)
    is_free[constant] = False
    x = np.zeros((graph.n_poses * d, y.shape[1]))
    free = np.repeat(is_free, d)
    x[(constant[:, None] * d + np.arange(d)).ravel()] = values
    B = A[:, free]
    rest = np.repeat(root[:, 0], d, axis=0) * y - A[:, ~free] @ x[~free]
    H = (B.T @ B).tocsc()
    how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    x[free] = splu(H, **how).solve(B.T @ rest)
    return x
