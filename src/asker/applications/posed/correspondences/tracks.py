"""Tracks from verified two-view matches, without the poses.

A track is a set of features that are projections of one point, at most one in each image.  Matches are joined by
union-find in the order of their support, which is the number of other images that confirm a match: both features match
the same feature there.  A match that would put two features of one image into a track is left out, so that the weakest
matches of a conflicting set split it.
"""

from dataclasses import dataclass

import numpy as np

from asker.applications.posed.correspondences.matches import Matches


@dataclass(frozen=True, eq=False)
class Tracks:
    """Sets of features, one set for each point, in the order of the points."""

    feature: np.ndarray
    """(n_observations,): the feature, an index of `Matches.xys`."""
    point: np.ndarray
    """(n_observations,): the number of the track, not decreasing."""

    @property
    def n(self) -> int:
        """The number of tracks."""
        return int(self.point[-1]) + 1 if len(self.point) else 0

    def taken(self, mask: np.ndarray, least: int = 2) -> "Tracks":
        """Return the tracks with the observations of a mask, without tracks of fewer than `least` observations."""
        feature, point = self.feature[mask], self.point[mask]
        long = np.bincount(point, minlength=self.n) >= least
        number = np.cumsum(long) - 1
        return Tracks(feature[long[point]], number[point[long[point]]])


def join(matches: Matches, consistent: np.ndarray | None = None) -> Tracks:
    """Return the tracks of matches; each has features of at least two images.

    Parameters
    ----------
    matches
        Verified matches.
    consistent
        (n_matches,): the mask of the matches that agree with known poses.  They are joined first, and no other match
        joins two tracks of several features; one wrong match cannot join two points.
    """
    image = matches.of_feature.tolist()
    parent = list(range(len(image)))
    images: dict[int, set[int]] = {}

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    trusted = np.ones(len(matches.features), dtype=bool) if consistent is None else consistent
    order = np.lexsort((-support(matches), ~trusted))
    for (a, b), is_trusted in zip(matches.features[order].tolist(), trusted[order].tolist(), strict=True):
        i, j = root(a), root(b)
        if i == j or not (is_trusted or i not in images or j not in images):
            continue
        of_i, of_j = images.get(i) or {image[i]}, images.get(j) or {image[j]}
        if of_i.isdisjoint(of_j):
            parent[j] = i
            images[i] = of_i | of_j
            images.pop(j, None)
    used = np.unique(matches.features)
    label = np.array([root(k) for k in used.tolist()], dtype=np.int64)
    by = np.argsort(label, kind="stable")
    number = np.cumsum(np.concatenate([[0], np.diff(label[by]) > 0])) if len(by) else label
    return Tracks(used[by], number).taken(np.ones(len(by), bool))


def support(matches: Matches) -> np.ndarray:
    """Return for each match the number of features that match both of its features."""
    from scipy.sparse import csr_array

    n = len(matches.xys)
    a, b = matches.features.T
    ones = np.ones(2 * len(a), dtype=np.int32)
    graph = csr_array((ones, (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(n, n))
    graph.data[:] = 1
    if not len(a):
        return np.zeros(0, int)
    return np.asarray((graph @ graph)[a, b]).ravel().astype(int)
