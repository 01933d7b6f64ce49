"""Whether the residuals of a problem of few unknowns are noise, and nothing else: then no other solution is sought.

At a wrong solution, or among outliers, some residuals agree with each other.  With the derivatives J of the residuals r
at the solution, (n, p, d), and the noise of all of them, σ² = Σu/(n·p − d), laws hold in Gaussian noise.  Where
C = σ²(I − J(JᵀJ)⁻¹Jᵀ) is the covariance of the residuals,

Sizes       u/tr C_ii · p is distributed as χ² with p degrees of freedom.  Outliers are too large, and all others too
            small.  Kolmogorov's test (`asker.one_noise`).
Neighbours  ‖r_i − r_j‖²/tr(C_ii + C_jj − C_ij − C_ji) · p as well, also for the j whose derivatives are the nearest to
            those of i.  Where a curve is not the right one, neighbours are off by the same, and too many of these are
            small.  Fisher's test: with the share q of the distribution that lies below each, −2 Σ log q is χ² with 2n
            degrees of freedom; with n, after division by 2, since every residual is in two pairs.
Subsets     Of r + Jδ, with the δ that makes a few of them 0, no more are small than chance has it: `gains_of`
            (`asker.subsets`) exceeds log m in one of m subsets with a probability of 1/m at most.  Inliers among
            outliers agree with each other.
Start       That all are noise explains nothing as such.  So the start must be worse, by more than chance: the same gain
            of all n observations, beside their mean square at the start, exceeds log m.

They need no call of the function: many subsets cost what derivatives at one point do.

Fisher: Statistical Methods for Research Workers, 1925.
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.linear_model import dense_model
from asker.engines.point import Engine, Point
from asker.noise import FEW, TINY, Noise
from asker.one_noise import is_even
from asker.problem import Problem
from asker.subsets import AT_LEAST, SEEN, gains_of, n_unknowns
from asker.trials import drawn
from asker.variables import Slot

Floats = NDArray[np.float64]
CHANCE = 0.01
"""That neighbours are so much alike in noise alone."""
SMALLEST = 1e-12
"""Eigenvalues of JᵀJ below this part of the largest say nothing."""


def noise_alone(
    engine: Engine, point: Point, given: Sequence[Any], at_start: Sequence[float]
) -> tuple[Noise, ...] | None:
    """The noise of the factor group where all laws hold; None where they do not, where there are several groups, or
    where a kernel is given.  `at_start`: the mean square of a number at the start, for each group."""
    if len(engine.problem.factors) != 1 or given[0] is not None:
        return None
    rng, d, (f,) = np.random.default_rng(0), n_unknowns(engine), engine.problem.factors
    seen = np.sort(rng.choice(f.n, SEEN, replace=False)) if f.n > SEEN else np.arange(f.n)
    some = Problem(f.on([Slot(s.variables, s.index[seen]) for s in f.slots], seen))
    rows = dict(zip(engine.problem.variables, engine.rows(point), strict=True))
    r, J = dense_model(some, tuple(rows[v] for v in some.variables))
    spare = r.size - d
    if not (np.isfinite(r).all() and np.isfinite(J).all() and r.any()) or spare < FEW:
        return None
    sigma, root = sqrt(np.vdot(r, r) / spare), _root(J)
    r, before = r / sigma, at_start[0] / sigma**2
    is_noise = _is_better(before, len(r), r.size, d) and _are_noise(r, root) and not _are_alike(r, root)
    return (Noise(sigma, 1.0, spare),) if is_noise and not _some_agree(r, J, d, rng) else None


def _is_better(before: float, n: int, numbers: int, d: int) -> bool:
    """Than the start, whose mean square is so many times the noise."""
    return (numbers - d) / 2 * log(before) - log(n) > log(AT_LEAST)


def _root(J: Floats) -> Floats:
    """J(JᵀJ)^-½, up to a rotation"""
    n, p, d = J.shape
    U, s, _ = np.linalg.svd(J.reshape(n * p, d), full_matrices=False)
    return (U * (s > SMALLEST * s.max())).reshape(n, p, -1)


def _are_noise(r: Floats, root: Floats) -> bool:
    left = r.shape[1] - np.einsum("npd,npd->n", root, root)
    return is_even(_chi_square(r, left), np.full(np.count_nonzero(left > SMALLEST), r.shape[1]))


def _are_alike(r: Floats, root: Floats) -> bool:
    from scipy.special import chdtr, chdtrc

    n, p = r.shape
    flat = root.reshape(n, -1)
    lengths = np.einsum("nk,nk->n", flat, flat)
    distances = np.maximum(lengths[:, None] + lengths - 2 * flat @ flat.T, 0.0)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    q = chdtr(p, _chi_square(r - r[nearest], 2 * p - distances[np.arange(n), nearest]))
    return chdtrc(len(q), -np.log(np.maximum(q, TINY)).sum()) < CHANCE


def _chi_square(r: Floats, variances: Floats) -> Floats:
    """‖r‖² with p degrees of freedom; without those of which nothing is left."""
    tells = variances > SMALLEST
    return np.einsum("np,np->n", r, r)[tells] / variances[tells] * r.shape[1]


def _some_agree(r: Floats, J: Floats, d: int, rng: np.random.Generator) -> bool:
    n, p = r.shape
    for size in (-(-d // p), -(-d // p) + 1):
        subsets = drawn(rng, np.full(AT_LEAST // 2, n), size)
        A, b = (x[subsets].reshape(len(subsets), size * p, -1) for x in (J, r))
        H = A.swapaxes(1, 2) @ A
        H += (SMALLEST * np.trace(H, axis1=1, axis2=2)[:, None, None] + TINY) * np.eye(H.shape[1])
        delta = -np.linalg.solve(H, A.swapaxes(1, 2) @ b)  # (m, d, 1)
        moved = r + (delta[..., 0] @ J.reshape(n * p, -1).T).reshape(-1, n, p)
        gains, _ = gains_of(np.einsum("mnp,mnp->mn", moved, moved), p, d, 1.0)
        if gains.max() > log(AT_LEAST):
            return True
    return False
