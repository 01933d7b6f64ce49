"""Pose graphs as a `Problem`: odometry with a quadratic cost, and loop closures with a robust kernel.

The residual of an edge with measurement M between poses A and B is  r = W·log(M⁻¹ A⁻¹ B)  with WᵀW = Ω, W the upper
Cholesky factor of the edge's information matrix: ‖r‖² is the squared Mahalanobis distance.

log is that of SE(3), SE(2) or Sim(3), translation first: costs equal those of GTSAM's `BetweenFactorPose3`,
`BetweenFactorPose2` and `BetweenFactorSimilarity3`.  (g2o uses the translation of M⁻¹ A⁻¹ B and the vector part of its
quaternion, or its angle, without a logarithm; the optimum then differs in the fifth digit.)

Landmark measurements and priors form one factor group per tag (`residuals`), each with a kernel scaled to its number
of residual components: they may contain outliers, too.

For an inlier with correct Ω, ‖r‖² is χ² distributed with as many degrees of freedom as r has components.
`default_tau` puts the inflection point of the kernel, which is the inlier threshold, at the 99 % quantile:
τ = √3·√χ²(0.99) for the smooth truncated kernel, 5.83 for poses in the plane and 7.10 in space.  It is adapted in the
same way to measurements with more or fewer components.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASUREMENT_TAGS
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.options import Robust
from asker.applications.pose_graph.residuals import (
    MANIFOLDS,
    edge_residual,
    manifold_values,
    measured_residual,
    pose_arguments,
)
from asker.geometry import poses
from asker.geometry.manifolds import Euclidean
from asker.geometry.poses import N_DOF, Kind
from asker.kernels.kernel import Kernel
from asker.kernels.kernels import Quadratic, SmoothTruncated
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Problem, ProblemError, Variables
from asker.solver.result import Result
from asker.tracing.array_namespace import float64

INLIER_PROBABILITY = 0.99
"""Probability that an inlier lies within the inlier threshold."""


def inlier_radius(kind: Kind) -> float:
    """Return the threshold of ‖r‖ that an inlier satisfies with probability `INLIER_PROBABILITY`."""
    return _radius(N_DOF[kind])


def _radius(n_dof: int) -> float:
    from scipy.special import chdtri

    return float(np.sqrt(chdtri(n_dof, 1 - INLIER_PROBABILITY)))


def default_tau(kind: Kind) -> float:
    """Return the τ of the smooth truncated kernel whose inflection point is the `inlier_radius`."""
    return inlier_radius(kind) / SmoothTruncated.unit_inflection


@dataclass(frozen=True, eq=False)
class PoseGraphProblem:
    """A pose graph, its `Problem` and variables, and the mapping from residuals to measurements.

    The factor groups are those of `edges`, followed by one for each tag of the graph's `measured`.
    """

    graph: PoseGraph
    problem: Problem
    poses: Variables
    landmarks: Variables | None
    edges: dict[str, NDArray[np.intp]]
    """Edge indices of the factor groups "odometry" and "loops"; a group without edges is omitted."""

    def refined(self, values: Groups[Any]) -> PoseGraph:
        """Return the graph with the poses and landmarks of a solution."""
        graph, rows = self.graph, values[self.poses]
        if graph.kind != "SE2":
            rows = poses.rows(graph.kind, rows)  # (n, 3, 4)
        graph = replace(graph, poses=np.where(self.poses.fixed[:, None], graph.poses, rows))
        if self.landmarks is None:
            return graph
        return replace(graph, landmarks=replace(graph.landmarks, points=values[self.landmarks]))

    @property
    def is_robust(self) -> np.ndarray:
        """(n_edges,): whether the edge has a kernel that can reject it, i.e. one that is not convex."""
        return self.per_edge([np.full(f.n, not f.kernel.convex) for f in self.problem.factors])

    @property
    def n_unknown(self) -> int:
        """Number of unknowns: the degrees of freedom of all variables that are not constant."""
        n = N_DOF[self.graph.kind] * int(np.count_nonzero(~self.poses.fixed))
        if self.landmarks is None:
            return n
        return n + self.landmarks.manifold.tangent * int(np.count_nonzero(~self.landmarks.fixed))

    def rejected(self, result: Result) -> np.ndarray:
        """Return the mask of rejected edges, (n_edges,): weight at most 0.5 under a kernel that is not convex."""
        return self.is_robust & (self.per_edge(result.weights) <= 0.5)

    def rejected_measurements(self, result: Result) -> dict[str, np.ndarray]:
        """Return the masks of the other measurements that are rejected, by tag."""
        robust = self.per_measured([np.full(f.n, not f.kernel.convex) for f in self.problem.factors])
        return {tag: robust[tag] & (w <= 0.5) for tag, w in self.per_measured(result.weights).items()}

    def with_kernels(self, kernel: Kernel, robust: Robust, announced: Kernel) -> "PoseGraphProblem":
        """Return the same problem with other kernels, as `pose_graph_problem` would choose them."""
        kernels = [*_kernels(self.graph.kind, self.edges, kernel, robust).values()]
        kernels += [_measured_kernel(self.graph.kind, tag, announced) for tag in self.graph.measured]
        return replace(self, problem=self.problem.under(kernels))

    def reweighted(self, result: Result) -> Result:
        """Evaluate a result of the same problem with the kernels of this one, without solving."""
        factors, names = self.problem.factors, result.residuals.names
        pairs = [(f.kernel, (r**2).sum(axis=1)) for f, r in zip(factors, result.residuals, strict=True)]
        cost = float(sum(kernel.psi(u).sum() for kernel, u in pairs))
        start = replace(result.history[-1], iteration=0, cost=cost, best_cost=cost, seconds=0.0, details={})
        return replace(
            result,
            problem=self.problem,
            cost=cost,
            initial_cost=cost,
            history=[start],
            residuals=Groups(tuple(result.residuals), names, factors),
            weights=Groups([kernel.omega(u) for kernel, u in pairs], names, factors),
            seconds=dict.fromkeys(result.seconds, 0.0),
        )

    def per_edge(self, groups: Sequence[np.ndarray]) -> np.ndarray:
        """Return values of the edges' factor groups of a `Result`, in the order of the graph's edges."""
        out = np.zeros((self.graph.n_edges, *groups[0].shape[1:]), groups[0].dtype)
        for index, values in zip(self.edges.values(), groups, strict=False):
            out[index] = values
        return out

    def per_measured(self, groups: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return values of the other factor groups of a `Result`, by tag."""
        return dict(zip(self.graph.measured, groups[len(self.edges) :], strict=True))


def pose_graph_problem(
    graph: PoseGraph, kernel: Kernel | None = None, robust: Robust = "loops", announced: Kernel | None = None
) -> PoseGraphProblem:
    """Create the least-squares problem of a pose graph.

    Constant poses of the graph remain constant.  If there are neither constant vertices nor priors, the first pose is
    constant, which fixes the gauge.

    Parameters
    ----------
    graph
        Poses, landmarks and measurements.
    kernel
        Robust kernel of the edges; smooth truncated with `default_tau` by default.
    robust
        "loops": the kernel applies to loop closures, landmarks and priors; "all": also to odometry; "none": to nothing
        (least squares).
    announced
        Kernel of landmarks and priors, for the stated noise and in the scale of the edges; `kernel` by default.

    Raises
    ------
    ValueError
        If `robust` is none of these.
    ProblemError
        If the graph has no measurements.
    """
    if robust not in get_args(Robust):
        raise ValueError(f"robust must be 'loops', 'all' or 'none', not {robust!r}")
    if not graph.n_edges + graph.n_measured:
        raise ProblemError("the graph has no edges: nothing to fit")
    kernel = SmoothTruncated(default_tau(graph.kind)) if kernel is None else kernel
    fixed = graph.fixed.copy()
    fixed[0] |= not (fixed.any() or graph.landmarks.fixed.any() or graph.has_priors)
    variables = Variables(manifold_values(graph), MANIFOLDS[graph.kind], fixed, "poses")
    residual, data = edge_residual(graph)
    odometry = graph.is_odometry
    groups = {"odometry": np.flatnonzero(odometry), "loops": np.flatnonzero(~odometry)}
    edges, factors = {name: index for name, index in groups.items() if len(index)}, []
    for name, psi in _kernels(graph.kind, edges, kernel, robust).items():
        index = edges[name]
        slots = variables[graph.i[index]], variables[graph.j[index]]
        factors.append(Factors(residual, *slots, data=tuple(d[index] for d in data), kernel=psi, name=name))
    landmarks = _landmarks(graph)
    psi = _quadratic(graph.kind) if robust == "none" else (announced or kernel)
    factors += [_measured_factors(graph, tag, variables, landmarks, psi) for tag in graph.measured]
    return PoseGraphProblem(graph, Problem(*factors), variables, landmarks, edges)


def _quadratic(kind: Kind) -> Kernel:
    return Quadratic(inlier_radius(kind))


def _kernels(kind: Kind, edges: Iterable[str], kernel: Kernel, robust: Robust) -> dict[str, Kernel]:
    """Return the kernel of each group of edges."""
    is_robust = {"odometry": robust == "all", "loops": robust != "none"}
    return {name: kernel if is_robust[name] else _quadratic(kind) for name in edges}


def _measured_kernel(kind: Kind, tag: str, kernel: Kernel) -> Kernel:
    """Return a kernel for poses with its width adapted to the number of residual components of a tag."""
    return replace(kernel, tau=kernel.tau * _radius(MEASUREMENT_TAGS[tag].n_dof) / inlier_radius(kind))


def _landmarks(graph: PoseGraph) -> Variables | None:
    """Return the variables of the landmarks; those without measurements are constant."""
    landmarks = graph.landmarks
    columns = [m.ends[:, -1] for tag, m in graph.measured.items() if "landmark" in MEASUREMENT_TAGS[tag].ends]
    if not columns:
        return None
    unmeasured = ~np.isin(np.arange(len(landmarks)), np.concatenate(columns))
    manifold = Euclidean(landmarks.points.shape[1])
    return Variables(landmarks.points, manifold, landmarks.fixed | unmeasured, "landmarks")


def _measured_factors(
    graph: PoseGraph, tag: str, poses: Variables, landmarks: Variables | None, kernel: Kernel
) -> Factors:
    """Return the factors of the measurements of a tag; `kernel` is in the scale of poses."""
    variables = {"pose": poses, "landmark": landmarks}
    ends = graph.measured[tag].ends
    slots = [variables[end][ends[:, k]] for k, end in enumerate(MEASUREMENT_TAGS[tag].ends)]  # type: ignore[index]
    residual, data = measured_residual(graph, tag)
    return Factors(residual, *slots, data=data, kernel=_measured_kernel(graph.kind, tag, kernel), name=tag)


def residual_norms(graph: PoseGraph) -> np.ndarray:
    """Return ‖r‖ of every edge at the initial values, (n_edges,); infinite if it is not finite."""
    residual, data = edge_residual(graph)
    return _norms(residual, pose_arguments(graph, graph.i), pose_arguments(graph, graph.j), *data)


def measured_norms(graph: PoseGraph) -> dict[str, np.ndarray]:
    """Return ‖r‖ of the other measurements at the initial values, by tag."""
    norms = {}
    for tag, m in graph.measured.items():
        residual, data = measured_residual(graph, tag)
        ends = [
            pose_arguments(graph, m.ends[:, k]) if end == "pose" else graph.landmarks.points[m.ends[:, k]]
            for k, end in enumerate(MEASUREMENT_TAGS[tag].ends)
        ]
        norms[tag] = _norms(residual, *ends, *data)
    return norms


def _norms(residual: Any, *arguments: Any) -> np.ndarray:
    import jax

    with float64():
        r = np.asarray(jax.jit(jax.vmap(residual))(*arguments))
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(r, axis=1)
    return np.where(np.isfinite(norms), norms, np.inf)
