"""The motion that takes one set of points nearest to another, and what is left between them."""

import numpy as np

Fit = tuple[float, np.ndarray, np.ndarray]
"""s, R, t of a similarity X -> s R X + t."""
TRIPLES, ROUNDS = 500, 20
"""Of `robust_similarity`: triples, and rounds of reweighting."""


def nearest_rotation(M: np.ndarray) -> tuple[np.ndarray, float]:
    """The rotation R with the largest trace(RᵀM), no mirror image, and that trace (Procrustes)."""
    U, D, Vt = np.linalg.svd(M)
    sign = np.ones(len(D))
    sign[-1] = np.linalg.det(U @ Vt)
    return U * sign @ Vt, float(D @ sign)


def similarity(source: np.ndarray, target: np.ndarray, scale: bool = True, weights: np.ndarray | None = None) -> Fit:
    """s, R, t with target ≈ s R source + t in least squares (Umeyama, PAMI 1991); rows are points in 2-D or 3-D.

    scale    False for a rigid motion, s = 1
    weights  (n,) of the squares; 1 when not given
    """
    w = np.ones((len(source), 1)) if weights is None else weights[:, None]
    a, b = ((w * x).sum(axis=0) / w.sum() for x in (source, target))
    R, trace = nearest_rotation((w * (target - b)).T @ (source - a))
    if not scale:
        return 1.0, R, b - R @ a
    s = trace / (w * (source - a) ** 2).sum()
    return float(s), R, b - s * R @ a


def robust_similarity(source: np.ndarray, target: np.ndarray, scale: bool = True, seed: int = 0) -> Fit:
    """A similarity that fits more than half of the points, (n, 3), n ≥ 3.

    That of the triple whose median distance is the least (Rousseeuw: Least Median of Squares Regression, JASA 1984),
    then reweighted with Cauchy's weights, as wide as the median.
    """
    n, rng = len(source), np.random.default_rng(seed)
    triples = np.argsort(rng.random((TRIPLES, n)), axis=1)[:, :3] if n > 3 else np.arange(3)[None]
    fits = [similarity(source[three], target[three], scale) for three in triples]
    medians = [np.median(distances(fit, source, target)) for fit in fits]
    fit = fits[int(np.nanargmin(np.where(np.isfinite(medians), medians, np.inf)))]
    for _ in range(ROUNDS):
        d = distances(fit, source, target)
        width = max(float(np.median(d)), 1e-12 * float(np.abs(target).max()), 1e-300)
        fit = similarity(source, target, scale, 1 / (1 + (d / width) ** 2))
    return fit


def distances(fit: Fit, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(n,): how far each point of `source` ends from its `target`."""
    s, R, t = fit
    return np.linalg.norm(s * source @ R.T + t - target, axis=1)


def trajectory_error(found: np.ndarray, truth: np.ndarray, scale: bool = False) -> float:
    """The absolute trajectory error of positions (n, 2) or (n, 3): their root mean square after a rigid alignment.

    scale: by a similarity instead, where the scale of `found` is not known
    """
    s, R, t = similarity(found, truth, scale=scale)
    return float(np.sqrt(((s * found @ R.T + t - truth) ** 2).sum(axis=1).mean()))
