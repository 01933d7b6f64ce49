"""Pose graphs as a `Problem`: poses, odometry that is trusted, and loop closures that may be wrong.

The residual of an edge with measurement M between poses A and B is  r = W·log(M⁻¹ A⁻¹ B)  with WᵀW = Ω, W the upper
Cholesky factor of the edge's information matrix: ‖r‖² is the squared Mahalanobis distance.

log is that of SE(3), SE(2) or Sim(3), translation first: costs are those of GTSAM's `BetweenFactorPose3`,
`BetweenFactorPose2` and `BetweenFactorSimilarity3`.  (g2o takes the translation and the quaternion's vector, or the
angle, of M⁻¹ A⁻¹ B as they are; the optimum then differs in the fifth digit.)

Measurements of landmarks and priors are groups of their own (`residuals`), each under a kernel of its own: they may be
wrong, too.

A right measurement with right Ω has ‖r‖² distributed as χ² with as many degrees of freedom as r has numbers.
`default_tau` puts the kernel's inflection, up to which a residual counts as an inlier, at the 99 % quantile:
τ = √3·√χ²(0.99) for the smooth truncated kernel, 5.83 for poses in the plane and 7.10 in space.  For measurements with
more or fewer numbers it is wider or narrower in the same way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from asker.applications.pose_graph.formats.g2o_tags import MEASURED
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.options import Robust
from asker.applications.pose_graph.residuals import MANIFOLDS, edge_residual, measured_residual, stored, views
from asker.geometry import poses
from asker.geometry.manifolds import Euclidean
from asker.geometry.poses import N_DOF, Kind
from asker.kernels.kernel import Kernel
from asker.kernels.kernels import Quadratic, SmoothTruncated
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Problem, ProblemError, Variables
from asker.solver.result import Result
from asker.tracing.array_namespace import float64

INLIERS = 0.99
"""The share of the right measurements that count as inliers."""


def inlier_radius(kind: Kind) -> float:
    """‖r‖ that a right measurement stays below with probability `INLIERS`."""
    return _radius(N_DOF[kind])


def _radius(n_dof: int) -> float:
    from scipy.special import chdtri

    return float(np.sqrt(chdtri(n_dof, 1 - INLIERS)))


def default_tau(kind: Kind) -> float:
    """τ of the smooth truncated kernel whose inflection is the `inlier_radius`."""
    return inlier_radius(kind) / SmoothTruncated.unit_inflection


@dataclass(frozen=True, eq=False)
class PoseGraphProblem:
    """A pose graph's problem with its variables, and which measurement each residual belongs to.

    Its factor groups are those of `edges`, and then one for each tag of the graph's `measured`.
    """

    graph: PoseGraph
    problem: Problem
    poses: Variables
    landmarks: Variables | None
    edges: dict[str, NDArray[np.intp]]
    """The edges of each factor group, "odometry" and "loops"; a group without edges is left out."""

    def refined(self, values: Groups[Any]) -> PoseGraph:
        """The graph with the solved poses and landmarks."""
        graph, found = self.graph, values[self.poses]
        if graph.kind != "SE2":
            found = poses.rows(graph.kind, found)  # (n, 3, 4)
        graph = replace(graph, poses=np.where(self.poses.fixed[:, None], graph.poses, found))
        if self.landmarks is None:
            return graph
        return replace(graph, landmarks=replace(graph.landmarks, points=values[self.landmarks]))

    @property
    def is_robust(self) -> np.ndarray:
        """(n_edges,): whether an edge is under a kernel that may give it up; a convex one does not."""
        return self.per_edge([np.full(f.n, not f.kernel.convex) for f in self.problem.factors])

    @property
    def n_unknown(self) -> int:
        """How many numbers are to be found."""
        n = N_DOF[self.graph.kind] * int(np.count_nonzero(~self.poses.fixed))
        if self.landmarks is None:
            return n
        return n + self.landmarks.manifold.tangent * int(np.count_nonzero(~self.landmarks.fixed))

    def refused(self, result: Result) -> np.ndarray:
        """(n_edges,): the edges to which such a kernel gives half of the full weight or less."""
        return self.is_robust & (self.per_edge(result.weights) <= 0.5)

    def refused_measured(self, result: Result) -> dict[str, np.ndarray]:
        """The same of the measurements beside the edges, by tag."""
        robust = self.per_measured([np.full(f.n, not f.kernel.convex) for f in self.problem.factors])
        return {tag: robust[tag] & (w <= 0.5) for tag, w in self.per_measured(result.weights).items()}

    def under(self, kernel: Kernel, robust: Robust, announced: Kernel) -> "PoseGraphProblem":
        """The same problem under other kernels, as `pose_graph_problem` has them."""
        kernels = [*_kernels(self.graph.kind, self.edges, kernel, robust).values()]
        kernels += [_measured_kernel(self.graph.kind, tag, announced) for tag in self.graph.measured]
        return replace(self, problem=self.problem.under(kernels))

    def seen(self, result: Result) -> Result:
        """A result of the same problem under other kernels, as it is under these: nothing is solved."""
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
        """What a `Result` holds for each factor group, in the order of the graph's edges."""
        out = np.zeros((self.graph.n_edges, *groups[0].shape[1:]), groups[0].dtype)
        for index, values in zip(self.edges.values(), groups, strict=False):
            out[index] = values
        return out

    def per_measured(self, groups: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """What a `Result` holds for each factor group, of those beside the edges."""
        return dict(zip(self.graph.measured, groups[len(self.edges) :], strict=True))


def pose_graph_problem(
    graph: PoseGraph, kernel: Kernel | None = None, robust: Robust = "loops", announced: Kernel | None = None
) -> PoseGraphProblem:
    """Relative pose errors under `kernel`: smooth truncated with `default_tau` when not given.

    robust: the kernel acts on "loops", landmarks and priors (odometry is trusted), on "all" edges, or on "none" (least
    squares).  announced: the kernel of landmarks and priors, as wide as for loops; `kernel` when not given.
    The poses that the graph fixes stay; without such, and without priors, the first one does.
    """
    if robust not in get_args(Robust):
        raise ValueError(f"robust must be 'loops', 'all' or 'none', not {robust!r}")
    if not graph.n_edges + graph.n_measured:
        raise ProblemError("the graph has no edges: nothing to fit")
    kernel = SmoothTruncated(default_tau(graph.kind)) if kernel is None else kernel
    fixed = graph.fixed.copy()
    fixed[0] |= not (fixed.any() or graph.landmarks.fixed.any() or graph.has_priors)
    variables = Variables(stored(graph), MANIFOLDS[graph.kind], fixed, "poses")
    residual, data = edge_residual(graph)
    odometry = graph.is_odometry
    groups = {"odometry": np.flatnonzero(odometry), "loops": np.flatnonzero(~odometry)}
    edges, factors = {name: index for name, index in groups.items() if len(index)}, []
    for name, psi in _kernels(graph.kind, edges, kernel, robust).items():
        index = edges[name]
        slots = variables[graph.i[index]], variables[graph.j[index]]
        factors.append(Factors(residual, *slots, data=tuple(d[index] for d in data), kernel=psi, name=name))
    landmarks = _landmarks(graph)
    psi = _trusted(graph.kind) if robust == "none" else (announced or kernel)
    factors += [_measured_factors(graph, tag, variables, landmarks, psi) for tag in graph.measured]
    return PoseGraphProblem(graph, Problem(*factors), variables, landmarks, edges)


def _trusted(kind: Kind) -> Kernel:
    return Quadratic(inlier_radius(kind))


def _kernels(kind: Kind, edges: Iterable[str], kernel: Kernel, robust: Robust) -> dict[str, Kernel]:
    """Of the groups of edges."""
    is_robust = {"odometry": robust == "all", "loops": robust != "none"}
    return {name: kernel if is_robust[name] else _trusted(kind) for name in edges}


def _measured_kernel(kind: Kind, tag: str, kernel: Kernel) -> Kernel:
    """A kernel that is for poses, as wide for what has more or fewer numbers."""
    return replace(kernel, tau=kernel.tau * _radius(MEASURED[tag].n_dof) / inlier_radius(kind))


def _landmarks(graph: PoseGraph) -> Variables | None:
    """Those that nothing measures stay."""
    own = graph.landmarks
    columns = [m.ends[:, -1] for tag, m in graph.measured.items() if "landmark" in MEASURED[tag].ends]
    if not columns:
        return None
    unseen = ~np.isin(np.arange(len(own)), np.concatenate(columns))
    return Variables(own.points, Euclidean(own.points.shape[1]), own.fixed | unseen, "landmarks")


def _measured_factors(
    graph: PoseGraph, tag: str, poses: Variables, landmarks: Variables | None, kernel: Kernel
) -> Factors:
    """The measurements of a tag, under a kernel that is for poses."""
    of = {"pose": poses, "landmark": landmarks}
    ends = graph.measured[tag].ends
    slots = [of[end][ends[:, k]] for k, end in enumerate(MEASURED[tag].ends)]  # type: ignore[index]
    residual, data = measured_residual(graph, tag)
    return Factors(residual, *slots, data=data, kernel=_measured_kernel(graph.kind, tag, kernel), name=tag)


def residual_norms(graph: PoseGraph) -> np.ndarray:
    """‖r‖ of every edge, (n_edges,), as `solve` has it at the start; infinite where it is not finite."""
    residual, data = edge_residual(graph)
    return _norms(residual, views(graph, graph.i), views(graph, graph.j), *data)


def measured_norms(graph: PoseGraph) -> dict[str, np.ndarray]:
    """The same for the measurements beside the edges, by tag."""
    found = {}
    for tag, m in graph.measured.items():
        residual, data = measured_residual(graph, tag)
        ends = [
            views(graph, m.ends[:, k]) if end == "pose" else graph.landmarks.points[m.ends[:, k]]
            for k, end in enumerate(MEASURED[tag].ends)
        ]
        found[tag] = _norms(residual, *ends, *data)
    return found


def _norms(residual: Any, *arguments: Any) -> np.ndarray:
    import jax

    with float64():
        r = np.asarray(jax.jit(jax.vmap(residual))(*arguments))
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(r, axis=1)
    return np.where(np.isfinite(norms), norms, np.inf)
