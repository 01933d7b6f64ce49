"""Alternation of bundle adjustment, new tracks and triangulation, until nothing is gained.

(1) Bundle adjustment with unknown noise; if it cannot be estimated, the noise is that of the epipolar distances.
(2) Matches are joined into tracks again, first those within the inlier limit of the epipolar lines of the solved
    poses, which splits and merges the previous tracks, and these are triangulated.  Only gross outliers are left out:
    the noise of a distribution that is truncated at the limit could not be estimated.
(3) If that gives more inliers than chance explains, continue with (1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import asker
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.options import Refine
from asker.applications.colmap.refine import ColmapOutcome
from asker.applications.colmap.refine import refine as adjust
from asker.applications.outcome import Say
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.correspondences.tracks import Tracks, join
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.scene import (
    epipolar_distances,
    in_track_order,
    norms_of,
    relative_pose_distances,
    triangulated,
    with_solution,
)
from asker.statistics.inliers import inlier_radius
from asker.statistics.noise import TAU_PER_SIGMA

MAX_ROUNDS = 6
EPIPOLAR_ROUNDS = 3
MEDIAN_TO_SIGMA = 1.4826
"""Ratio of the standard deviation of a Gaussian variable and the median of its absolute value."""
INLIER_RADIUS = inlier_radius(2, 1.0)
"""Largest error of an inlier relative to the noise, for the two coordinates of a feature."""
GROSS = 10.0
"""Distance of a gross outlier, relative to the inlier limit or to the noise."""
VERIFICATION_LIMIT = 4.0
"""Pixels; the limit of COLMAP's verification of matches, below which none is a gross outlier."""
MIN_NOISE = 1e-3
"""Pixels."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Poses and intrinsics after bundle adjustment, with the tracks that were adjusted."""

    posed: PosedImages
    tracks: Tracks
    inliers: np.ndarray
    """(n_observations,): the mask of inliers in the order of the tracks."""
    limit: float
    """Pixels; the largest error of an inlier."""

    @property
    def n_inliers(self) -> int:
        return int(self.inliers.sum())


@dataclass(frozen=True, eq=False)
class Solution(Fit):
    """The result of bundle adjustment without a prior."""

    outcome: ColmapOutcome
    n_rounds: int = 1


def settle(
    posed: PosedImages, matches: Matches, tracks: Tracks, say: Say, refine: Refine = "poses", **limits: Any
) -> Solution:
    """Return the solution from a start.

    Parameters
    ----------
    posed
        The start.
    matches
        The matches to join.
    tracks
        The first tracks, which do not depend on the start.
    say
        Receives progress messages.
    refine
        The free parameters besides points, as in `colmap.refine`.
    **limits
        Arguments of `asker.solve`.
    """
    solution = solved(posed, matches, tracks, refine, **limits)
    for k in range(1, MAX_ROUNDS):
        new = rejoined(solution, matches)
        model, kept = triangulated(solution.posed, matches, new)
        near = norms_of(solution.posed, matches, kept, model.points.xyz) <= solution.limit
        gain = int(near.sum()) - solution.n_inliers
        if gain <= np.sqrt(solution.n_inliers):
            break
        say(f"round {k + 1}: {gain} more observations")
        better = solved(solution.posed, matches, new, refine, **limits)
        if better.n_inliers <= solution.n_inliers:
            break
        solution = replace(better, n_rounds=k + 1)
    return solution


def solved(
    posed: PosedImages,
    matches: Matches,
    tracks: Tracks,
    refine: Refine = "poses",
    hold: Sequence[str] = (),
    **limits: Any,
) -> Solution:
    """Return the solution of one bundle adjustment, from points triangulated with the poses."""
    model, kept = triangulated(posed, matches, tracks)
    if not kept.n:
        raise ValueError("no point can be triangulated: the poses and the matches do not agree anywhere")
    outcome = _adjusted(model, refine=refine, hold=hold, **limits)
    limit = outcome.record["inlier_radius"]
    if limit is not None:
        inliers = in_track_order(matches, kept, outcome.inliers)
        return Solution(with_solution(posed, outcome.model), kept, inliers, float(limit), outcome)
    for _ in range(EPIPOLAR_ROUNDS):
        sigma = epipolar_noise(with_solution(posed, outcome.model), matches)
        outcome = _adjusted(outcome.model, **_kernel(sigma), refine=refine, hold=hold, **limits)
    near = in_track_order(matches, kept, outcome.norms) <= INLIER_RADIUS * sigma
    return Solution(with_solution(posed, outcome.model), kept, near, INLIER_RADIUS * sigma, outcome)


def _adjusted(model: ColmapModel, **settings: Any) -> ColmapOutcome:
    """Return the outcome of bundle adjustment; an interrupt ends the refinement, of which it is a part."""
    outcome = adjust(model, **settings)
    if outcome.result.status is asker.Status.INTERRUPTED:
        raise KeyboardInterrupt
    return outcome


def locally_solved(
    posed: PosedImages, matches: Matches, tracks: Tracks, sigma: float, refine: Refine = "poses", **limits: Any
) -> Solution:
    """Return the local solution near the given poses for known noise, without a search for other solutions."""
    model, kept = triangulated(posed, matches, tracks)
    outcome = _adjusted(model, **_kernel(sigma), refine=refine, **limits)
    limit = INLIER_RADIUS * sigma
    near = in_track_order(matches, kept, outcome.norms) <= limit
    return Solution(with_solution(posed, outcome.model), kept, near, limit, outcome)


def _kernel(sigma: float) -> dict[str, Any]:
    return {"method": "irls", "kernel": "smooth-truncated", "tau": TAU_PER_SIGMA * sigma}


def epipolar_noise(posed: PosedImages, matches: Matches) -> float:
    """Return the noise of a feature in pixels, from the median distance of matches from their epipolar lines.

    It replaces the noise of reprojection errors, which cannot be estimated if most points have two observations only.
    """
    distance = epipolar_distances(posed, matches, *matches.features.T)
    return max(float(MEDIAN_TO_SIGMA * np.median(distance)), MIN_NOISE)


def rejoined(solution: Fit, matches: Matches) -> Tracks:
    """Return the tracks of matches, joined anew with the epipolar geometry of a solution, without gross outliers."""
    distance = epipolar_distances(solution.posed, matches, *matches.features.T)
    near = distance <= GROSS * solution.limit
    return join(matches.taken(near), (distance <= solution.limit)[near])


def verified(posed: PosedImages, matches: Matches) -> Matches:
    """Return the matches without those that are gross outliers of the relative poses of their pairs."""
    distance = relative_pose_distances(posed, matches)
    known = distance > 0
    sigma = MEDIAN_TO_SIGMA * float(np.median(distance[known])) if known.any() else 0.0
    return matches.taken(distance <= max(VERIFICATION_LIMIT, GROSS * sigma))
