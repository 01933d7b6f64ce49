"""COLMAP's camera models: from a point in the camera's frame to a pixel.

A camera looks along +z.  The point (x, y, z) is divided by z, distorted, scaled by the focal lengths and moved to the
principal point.  The parameters stand in COLMAP's order: one or two focal lengths, the principal point, the
distortions.  The formulas work on numbers and on arrays, in NumPy and in JAX.
"""

from collections.abc import Callable, Sequence
from typing import Any

from asker.applications.colmap.model import CAMERA_MODELS
from asker.arrays import namespace


def none(u: Any, v: Any) -> tuple[Any, Any]:
    return u, v


def radial(u: Any, v: Any, *k: Any) -> tuple[Any, Any]:
    """1 + k1 r² + k2 r⁴ + … times the point."""
    factor = 1 + _polynomial(u * u + v * v, k)
    return factor * u, factor * v


def tangential(u: Any, v: Any, p1: Any, p2: Any) -> tuple[Any, Any]:
    """What a lens off its axis adds."""
    r2 = u * u + v * v
    return 2 * p1 * u * v + p2 * (r2 + 2 * u * u), 2 * p2 * u * v + p1 * (r2 + 2 * v * v)


def opencv(u: Any, v: Any, k1: Any, k2: Any, p1: Any, p2: Any) -> tuple[Any, Any]:
    (ru, rv), (tu, tv) = radial(u, v, k1, k2), tangential(u, v, p1, p2)
    return ru + tu, rv + tv


def full_opencv(
    u: Any, v: Any, k1: Any, k2: Any, p1: Any, p2: Any, k3: Any, k4: Any, k5: Any, k6: Any
) -> tuple[Any, Any]:
    """As opencv, with a quotient of polynomials in r²."""
    r2 = u * u + v * v
    factor = (1 + _polynomial(r2, (k1, k2, k3))) / (1 + _polynomial(r2, (k4, k5, k6)))
    tu, tv = tangential(u, v, p1, p2)
    return factor * u + tu, factor * v + tv


def opencv_fisheye(u: Any, v: Any, k1: Any, k2: Any, k3: Any, k4: Any) -> tuple[Any, Any]:
    """The radius becomes θ(1 + k1 θ² + … + k4 θ⁸) with θ = atan r; smooth at r = 0."""
    xp = namespace(u)
    r2 = u * u + v * v
    small = r2 < 1e-12
    r = xp.sqrt(xp.where(small, 1.0, r2))
    theta = xp.arctan(r)
    factor = theta * (1 + _polynomial(theta * theta, (k1, k2, k3, k4))) / r
    factor = xp.where(small, 1 + (k1 - 1 / 3) * r2, factor)
    return factor * u, factor * v


def _polynomial(x: Any, k: Sequence[Any]) -> Any:
    """k1 x + k2 x² + …"""
    out = k[-1] * x
    for c in reversed(k[:-1]):
        out = (out + c) * x
    return out


DISTORTIONS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "SIMPLE_PINHOLE": none,
    "PINHOLE": none,
    "SIMPLE_RADIAL": radial,
    "RADIAL": radial,
    "OPENCV": opencv,
    "OPENCV_FISHEYE": opencv_fisheye,
    "FULL_OPENCV": full_opencv,
}
"""The camera models that asker can project with."""


def n_focal(camera_model: str) -> int:
    """How many focal lengths a model has: f, or fx and fy."""
    return 1 if CAMERA_MODELS[camera_model].startswith("f ") else 2


def project(camera_model: str, params: Any, x: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """The pixel at which a camera sees a point of its own frame.  Nothing is asked of the sign of z."""
    n = n_focal(camera_model)
    u, v = DISTORTIONS[camera_model](x / z, y / z, *[params[k] for k in range(n + 2, len(params))])
    return params[0] * u + params[n], params[n - 1] * v + params[n + 1]
