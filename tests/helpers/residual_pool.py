"""Residual functions for random problems, each with a reference in NumPy.

A kind consists of the residual function for asker and the same formula for all observations in NumPy, as a reference.
In all of them y is the observation, and s is a factor of the residual, so that its unit can be changed.  The pool is
small, since every function is compiled once for each shape.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import asker

Values = tuple[Any, ...]
"""Values of all observations for each slot, in the format of `Manifold.unpack`."""


class Kind(NamedTuple):
    """Residual function with its reference and the types of its arguments."""

    residual: Callable[..., Any]
    reference: Callable[..., np.ndarray]
    """The same function in NumPy for all observations: (n, p)."""
    species: tuple[str, ...]
    """Type of the variables of each slot, a name in `SPECIES`."""
    regressors: tuple[int, ...] = ()
    """Dimensions of the data arrays before y."""
    size_of_y: int = 1
    valid: Callable[..., Any] | None = None
    reference_of_valid: Callable[..., np.ndarray] | None = None
    jacobian: Callable[..., Any] | None = None
    is_homogeneous: bool = False
    """True if f(c·x) = c·f(x), so that the unit of the variables and of y can be changed."""
    scalar: bool = False
    """True if y is a number instead of a vector."""


# ------------------------------------------------------------------ Euclidean variables


def offset(x, y, s):
    return s * (x - y)


def offset_reference(x, y, s):
    return s[:, None] * (x - y).reshape(len(s), -1)


def line(x, t, y, s):
    return s * (x[0] * t + x[1] - y)


def line_reference(x, t, y, s):
    return s[:, None] * (x[:, :1] * t + x[:, 1:] - y)


def line_jacobian(x, t, y, s):
    return s[:, None, None] * np.stack([t, np.ones_like(t)], axis=2)


def decay(x, t, y, s):
    return s * (x[0] * jnp.exp(-x[1] * t) + x[2] - y)


def decay_reference(x, t, y, s):
    return s[:, None] * (x[:, :1] * np.exp(-x[:, 1:2] * t) + x[:, 2:] - y)


def difference(a, b, y, s):
    return s * (a - b - y)


def difference_reference(a, b, y, s):
    return s[:, None] * (a - b - y)


def distance(a, b, y, s):
    return s * (jnp.sqrt(jnp.sum((a - b) ** 2) + 1e-9) - y)


def distance_reference(a, b, y, s):
    return (s * (np.sqrt(((a - b) ** 2).sum(axis=1) + 1e-9) - y))[:, None]


def partial(x, y, s):
    return s * (x[:1] - y)


def partial_reference(x, y, s):
    return s[:, None] * (x[:, :1] - y)


def with_constant(x, y, s):
    return s * jnp.concatenate([x - y, jnp.full(1, 0.1)])


def with_constant_reference(x, y, s):
    return s[:, None] * np.column_stack([x - y, np.full(len(x), 0.1)])


# ------------------------------------------------------------------ rotations and poses


def rotated(R, t, y, s):
    return s * (R @ t - y)


def rotated_reference(R, t, y, s):
    return s[:, None] * (np.einsum("nij,nj->ni", R, t) - y)


def transformed(T, x, y, s):
    return s * (T.rotation @ x + T.translation - y)


def transformed_reference(T, x, y, s):
    return s[:, None] * (np.einsum("nij,nj->ni", T[:, :, :3], x) + T[:, :, 3] - y)


def projected(T, x, y, s):
    X = T.rotation @ x + T.translation
    return s * (X[:2] / (X[2] + 10.0) - y)


def projected_reference(T, x, y, s):
    X = np.einsum("nij,nj->ni", T[:, :, :3], x) + T[:, :, 3]
    return s[:, None] * (X[:, :2] / (X[:, 2:] + 10.0) - y)


def in_front(T, x, y, s):
    return T.rotation[2] @ x + T.translation[2] + 10.0


def in_front_reference(T, x, y, s):
    return np.einsum("nj,nj->n", T[:, 2, :3], x) + T[:, 2, 3] + 10.0 > 0


def enlarged(T, t, y, s):
    return s * (T.scale * (T.rotation @ t) + T.translation - y)


def edge(a, b, y, s):
    to = a.rotation.T @ (b.translation - a.translation)
    return s * (jnp.concatenate([to, (b.angle - a.angle)[None]]) - y)


def edge_reference(a, b, y, s):
    c, n, d = np.cos(a[:, 2]), np.sin(a[:, 2]), b - a
    to = np.column_stack([c * d[:, 0] + n * d[:, 1], c * d[:, 1] - n * d[:, 0], d[:, 2]])
    return s[:, None] * (to - y)


def turned(x, t, y, s):
    return s * (x[1][0] * (x[0] @ t) - y)


def turned_reference(x, t, y, s):
    return s[:, None] * (x[1] * np.einsum("nij,nj->ni", x[0], t) - y)


# ------------------------------------------------------------------ the pool

SIZES = (1, 2, 3, 6, 15, 40, 80)
"""Dimensions of the residuals of functions that allow any."""
LENGTHS = (1, 2, 3, 6, 15)
"""Dimensions of the variables."""

KINDS: dict[str, Kind] = {
    "number": Kind(offset, offset_reference, ("number",), scalar=True, is_homogeneous=True),
    **{f"offset {p}": Kind(offset, offset_reference, (f"vector {p}",), (), p, is_homogeneous=True) for p in LENGTHS},
    **{f"line {p}": Kind(line, line_reference, ("vector 2",), (p,), p, is_homogeneous=True) for p in SIZES},
    "batched line": Kind(
        line_reference, line_reference, ("vector 2",), (3,), 3, jacobian=line_jacobian, is_homogeneous=True
    ),
    "decay 1": Kind(decay, decay_reference, ("vector 3",), (1,), 1),
    "decay 20": Kind(decay, decay_reference, ("vector 3",), (20,), 20),
    "difference": Kind(difference, difference_reference, ("vector 2", "vector 2"), (), 2, is_homogeneous=True),
    "distance": Kind(distance, distance_reference, ("vector 2", "vector 2"), scalar=True),
    "partial": Kind(partial, partial_reference, ("vector 2",), is_homogeneous=True),
    "with constant": Kind(with_constant, with_constant_reference, ("vector 2",), (), 2),
    "direction": Kind(offset, offset_reference, ("direction",), (), 3),
    "rotated": Kind(rotated, rotated_reference, ("rotation",), (3,), 3),
    "transformed": Kind(transformed, transformed_reference, ("pose", "vector 3"), (), 3),
    "projected": Kind(
        projected, projected_reference, ("pose", "vector 3"), (), 2, in_front, in_front_reference
    ),
    "enlarged": Kind(enlarged, transformed_reference, ("similarity",), (3,), 3),
    "edge": Kind(edge, edge_reference, ("plane pose", "plane pose"), (), 3),
    "turned": Kind(turned, turned_reference, ("product",), (3,), 3),
}  # fmt: skip


def _rotations(rng: np.random.Generator, n: int) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_rotvec(rng.normal(size=(n, 3))).as_matrix().reshape(n, 3, 3)


def _poses(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.concatenate([_rotations(rng, n), rng.normal(size=(n, 3, 1))], axis=2)


def _similarities(rng: np.random.Generator, n: int) -> np.ndarray:
    poses = _poses(rng, n)
    poses[:, :, :3] *= np.exp(0.3 * rng.normal(size=(n, 1, 1)))
    return poses


def _directions(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.normal(size=(n, 3))
    return x / np.linalg.norm(x, axis=1)[:, None]


class Species(NamedTuple):
    """Type of variables."""

    draw: Callable[[np.random.Generator, int], Any]
    """Return random values of n variables."""
    manifold: Any
    is_euclidean: bool = False


def _vectors(d: int) -> Species:
    return Species(lambda rng, n: rng.normal(size=(n, d)), asker.Euclidean(d), True)


SPECIES: dict[str, Species] = {
    "number": Species(lambda rng, n: rng.normal(size=n), asker.Euclidean(()), True),
    **{f"vector {d}": _vectors(d) for d in LENGTHS},
    "direction": Species(_directions, asker.Sphere(3)),
    "rotation": Species(_rotations, asker.SO3),
    "pose": Species(_poses, asker.SE3),
    "similarity": Species(_similarities, asker.Sim3),
    "plane pose": Species(lambda rng, n: 2 * rng.normal(size=(n, 3)), asker.SE2),
    "product": Species(
        lambda rng, n: (_rotations(rng, n), np.exp(0.3 * rng.normal(size=(n, 1)))),
        asker.Product(asker.SO3, asker.Euclidean(1)),
    ),
}
