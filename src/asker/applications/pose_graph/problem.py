"""Pose graphs as a `Problem`: poses, odometry that is trusted, and loop closures that may be wrong.

The residual of an edge with measurement M between poses A and B is  r = W·log(M⁻¹ A⁻¹ B)  with WᵀW = Ω, W the upper
Cholesky factor of the edge's information matrix: ‖r‖² is the squared Mahalanobis distance.

log is that of SE(3) or SE(2), translation first: costs are those of GTSAM's `BetweenFactorPose3` and
`BetweenFactorPose2`.  (g2o takes the translation and the quaternion's vector, or the angle, of M⁻¹ A⁻¹ B as they are;
the optimum then differs in the fifth digit.)

A right measurement with right Ω has ‖r‖² distributed as χ² with 3 or 6 degrees of freedom.  `default_tau` puts the
kernel's inflection, up to which a residual counts as an inlier, at the 99 % quantile: τ = √3·√χ²(0.99) for the smooth
truncated kernel, 5.83 in the plane and 7.10 in space.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.g2o import PoseGraph
from asker.applications.pose_graph.options import Robust
from asker.arrays import float64
from asker.factors import unchanging
from asker.geometry import poses
from asker.geometry.poses import N_DOF, Kind
from asker.groups import Groups
from asker.kernels import Kernel, Quadratic, SmoothTruncated
from asker.manifolds import SE2, SE3, Pose, log_se2, log_se3
from asker.problem import Factors, Problem, ProblemError, Variables
from asker.result import Result

INLIERS = 0.99
"""The share of the right measurements that count as inliers."""


def inlier_radius(kind: Kind) -> float:
    """‖r‖ that a right measurement stays below with probability `INLIERS`."""
    from scipy.stats import chi2

    return float(np.sqrt(chi2.ppf(INLIERS, N_DOF[kind])))


def default_tau(kind: Kind) -> float:
    """τ of the smooth truncated kernel whose inflection is the `inlier_radius`."""
    return inlier_radius(kind) / SmoothTruncated.unit_inflection


@unchanging
def error_se3(a: Any, b: Any, rotation: Any, translation: Any, whiten: Any) -> Any:
    """W·log(M⁻¹ A⁻¹ B), (6,)"""
    R = rotation.T @ (a.rotation.T @ b.rotation)
    t = rotation.T @ (a.rotation.T @ (b.translation - a.translation) - translation)
    return whiten @ log_se3(R, t)


@unchanging
def error_se2(a: Any, b: Any, measured: Any, whiten: Any) -> Any:
    """W·log(M⁻¹ A⁻¹ B), (3,)"""
    import jax.numpy as jnp

    p = _turned_back(jnp, a[2], b[:2] - a[:2]) - measured[:2]  # by index: `residual_norms` gives plain rows
    turn = b[2] - a[2] - measured[2]
    turn = turn - 2 * np.pi * jnp.round(turn / (2 * np.pi))
    return whiten @ log_se2(_turned_back(jnp, measured[2], p), turn)


def _turned_back(jnp: Any, theta: Any, p: Any) -> Any:
    """R(θ)ᵀ p"""
    c, s = jnp.cos(theta), jnp.sin(theta)
    return jnp.stack([c * p[0] + s * p[1], c * p[1] - s * p[0]])


@dataclass(frozen=True, eq=False)
class PoseGraphProblem:
    """A pose graph's problem with its variables, and which edge each residual belongs to."""

    graph: PoseGraph
    problem: Problem
    poses: Variables
    edges: dict[str, NDArray[np.intp]]
    """The edges of each factor group, "odometry" and "loops"; a group without edges is left out."""

    def refined(self, values: Groups[Any]) -> PoseGraph:
        """The graph with the solved poses."""
        found = values[self.poses]
        if self.graph.kind == "SE3":
            found = poses.rows("SE3", found)  # (n, 3, 4)
        return replace(self.graph, poses=np.where(self.poses.fixed[:, None], self.graph.poses, found))

    @property
    def is_robust(self) -> np.ndarray:
        """(n_edges,): whether an edge is under a kernel that may give it up; a convex one does not."""
        return self.per_edge([np.full(f.n, not f.kernel.convex) for f in self.problem.factors])

    def refused(self, result: Result) -> np.ndarray:
        """(n_edges,): the edges to which such a kernel gives half of the full weight or less."""
        return self.is_robust & (self.per_edge(result.weights) <= 0.5)

    def per_edge(self, groups: Sequence[np.ndarray]) -> np.ndarray:
        """What a `Result` holds for each factor group, in the order of the graph's edges."""
        out = np.zeros((self.graph.n_edges, *groups[0].shape[1:]), groups[0].dtype)
        for index, values in zip(self.edges.values(), groups, strict=True):
            out[index] = values
        return out


def pose_graph_problem(graph: PoseGraph, kernel: Kernel | None = None, robust: Robust = "loops") -> PoseGraphProblem:
    """Relative pose errors under `kernel`: smooth truncated with `default_tau` when not given.

    robust: the kernel acts on "loops" (odometry is trusted), on "all" edges, or on "none" (least squares).
    The poses that the graph fixes stay; without such, the first one does.
    """
    if robust not in get_args(Robust):
        raise ValueError(f"robust must be 'loops', 'all' or 'none', not {robust!r}")
    if not graph.n_edges:
        raise ProblemError("the graph has no edges: nothing to fit")
    kernel = SmoothTruncated(default_tau(graph.kind)) if kernel is None else kernel
    trusted = Quadratic(inlier_radius(graph.kind))
    fixed = graph.fixed.copy()
    fixed[0] |= not fixed.any()
    if graph.kind == "SE3":
        variables = Variables(poses.matrices("SE3", graph.poses)[:, :3], SE3, fixed, "poses")
    else:
        variables = Variables(graph.poses, SE2, fixed, "poses")
    data = _edge_data(graph)
    residual = error_se3 if graph.kind == "SE3" else error_se2
    odometry = graph.is_odometry
    edges, factors = {}, []
    for name, of_group, is_robust in (
        ("odometry", odometry, robust == "all"),
        ("loops", ~odometry, robust != "none"),
    ):
        if of_group.any():
            edges[name] = index = np.flatnonzero(of_group)
            slots = variables[graph.i[index]], variables[graph.j[index]]
            psi = kernel if is_robust else trusted
            factors.append(Factors(residual, *slots, data=tuple(d[index] for d in data), kernel=psi, name=name))
    return PoseGraphProblem(graph, Problem(*factors), variables, edges)


def _edge_data(graph: PoseGraph) -> tuple[np.ndarray, ...]:
    W = whitening(graph.information)
    if graph.kind == "SE2":
        return graph.measurements, W
    M = poses.matrices("SE3", graph.measurements)
    return M[:, :3, :3], M[:, :3, 3], W


def residual_norms(graph: PoseGraph) -> np.ndarray:
    """‖r‖ of every edge, (n_edges,), as `solve` has it at the start; infinite where it is not finite."""
    import jax

    a: Any
    b: Any
    residual: Any
    a, b, residual = graph.poses[graph.i], graph.poses[graph.j], error_se2
    if graph.kind == "SE3":
        A, B = (poses.matrices("SE3", x) for x in (a, b))
        a, b = (Pose(T[:, :3, :3], T[:, :3, 3]) for T in (A, B))
        residual = error_se3
    with float64():
        r = np.asarray(jax.jit(jax.vmap(residual))(a, b, *_edge_data(graph)))
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(r, axis=1)
    return np.where(np.isfinite(norms), norms, np.inf)


def whitening(information: np.ndarray) -> np.ndarray:
    """W with WᵀW = Ω: the upper Cholesky factor; where a matrix is singular, from eigenvectors for all of them."""
    try:
        return np.swapaxes(np.linalg.cholesky(information), 1, 2)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(information)
        return np.sqrt(np.maximum(values, 0))[:, :, None] * np.swapaxes(vectors, 1, 2)
