"""Manifolds of variables.

A manifold defines how a variable is stored (a flat row of `ambient` numbers), its number of degrees of freedom
(`tangent`), the argument that a residual function receives (`view`), and the result of a step (`retract`):

    x ⊞ δ = retract(x, δ),   retract(x, 0) = x

`view` and `retract` are written for one variable, with array functions of its namespace (`asker.tracing`), and asker
differentiates `retract`.  `pack` and `unpack` convert between the user's array of many variables and rows.
To add a manifold, write a class with these members; no registration is needed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from asker.geometry.lie import exp_so3
from asker.tracing.array_namespace import Array, namespace


class Manifold(Protocol):
    """Interface of manifolds."""

    @property
    def ambient(self) -> int:
        """Number of coordinates that store one variable."""

    @property
    def tangent(self) -> int:
        """Number of degrees of freedom of one variable."""

    @property
    def mixes_units(self) -> bool:
        """True if the coordinates of a step have different units; the damping is then λ diag(H) instead of λI."""

    def pack(self, values: Any) -> np.ndarray:
        """Return the rows (n, ambient) of the user's array of n variables; raise a `ValueError` if it is invalid."""

    def unpack(self, rows: np.ndarray) -> Any:
        """Return the user's array of rows, the inverse of `pack`."""

    def view(self, x: Array) -> Any:
        """Return the argument of a residual function for one row."""

    def retract(self, x: Array, delta: Array) -> Array:
        """Return the row x ⊞ δ after a step δ (tangent,)."""


class Pose(NamedTuple):
    """Argument of a residual function for a variable on SE(3): X -> rotation X + translation."""

    rotation: Array
    """Rotation matrix, (3, 3)."""
    translation: Array
    """Translation, (3,)."""


class Similarity(NamedTuple):
    """Argument of a residual function for a variable on Sim(3): X -> scale · rotation X + translation."""

    rotation: Array
    """Rotation matrix, (3, 3)."""
    translation: Array
    """Translation, (3,)."""
    scale: Array
    """Scale, ()."""


class PlanePose:
    """Argument of a residual function for a variable on SE(2); arithmetic and indexing act on the row x, y, θ."""

    def __init__(self, row: Array):
        self.row = row

    @property
    def rotation(self) -> Array:
        """Rotation matrix, (2, 2)."""
        xp, theta = namespace(self.row), self.row[2]
        c, s = xp.cos(theta), xp.sin(theta)
        return xp.stack([c, -s, s, c]).reshape(2, 2)

    @property
    def translation(self) -> Array:
        """Position, (2,)."""
        return self.row[:2]

    @property
    def angle(self) -> Array:
        """Angle θ."""
        return self.row[2]

    def __getitem__(self, index: Any) -> Array:
        return self.row[index]

    def __iter__(self) -> Any:
        return iter(self.row)

    def __jax_array__(self) -> Array:
        return self.row

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.row, dtype, copy=copy)

    def __add__(self, other: Any) -> Array:
        return self.row + getattr(other, "row", other)

    def __sub__(self, other: Any) -> Array:
        return self.row - getattr(other, "row", other)

    def __mul__(self, other: Any) -> Array:
        return self.row * getattr(other, "row", other)

    def __rsub__(self, other: Any) -> Array:
        return other - self.row

    __radd__, __rmul__ = __add__, __mul__


@dataclass(frozen=True)
class Euclidean:
    """Euclidean vectors or arrays: x ⊞ δ = x + δ."""

    shape: Any
    """Shape of one variable; `()` for numbers, 3 for vectors of length 3."""

    def __post_init__(self) -> None:
        shape = self.shape if isinstance(self.shape, tuple | list) else (self.shape,)
        if not all(isinstance(size, int | np.integer) and size >= 0 for size in shape):
            raise ValueError(f"shape must be a whole number or a tuple of whole numbers, not {self.shape!r}")
        object.__setattr__(self, "shape", tuple(map(int, shape)))

    mixes_units = False

    @property
    def ambient(self) -> int:
        return math.prod(self.shape)

    tangent = ambient

    def pack(self, values: Any) -> np.ndarray:
        values = np.asarray(values)
        if values.dtype.kind not in "fiub":
            raise ValueError(f"holds {values.dtype}, expected numbers")
        if values.ndim == 0 or values.shape[1:] != self.shape:
            expected = str(("n", *self.shape)).replace("'", "")
            raise ValueError(f"has shape {values.shape}, expected {expected}")
        return values.astype(float).reshape(len(values), self.ambient)

    def unpack(self, rows: np.ndarray) -> Any:
        return rows.reshape(len(rows), *self.shape)

    def view(self, x: Array) -> Any:
        return x.reshape(self.shape)

    def retract(self, x: Array, delta: Array) -> Array:
        return x + delta


def _check_rotations(R: np.ndarray) -> None:
    error = np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3)).max(axis=(1, 2))
    bad = np.flatnonzero(~((error < 1e-6) & (np.linalg.det(R) > 0)))
    if bad.size:
        raise ValueError(f"holds no rotation at index {bad[0]} (RᵀR is off the identity by {error[bad[0]]:.2g})")


@dataclass(frozen=True, repr=False)
class _SO3:
    """Rotation matrices (n, 3, 3): R ⊞ δ = exp(δ) R."""

    ambient = 9
    tangent = 3
    mixes_units = False

    def __repr__(self) -> str:
        return "SO3"

    def pack(self, values: Any) -> np.ndarray:
        R = Euclidean((3, 3)).pack(values)
        _check_rotations(R.reshape(-1, 3, 3))
        return R

    def unpack(self, rows: np.ndarray) -> Any:
        return rows.reshape(-1, 3, 3)

    def view(self, x: Array) -> Any:
        return x.reshape(3, 3)

    def retract(self, x: Array, delta: Array) -> Array:
        return (exp_so3(delta) @ x.reshape(3, 3)).reshape(9)


@dataclass(frozen=True, repr=False)
class _SE3:
    """Poses [R | t] as arrays (n, 3, 4): (R, t) ⊞ (δt, δω) = (exp(δω) R, t + δt)."""

    ambient = 12
    tangent = 6
    mixes_units = False  # damping with λI, as in the paper

    def __repr__(self) -> str:
        return "SE3"

    def pack(self, values: Any) -> np.ndarray:
        poses = Euclidean((3, 4)).pack(values).reshape(-1, 3, 4)
        _check_rotations(poses[:, :, :3])
        return np.concatenate([poses[:, :, :3].reshape(-1, 9), poses[:, :, 3]], axis=1)

    def unpack(self, rows: np.ndarray) -> Any:
        return np.concatenate([rows[:, :9].reshape(-1, 3, 3), rows[:, 9:, None]], axis=2)

    def view(self, x: Array) -> Any:
        return Pose(x[:9].reshape(3, 3), x[9:])

    def retract(self, x: Array, delta: Array) -> Array:
        R = exp_so3(delta[3:]) @ x[:9].reshape(3, 3)
        return namespace(x).concatenate([R.reshape(9), x[9:] + delta[:3]])


MIN_SCALE = 1e-100
"""Lower bound of the scale of a similarity; of scale 0 it would have no rotation."""


@dataclass(frozen=True, repr=False)
class _Sim3:
    """Similarities [sR | t] as arrays (n, 3, 4): (s, R, t) ⊞ (δt, δω, δσ) = (s exp(δσ), exp(δω) R, t + δt)."""

    ambient = 13
    tangent = 7
    mixes_units = False  # damping with λI, as for SE(3)

    def __repr__(self) -> str:
        return "Sim3"

    def pack(self, values: Any) -> np.ndarray:
        T = Euclidean((3, 4)).pack(values).reshape(-1, 3, 4)
        scale = np.linalg.norm(T[:, :, :3], axis=(1, 2)) / np.sqrt(3)
        bad = np.flatnonzero(~(scale > 0))
        if bad.size:
            raise ValueError(f"holds no scale above 0 at index {bad[0]}")
        R = T[:, :, :3] / scale[:, None, None]
        _check_rotations(R)
        return np.concatenate([R.reshape(-1, 9), T[:, :, 3], scale[:, None]], axis=1)

    def unpack(self, rows: np.ndarray) -> Any:
        R = rows[:, 12, None, None] * rows[:, :9].reshape(-1, 3, 3)
        return np.concatenate([R, rows[:, 9:12, None]], axis=2)

    def view(self, x: Array) -> Any:
        return Similarity(x[:9].reshape(3, 3), x[9:12], x[12])

    def retract(self, x: Array, delta: Array) -> Array:
        xp = namespace(x)
        R = exp_so3(delta[3:6]) @ x[:9].reshape(3, 3)
        scale = xp.maximum(x[12:] * xp.exp(delta[6:]), MIN_SCALE)
        return xp.concatenate([R.reshape(9), x[9:12] + delta[:3], scale])


@dataclass(frozen=True, repr=False)
class _SE2:
    """Poses in the plane as rows (x, y, θ): (p, θ) ⊞ (δp, δθ) = (p + R(θ) δp, θ + δθ).

    The step is expressed in the frame of the pose, whose x axis points ahead.  θ is not wrapped.
    """

    ambient = 3
    tangent = 3
    mixes_units = False  # damping with λI, as for SE(3)

    def __repr__(self) -> str:
        return "SE2"

    def pack(self, values: Any) -> np.ndarray:
        return Euclidean(3).pack(values)

    def unpack(self, rows: np.ndarray) -> Any:
        return rows

    def view(self, x: Array) -> Any:
        return PlanePose(x)

    def retract(self, x: Array, delta: Array) -> Array:
        xp = namespace(x)
        c, s = xp.cos(x[2]), xp.sin(x[2])
        ahead, left = delta[0], delta[1]
        return x + xp.stack([c * ahead - s * left, s * ahead + c * left, delta[2]])


SO3 = _SO3()
"""Rotation matrices (n, 3, 3): R ⊞ δ = exp(δ) R."""
SE3 = _SE3()
"""Poses [R | t] as arrays (n, 3, 4), viewed as a `Pose`: (R, t) ⊞ (δt, δω) = (exp(δω) R, t + δt)."""
Sim3 = _Sim3()
"""Similarities [sR | t] as arrays (n, 3, 4), viewed as a `Similarity`."""
SE2 = _SE2()
"""Poses in the plane as rows (x, y, θ), viewed as a `PlanePose`: (p, θ) ⊞ (δp, δθ) = (p + R(θ) δp, θ + δθ)."""


@dataclass(frozen=True)
class Sphere:
    """Unit vectors of length `dim` (rows), with steps along great circles."""

    dim: int = 3
    mixes_units = False

    def __post_init__(self) -> None:
        if not (isinstance(self.dim, int | np.integer) and self.dim >= 2):
            raise ValueError(f"dim must be a whole number of at least 2, not {self.dim!r}")

    @property
    def ambient(self) -> int:
        return self.dim

    @property
    def tangent(self) -> int:
        return self.dim - 1

    def pack(self, values: Any) -> np.ndarray:
        rows = Euclidean((self.dim,)).pack(values)
        bad = np.flatnonzero(~(np.abs(np.linalg.norm(rows, axis=1) - 1) < 1e-6))
        if bad.size:
            raise ValueError(f"holds no unit vector at index {bad[0]}")
        return rows

    def unpack(self, rows: np.ndarray) -> Any:
        return rows

    def view(self, x: Array) -> Any:
        return x

    def retract(self, x: Array, delta: Array) -> Array:
        xp = namespace(x)
        sign = xp.where(x[0] < 0, -1.0, 1.0)
        v = xp.concatenate([(x[0] + sign)[None], x[1:]])  # Householder reflection that maps e₀ to −sign·x
        d = xp.concatenate([xp.zeros_like(delta[:1]), delta])
        d = d - 2 * v * (v @ d) / (v @ v)  # δ in the tangent plane at x
        t = delta @ delta
        small = t < 1e-8
        theta = xp.sqrt(xp.where(small, 1.0, t))
        half = xp.sin(theta / 2)
        cos = xp.where(small, 1 - t / 2 + t * t / 24, 1 - 2 * half * half)
        sinc = xp.where(small, 1 - t / 6, xp.sin(theta) / theta)
        y = cos * x + sinc * d
        return y / xp.sqrt(y @ y)


@dataclass(frozen=True, init=False)
class Product:
    """Product of manifolds: one variable with several parts.  Values and views are tuples."""

    parts: tuple[Manifold, ...]
    mixes_units = True

    def __init__(self, *parts: Manifold):
        for k, part in enumerate(parts):
            if isinstance(part, type) or not hasattr(part, "retract"):
                raise ValueError(f"part {k} of a Product is {part!r}, expected a manifold such as asker.SE3")
        object.__setattr__(self, "parts", parts)

    @property
    def ambient(self) -> int:
        return sum(m.ambient for m in self.parts)

    @property
    def tangent(self) -> int:
        return sum(m.tangent for m in self.parts)

    def _split(self, x: Array, sizes: Sequence[int]) -> list[Array]:
        stops = np.cumsum(sizes)
        return [x[..., stop - size : stop] for size, stop in zip(sizes, stops, strict=True)]

    def _ambients(self, x: Array) -> list[Array]:
        return self._split(x, [m.ambient for m in self.parts])

    def pack(self, values: Any) -> np.ndarray:
        n = len(values) if hasattr(values, "__len__") else 1
        if n != len(self.parts):
            raise ValueError(f"has {n} parts, expected {len(self.parts)}")
        rows = [m.pack(v) for m, v in zip(self.parts, values, strict=True)]
        lengths = [len(x) for x in rows]
        if len(set(lengths)) > 1:
            raise ValueError(f"has parts of different lengths {lengths}")
        return np.concatenate(rows, axis=1)

    def unpack(self, rows: np.ndarray) -> Any:
        return tuple(m.unpack(np.asarray(x)) for m, x in zip(self.parts, self._ambients(rows), strict=True))

    def view(self, x: Array) -> Any:
        return tuple(m.view(part) for m, part in zip(self.parts, self._ambients(x), strict=True))

    def retract(self, x: Array, delta: Array) -> Array:
        deltas = self._split(delta, [m.tangent for m in self.parts])
        moved = [m.retract(*xd) for m, *xd in zip(self.parts, self._ambients(x), deltas, strict=True)]
        return namespace(x).concatenate(moved)
