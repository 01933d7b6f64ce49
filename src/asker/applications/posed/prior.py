"""Bundle adjustment with the given poses as a weak prior, whose scale is estimated.

Few matches leave some directions of the poses open, in which the given poses are more accurate than the data.

Problem     max over poses T, points X and scales s of  p(matches | T, X) Π N(centre of T − given centre; s_c² I)
            N(rotation of T relative to the given one; s_r² I)
Algorithm   (1) Initial scales from the epipolar distances of the matches at the given poses, half of them due to each
            (2) Adjustment with constant scales; the kernel shrinks from the width of the errors to that of the noise
            (3) Expectation maximisation: s² is the mean of the squared deviation and of the posterior variance
            (4) Repeat (2) and (3) until the scales converge
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.options import Refine
from asker.applications.colmap.problem import ColmapProblem, colmap_problem
from asker.applications.colmap.reprojection_error import reprojection_norms
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.correspondences.tracks import Tracks
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.scene import (
    epipolar_distances,
    focal_lengths,
    in_track_order,
    triangulated,
    with_solution,
)
from asker.applications.posed.settle import INLIER_RADIUS, Fit
from asker.applications.uncertainty import centre_covariances
from asker.geometry.manifolds import Pose
from asker.problem.variables import ProblemError
from asker.statistics.noise import TAU_PER_SIGMA
from asker.tracing.array_namespace import Array

EM_ROUNDS, EM_TOL = 6, 0.05
"""Largest number of rounds, and the relative change of the scales at which they end."""
ITERATIONS = 30
"""Iterations of each adjustment."""
MIN_TRACE = 1e-12


@dataclass(frozen=True)
class PriorScales:
    """Standard deviations of the errors of the given poses along each axis."""

    centre: float
    rotation: float
    """Radians."""


@dataclass(frozen=True, eq=False)
class PriorSolution:
    """The solution with a prior."""

    fit: Fit
    xyz: np.ndarray
    """(n_points, 3): the points of the tracks."""
    scales: PriorScales
    objective: float
    """Negative logarithm of the posterior density, up to a constant."""
    errors: np.ndarray
    """(2, n_images): standard errors of centres, and of rotations in degrees."""


def initial_scales(given: PosedImages, matches: Matches, model: ColmapModel, sigma: float) -> PriorScales:
    """Return scales that explain the epipolar distances of the matches at the given poses, half by each kind."""
    distance = max(float(np.median(epipolar_distances(given, matches, *matches.features.T))), sigma)
    angle = distance / float(np.median(focal_lengths(given))) / np.sqrt(2)
    o = model.observations()
    depth = float(np.median(np.linalg.norm(model.points.xyz[o.point] - given.centres[o.image], axis=1)))
    return PriorScales(angle * depth, angle)


def solve_with_prior(
    given: PosedImages,
    starts: Sequence[PosedImages],
    matches: Matches,
    tracks: Tracks,
    sigma: float,
    refine: Refine,
    scales: PriorScales | None = None,
    **limits: Any,
) -> PriorSolution:
    """Return the most probable of the solutions from several starts.

    Parameters
    ----------
    given
        The images with the given poses, the mean of the prior.
    starts
        The images with initial poses.
    matches, tracks
        The matches, and the tracks joined from them.
    sigma
        The noise of a feature in pixels.
    refine
        The free parameters besides points, as in `colmap.refine`.
    scales
        Initial scales of the prior; by default `initial_scales`.
    **limits
        Arguments of `asker.solve`.
    """
    solutions = [_solved(given, start, matches, tracks, sigma, refine, scales, limits) for start in starts]
    return min(solutions, key=lambda one: one.objective)


def _solved(
    given: PosedImages,
    start: PosedImages,
    matches: Matches,
    tracks: Tracks,
    sigma: float,
    refine: Refine,
    scales: PriorScales | None,
    limits: dict[str, Any],
) -> PriorSolution:
    model, kept = triangulated(start, matches, tracks)
    scales = initial_scales(given, matches, model, sigma) if scales is None else scales
    norms = reprojection_norms(model)
    width = float(np.median(norms[np.isfinite(norms)])) if np.isfinite(norms).any() else sigma
    widths = [TAU_PER_SIGMA * sigma]
    while widths[0] < width:
        widths.insert(0, 2 * widths[0])
    for _ in range(EM_ROUNDS):
        for tau in widths:
            made, result = _adjusted(given, model, scales, sigma, tau, refine, limits)
            model = made.refined(result.values)
        widths = widths[-1:]
        posed = with_solution(start, model)
        centre, rotation = _variances(made, result, sigma, scales)
        new = _updated(given, posed, centre, rotation)
        change = max(abs(np.log(new.centre / scales.centre)), abs(np.log(new.rotation / scales.rotation)))
        scales = new
        if change < EM_TOL:
            break
    limit = INLIER_RADIUS * sigma
    inliers = in_track_order(matches, kept, reprojection_norms(model)) <= limit
    errors = np.stack([np.sqrt(centre), np.degrees(np.sqrt(rotation))])
    objective = result.cost / sigma**2 + 3 * len(given) * (np.log(scales.centre) + np.log(scales.rotation))
    return PriorSolution(Fit(posed, kept, inliers, limit), model.points.xyz, scales, float(objective), errors)


def _adjusted(
    given: PosedImages,
    model: ColmapModel,
    scales: PriorScales,
    sigma: float,
    tau: float,
    refine: Refine,
    limits: dict[str, Any],
) -> tuple[ColmapProblem, asker.Result]:
    """Return the problem with the prior and its solution for a kernel of a given width in pixels."""
    made = replace(colmap_problem(model, asker.SmoothTruncated(tau), refine), is_georeferenced=True)

    def deviation(pose: Pose, centre: Array, rotation: Array, factors: Array) -> Array:
        import jax.numpy as jnp

        E = pose.rotation @ rotation.T
        twice = jnp.stack([E[2, 1] - E[1, 2], E[0, 2] - E[2, 0], E[1, 0] - E[0, 1]])
        turn = twice / jnp.sqrt(jnp.maximum(1 + E[0, 0] + E[1, 1] + E[2, 2], MIN_TRACE))
        moved = -pose.rotation.T @ pose.translation - centre
        return jnp.concatenate([factors[0] * moved, factors[1] * turn])

    factors = np.tile([sigma / scales.centre, sigma / scales.rotation], (len(given), 1))  # noise `sigma`, in pixels
    data = given.centres, np.ascontiguousarray(given.poses[:, :, :3]), factors
    index = np.arange(len(given))
    prior = asker.Factors(deviation, made.poses[index], data=data, kernel=asker.Quadratic(), name="given poses")
    problem = asker.Problem(*made.problem.factors, prior)
    limits = {"max_iterations": ITERATIONS} | limits
    return made, asker.solve(problem, asker.IRLS(), relative_damping=made.relative_damping, **limits)


def _variances(
    made: ColmapProblem, result: asker.Result, sigma: float, scales: PriorScales
) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior variances, summed over the axes, of centres and rotations (radians²), (n,) each.

    Where they cannot be computed, they are those of the prior.
    """
    poses = result[made.poses]
    try:
        C = result.uncertainty(sigma=sigma).covariance(made.poses).blocks
    except ProblemError:  # rounding errors dominate
        C = np.full((len(poses), 6, 6), np.nan)
    centre = np.einsum("nqq->n", centre_covariances(poses, C))
    rotation = np.einsum("nqq->n", C[:, 3:, 3:])
    each = (centre, scales.centre), (rotation, scales.rotation)
    centre, rotation = (np.where(np.isfinite(x), np.maximum(x, 0.0), 3 * s**2) for x, s in each)
    return centre, rotation


def _updated(given: PosedImages, posed: PosedImages, centre: np.ndarray, rotation: np.ndarray) -> PriorScales:
    """Return the scales that maximise the expected likelihood of the deviations from the given poses."""
    moved = ((posed.centres - given.centres) ** 2).sum(axis=1)
    turned = ((posed.poses[:, :, :3] - given.poses[:, :, :3]) ** 2).sum(axis=(1, 2)) / 2
    return PriorScales(*(float(np.sqrt(x.mean() / 3)) for x in (moved + centre, turned + rotation)))
