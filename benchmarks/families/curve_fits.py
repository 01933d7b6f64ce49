"""Fits of curves and surfaces to points, and positions from range measurements.

Circle and ellipse are in pixels of an image, the others in metres or arbitrary units.  Outliers are uniform clutter
over the window; under some conditions they lie on a second curve of the same kind with fewer points. The error is the
root mean square distance between the true and the estimated curve within the range of the data.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import asker
from families.family import Condition
from families.single_group import SimulatedData, SimulatedFamily, mixed

CONDITIONS: list[Condition] = [
    {"noise": noise, "outliers": outliers, "start": start, "clutter": "uniform"}
    for noise, outliers, start in (
        (1.0, 0.1, "near"),
        (1.0, 0.5, "near"),
        (1.0, 0.8, "near"),
        (0.3, 0.5, "near"),
        (3.0, 0.5, "near"),
        (1.0, 0.3, "far"),
        (1.0, 0.7, "far"),
        (0.3, 0.5, "far"),
        (3.0, 0.3, "far"),
    )
] + [{"noise": 1.0, "outliers": 0.45, "start": "near", "clutter": "second"}]
QUICK = (CONDITIONS[4], CONDITIONS[5])


# Circle and ellipse

IMAGE = np.array([640.0, 480.0])


def off_circle(circle, point):
    d = point - circle[:2]
    return jnp.sqrt(d @ d + 1e-12) - circle[2]


def off_ellipse(ellipse, point):
    """Return the distance from the ellipse along the ray from its centre."""
    d = point - ellipse[:2]
    c, s = jnp.cos(ellipse[4]), jnp.sin(ellipse[4])
    x, y = c * d[0] + s * d[1], c * d[1] - s * d[0]
    a, b = jnp.exp(ellipse[2]), jnp.exp(ellipse[3])
    rho = jnp.sqrt((x / a) ** 2 + (y / b) ** 2 + 1e-12)
    return jnp.sqrt(d @ d + 1e-12) * (1 - 1 / rho)


def on_circle(circle: np.ndarray, angle: np.ndarray) -> np.ndarray:
    return circle[:2] + circle[2] * np.column_stack([np.cos(angle), np.sin(angle)])


def on_ellipse(ellipse: np.ndarray, angle: np.ndarray) -> np.ndarray:
    c, s = np.cos(ellipse[4]), np.sin(ellipse[4])
    local = np.exp(ellipse[2:4]) * np.column_stack([np.cos(angle), np.sin(angle)])
    return ellipse[:2] + local @ np.array([[c, s], [-s, c]])


def between_curves(a: np.ndarray, b: np.ndarray) -> float:
    """Return the larger of the two directed RMS distances between two closed polylines."""
    return max(_from_polyline(a, b), _from_polyline(b, a))


def _from_polyline(points: np.ndarray, line: np.ndarray) -> float:
    if not np.isfinite(line).all():
        return np.inf
    side = np.roll(line, -1, axis=0) - line
    to = points[:, None] - line
    along = np.clip((to * side).sum(axis=2) / np.maximum((side**2).sum(axis=1), 1e-300), 0, 1)
    square = ((to - along[:, :, None] * side) ** 2).sum(axis=2).min(axis=1)
    return float(np.sqrt(square.mean()))


def simulate_closed(
    kind: str, rng: np.random.Generator, condition: Condition, sigma: float, n: int = 200, corners: int = 300
) -> SimulatedData:
    """Simulate points of a circle or an ellipse; the far initial guess is a circle in the middle of the image."""
    on, off = {"circle": (on_circle, off_circle), "ellipse": (on_ellipse, off_ellipse)}[kind]

    def drawn() -> np.ndarray:
        centre, size = rng.uniform(0.3 * IMAGE, 0.7 * IMAGE), rng.uniform(60, 120)
        if kind == "circle":
            return np.array([*centre, size])
        return np.array(
            [*centre, np.log(1.3 * size), np.log(1.3 * size * rng.uniform(0.4, 0.7)), rng.uniform(0, np.pi)]
        )

    truth, second = drawn(), drawn()
    angle = rng.uniform(0, 2 * np.pi, n)
    noise = sigma * rng.normal(size=(n, 2))
    points, right = mixed(condition, on(truth, angle) + noise, rng.uniform(0, IMAGE, (n, 2)), on(second, angle) + noise)
    if condition["start"] == "near":
        by = {"circle": [20, 20, 15], "ellipse": [15, 15, 0.15, 0.15, 0.2]}[kind]
        start = truth + np.array(by) * rng.choice([-1, 1], len(truth))
    elif kind == "circle":
        start = np.array([*IMAGE / 2, 150.0])
    else:
        start = np.array([*IMAGE / 2, np.log(150.0), np.log(150.0), 0.0])
    at = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    return SimulatedData(
        off, truth[None], start[None], (points,), right, lambda x: between_curves(on(truth, at), on(x[0], at))
    )


# Line and plane


def off_line(line, point):
    """Return the distance from a line given by an angle and a distance from the origin."""
    return jnp.cos(line[0]) * point[0] + jnp.sin(line[0]) * point[1] - line[1]


def off_plane(plane, point):
    """Return the distance from a plane given by a unit normal and a distance from the origin."""
    normal, distance = plane
    return normal @ point - distance


def simulate_line(
    rng: np.random.Generator, condition: Condition, sigma: float, n: int = 150, half: float = 10.0
) -> SimulatedData:
    """Simulate points of a line across a square; the far initial guess is the vertical line through the origin."""

    def drawn(angle: float) -> tuple[np.ndarray, np.ndarray]:
        line = np.array([angle, rng.uniform(-0.4, 0.4) * half])
        normal, along = _frame(line[0])
        return line, line[1] * normal + rng.uniform(-0.8 * half, 0.8 * half, n)[:, None] * along

    truth, on = drawn(rng.uniform(0.8, np.pi - 0.8))
    _, on_second = drawn(truth[0] + rng.uniform(0.5, np.pi - 0.5))
    noise = sigma * rng.normal(size=(n, 2))
    points, right = mixed(condition, on + noise, rng.uniform(-half, half, (n, 2)), on_second + noise)
    by = np.array([0.15, 0.1 * half]) * rng.choice([-1, 1], 2)
    start = truth + by if condition["start"] == "near" else np.zeros(2)
    ends = np.linspace(-0.8 * half, 0.8 * half, 50)[:, None] * _frame(truth[0])[1] + truth[1] * _frame(truth[0])[0]

    def error(x: Any) -> float:
        return float(np.sqrt(np.mean((ends @ _frame(x[0, 0])[0] - x[0, 1]) ** 2)))

    return SimulatedData(off_line, truth[None], start[None], (points,), right, error)


def _frame(angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the normal of a line and its direction."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([c, s]), np.array([-s, c])


def simulate_plane(
    rng: np.random.Generator, condition: Condition, sigma: float, n: int = 300, half: float = 2.0
) -> SimulatedData:
    """Simulate points of a plane; the near initial guess is rotated by 10°, the far one is the plane z = 0."""

    def drawn() -> tuple[np.ndarray, float, np.ndarray]:
        Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        distance = rng.uniform(-0.4, 0.4) * half
        across = rng.uniform(-0.8 * half, 0.8 * half, (n, 2))
        return Q, distance, distance * Q[:, 0] + across @ Q[:, 1:].T

    Q, distance, on = drawn()
    normal = Q[:, 0]
    *_, on_second = drawn()
    noise = sigma * rng.normal(size=(n, 3))
    points, right = mixed(condition, on + noise, rng.uniform(-half, half, (n, 3)), on_second + noise)
    if condition["start"] == "near":
        turned, moved = np.cos(np.radians(10)) * normal + np.sin(np.radians(10)) * Q[:, 1], distance + 0.1 * half
    else:
        turned, moved = np.array([0.0, 0.0, 1.0]), 0.0

    def error(x: Any) -> float:
        return float(np.sqrt(np.mean((on @ x[0][0] - x[1][0]) ** 2)))

    def values(n: np.ndarray, d: float) -> tuple[np.ndarray, np.ndarray]:
        return n[None], np.array([d])

    manifold = asker.Product(asker.Sphere(), asker.Euclidean(()))
    start = values(turned, moved)
    return SimulatedData(off_plane, values(normal, distance), start, (points,), right, error, manifold)


# Exponential and sinusoid


def exponential(x, t, xp=np):
    return x[0] * xp.exp(-x[1] * t) + x[2]


def sinusoid(x, t, xp=np):
    return x[0] * xp.sin(x[1] * t + x[2]) + x[3]


def off_exponential(x, t, y):
    return exponential(x, t, jnp) - y


def off_sinusoid(x, t, y):
    return sinusoid(x, t, jnp) - y


def simulate_exponential(rng: np.random.Generator, condition: Condition, sigma: float) -> SimulatedData:
    """Simulate an exponential decay to a constant; the far initial guess decays slowly from 1."""

    def drawn() -> np.ndarray:
        return np.array([rng.uniform(1, 3), rng.uniform(0.5, 1.2), rng.uniform(-0.5, 0.5)])

    near = np.array([0.4, 0.2, 0.2]) * rng.choice([-1, 1], 3)
    return simulate_series(
        exponential, off_exponential, drawn, near, np.array([1.0, 0.05, 0.0]), rng, condition, sigma, 6.0
    )


def simulate_sinusoid(rng: np.random.Generator, condition: Condition, sigma: float) -> SimulatedData:
    """Simulate three to five periods of a sinusoid; the far initial guess knows only the frequency, to 10 %."""

    def drawn() -> np.ndarray:
        return np.array([rng.uniform(1, 2), rng.uniform(2, 3), rng.uniform(0, 2 * np.pi), rng.uniform(-0.5, 0.5)])

    near = np.array([0.3, 0.07, 0.3, 0.3]) * rng.choice([-1, 1], 4)
    far = rng.choice([0.9, 1.1])

    def start(truth: np.ndarray) -> np.ndarray:
        return np.array([1.0, far * truth[1], 0.0, 0.0])

    return simulate_series(sinusoid, off_sinusoid, drawn, near, start, rng, condition, sigma, 10.0)


def simulate_series(
    curve: Callable[..., Any],
    residual: Callable[..., Any],
    drawn: Callable[[], np.ndarray],
    near: np.ndarray,
    far: Any,
    rng: np.random.Generator,
    condition: Condition,
    sigma: float,
    duration: float,
    n: int = 150,
) -> SimulatedData:
    """Simulate a time series of a curve; clutter is uniform over the range of possible values."""
    truth, second = drawn(), drawn()
    t = np.sort(rng.uniform(0, duration, n))
    order = rng.permutation(n)  # so that outliers occur at random times
    t, noise = t[order], sigma * rng.normal(size=n)
    y, right = mixed(condition, curve(truth, t) + noise, rng.uniform(-2.5, 3.5, n), curve(second, t) + noise)
    start = truth + near if condition["start"] == "near" else far(truth) if callable(far) else far
    at = np.linspace(0, duration, 200)

    def error(x: Any) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.sqrt(np.mean((curve(x[0], at) - curve(truth, at)) ** 2)))

    return SimulatedData(residual, truth[None], start[None], (t, y), right, error)


# Positions from ranges


def off_range(a, b, measured):
    return jnp.sqrt((a - b) @ (a - b) + 1e-12) - measured


def simulate_ranges(
    rng: np.random.Generator,
    condition: Condition,
    sigma: float,
    n_anchors: int = 8,
    n_places: int = 10,
    size: float = 20.0,
) -> SimulatedData:
    """Simulate ranges between unknown places and known anchors in a hall; the far initial guess is the middle.

    Wrong ranges are uniform, or too long by 1 to 6 m like a reflection from a wall.
    """
    truth = rng.uniform(0, size, (n_anchors + n_places, 2))
    i, j = np.triu_indices(n_anchors + n_places, 1)
    i, j = (k[j >= n_anchors] for k in (i, j))  # no ranges between anchors
    order = rng.permutation(len(i))
    i, j = i[order], j[order]
    distance = np.linalg.norm(truth[i] - truth[j], axis=1) + sigma * rng.normal(size=len(i))
    anything, longer = rng.uniform(0, 1.4 * size, len(i)), distance + rng.uniform(1, 6, len(i))
    measured, right = mixed(condition, distance, anything, longer)
    fixed = np.arange(len(truth)) < n_anchors
    near, middle = truth + rng.normal(size=truth.shape), size / 2 + rng.normal(size=truth.shape)
    start = np.where(fixed[:, None], truth, near if condition["start"] == "near" else middle)

    def error(x: Any) -> float:
        return float(np.sqrt(np.mean(((x - truth)[~fixed] ** 2).sum(axis=1))))

    density = 1 / 5 if condition["clutter"] == "second" else 1 / (1.4 * size)
    return SimulatedData(off_range, truth, start, (measured,), right, error, index=(i, j), fixed=fixed, density=density)


def fit(name: str, noise: float, simulate: Callable[..., SimulatedData], at_most: float = 1.0) -> SimulatedFamily:
    """Return the family of a fit; outlier ratios are limited to `at_most`, above which the truth is not determined."""
    conditions, quick = ([{**c, "outliers": min(c["outliers"], at_most)} for c in cs] for cs in (CONDITIONS, QUICK))
    return SimulatedFamily(name, noise, simulate, conditions, quick)


FITS = (
    fit("circle", 1.0, partial(simulate_closed, "circle")),
    fit("ellipse", 1.0, partial(simulate_closed, "ellipse")),
    fit("line", 0.1, simulate_line),
    fit("plane", 0.01, simulate_plane),
    fit("exponential", 0.02, simulate_exponential),
    fit("sinusoid", 0.05, simulate_sinusoid),
    fit("ranges", 0.05, simulate_ranges, at_most=0.6),
)
