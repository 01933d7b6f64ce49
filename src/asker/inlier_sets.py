"""The sets of observations that may be the inliers of a variable, each with its probability.

Model       That of `asker.noise`: a share π of the observations are inliers, Gaussian with variance σ² of each of p
            numbers; all others are Gaussian with a larger variance S².
Sets        Where outliers are near, a fit to all observations of a point shows neither who they are nor how large σ
            is: four residuals of which two are wrong look like four with more noise.  But no two points share a factor.
            So the point can be averaged out for every set s of its observations by itself.  With w = 1/σ² for the
            observations in s and 1/S² for the others, B = Σ w JᵀJ and g = Σ w Jᵀr, the point lies at δ = −B⁻¹g, and

                log P(s) = Σ log(π or 1−π) + Σ p/2 log w − ½ log|B| − ½ (Σ w u − gᵀB⁻¹g)

            m observations have 2^m sets: of more than `VARIED` the most doubtful are varied.  The others count in all
            sets, with the probability that they are inliers by their mean squares: many observations hold the point, so
            that it hardly depends on any of them.
Algorithm   Expectation and maximisation (Dempster, Laird, Rubin 1977); a set that has next to no part is left out.
            (1) P(s) of all sets of every point
            (2) σ² = Σ P(s) e / Σ P(s) p over the inliers, with e = ‖r + Jδ‖² + tr(J B⁻¹ Jᵀ); S² over the others; π
            (3) a step of all other variables: least squares on a problem in which every point has a copy for each of
                its sets, whose observations count as P(s)·w; the point itself goes to the mean of its copies
            (4) a leap after every second step, as in `asker.mixture`; back to (1), until σ, S and π are at rest
            (5) two noises that explain no more than one does are one, by the evidence
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.linear_model import LinearModel
from asker.engines.cpu.pool import Pool
from asker.kernels import Quadratic
from asker.manifolds import Euclidean
from asker.mixture import DISTINCT, RAREST, leap
from asker.moves import Touching
from asker.noise import FARTHEST, Noise
from asker.problem import Problem
from asker.strategies.weighted import Weighted
from asker.trials import with_rows
from asker.variables import Slot, Variables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = tuple[Floats, ...]

VARIED = 8
"""Observations of a variable that are varied, at most."""
AT_ONCE = 2**16
"""Sets that are looked at together."""
LEAST = 0.02
"""The part of the likeliest set's probability below which another one of the same variable is left out."""
MOST = 30_000
"""Observations of a problem, at most: copies take about six times as many."""
RIDGE = 1e-9
"""The part of a block that is added to its diagonal."""
DAMPING = 1e-6
STEPS, AT_REST = 30, 0.01
"""At most; the change of σ², S² and the odds of π at which they end."""
SOME, FIRST, LIGHT = 75, 6, 6
"""Half of the variables that are asked first whether there are two noises, steps that they make, and the observations
of each at most."""


class Scales(NamedTuple):
    """What is known of a factor group."""

    variance: float
    """σ²"""
    others: float
    """S²"""
    ratio: float
    """π"""


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies of the variables, one for each set."""

    rows: Floats
    of: Ints
    """Which variable each is a copy of,"""
    P: Floats
    """and P(s); of a variable they add up to 1."""
    entry: Ints
    """Their observations, as entries of `Touching`,"""
    copy: Ints
    """which copy these are of,"""
    w: Floats
    """and how much they count there."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What all sets say at a point."""

    scales: tuple[Scales, ...]
    """(2)"""
    n_spare: tuple[float, ...]
    """Numbers of inliers that the fit has not used up, of each factor group."""
    evidence: float
    """The logarithm of the probability of all observations, the variables averaged out, but for a constant."""
    copies: Copies


class _Entries(NamedTuple):
    """Of every observation of a variable: a row each, one variable after the other."""

    JJ: Floats
    """(e, d, d)"""
    Jr: Floats
    """(e, d)"""
    u: Floats
    p: Floats
    group: NDArray[Any]

    def only(self, chosen: NDArray) -> "_Entries":
        return _Entries(*(x[chosen] for x in self))


class InlierSets:
    """The sets of the variables of one group, no two of which share a factor."""

    def __init__(
        self, problem: Problem, v: Variables, broad: Sequence[float], possible: Sequence[Floats] | None = None
    ):
        """
        broad     the mean square of a number in a plain fit: an outlier counts for no more than in `asker.noise`
        possible  0 for every observation that is not possible, else 1; None where all are
        """
        self.problem, self.v, self.broad = problem, v, np.array(broad)
        self.touching, self.pool = Touching.of(problem, v), Pool()
        self.possible = np.ones(len(self.touching.group))
        for k, own in enumerate(possible or ()):
            mine = self.touching.group == k
            self.possible[mine] = own[self.touching.observation[mine]]
        self.odds = np.zeros(len(self.touching.group))
        """That every entry is an inlier, as they were seen last: logarithms."""

    @staticmethod
    def suit(problem: Problem, v: Variables | None) -> bool:
        """Whether every observation touches one such variable, a free vector, and sets are not too many."""
        if (
            v is None
            or v.fixed.any()
            or v.bounds
            or problem.n_residuals > MOST
            or not isinstance(v.manifold, Euclidean)
        ):
            return False
        return all(sum(s.variables is v for s in f.slots) == 1 for f in problem.factors if f.n)

    def averaged(
        self, theta: Rows, noises: Sequence[Noise], goes_on: Callable[[], bool]
    ) -> tuple[Rows, tuple[Noise, ...]] | None:
        """Where the steps lead from these rows of all variables, and the noise there; None where all is one noise."""
        if not any(True for _ in self._parts()):
            return None
        entries, scales = self._entries(theta), self._first(noises)
        is_one = any(n.inlier_ratio == 1 for n in noises)
        if is_one and not self._are_two(entries, noises, scales):
            return None
        at, self.odds = [scales], odds_of(entries.u, entries.p, entries.group, scales)
        for _ in range(STEPS):
            entries = self._entries(theta, scales)
            seen = self.seen(entries, scales, theta[self.problem.variables.index(self.v)])
            if not all(s.others > DISTINCT**2 * s.variance for s in seen.scales):
                return None
            theta, before, scales = self.step(theta, seen), scales, seen.scales
            if not goes_on() or np.allclose(_logs(scales), _logs(before), rtol=0, atol=AT_REST):
                break
            at.append(scales)
            if len(at) == 3:  # (4)
                one, two, three = map(_logs, at)
                scales = _from_logs(leap(two - one, three - two, three))
                at = [scales]
        groups = zip(scales, seen.n_spare, noises, strict=True)
        return theta, tuple(Noise(sqrt(s.variance), s.ratio, spare, noise.rounding) for s, spare, noise in groups)

    def _are_two(self, entries: _Entries, noises: Sequence[Noise], scales: tuple[Scales, ...]) -> bool:
        """(5), with all other variables held: by some of the variables, and by more while two noises are likelier, but
        may be so by chance."""
        m, n_unknowns = np.diff(self.touching.ptr), self.v.manifold.tangent
        light, rows = np.flatnonzero(m <= LIGHT), np.zeros((len(self.v), n_unknowns))
        if not any(True for _ in self._parts(light)):
            light = np.arange(len(m))
        decides, k, self.odds = False, 0, odds_of(entries.u, entries.p, entries.group, scales)
        while not decides:
            k += 1
            some = light[:: max(len(light) // (SOME << k), 1)]
            for _ in range(FIRST):
                seen = self.seen(entries, scales, rows, some)
                scales = seen.scales
            gain = seen.evidence - self.evidence_of_one(entries, [n.sigma**2 for n in noises], some)
            enough = len(scales) * log(max(int(m[some].sum()), 2))  # S and π of each group cost ½ log n each
            decides = not 0 < gain < enough or len(some) == len(light)
        return gain > enough

    def _first(self, noises: Sequence[Noise]) -> tuple[Scales, ...]:
        """Those of noises that were found; of one noise for all a part."""
        found = []
        for n, Q in zip(noises, self.broad.tolist(), strict=True):
            if n.inlier_ratio < 1:
                found.append(Scales(n.sigma**2, _others(n.sigma**2, Q, n.inlier_ratio), n.inlier_ratio))
            else:
                variance = (n.sigma / DISTINCT**2) ** 2
                found.append(Scales(variance, _others(variance, n.sigma**2, 0.5), 0.5))
        return tuple(found)

    def seen(self, entries: _Entries, scales: tuple[Scales, ...], own: Floats, those: Ints | None = None) -> Seen:
        """(1) and (2), where the variables are at these rows; of all of them, or of those alone."""
        totals, evidence = np.zeros((len(scales), 5)), 0.0
        copies, odds, n = [], self.odds.copy(), 0
        for some, at in self._parts(those):
            part = _Part(entries.only(at.ravel()), at.shape, scales, self.odds[at])
            evidence += part.evidence
            totals += part.totals(self.broad)
            odds[at] = part.likelier(scales)
            which, sets, P = part.likely()
            entry, number = at[which].ravel(), np.repeat(n + np.arange(len(which)), at.shape[1])
            rows = own[some[which]] + part.delta[which, sets]
            copies.append((rows, some[which], P, entry, number, part.w[which, sets].ravel()))
            n += len(which)
        self.odds = odds
        if those is None and len(rest := np.flatnonzero(~self._has_enough & (np.diff(self.touching.ptr) > 0))):
            entry, number = self.touching.all_of(rest)  # they follow the others
            w = 1 / np.array([s.others for s in scales])[self.touching.group[entry]]
            copies.append((own[rest], rest, np.ones(len(rest)), entry, n + number, w))
        joined = Copies(*(np.concatenate(x) for x in zip(*copies, strict=True)))
        groups = tuple(_scales(*row) for row in totals[:, :4].tolist())
        return Seen(groups, tuple(totals[:, 4].tolist()), evidence, joined)

    def step(self, theta: Rows, seen: Seen) -> Rows:
        """(3), by the processor on any engine: how many copies there are changes from step to step, and a device would
        compile its programs anew."""
        variables, copies = self.problem.variables, seen.copies
        instead = {v: with_rows(v, rows, v.fixed) for v, rows in zip(variables, theta, strict=True)}
        instead[self.v] = with_rows(self.v, copies.rows, np.zeros(len(copies.rows), bool))
        made, weights = [], []
        for k, f in enumerate(self.problem.factors):
            own = self.touching.group[copies.entry] == k
            chosen, copy = self.touching.observation[copies.entry[own]], copies.copy[own]
            slots = [Slot(instead[s.variables], copy if s.variables is self.v else s.index[chosen]) for s in f.slots]
            made.append(f.on(slots, chosen).under(Quadratic(1.0)))
            weights.append((copies.P[copies.copy] * copies.w * self.possible[copies.entry])[own])
        other = CpuEngine(Problem(*made), "auto", instead[self.v], True, self.pool)
        descent = Weighted(other.in_own_order(tuple(weights)), DAMPING)
        point = descent.step(other, descent.init(other, other.start(), 1)).point
        found = dict(zip(other.problem.variables, other.rows(point), strict=True))
        means = theta[variables.index(self.v)].copy()
        means[copies.of] = 0.0
        np.add.at(means, copies.of, copies.P[:, None] * found[instead[self.v]])
        return tuple(
            means if v is self.v else found.get(instead[v], rows) for v, rows in zip(variables, theta, strict=True)
        )

    def evidence_of_one(self, entries: _Entries, variances: Sequence[float], those: Ints | None = None) -> float:
        """The evidence where all observations are inliers."""
        total, scales = 0.0, tuple(Scales(s, s, 1 - RAREST) for s in variances)
        for _, at in self._parts(those):
            total += _Part(entries.only(at.ravel()), at.shape, scales, np.full(at.shape, np.inf), most=0).evidence
        return total

    def _entries(self, theta: Rows, scales: tuple[Scales, ...] = ()) -> _Entries:
        """At a point with these rows of all variables; with scales, squares are averaged over where all other variables
        may be, each with all others known, as in `asker.near_outliers`."""
        linear = LinearModel(self.problem, theta)
        more = (
            linear.predicted_alone(self._known(scales), self.v)
            if scales
            else [np.zeros(f.n) for f in self.problem.factors]
        )
        touching, d = self.touching, self.v.manifold.tangent
        n = len(touching.group)
        found = _Entries(np.zeros((n, d, d)), np.zeros((n, d)), np.zeros(n), np.zeros(n), touching.group)
        for k, (f, at) in enumerate(zip(linear.structure.factors, linear.linear, strict=True)):
            own = touching.group == k
            slot = next(j for j, s in enumerate(f.factors.slots) if s.variables is self.v)
            first = dict(zip(f.free, f.offsets, strict=True))[slot]
            J = f.unsorted(at.J.reshape(f.n, f.p, f.width))[touching.observation[own], :, first : first + d]
            r = f.unsorted(at.r)[touching.observation[own]]
            found.JJ[own], found.Jr[own] = np.swapaxes(J, 1, 2) @ J, np.einsum("npd,np->nd", J, r)
            found.u[own], found.p[own] = np.einsum("np,np->n", r, r), f.p
            found.u[own] += more[k][touching.observation[own]]
        for x in (found.JJ, found.Jr, found.u, found.p):
            x[self.possible == 0] = 0.0  # it says nothing
        return found

    def _known(self, scales: tuple[Scales, ...]) -> list[Floats]:
        """w of every observation, in the mean."""
        q = self.possible / (1 + np.exp(-np.clip(self.odds, -700, 700)))
        found = []
        for k, (f, s) in enumerate(zip(self.problem.factors, scales, strict=True)):
            own, w = self.touching.group == k, np.zeros(f.n)
            w[self.touching.observation[own]] = q[own] / s.variance + (self.possible - q)[own] / s.others
            found.append(w)
        return found

    @cached_property
    def _has_enough(self) -> NDArray[np.bool_]:
        """Whether a variable has more numbers than unknowns."""
        ptr, numbers = self.touching.ptr, np.array([f.residual_size for f in self.problem.factors])[self.touching.group]
        return np.add.reduceat(np.append(numbers, 0), ptr[:-1]) * (np.diff(ptr) > 0) > self.v.manifold.tangent

    def _parts(self, those: Ints | None = None) -> Iterator[tuple[Ints, Ints]]:
        """Variables with as many observations each, and the entries of these, (n, m); those that too few observations
        hold are left out."""
        ptr, enough = self.touching.ptr, self._has_enough
        m = np.diff(ptr)
        if those is not None:
            enough = enough & np.isin(np.arange(len(m)), those)
        for size in np.unique(m[enough]).tolist():
            some = np.flatnonzero(enough & (m == size))
            for part in np.array_split(some, -(-len(some) * 2 ** min(size, VARIED) // AT_ONCE)):
                yield part, ptr[part][:, None] + np.arange(size)


class _Part:
    """The sets of n variables with m observations each."""

    def __init__(
        self, entries: _Entries, shape: tuple[int, ...], scales: tuple[Scales, ...], odds: Floats, most: int = VARIED
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
        B = B + RIDGE * np.trace(B, axis1=2, axis2=3)[..., None, None] * np.eye(d)
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
        e, used = self.squares()
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
        e = np.einsum("ns,nsm->nm", self.P, self.squares()[0])
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


def _logs(scales: Sequence[Scales]) -> Floats:
    """(3, groups): what steps are made in."""
    return np.array([[log(s.variance), log(s.others), log(s.ratio / (1 - s.ratio))] for s in scales]).T


def _from_logs(logs: Floats) -> tuple[Scales, ...]:
    return tuple(Scales(exp(a), exp(max(a, b)), 1 / (1 + exp(-c))) for a, b, c in logs.T.tolist())


def _others(variance: float, mean: float, ratio: float) -> float:
    """S², where all have this mean square."""
    return max((mean - ratio * variance) / (1 - ratio), DISTINCT**2 * variance)


def _scales(e_in: float, n_in: float, e_out: float, n_out: float) -> Scales:
    """(2)"""
    variance, n = e_in / max(n_in, RAREST), n_in + n_out
    ratio = min(max(n_in / n, RAREST), 1 - RAREST)
    return Scales(variance, max(e_out / max(n_out, RAREST), variance), ratio)
