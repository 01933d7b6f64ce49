"""Rotation averaging as a `Problem`, synthetic rotations, and `refine`.

The residual of a pair is 2 sin(θ/2) times the axis of E = R R_i R_jᵀ, in degrees: its norm is the angle θ if that is
small, and always that of (R_j − R R_i)/√2.  It has three components, like the noise of a rotation.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import asker
from asker.applications.outcome import (
    MethodRequest,
    Outcome,
    compilations,
    finite_or_none,
    inlier_radii,
    noise_record,
    solve_record,
    solve_succeeded,
)
from asker.applications.rotation_averaging.files import RelativeRotations, Rotations
from asker.applications.uncertainty import DataCovariances
from asker.geometry.gauge import median_rotation
from asker.geometry.rotations import matrix_from_angle_axis, matrix_from_quaternion
from asker.tracing.array_namespace import Array
from asker.uncertainty.covariance import Uncertainty

TAU = 5.0
"""Default kernel width in degrees."""
DEGREES = np.degrees(1)
MIN_TRACE = 1e-12
"""Lower bound of 1 + tr E, which is 0 at θ = 180°, where the axis is not unique."""


@dataclass(frozen=True, eq=False)
class AveragingProblem:
    """Relative rotations, their `Problem` and its variables."""

    data: RelativeRotations
    problem: asker.Problem
    rotations: asker.Variables

    def refined(self, values: Any) -> Rotations:
        """Return the absolute rotations of a solution."""
        return Rotations(self.data.names, values[self.rotations])


def averaging_problem(data: RelativeRotations, kernel: asker.Kernel | None = None) -> AveragingProblem:
    """Create the problem of rotation averaging.

    The first rotation is constant, which fixes the gauge.

    Parameters
    ----------
    data
        Relative rotations.
    kernel
        Kernel of the errors in degrees; by default, their noise scale is estimated.
    """
    R = asker.Variables(data.start(), asker.SO3, fixed=np.arange(len(data.names)) == 0, name="rotations")

    def difference(Ri: Array, Rj: Array, Rij: Array) -> Array:
        import jax.numpy as jnp

        E = Rij @ Ri @ Rj.T
        twice = jnp.stack([E[2, 1] - E[1, 2], E[0, 2] - E[2, 0], E[1, 0] - E[0, 1]])  # 2 sin θ
        return DEGREES * twice / jnp.sqrt(jnp.maximum(1 + E[0, 0] + E[1, 1] + E[2, 2], MIN_TRACE))

    slots = R[data.i], R[data.j]
    factors = asker.Factors(difference, *slots, data=data.matrices, kernel=kernel, weight=data.weights, name="pairs")
    return AveragingProblem(data, asker.Problem(factors), R)


def make_rotations(
    n: int = 60, n_pairs: int | None = None, noise: float = 1.5, outlier_ratio: float = 0.2, seed: int = 0
) -> RelativeRotations:
    """Generate random rotations and relative rotations with outliers.

    Parameters
    ----------
    n
        Number of rotations.
    n_pairs
        Number of relative rotations; 15 n by default, or all pairs if these are fewer.
    noise
        Standard deviation of the noise, in degrees per axis.
    outlier_ratio
        Fraction of the pairs that are replaced by uniformly distributed rotations.
    seed
        Seed of the random number generator.

    Raises
    ------
    ValueError
        If an argument is out of range, or the pairs are too few to connect all rotations or more than there are.
    """
    max_pairs = n * (n - 1) // 2
    n_pairs = min(15 * n, max_pairs) if n_pairs is None else n_pairs
    if n < 2 or not n - 1 <= n_pairs <= max_pairs or not 0 <= outlier_ratio < 1 or not 0 <= noise < 180:
        settings = f"n={n}, n_pairs={n_pairs}, noise={noise:g}, outlier_ratio={outlier_ratio:g}"
        limits = "n ≥ 2, n − 1 ≤ n_pairs ≤ n (n − 1) / 2, 0 ≤ noise < 180 and 0 ≤ outlier_ratio < 1"
        raise ValueError(f"{settings}, but must satisfy {limits}")
    rng = np.random.default_rng(seed)
    truth = matrix_from_quaternion(rng.normal(size=(n, 4)))
    code = np.arange(n - 1) * (n + 1) + 1  # pairs (k, k + 1), which connect all rotations
    while len(code) < n_pairs:
        a, b = np.sort(rng.integers(n, size=(2, 2 * n_pairs)), axis=0)
        code = np.concatenate([code, (a * n + b)[a < b]])
        code = code[np.sort(np.unique(code, return_index=True)[1])]
    i, j = np.divmod(code[:n_pairs], n)
    errors = matrix_from_angle_axis(np.radians(noise) * rng.normal(size=(n_pairs, 3)))
    R = truth[j] @ truth[i].transpose(0, 2, 1) @ errors
    outliers = rng.permutation(n_pairs) < int(outlier_ratio * n_pairs)
    R[outliers] = matrix_from_quaternion(rng.normal(size=(outliers.sum(), 4)))
    return RelativeRotations(tuple(map(str, range(n))), i, j, R, np.ones(n_pairs), truth, outliers)


def residual_norms(data: RelativeRotations, R: np.ndarray) -> np.ndarray:
    """Return the residual norm of each pair, (n_pairs,), in degrees, for rotations R (n, 3, 3)."""
    return DEGREES * np.linalg.norm(R[data.j] - data.matrices @ R[data.i], axis=(1, 2)) / np.sqrt(2)


def angle_errors(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the errors of rotations, (n,), in degrees, after alignment with the true ones by a common rotation."""
    aligned = estimate @ median_rotation(truth, estimate).T
    return np.degrees(2 * np.arcsin(np.clip(np.linalg.norm(aligned - truth, axis=(1, 2)) / np.sqrt(8), 0, 1)))


def data_covariances(data: RelativeRotations, result: asker.Result) -> DataCovariances:
    """Return the covariances of rotations as tangent vectors, in radians²; the first rotation is constant."""

    def arrays(uncertainty: Uncertainty) -> dict[str, np.ndarray]:
        return {"rotation_covariances": uncertainty.covariance("rotations").blocks}

    return DataCovariances(result, arrays, ["rotations"], {"names": data.names})


def refine(
    data: RelativeRotations, method: str | None = None, kernel: str | None = None, tau: Any = None, **limits: Any
) -> Outcome:
    """Estimate absolute rotations, as `asker solve` does.

    Parameters
    ----------
    data
        Relative rotations.
    method
        One of `asker.METHODS`.
    kernel
        One of `asker.KERNELS`, with parameters as in "barron:alpha=-2".
    tau
        Width of the kernel in degrees.  Without method, kernel and τ, the noise scale is estimated.
    limits
        Further keyword arguments of `asker.solve`.

    Returns
    -------
    Outcome
        `refined` are the absolute rotations.
    """
    request = MethodRequest(method, kernel, tau)
    psi = request.psi(TAU)
    with compilations() as compiled:
        made = averaging_problem(data, psi)
        result = asker.solve(made.problem, request.strategy(psi), **limits)
    record = {"n_rotations": len(data.names), "n_pairs": len(data.i), **request.record(result)}
    (radius,) = map(finite_or_none, inlier_radii(result))
    record |= {"inlier_radius": radius, "inlier_ratio": result.inlier_ratio, "noise": noise_record(result)}
    record |= {"compiled": len(compiled)} | solve_record(result)
    return Outcome(
        result,
        lambda: record,
        solve_succeeded(result),
        lambda: made.refined(result.values),
        make_covariances=partial(data_covariances, data, result),
    )
