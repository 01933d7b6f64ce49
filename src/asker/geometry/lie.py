"""Exponential and logarithm maps of SO(3), SE(3), Sim(3) and SE(2).

All functions take a single rotation or pose and run on NumPy arrays and on JAX tracers.
"""

from typing import Any

from asker.tracing.array_namespace import Array, namespace


def exp_so3(omega: Array) -> Array:
    """Return the rotation matrix exp([ω]×); derivatives exist at ω = 0."""
    xp = namespace(omega)
    t = omega @ omega  # θ²
    small = t < 1e-8
    theta = xp.sqrt(xp.where(small, 1.0, t))
    a = xp.where(small, 1 - t / 6, xp.sin(theta) / theta)
    half = xp.sin(theta / 2) / theta
    b = xp.where(small, 0.5 - t / 24, 2 * half * half)
    x, y, z = omega[0], omega[1], omega[2]
    zero = xp.zeros_like(x)
    W = xp.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)
    return xp.eye(3) + a * W + b * (W @ W)


def log_so3(R: Array) -> Array:
    """Return ω with exp([ω]×) = R and ‖ω‖ ≤ π; smooth everywhere except at the angle π.

    The quaternion q of R is computed first: 4qqᵀ is linear in R, and its row with the largest diagonal entry gives q
    without cancellation.
    """
    xp = namespace(R)
    (a, b, c), (d, e, f), (g, h, i) = R
    rows = [  # of 4qqᵀ, order w x y z
        [1 + a + e + i, h - f, c - g, d - b],
        [h - f, 1 + a - e - i, b + d, c + g],
        [c - g, b + d, 1 - a + e - i, f + h],
        [d - b, c + g, f + h, 1 - a - e + i],
    ]
    q, largest = rows[0], rows[0][0]
    for k in (1, 2, 3):
        q = [xp.where(rows[k][k] > largest, new, old) for new, old in zip(rows[k], q, strict=True)]
        largest = xp.maximum(largest, rows[k][k])
    w, x, y, z = q
    sign = xp.where(w < 0, -1.0, 1.0)
    t = x * x + y * y + z * z
    small = t < 1e-10 * w * w
    s = xp.sqrt(xp.where(small, 1.0, t))
    far = 2 * xp.arctan2(s, sign * w) / s
    near = 2 / xp.where(small, sign * w, 1.0) * (1 - t / (3 * xp.where(small, w * w, 1.0)))
    return sign * xp.where(small, near, far) * xp.stack([x, y, z])


def log_se3(R: Array, t: Array) -> Array:
    """Return the twist (ρ, ω), translation first, whose exponential is (R, t): ρ = t − ω×t/2 + c ω×(ω×t)."""
    xp = namespace(t)
    omega = log_so3(R)
    u = omega @ omega  # θ²
    small = u < 1e-4
    half = xp.sqrt(xp.where(small, 1.0, u)) / 2
    c = xp.where(small, (1 + u / 60) / 12, (1 - half * xp.cos(half) / xp.sin(half)) / (4 * half * half))
    turned = _cross(xp, omega, t)
    return xp.concatenate([t - turned / 2 + c * _cross(xp, omega, turned), omega])


def log_sim3(R: Array, t: Array, scale: Array) -> Array:
    """Return the twist (ρ, ω, σ), translation first, whose exponential is (R, t, scale).

    t = Vρ, where V is a polynomial in Ω = [ω]×.  With f(z) = z/(eᶻ − 1), its inverse is

        V⁻¹ = p + qΩ + rΩ²,   p = f(σ),   q = Im f(σ + iθ)/θ,   r = (f(σ) − Re f(σ + iθ))/θ²

    For |z| ≤ 0.1, f is evaluated by its Taylor series with Bernoulli numbers.  For larger |z|, an angle below 1e-4 is
    replaced by 1e-4 in q and r, which changes ρ by at most 1e-12 of t.
    """
    xp = namespace(t)
    omega, sigma = log_so3(R), xp.log(scale)
    u, v = omega @ omega, sigma * sigma  # θ², σ²
    B2, B4, B6 = 1 / 12, -1 / 720, 1 / 30240
    series_p = 1 - sigma / 2 + B2 * v + B4 * v**2 + B6 * v**3
    series_q = -0.5 + sigma * (2 * B2 + 4 * B4 * (v - u) + B6 * (6 * (v - u) ** 2 - 8 * u * v))
    series_r = B2 + B4 * (6 * v - u) + B6 * (15 * v * (v - u) + u * u)
    near = u + v < 1e-2
    one, turn = xp.where(v < 1e-2, 1.0, sigma), xp.where(near, 1.0, xp.maximum(u, 1e-8))
    theta = xp.sqrt(turn)
    p = xp.where(v < 1e-2, series_p, one / (xp.exp(one) - 1))
    x, y = scale * xp.cos(theta) - 1, scale * xp.sin(theta)
    size = x * x + y * y
    q = xp.where(near, series_q, (x - sigma * y / theta) / size)
    r = xp.where(near, series_r, (p - (sigma * x + theta * y) / size) / turn)
    turned = _cross(xp, omega, t)
    return xp.concatenate([p * t + q * turned + r * _cross(xp, omega, turned), omega, sigma[None]])


def log_se2(p: Array, theta: Array) -> Array:
    """Return the twist (ρ, θ), |θ| ≤ π, whose exponential is (R(θ), p).

    ρ = k p − θ/2 (−p_y, p_x) with k = θ/2 · cot(θ/2).
    """
    xp = namespace(p)
    half = theta / 2
    small = half * half < 1e-4
    safe = xp.where(small, 1.0, half)
    k = xp.where(small, 1 - half * half / 3 - half**4 / 45, safe * xp.cos(safe) / xp.sin(safe))
    return xp.stack([k * p[0] + half * p[1], k * p[1] - half * p[0], theta])


def _cross(xp: Any, a: Array, b: Array) -> Array:
    return xp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
