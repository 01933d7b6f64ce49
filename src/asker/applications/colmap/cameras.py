"""COLMAP's camera models: projection of a point in the camera frame to a pixel.

A camera looks along +z.  Most models divide the point (x, y, z) by z, distort, scale by the focal lengths and add the
principal point; points with z ≤ 0 are not visible.  Some models project the ray itself, also at angles of 90° and more.
The parameters are in COLMAP's order.  All functions work on numbers and on arrays, of NumPy and of JAX.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from asker.applications.colmap.model import CAMERA_MODELS
from asker.tracing.array_namespace import namespace

Part = Literal["focal", "principal-point", "distortion", "size"]
PARTS: dict[str, Part] = {
    **dict.fromkeys(("f", "fx", "fy"), "focal"),
    **dict.fromkeys(("cx", "cy"), "principal-point"),
    **dict.fromkeys(("w", "h"), "size"),
}  # type: ignore[arg-type]
"""Kinds of parameters, by name; all others are distortion parameters."""
Pair = tuple[Any, Any]


def none(u: Any, v: Any) -> Pair:
    """Return the point without distortion."""
    return u, v


def radial(u: Any, v: Any, *k: Any) -> Pair:
    """Return the point times 1 + k1 r² + k2 r⁴ + …"""
    factor = 1 + _polynomial(u * u + v * v, k)
    return factor * u, factor * v


def tangential(u: Any, v: Any, p1: Any, p2: Any) -> Pair:
    """Return the offset of tangential distortion, due to a decentred lens."""
    r2 = u * u + v * v
    return 2 * p1 * u * v + p2 * (r2 + 2 * u * u), 2 * p2 * u * v + p1 * (r2 + 2 * v * v)


def opencv(u: Any, v: Any, k1: Any, k2: Any, p1: Any, p2: Any) -> Pair:
    """Return the point with radial and tangential distortion."""
    (ru, rv), (tu, tv) = radial(u, v, k1, k2), tangential(u, v, p1, p2)
    return ru + tu, rv + tv


def full_opencv(u: Any, v: Any, k1: Any, k2: Any, p1: Any, p2: Any, k3: Any, k4: Any, k5: Any, k6: Any) -> Pair:
    """Return the point with tangential and rational radial distortion, a quotient of polynomials in r²."""
    r2 = u * u + v * v
    factor = (1 + _polynomial(r2, (k1, k2, k3))) / (1 + _polynomial(r2, (k4, k5, k6)))
    tu, tv = tangential(u, v, p1, p2)
    return factor * u + tu, factor * v + tv


def fisheye(u: Any, v: Any, *k: Any) -> Pair:
    """Return the point with radius θ(1 + k1 θ² + k2 θ⁴ + …), where θ = atan r."""
    factor = _arctan_ratio(u * u + v * v)
    return radial(factor * u, factor * v, *k) if k else (factor * u, factor * v)


def thin_prism_fisheye(
    u: Any, v: Any, k1: Any, k2: Any, p1: Any, p2: Any, k3: Any, k4: Any, sx1: Any, sy1: Any
) -> Pair:
    """Return the point with fisheye, tangential and thin-prism distortion (sx1 θ², sy1 θ²)."""
    u, v = fisheye(u, v)
    r2 = u * u + v * v
    (ru, rv), (tu, tv) = radial(u, v, k1, k2, k3, k4), tangential(u, v, p1, p2)
    return ru + tu + sx1 * r2, rv + tv + sy1 * r2


def rad_tan_thin_prism_fisheye(u: Any, v: Any, *params: Any) -> Pair:
    """Return the point with fisheye distortion k0 … k5, then tangential and thin-prism distortion with two terms."""
    k, (p0, p1, s0, s1, s2, s3) = params[:6], params[6:]
    u, v = fisheye(u, v, *k)
    r2 = u * u + v * v
    tu, tv = tangential(u, v, p1, p0)
    return u + tu + _polynomial(r2, (s0, s1)), v + tv + _polynomial(r2, (s2, s3))


def field_of_view(u: Any, v: Any, omega: Any) -> Pair:
    """Return the point with radius atan(2r tan(ω/2))/ω."""
    xp = namespace(u)
    small = omega * omega < 1e-8
    safe = xp.where(small, 1.0, omega)
    spread = xp.where(small, 1 + omega * omega / 12, 2 * xp.tan(safe / 2) / safe)  # 2 tan(ω/2)/ω
    factor = spread * _arctan_ratio((u * u + v * v) * (spread * omega) ** 2)
    return factor * u, factor * v


def _arctan_ratio(t2: Any) -> Any:
    """Return atan(t)/t as a function of t², smooth at 0."""
    xp = namespace(t2)
    small = t2 < 1e-6
    t = xp.sqrt(xp.where(small, 1.0, t2))
    return xp.where(small, 1 - t2 * (1 / 3 - t2 * (1 / 5 - t2 / 7)), xp.arctan(t) / t)


def _polynomial(x: Any, k: Sequence[Any]) -> Any:
    """Return k1 x + k2 x² + …"""
    out = k[-1] * x
    for c in reversed(k[:-1]):
        out = (out + c) * x
    return out


DISTORTIONS: dict[str, Callable[..., Pair]] = {
    "SIMPLE_PINHOLE": none,
    "PINHOLE": none,
    "SIMPLE_RADIAL": radial,
    "RADIAL": radial,
    "OPENCV": opencv,
    "OPENCV_FISHEYE": fisheye,
    "FULL_OPENCV": full_opencv,
    "FOV": field_of_view,
    "SIMPLE_RADIAL_FISHEYE": fisheye,
    "RADIAL_FISHEYE": fisheye,
    "THIN_PRISM_FISHEYE": thin_prism_fisheye,
    "RAD_TAN_THIN_PRISM_FISHEYE": rad_tan_thin_prism_fisheye,
    "SIMPLE_FISHEYE": fisheye,
    "FISHEYE": fisheye,
}
"""Distortion functions of the camera models that divide by z."""


def division(x: Any, y: Any, z: Any, k: Any) -> Pair:
    """Return the solution d of d/(1 + k‖d‖²) = (x, y)/z that tends to (x, y)/z for k → 0."""
    factor = 2 / division_depth(x, y, z, k)
    return factor * x, factor * y


def division_depth(x: Any, y: Any, z: Any, k: Any) -> Any:
    """Return z + √(z² − 4k(x² + y²)), which is positive if the point has a pixel; else −1."""
    xp = namespace(x)
    discriminant = z * z - 4 * k * (x * x + y * y)
    return xp.where(discriminant > 0, z + xp.sqrt(xp.where(discriminant > 0, discriminant, 1.0)), -1.0)


def eucm(x: Any, y: Any, z: Any, alpha: Any, beta: Any) -> Pair:
    """Return the projection of the enhanced unified camera: (x, y)/(αd + (1 − α)z) with d² = β(x² + y²) + z²."""
    depth = alpha * namespace(x).sqrt(beta * (x * x + y * y) + z * z) + (1 - alpha) * z
    return x / depth, y / depth


RAYS: dict[str, Callable[..., Pair]] = {"SIMPLE_DIVISION": division, "DIVISION": division, "EUCM": eucm}
"""Projections of the camera models that do not divide by z."""
SPHERE = "EQUIRECTANGULAR"
"""The camera model with longitude and latitude as pixels, w × h.  It has no focal length and no principal point."""


def parts_of(camera_model: str) -> list[Part]:
    """Return the kind of each parameter of a camera model."""
    return [PARTS.get(name, "distortion") for name in CAMERA_MODELS[camera_model].split()]


def sees_behind(camera_model: str) -> bool:
    """Return True if (x, y, z) and (−x, −y, −z) have different pixels, so that a scene cannot be mirrored."""
    return camera_model in RAYS or camera_model == SPHERE


def project(camera_model: str, params: Any, x: Any, y: Any, z: Any) -> Pair:
    """Return the pixel of a point in the camera frame, whatever the sign of z."""
    if camera_model == SPHERE:
        xp = namespace(x)
        longitude, latitude = xp.arctan2(x, z), xp.arctan2(y, xp.sqrt(x * x + z * z))
        return params[0] * (longitude / (2 * np.pi) + 0.5), params[1] * (latitude / np.pi + 0.5)
    n = parts_of(camera_model).count("focal")
    rest = [params[k] for k in range(n + 2, len(params))]
    if camera_model in RAYS:
        u, v = RAYS[camera_model](x, y, z, *rest)
    else:
        u, v = DISTORTIONS[camera_model](x / z, y / z, *rest)
    return params[0] * u + params[n], params[n - 1] * v + params[n + 1]


def reprojection(camera_model: str, params: Any, uv: Any, x: Any, y: Any, z: Any) -> Pair:
    """Return the projected minus the observed pixel; on a sphere, the horizontal difference is wrapped."""
    u, v = project(camera_model, params, x, y, z)
    du, dv = u - uv[0], v - uv[1]
    return (du - params[0] * namespace(x).round(du / params[0]), dv) if camera_model == SPHERE else (du, dv)


def depth(camera_model: str, params: Any, x: Any, y: Any, z: Any) -> Any:
    """Return a number that is positive if the point is visible to the camera."""
    if camera_model == SPHERE:
        return x * x + y * y + z * z
    return division_depth(x, y, z, params[-1]) if camera_model in ("SIMPLE_DIVISION", "DIVISION") else z
