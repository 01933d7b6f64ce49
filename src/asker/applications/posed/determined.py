"""Sets of images whose relative poses the inliers determine.

An image is determined by points that at least two other images of its set determine.  Three points give its pose
(P3P), and each further inlier confirms it.  A wrong pose has a further inlier if a wrong match, which lies on its
epipolar line, lies within the inlier limit by chance.  An image with m such observations and s inliers is accepted if
the expected number of subsets as good, among all of them, is below `CHANCE` (a contrario):

    NFA = C(m, 3) C(m − 3, s − 3) p^(s − 3) < CHANCE,    p = 2 limit / height
"""

import numpy as np

CHANCE = 1e-3
N_MINIMAL = 3
N_MINIMAL_PAIR = 5
"""Matches that determine the relative pose of the first two images of a set."""


def determined_sets(
    image: np.ndarray, point: np.ndarray, inliers: np.ndarray, n_images: int, p: float
) -> list[np.ndarray]:
    """Return the sets of images with determined relative poses, the largest first; each has two or more images.

    Parameters
    ----------
    image, point
        The image and the point of each observation.
    inliers
        The mask of the inliers.
    n_images
        The number of images.
    p
        The probability that a wrong match is an inlier.
    """
    from scipy.sparse import csr_array

    n_points = int(point.max()) + 1 if len(point) else 0
    shape = (n_images, n_points)
    seen = csr_array((np.ones(len(image)), (image, point)), shape=shape)
    good = csr_array((inliers.astype(float), (image, point)), shape=shape)
    shared = (good @ good.T).toarray()
    np.fill_diagonal(shared, 0)
    free, sets = np.ones(n_images, dtype=bool), []
    while True:
        candidates = np.where(free[:, None] & free[None], shared, 0)
        if candidates.max(initial=0) < 1:
            break
        first = np.unravel_index(candidates.argmax(), candidates.shape)
        pair_total = (seen[[first[0]]] @ seen[[first[1]]].T).toarray()[0, 0]
        if not _accepted(pair_total, candidates.max(), p, N_MINIMAL_PAIR):
            break
        members = np.zeros(n_images, dtype=bool)
        members[list(first)] = True
        members = _grown(seen, good, members, free, p)
        sets.append(np.flatnonzero(members))
        free &= ~members
    return sorted(sets, key=len, reverse=True)


def _grown(seen: np.ndarray, good: np.ndarray, members: np.ndarray, free: np.ndarray, p: float) -> np.ndarray:
    """Return the members after adding all images that they determine, one round after another."""
    while True:
        usable = (members.astype(float) @ good >= 2).astype(float)
        m, s = seen @ usable, good @ usable
        new = np.array(
            [bool(f and not k and _accepted(a, b, p)) for f, k, a, b in zip(free, members, m, s, strict=True)]
        )
        if not new.any():
            return members
        members = members | new


def _accepted(m: float, s: float, p: float, minimal: int = N_MINIMAL) -> bool:
    """Return True if s inliers of m observations are more than chance explains."""
    from scipy.special import gammaln

    if s <= minimal:
        return False

    def log_choose(n: float, k: float) -> float:
        return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    return log_choose(m, minimal) + log_choose(m - minimal, s - minimal) + (s - minimal) * np.log(p) < np.log(CHANCE)
