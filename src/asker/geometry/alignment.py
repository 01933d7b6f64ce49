"""Alignment of point sets by rigid motions and similarities, and the remaining distances."""

import numpy as np

Fit = tuple[float, np.ndarray, np.ndarray]
"""Similarity (s, R, t): X -> s R X + t."""
N_TRIPLES, REWEIGHTING_ROUNDS = 500, 20
"""Numbers of minimal samples and of rounds of reweighting in `robust_similarity`."""


def nearest_rotation(M: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the rotation R that maximises trace(RᵀM), and this trace (orthogonal Procrustes problem, det R = 1)."""
    U, D, Vt = np.linalg.svd(M)
    sign = np.ones(len(D))
    sign[-1] = np.linalg.det(U @ Vt)
    return U * sign @ Vt, float(D @ sign)


def similarity(source: np.ndarray, target: np.ndarray, scale: bool = True, weights: np.ndarray | None = None) -> Fit:
    """Return the least-squares similarity (s, R, t) with target ≈ s R source + t (Umeyama, PAMI 1991).

    Parameters
    ----------
    source, target
        Corresponding points, (n, 2) or (n, 3).
    scale
        Whether to estimate the scale; False for a rigid motion, s = 1.
    weights
        Weights (n,) of the squared distances; by default 1.
    """
    w = np.ones((len(source), 1)) if weights is None else weights[:, None]
    a, b = ((w * x).sum(axis=0) / w.sum() for x in (source, target))
    R, trace = nearest_rotation((w * (target - b)).T @ (source - a))
    if not scale:
        return 1.0, R, b - R @ a
    s = trace / (w * (source - a) ** 2).sum()
    return float(s), R, b - s * R @ a


def robust_similarity(source: np.ndarray, target: np.ndarray, scale: bool = True, seed: int = 0) -> Fit:
    """Return a similarity that is robust to outliers in less than half of the points, (n, 3), n ≥ 3.

    The initial estimate is that of the triple with the least median distance (Rousseeuw: Least Median of Squares
    Regression, JASA 1984).  It is refined by reweighting with Cauchy's weights, whose width is the median distance.
    """
    n, rng = len(source), np.random.default_rng(seed)
    triples = np.argsort(rng.random((N_TRIPLES, n)), axis=1)[:, :3] if n > 3 else np.arange(3)[None]
    fits = [similarity(source[three], target[three], scale) for three in triples]
    medians = [np.median(distances(fit, source, target)) for fit in fits]
    fit = fits[int(np.nanargmin(np.where(np.isfinite(medians), medians, np.inf)))]
    for _ in range(REWEIGHTING_ROUNDS):
        d = distances(fit, source, target)
        width = max(float(np.median(d)), 1e-12 * float(np.abs(target).max()), 1e-300)
        fit = similarity(source, target, scale, 1 / (1 + (d / width) ** 2))
    return fit


def distances(fit: Fit, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the distance (n,) of each transformed point of `source` to its `target`."""
    s, R, t = fit
    return np.linalg.norm(s * source @ R.T + t - target, axis=1)


def trajectory_error(estimate: np.ndarray, truth: np.ndarray, scale: bool = False) -> float:
    """Return the absolute trajectory error: the root mean square distance to the true positions after alignment.

    Parameters
    ----------
    estimate, truth
        Positions, (n, 2) or (n, 3).
    scale
        Whether to align by a similarity, for estimates of unknown scale; by default a rigid motion.
    """
    s, R, t = similarity(estimate, truth, scale=scale)
    return float(np.sqrt(((s * estimate @ R.T + t - truth) ** 2).sum(axis=1).mean()))
