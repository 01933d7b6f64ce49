"""Residuals of the measurements in pose graphs, whitened: ‖r‖² is the squared Mahalanobis distance.

Poses are compared by the logarithm of their difference, translation first; points and directions by subtraction.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from asker.applications.pose_graph.graph import Measurements, PoseGraph
from asker.applications.pose_graph.initial.landmark_init import offset_rows
from asker.geometry import poses
from asker.geometry.lie import log_se2, log_se3, log_sim3
from asker.geometry.manifolds import SE2, SE3, Manifold, Pose, Sim3, Similarity

Arrays = tuple[np.ndarray, ...]
MANIFOLDS: dict[str, Manifold] = {"SE2": SE2, "SE3": SE3, "SIM3": Sim3}


def error_se3(a: Any, b: Any, rotation: Any, translation: Any, whiten: Any) -> Any:
    """Relative pose error W·log(M⁻¹ A⁻¹ B) in space, (6,)."""
    R = rotation.T @ (a.rotation.T @ b.rotation)
    t = rotation.T @ (a.rotation.T @ (b.translation - a.translation) - translation)
    return whiten @ log_se3(R, t)


def error_se2(a: Any, b: Any, measured: Any, whiten: Any) -> Any:
    """Relative pose error W·log(M⁻¹ A⁻¹ B) in the plane, (3,)."""
    import jax.numpy as jnp

    p = _rotate_inverse(jnp, a[2], b[:2] - a[:2]) - measured[:2]
    angle = _wrapped(jnp, b[2] - a[2] - measured[2])
    return whiten @ log_se2(_rotate_inverse(jnp, measured[2], p), angle)


def _rotate_inverse(jnp: Any, theta: Any, p: Any) -> Any:
    """Return R(θ)ᵀ p."""
    c, s = jnp.cos(theta), jnp.sin(theta)
    return jnp.stack([c * p[0] + s * p[1], c * p[1] - s * p[0]])


def _wrapped(jnp: Any, angle: Any) -> Any:
    """Return the angle wrapped to −π to π."""
    return angle - 2 * np.pi * jnp.round(angle / (2 * np.pi))


def error_sim3(a: Any, b: Any, rotation: Any, translation: Any, scale: Any, whiten: Any) -> Any:
    """Relative error W·log(M⁻¹ A⁻¹ B) of similarities, (7,)."""
    R = rotation.T @ (a.rotation.T @ b.rotation)
    t = rotation.T @ (a.rotation.T @ (b.translation - a.translation) / a.scale - translation) / scale
    return whiten @ log_sim3(R, t, b.scale / (a.scale * scale))


# ---- landmarks and priors


def landmark_se2(pose: Any, point: Any, offset: Any, measured: Any, whiten: Any) -> Any:
    """Error of an observed landmark, W·(point in the sensor frame − m), (2,)."""
    import jax.numpy as jnp

    at_pose = _rotate_inverse(jnp, pose[2], point - pose[:2])
    return whiten @ (_rotate_inverse(jnp, offset[2], at_pose - offset[:2]) - measured)


def bearing_se2(pose: Any, point: Any, measured: Any, whiten: Any) -> Any:
    """Error of an observed direction, W·(direction of the point − m), (1,)."""
    import jax.numpy as jnp

    x, y = _rotate_inverse(jnp, pose[2], point - pose[:2])
    return whiten @ _wrapped(jnp, jnp.arctan2(y, x) - measured)


def pose_prior_se2(pose: Any, measured: Any, whiten: Any) -> Any:
    """Error of a pose prior in the plane, W·log(M⁻¹ X), (3,)."""
    import jax.numpy as jnp

    p = _rotate_inverse(jnp, measured[2], pose[:2] - measured[:2])
    return whiten @ log_se2(p, _wrapped(jnp, pose[2] - measured[2]))


def position_prior_se2(pose: Any, measured: Any, whiten: Any) -> Any:
    """Error of a position prior in the plane, W·(position − m), (2,)."""
    return whiten @ (pose[:2] - measured)


def landmark_se3(pose: Any, point: Any, rotation: Any, translation: Any, measured: Any, whiten: Any) -> Any:
    """Error of an observed landmark, W·(point in the sensor frame − m), (3,)."""
    at_pose = pose.rotation.T @ (point - pose.translation)
    return whiten @ (rotation.T @ (at_pose - translation) - measured)


def pose_prior_se3(
    pose: Any, offset: Any, offset_translation: Any, rotation: Any, translation: Any, whiten: Any
) -> Any:
    """Error of a pose prior in space, W·log(M⁻¹ X O), (6,), for a sensor at the offset O."""
    R = rotation.T @ (pose.rotation @ offset)
    t = rotation.T @ (pose.rotation @ offset_translation + pose.translation - translation)
    return whiten @ log_se3(R, t)


def position_prior_se3(pose: Any, measured: Any, whiten: Any) -> Any:
    """Error of a position prior in space, W·(position − m), (3,)."""
    return whiten @ (pose.translation - measured)


def landmark_prior(point: Any, measured: Any, whiten: Any) -> Any:
    """Error of a landmark prior, W·(point − m)."""
    return whiten @ (point - measured)


# ---- residual functions and data of a graph


def edge_residual(graph: PoseGraph) -> tuple[Callable[..., Any], Arrays]:
    """Return the residual function of a graph's edges, and its data."""
    W = whitening(graph.information)
    if graph.kind == "SE2":
        return error_se2, (graph.measurements, W)
    if graph.kind == "SE3":
        return error_se3, (*_rotations_translations(graph.measurements), W)
    return error_sim3, (*_rotations_translations(graph.measurements), graph.measurements[:, 7], W)


def measured_residual(graph: PoseGraph, tag: str) -> tuple[Callable[..., Any], Arrays]:
    """Return the residual function of the measurements of a tag, and its data."""
    residual, data = RESIDUALS[tag]
    m = graph.measured[tag]
    return residual, (*data(graph, m), whitening(m.information))


def _values(graph: PoseGraph, m: Measurements) -> Arrays:
    return (m.values,)


def _from_offset(graph: PoseGraph, m: Measurements) -> Arrays:
    if graph.kind == "SE2":
        return (offset_rows(graph, m) if len(m.offsets) else np.zeros((len(m), 3))), m.values
    return *_rotations_translations(offset_rows(graph, m)), m.values


def _sensor_pose(graph: PoseGraph, m: Measurements) -> Arrays:
    return *_rotations_translations(offset_rows(graph, m)), *_rotations_translations(m.values)


def _rotations_translations(rows: np.ndarray) -> Arrays:
    T = poses.matrices("SE3", rows[:, :7])
    return T[:, :3, :3], T[:, :3, 3]


RESIDUALS: dict[str, tuple[Callable[..., Any], Callable[[PoseGraph, Measurements], Arrays]]] = {
    "EDGE_SE2_XY": (landmark_se2, _from_offset),
    "EDGE_SE2_POINTXY_OFFSET": (landmark_se2, _from_offset),
    "EDGE_BEARING_SE2_XY": (bearing_se2, _values),
    "EDGE_PRIOR_SE2": (pose_prior_se2, _values),
    "EDGE_PRIOR_SE2_XY": (position_prior_se2, _values),
    "EDGE_PRIOR_XY": (landmark_prior, _values),
    "EDGE_SE3_TRACKXYZ": (landmark_se3, _from_offset),
    "EDGE_SE3_PRIOR": (pose_prior_se3, _sensor_pose),
    "EDGE_SE3_XYZ_PRIOR": (position_prior_se3, _values),
    "EDGE_SE3_PRIORXYZ": (position_prior_se3, _values),
    "EDGE_POINTXYZ_PRIOR": (landmark_prior, _values),
}


def whitening(information: np.ndarray) -> np.ndarray:
    """Return W with WᵀW = Ω: the upper Cholesky factors, or square roots by eigenvectors if any matrix is singular."""
    try:
        return np.swapaxes(np.linalg.cholesky(information), 1, 2)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(information)
        return np.sqrt(np.maximum(values, 0))[:, :, None] * np.swapaxes(vectors, 1, 2)


# ---- poses in the parametrisation of a solve


def manifold_values(graph: PoseGraph) -> np.ndarray:
    """Return the poses in the parametrisation of their manifold."""
    return graph.poses if graph.kind == "SE2" else poses.matrices(graph.kind, graph.poses)[:, :3]


def pose_arguments(graph: PoseGraph, index: np.ndarray) -> Any:
    """Return poses in the form that residual functions take."""
    if graph.kind == "SE2":
        return graph.poses[index]
    R, t = _rotations_translations(graph.poses[index])
    return Pose(R, t) if graph.kind == "SE3" else Similarity(R, t, graph.poses[index, 7])
