"""Which observations of single variables may be inliers: the probability of every set, and what follows from it.

The formulas are those of `asker.search.latent_inliers`, whose step (1) and whose sums this is.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.statistics.gaussian_mixture import RAREST
from asker.statistics.scale import FARTHEST

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
VARIED = 8
"""Observations of a variable that are varied, at most."""
LEAST = 0.02
"""The part of the likeliest set's probability below which another one of the same variable is left out."""
RIDGE = 1e-9
"""The part of a block that is added to its diagonal."""


class Scales(NamedTuple):
    """What is known of a factor group."""

    variance: float
    """σ²"""
    others: float
    """S²"""
    ratio: float
    """π"""


class Entries(NamedTuple):
    """Of every observation of a variable: a row each, one variable after the other."""

    JJ: Floats
    """(e, d, d)"""
    Jr: Floats
    """(e, d)"""
    u: Floats
    p: Floats
    group: NDArray[Any]

    def only(self, chosen: NDArray) -> "Entries":
        return Entries(*(x[chosen] for x in self))


class Part:
    """The sets of n variables with m observations each."""

    def __init__(
        self, entries: Entries, shape: tuple[int, ...], scales: tuple[Scales, ...], odds: Floats, most: int = VARIED
    ):
        """
        entries  of the observations, n·m
        shape    (n, m)
        odds     of every observation, as they were seen last, (n, m)
        most     how many observations of a variable are varied, at most
        """
        n, m = shape
        d = entries.Jr.shape[1]
        self.JJ, self.Jr = entries.JJ.reshape(n, m, d * d), entries.Jr.reshape(n, m, d)
        self.u, self.p = entries.u.reshape(n, m), entries.p.reshape(n, m)
        self.group = entries.group.reshape(n, m)
        variance, others, ratio = (np.array(x)[self.group] for x in zip(*scales, strict=True))
        self.inlier, self.is_varied = _sets(odds, min(m, most))  # (n, s, m), (n, m)
        self.w = self.inlier * (1 / variance)[:, None] + (1 - self.inlier) * (1 / others)[:, None]
        B = (self.w @ self.JJ).reshape(n, -1, d, d)
        size = np.trace(B, axis1=2, axis2=3)
        B = B + np.where(size > 0, RIDGE * size, 1.0)[..., None, None] * np.eye(d)  # nothing may be possible
        self.inverse, g = np.linalg.inv(B), self.w @ self.Jr
        self.delta = -np.einsum("nsab,nsb->nsa", self.inverse, g)
        inside = np.log(ratio) - self.p / 2 * np.log(variance)
        outside = np.log1p(-ratio) - self.p / 2 * np.log(others)
        each = self.inlier * inside[:, None] + (1 - self.inlier) * outside[:, None] - self.w * self.u[:, None] / 2
        L = each.sum(axis=2) - np.linalg.slogdet(B)[1] / 2 - np.einsum("nsa,nsa->ns", self.delta, g) / 2
        largest = L.max(axis=1, keepdims=True)
        P = np.exp(L - largest)
        total = P.sum(axis=1, keepdims=True)
        self.P = P / total  # (n, s)
        self.evidence = float((largest + np.log(total)).sum())

    @cached_property
    def squares(self) -> tuple[Floats, Floats]:
        """e of every observation in every set, and what the fit has used up of its numbers, (n, s, m) each."""
        n, s, d = self.delta.shape
        outer = (self.delta[..., :, None] * self.delta[..., None, :]).reshape(n, s, d * d)
        across = np.swapaxes(self.JJ, 1, 2)
        spread = self.inverse.reshape(n, s, d * d) @ across
        e = self.u[:, None] + 2 * self.delta @ np.swapaxes(self.Jr, 1, 2) + outer @ across + spread
        return e, self.w * spread

    def totals(self, broad: Floats) -> Floats:
        """For each factor group: Σe and Σp of inliers and of others, and the numbers of inliers that are left."""
        e, used = self.squares
        inlier = self.P[..., None] * self.inlier
        other = self.P[..., None] - inlier
        farthest = np.minimum(e, (FARTHEST**2 * self.p * broad[self.group])[:, None])
        p = self.p[:, None]
        sums = [(inlier * e), inlier * p, other * farthest, other * p, inlier * (p - used)]
        of = self.group.ravel()
        return np.stack([np.bincount(of, x.sum(axis=1).ravel(), minlength=len(broad)) for x in sums], axis=1)

    def likelier(self, scales: tuple[Scales, ...]) -> Floats:
        """The logarithm of the odds that an observation is an inlier, (n, m): of those that were not varied by their
        mean squares."""
        q = np.einsum("ns,nsm->nm", self.P, self.inlier)
        e = np.einsum("ns,nsm->nm", self.P, self.squares[0])
        odds = odds_of(e, self.p, self.group, scales)
        inside = np.clip(q, RAREST, 1 - RAREST)
        return np.where(self.is_varied, np.log(inside / (1 - inside)), odds)

    def likely(self) -> tuple[Ints, Ints, Floats]:
        """The sets that have a part: of which variable, which of its sets, and P(s), which add up to 1 for each."""
        which, sets = np.nonzero(self.P / self.P.max(axis=1, keepdims=True) >= LEAST)
        P = self.P[which, sets]
        return which, sets, P / np.bincount(which, P, minlength=len(self.P))[which]


def _sets(odds: Floats, k: int) -> tuple[Floats, NDArray[np.bool_]]:
    """(n, 2^k, m): 1 for the inliers of each set, 0 for the others; all but the k most doubtful have their probability.
    And which ones are varied, (n, m)."""
    varied = np.argsort(np.abs(odds), axis=1, kind="stable")[:, :k]
    is_varied = np.zeros(odds.shape, dtype=bool)
    np.put_along_axis(is_varied, varied, True, axis=1)
    sets = np.repeat((1 / (1 + np.exp(-np.clip(odds, -700, 700))))[:, None], 2**k, axis=1)
    every = (np.arange(2**k)[:, None] >> np.arange(k) & 1).astype(float)
    shape = (len(odds), 2**k, k)
    np.put_along_axis(sets, np.broadcast_to(varied[:, None], shape), np.broadcast_to(every, shape), axis=2)
    return sets, is_varied


def odds_of(u: Floats, p: Floats, group: Ints, scales: tuple[Scales, ...]) -> Floats:
    """The logarithm of the odds that observations with these squares are inliers."""
    variance, others, ratio = (np.array(x)[group] for x in zip(*scales, strict=True))
    return np.log(ratio / (1 - ratio)) + p / 2 * np.log(others / variance) - u / 2 * (1 / variance - 1 / others)
