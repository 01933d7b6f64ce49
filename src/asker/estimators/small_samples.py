"""Design-adaptive scale and the covariance of robust estimates from few observations.

Koller, Stahel: Sharpening Wald-Type Inference in Robust Regression for Small Samples, Comput. Stat. Data Anal. 2011.

Problem     a scale σ_D that accounts for the leverages of the observations, and standard errors from it
Symbols     hᵢ -> leverage    w -> weights    κ -> kappa    φ = ψ/E ψ'    τᵢ -> taus
Algorithm   (1) a residual is approximately e − hφ(e) + u for Gaussian e of variance 1, with an independent Gaussian u
                of variance (h − h²) E φ²
            (2) κ = E we² / E w; τᵢ solves E w(r/τ) ((r/τ)² − κ) = 0 for the residuals of (1)
            (3) σ_D solves Σ τᵢ² w(rᵢ/τᵢσ) ((rᵢ/τᵢσ)² − κ) = 0, by σ² ← Σ w r² / (κ Σ w τ²)
            (4) the covariance is σ_D² γ (JᵀWJ / mean w)⁻¹ with γ = n/(n − p) · mean τ²ψ(r/τσ)² / (mean ψ'(r/τσ))²
Deviations  τ is interpolated between 41 values of h.  With κ = 1 and w = 1, (3) and (4) are those of least squares.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

from asker.kernels.tuning import expectation, mean_slope

Floats = NDArray[np.float64]
N_NODES = 61
LEVERAGES = np.linspace(0.0, 0.99, 41)
MAX_STEPS = 200
RTOL = 1e-10


def influence(kernel: Any, e: Floats) -> Floats:
    """Return ωe, the derivative of the cost."""
    return kernel.omega(e * e) * e


def kappa(kernel: Any) -> float:
    """Return κ (2)."""
    return mean_slope(kernel) / expectation(lambda e: kernel.omega(e * e))


@cache
def _taus_of_leverages(kernel: Any) -> Floats:
    nodes, weights = hermegauss(N_NODES)
    e, z = np.meshgrid(nodes, nodes)
    density = np.outer(weights, weights) / (2 * np.pi)
    A, B, k = mean_slope(kernel), expectation(lambda e: influence(kernel, e) ** 2), kappa(kernel)
    taus = np.ones(len(LEVERAGES))
    for i, h in enumerate(LEVERAGES):
        r = e - h * influence(kernel, e) / A - np.sqrt((h - h * h) * B) / A * z  # (1)
        tau = taus[i - 1] if i else 1.0
        for _ in range(MAX_STEPS):  # (2), as a fixed point
            w = density * kernel.omega((r / tau) ** 2)
            new = float(np.sqrt(np.sum(w * r * r) / (k * np.sum(w))))
            if abs(new - tau) <= RTOL * tau:
                break
            tau = new
        taus[i] = tau
    return taus


def taus(kernel: Any, leverage: Floats) -> Floats:
    """Return τ of observations with these leverages."""
    return np.interp(leverage, LEVERAGES, _taus_of_leverages(kernel))


def leverages(J: Floats, weights: Floats) -> Floats:
    """Return the diagonal of the hat matrix of √w J."""
    Q, R = np.linalg.qr(np.sqrt(weights)[:, None] * J)
    size = np.abs(np.diag(R))
    Q = Q[:, size > np.finfo(float).eps * max(J.shape) * size.max(initial=0.0)]
    return np.clip(np.sum(Q * Q, axis=1), 0.0, 1.0)


def adaptive_scale(r: Floats, J: Floats, kernel: Any, sigma: float) -> float:
    """Return σ_D (3) for residuals of an M-estimate with scale `sigma`."""
    tau, k = taus(kernel, leverages(J, kernel.omega((r / sigma) ** 2))), kappa(kernel)
    for _ in range(MAX_STEPS):
        w = kernel.omega((r / (tau * sigma)) ** 2)
        new = float(np.sqrt(np.sum(w * r * r) / (k * np.sum(w * tau * tau))))
        if not new > 0 or abs(new - sigma) <= RTOL * sigma:
            break
        sigma = new
    return sigma


def robust_covariance(r: Floats, J: Floats, kernel: Any, sigma: float) -> Floats:
    """Return the covariance (4); infinite if the weighted derivatives do not have full rank."""
    n, p = J.shape
    w = kernel.omega((r / sigma) ** 2)
    tau = taus(kernel, leverages(J, w))
    e = r / (tau * sigma)
    u = e * e
    slope = float(np.mean(kernel.omega(u) + 2 * u * kernel.domega(u)))
    scaled = np.sqrt(w / np.mean(w))[:, None] * J
    _, s, Vt = np.linalg.svd(scaled, full_matrices=False)
    if n <= p or not slope > 0 or s[-1] <= np.finfo(float).eps * n * s[0]:
        return np.full((p, p), np.inf)
    gamma = n / (n - p) * float(np.mean((tau * influence(kernel, e)) ** 2)) / slope**2
    V = Vt.T / s
    return sigma**2 * gamma * (V @ V.T)
