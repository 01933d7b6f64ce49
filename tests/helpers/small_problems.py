"""Small problems for the tests of the strategies, and the Gauss-Newton step without elimination."""

import jax.numpy as jnp
import numpy as np

import asker

SMOOTH = [
    asker.SmoothTruncated(1.3), asker.PseudoHuber(0.7), asker.Cauchy(0.9), asker.GemanMcClure(1.1), asker.Welsch(1.2),
    asker.Tukey(2.0), asker.Barron(1.0, alpha=-0.5),
]  # fmt: skip


def curve(x, t, y):
    """Return a residual of dimension 2, nonlinear in x (3,)."""
    return jnp.stack([x[0] * jnp.exp(-x[1] * t) + x[2] - y[0], jnp.sin(x[1] * t) * x[2] + x[0] - y[1]])


def curve_problem(seed, n=60, outliers=0.4, kernel=None):
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0.5, 2.0, 3)
    t = rng.uniform(0, 3, n)
    y = np.stack([truth[0] * np.exp(-truth[1] * t) + truth[2], np.sin(truth[1] * t) * truth[2] + truth[0]], axis=1)
    y += rng.normal(0, 0.02, y.shape)
    bad = rng.random(n) < outliers
    y[bad] += rng.uniform(-5, 5, (bad.sum(), 2))
    x = asker.Variables(truth[None] + rng.normal(0, 1.0, (1, 3)), name="x")
    kernel = asker.SmoothTruncated(0.2) if kernel is None else kernel
    return asker.Problem(asker.Factors(curve, x[np.zeros(n, int)], data=(t, y), kernel=kernel))


def affine(x, A, b):
    return A @ x - b


def linear_problem(p, seed=0, n=30, d=4, kernel=None):
    """Return a problem with random affine residuals of dimension p in one variable of dimension d, and its data."""
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(n, p, d)), rng.normal(size=(n, p))
    x = asker.Variables(rng.normal(size=(1, d)), name="x")

    kernel = asker.SmoothTruncated(1.5) if kernel is None else kernel
    return asker.Problem(asker.Factors(affine, x[np.zeros(n, int)], data=(A, b), kernel=kernel)), A, b


def joint_step(A, r, H_rr, q, H_ss, g_r, g_s, lam):
    """Return the dense Gauss-Newton step in (θ, s), from the blocks H_rr I, q r, H_ss of each residual."""
    n, _, d = A.shape
    H, g = np.zeros((d + n, d + n)), np.zeros(d + n)
    for k in range(n):
        Jr = A[k].T @ r[k]
        H[:d, :d] += H_rr[k] * A[k].T @ A[k]
        H[:d, d + k] = H[d + k, :d] = q[k] * Jr
        H[d + k, d + k] = H_ss[k]
        g[:d] += g_r[k] * Jr
        g[d + k] = g_s[k]
    H += lam * np.eye(d + n)
    step = np.linalg.solve(H, -g)
    return step[:d], step[d:]


def residuals(p, n=12):
    """Return vectors of dimension p with norms between 0.1 and 1.2."""
    r = np.random.default_rng(p).normal(size=(n, p))
    return r / np.linalg.norm(r, axis=1, keepdims=True) * np.linspace(0.1, 1.2, n)[:, None]
