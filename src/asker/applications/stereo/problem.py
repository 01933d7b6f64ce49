"""Dense stereo: a robust energy over the disparity of every pixel of two rectified images.

Le, Zach: A Graduated Filter Method for Large Scale Robust Estimation, CVPR 2020, Section 6.2:

    Σ_p (η Σ_k ψ_data(d_p − d̂_pk) + Σ_q ψ_reg(d_p − d_q))

d̂_pk are the K lowest local minima of the matching cost along d, refined by a parabola; q are the four neighbours, with
each pair counted once.  The paper states neither the matching cost nor K nor τ: see `Matching` for our choice.
"""

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from asker.applications.stereo.matching import Matching, Minima, match
from asker.applications.stereo.options import Start
from asker.kernels.kernel import Kernel
from asker.kernels.kernels import SmoothTruncated
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Problem, ProblemError, Variables
from asker.tracing.array_namespace import Array

TAU = 1.0
"""Kernel width in pixels.  Window, K and τ are those with the fewest bad pixels in benchmarks/stereo.py."""


@dataclass(frozen=True, eq=False)
class StereoProblem:
    """Energy over the disparities of an image."""

    problem: Problem
    disparity: Variables
    """One value per pixel, row by row."""
    minima: Minima

    def refined(self, values: Groups[np.ndarray]) -> np.ndarray:
        """Return the disparities of a solution as an image."""
        return values[self.disparity].reshape(self.minima.winner.shape)


def stereo_problem(left: np.ndarray, right: np.ndarray, matching: Matching, **more: Any) -> StereoProblem:
    """Return the energy of two rectified grey images (H, W); further arguments are those of `energy`."""
    return energy(match(left, right, matching), matching.max_disparity, **more)


def energy(
    minima: Minima,
    max_disparity: float,
    start: Start | np.ndarray = "constant",
    eta: float = 4.0,
    data_kernel: Kernel | None = None,
    smoothness_kernel: Kernel | None = None,
    seed: int = 0,
) -> StereoProblem:
    """Create the energy for given minima of the matching cost.

    Parameters
    ----------
    minima
        Local minima of the matching cost.
    max_disparity
        Largest disparity, in pixels.
    start
        Initial disparities: "constant" (the middle of the range), "wta" (the lowest matching cost), "random", or an
        image.
    eta
        Weight η of the data terms.
    data_kernel, smoothness_kernel
        ψ_data and ψ_reg; smooth truncated with τ = 1 by default.
    seed
        Seed for random initial disparities.

    Raises
    ------
    ProblemError
        If no pixel has a local minimum, or `start` is invalid.
    """
    height, width, _ = minima.disparity.shape
    disparity = Variables(_start(start, minima, max_disparity, seed).reshape(-1, 1), name="disparity")
    number = np.arange(height * width).reshape(height, width)
    matched = np.isfinite(minima.disparity)
    if not matched.any():
        raise ProblemError("no pixel has a local minimum of the matching cost: the images may lack texture")
    pixel = np.broadcast_to(number[..., None], matched.shape)[matched]

    def minimum_difference(d: Array, minimum: Array) -> Array:
        return d - minimum

    def neighbour_difference(d: Array, neighbour: Array) -> Array:
        return d - neighbour

    data = Factors(
        minimum_difference,
        disparity[pixel],
        data=minima.disparity[matched],
        kernel=data_kernel or SmoothTruncated(TAU),
        weight=np.full(len(pixel), float(eta)),
        name="data",
    )
    before = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    after = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    smoothness = Factors(
        neighbour_difference,
        disparity[before],
        disparity[after],
        kernel=smoothness_kernel or SmoothTruncated(TAU),
        name="smoothness",
    )
    return StereoProblem(Problem(data, smoothness), disparity, minima)


def _start(start: Start | np.ndarray, minima: Minima, max_disparity: float, seed: int) -> np.ndarray:
    shape = minima.winner.shape
    if isinstance(start, np.ndarray):
        if start.shape != shape:
            raise ProblemError(f"the start has shape {start.shape}, expected {shape}")
        return start.astype(float)
    if start == "constant":
        return np.full(shape, max_disparity / 2)
    if start == "wta":
        return minima.winner
    if start == "random":
        return np.random.default_rng(seed).uniform(0, max_disparity, shape)
    raise ProblemError(f"start must be one of {', '.join(get_args(Start))}, not {start!r}")
