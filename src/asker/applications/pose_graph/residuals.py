"""Residuals of measurements in pose graphs, whitened: ‖r‖² is the squared Mahalanobis distance.

Poses are compared by their logarithms, translation first; points and directions as they are.
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
    """W·log(M⁻¹ A⁻¹ B), (6,)"""
    R = rotation.T @ (a.rotation.T @ b.rotation)
    t = rotation.T @ (a.rotation.T @ (b.translation - a.translation) - translation)
    return whiten @ log_se3(R, t)


def error_se2(a: Any, b: Any, measured: Any, whiten: Any) -> Any:
    """W·log(M⁻¹ A⁻¹ B), (3,)"""
    import jax.numpy as jnp

    p = _turned_back(jnp, a[2], b[:2] - a[:2]) - measured[:2]
    turn = _wrapped(jnp, b[2] - a[2] - measured[2])
    return whiten @ log_se2(_turned_back(jnp, measured[2], p), turn)


def _turned_back(jnp: Any, theta: Any, p: Any) -> Any:
    """R(θ)ᵀ p"""
    c, s = jnp.cos(theta), jnp.sin(theta)
    return jnp.stack([c * p[0] + s * p[1], c * p[1] - s * p[0]])


def _wrapped(jnp: Any, angle: Any) -> Any:
    """The same angle, from −π to π."""
    return angle - 2 * np.pi * jnp.round(angle / (2 * np.pi))


def error_sim3(a: Any, b: Any, rotation: Any, translation: Any, scale: Any, whiten: Any) -> Any:
    """W·log(M⁻¹ A⁻¹ B), (7,)"""
    R = rotation.T @ (a.rotation.T @ b.rotation)
    t = rotation.T @ (a.rotation.T @ (b.translation - a.translation) / a.scale - translation) / scale
    return whiten @ log_sim3(R, t, b.scale / (a.scale * scale))


# ---- landmarks and priors


def seen_in_plane(pose: Any, point: Any, offset: Any, measured: Any, whiten: Any) -> Any:
    """W·(the point in the frame of the sensor − m), (2,)"""
    import jax.numpy as jnp

    at_pose = _turned_back(jnp, pose[2], point - pose[:2])
    return whiten @ (_turned_back(jnp, offset[2], at_pose - offset[:2]) - measured)


def bearing(pose: Any, point: Any, measured: Any, whiten: Any) -> Any:
    """W·(the direction of the point − m), (1,)"""
    import jax.numpy as jnp

    x, y = _turned_back(jnp, pose[2], point - pose[:2])
    return whiten @ _wrapped(jnp, jnp.arctan2(y, x) - measured)


def prior_se2(pose: Any, measured: Any, whiten: Any) -> Any:
    """W·log(M⁻¹ X), (3,)"""
    import jax.numpy as jnp

    p = _turned_back(jnp, measured[2], pose[:2] - measured[:2])
    return whiten @ log_se2(p, _wrapped(jnp, pose[2] - measured[2]))


def position_in_plane(pose: Any, measured: Any, whiten: Any) -> Any:
    """W·(position − m), (2,)"""
    return whiten @ (pose[:2] - measured)


def seen_in_space(pose: Any, point: Any, rotation: Any, translation: Any, measured: Any, whiten: Any) -> Any:
    """W·(the point in the frame of the sensor − m), (3,)"""
    at_pose = pose.rotation.T @ (point - pose.translation)
    return whiten @ (rotation.T @ (at_pose - translation) - measured)


def prior_se3(pose: Any, offset: Any, offset_translation: Any, rotation: Any, translation: Any, whiten: Any) -> Any:
    """W·log(M⁻¹ X O), (6,), with the sensor at O"""
    R = rotation.T @ (pose.rotation @ offset)
    t = rotation.T @ (pose.rotation @ offset_translation + pose.translation - translation)
    return whiten @ log_se3(R, t)


def position_in_space(pose: Any, measured: Any, whiten: Any) -> Any:
    """W·(position − m), (3,)"""
    return whiten @ (pose.translation - measured)


def point_itself(point: Any, measured: Any, whiten: Any) -> Any:
    """W·(the point − m)"""
    return whiten @ (point - measured)


# ---- what each takes of a graph


def edge_residual(graph: PoseGraph) -> tuple[Callable[..., Any], Arrays]:
    """The residual of a graph's edges, and its data."""
    W = whitening(graph.information)
    if graph.kind == "SE2":
        return error_se2, (graph.measurements, W)
    if graph.kind == "SE3":
        return error_se3, (*_turn_and_shift(graph.measurements), W)
    return error_sim3, (*_turn_and_shift(graph.measurements), graph.measurements[:, 7], W)


def measured_residual(graph: PoseGraph, tag: str) -> tuple[Callable[..., Any], Arrays]:
    """The residual of the measurements of a tag, and its data."""
    residual, data = RESIDUALS[tag]
    m = graph.measured[tag]
    return residual, (*data(graph, m), whitening(m.information))


def _values(graph: PoseGraph, m: Measurements) -> Arrays:
    return (m.values,)


def _from_offset(graph: PoseGraph, m: Measurements) -> Arrays:
    if graph.kind == "SE2":
        return (offset_rows(graph, m) if len(m.offsets) else np.zeros((len(m), 3))), m.values
    return *_turn_and_shift(offset_rows(graph, m)), m.values


def _sensor_pose(graph: PoseGraph, m: Measurements) -> Arrays:
    return *_turn_and_shift(offset_rows(graph, m)), *_turn_and_shift(m.values)


def _turn_and_shift(rows: np.ndarray) -> Arrays:
    T = poses.matrices("SE3", rows[:, :7])
    return T[:, :3, :3], T[:, :3, 3]


RESIDUALS: dict[str, tuple[Callable[..., Any], Callable[[PoseGraph, Measurements], Arrays]]] = {
    "EDGE_SE2_XY": (seen_in_plane, _from_offset),
    "EDGE_SE2_POINTXY_OFFSET": (seen_in_plane, _from_offset),
    "EDGE_BEARING_SE2_XY": (bearing, _values),
    "EDGE_PRIOR_SE2": (prior_se2, _values),
    "EDGE_PRIOR_SE2_XY": (position_in_plane, _values),
    "EDGE_PRIOR_XY": (point_itself, _values),
    "EDGE_SE3_TRACKXYZ": (seen_in_space, _from_offset),
    "EDGE_SE3_PRIOR": (prior_se3, _sensor_pose),
    "EDGE_SE3_XYZ_PRIOR": (position_in_space, _values),
    "EDGE_SE3_PRIORXYZ": (position_in_space, _values),
    "EDGE_POINTXYZ_PRIOR": (point_itself, _values),
}


def whitening(information: np.ndarray) -> np.ndarray:
    """W with WᵀW = Ω: the upper Cholesky factor; where a matrix is singular, from eigenvectors for all of them."""
    try:
        return np.swapaxes(np.linalg.cholesky(information), 1, 2)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(information)
        return np.sqrt(np.maximum(values, 0))[:, :, None] * np.swapaxes(vectors, 1, 2)


# ---- rows as a solve has them


def stored(graph: PoseGraph) -> np.ndarray:
    """The poses as their manifold takes them."""
    return graph.poses if graph.kind == "SE2" else poses.matrices(graph.kind, graph.poses)[:, :3]


def views(graph: PoseGraph, index: np.ndarray) -> Any:
    """Poses as residual functions see them."""
    if graph.kind == "SE2":
        return graph.poses[index]
    R, t = _turn_and_shift(graph.poses[index])
    return Pose(R, t) if graph.kind == "SE3" else Similarity(R, t, graph.poses[index, 7])
