"""Held-out observations: they take no part in the refinement and judge its result.

One observation of a track with three or more may be held out; the others triangulate its point with the poses to judge,
and the point predicts it.  A track of two observations may be held out as a whole; the error is then the
distance from the epipolar line.  Starts and results are judged by the same features.
"""

from dataclasses import dataclass

import numpy as np

from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.correspondences.tracks import Tracks
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.scene import epipolar_distances, norms_of, points_of

SHARE = 0.1
"""The fraction of the observations to hold out."""
LEVEL = 0.01
"""The probability that a result no better than the start is accepted."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Observations that are held out."""

    feature: np.ndarray
    """(h,): the held-out features."""
    track: np.ndarray
    """(h,): the number of the track of each."""
    rest: Tracks
    """All tracks, without the held-out features."""

    def training(self, matches: Matches) -> np.ndarray:
        """Return the mask of the matches without a held-out feature, (n_matches,)."""
        held = np.zeros(len(matches.xys), dtype=bool)
        held[self.feature] = True
        return ~held[matches.features].any(axis=1)

    def norms(self, posed: PosedImages, matches: Matches) -> np.ndarray:
        """Return the prediction errors in pixels (h,) under given poses; infinite where nothing is predicted."""
        if not len(self.feature):
            return np.zeros(0)
        out = np.full(len(self.feature), np.inf)
        length = np.bincount(self.rest.point, minlength=self.track.max() + 1)
        first = np.searchsorted(self.rest.point, self.track)
        alone = length[self.track] == 1
        out[alone] = epipolar_distances(posed, matches, self.rest.feature[first[alone]], self.feature[alone])
        long = np.flatnonzero(length[self.track] > 1)
        if len(long):
            wanted = np.full(len(length), -1)
            wanted[self.track[long]] = np.arange(len(long))
            of = wanted[self.rest.point] >= 0
            number = wanted[self.rest.point[of]]
            by = np.argsort(number, kind="stable")
            xyz = points_of(posed, matches, Tracks(self.rest.feature[of][by], number[by]))
            out[long] = norms_of(posed, matches, Tracks(self.feature[long], np.arange(len(long))), xyz)
        return out


def hold_out(tracks: Tracks, seed: int = 0, share: float = SHARE) -> HeldOut:
    """Return a random choice of observations, at most one of each track."""
    rng = np.random.default_rng(seed)
    length = np.bincount(tracks.point, minlength=tracks.n)
    starts = np.searchsorted(tracks.point, np.arange(tracks.n))
    chosen = np.flatnonzero(rng.random(tracks.n) < share * np.where(length > 2, length, 1))
    at = starts[chosen] + rng.integers(length[chosen]) if len(chosen) else chosen
    mask = np.ones(len(tracks.point), dtype=bool)
    mask[at] = False
    return HeldOut(tracks.feature[at], chosen, Tracks(tracks.feature[mask], tracks.point[mask]))


@dataclass(frozen=True)
class Verdict:
    """Comparison of the prediction errors of two solutions by a sign test."""

    n: int
    """The number of held-out observations that at least one solution predicts within the inlier limit."""
    n_better: int
    """The number that the second one predicts better."""
    before: float
    """Median error of the first solution in pixels."""
    after: float
    chance: float
    """The probability of so many if the second solution is no better."""

    @property
    def is_better(self) -> bool:
        return self.chance < LEVEL


def compare(before: np.ndarray, after: np.ndarray, limit: float) -> Verdict:
    """Return whether the errors `after` are smaller than those `before`.

    Observations that neither solution predicts within the limit are wrong matches and do not count.
    """
    from scipy.stats import binom

    counts = (np.minimum(before, after) <= limit) & (before != after)
    n, better = int(counts.sum()), int((after < before)[counts].sum())
    old, new = (float(np.median(x[counts])) if n else float(np.inf) for x in (before, after))
    return Verdict(n, better, old, new, float(binom.sf(better - 1, n, 0.5)) if n else 1.0)
