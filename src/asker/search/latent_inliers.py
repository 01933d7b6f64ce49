"""The sets of observations that may be the inliers of a variable, each with its probability.

Model       That of `asker.statistics.scale`: a share π of the observations are inliers, Gaussian with variance σ² of
            each of p numbers; all others are Gaussian with a larger variance S².
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
            (4) a leap after every second step, as in `asker.statistics.gaussian_mixture`; back to (1), until σ, S and π
                are at rest
            (5) two noises that explain no more than one does are one, by the evidence
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.linearized_problem import LinearModel
from asker.geometry.manifolds import Euclidean
from asker.kernels.kernels import Quadratic
from asker.problem.problem import Problem
from asker.problem.variables import Slot, Variables
from asker.statistics.gaussian_mixture import DISTINCT, RAREST, SMALLEST, TINY, leap
from asker.statistics.inlier_enumeration import VARIED, Entries, Part, Scales, odds_of
from asker.statistics.scale import FEW, Noise, rounding_variance
from asker.strategies.composite.batched_subproblems import with_rows
from asker.strategies.composite.block_moves import Touching
from asker.strategies.weighted import Weighted

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = tuple[Floats, ...]

AT_ONCE = 2**20
"""Numbers of sets that are looked at together."""
LARGEST = 6
"""Unknowns of a variable, at most."""
MOST = 30_000
"""Observations of a problem, at most: copies take about six times as many."""
DAMPING = 1e-6
STEPS, AT_REST = 30, 0.01
"""At most; the change of σ², S² and the odds of π at which they end."""
SOME, FIRST, LIGHT = 75, 6, 6
"""Half of the variables that are asked first whether there are two noises, steps that they make, and the observations
of each at most."""


@dataclass(frozen=True, eq=False)
class CopiesOfSets:
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
class AllSets:
    """What all sets say at a point."""

    scales: tuple[Scales, ...]
    """(2)"""
    n_spare: tuple[float, ...]
    """Numbers of inliers that the fit has not used up, of each factor group."""
    evidence: float
    """The logarithm of the probability of all observations, the variables averaged out, but for a constant."""
    copies: CopiesOfSets


class InlierSets:
    """The sets of the variables of one group, no two of which share a factor."""

    def __init__(
        self, problem: Problem, v: Variables, broad: Sequence[float], possible: Sequence[Floats] | None = None
    ):
        """
        broad     the mean square of a number in a plain fit: an outlier counts for no more than in
                  `asker.statistics.scale`
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
            or v.manifold.tangent > LARGEST
            or not isinstance(v.manifold, Euclidean)
        ):
            return False
        return all(sum(s.variables is v for s in f.slots) == 1 for f in problem.factors if f.n)

    def averaged(
        self, theta: Rows, noises: Sequence[Noise], goes_on: Callable[[], bool]
    ) -> tuple[Rows, tuple[Noise, ...]] | None:
        """Where the steps lead from these rows of all variables, and the noise there; None where all is one noise, or
        where too few numbers of the inliers are left."""
        if not self._has_enough.any():
            return None
        entries, scales = self._entries(theta), self._first(noises)
        is_one = any(n.inlier_ratio == 1 for n in noises)
        if is_one and not self._are_two(entries, noises, scales):
            return None
        at, self.odds = [scales], odds_of(entries.u, entries.p, entries.group, scales)
        for _ in range(STEPS):
            entries = self._entries(theta, scales)
            seen = self.seen(entries, scales, theta[self.problem.variables.index(self.v)])
            if not all(s.others > DISTINCT**2 * s.variance for s in seen.scales) or min(seen.n_spare) < FEW:
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
        least = [rounding_variance(n.rounding) for n in noises]
        return theta, tuple(
            Noise(sqrt(max(s.variance, low)), s.ratio, spare, noise.rounding)
            for (s, spare, noise), low in zip(groups, least, strict=True)
        )

    def _are_two(self, entries: Entries, noises: Sequence[Noise], scales: tuple[Scales, ...]) -> bool:
        """(5), with all other variables held: by some of the variables, and by more while two noises are likelier, but
        may be so by chance."""
        m, n_unknowns = np.diff(self.touching.ptr), self.v.manifold.tangent
        light, rows = np.flatnonzero((m <= LIGHT) & self._has_enough), np.zeros((len(self.v), n_unknowns))
        light = light if len(light) else np.flatnonzero(self._has_enough)
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

    def seen(self, entries: Entries, scales: tuple[Scales, ...], own: Floats, those: Ints | None = None) -> AllSets:
        """(1) and (2), where the variables are at these rows; of all of them, or of those alone."""
        totals, evidence = np.zeros((len(scales), 5)), 0.0
        copies, odds, n = [], self.odds.copy(), 0
        for some, at in self._parts(those):
            part = Part(entries.only(at.ravel()), at.shape, scales, self.odds[at])
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
        joined = CopiesOfSets(*(np.concatenate(x) for x in zip(*copies, strict=True)))
        groups = tuple(_scales(s, *row) for row, s in zip(totals[:, :4].tolist(), scales, strict=True))
        return AllSets(groups, tuple(totals[:, 4].tolist()), evidence, joined)

    def step(self, theta: Rows, seen: AllSets) -> Rows:
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

    def evidence_of_one(self, entries: Entries, variances: Sequence[float], those: Ints | None = None) -> float:
        """The evidence where all observations are inliers."""
        total, scales = 0.0, tuple(Scales(s, s, 1 - RAREST) for s in variances)
        for _, at in self._parts(those):
            total += Part(entries.only(at.ravel()), at.shape, scales, np.full(at.shape, np.inf), most=0).evidence
        return total

    def _entries(self, theta: Rows, scales: tuple[Scales, ...] = ()) -> Entries:
        """At a point with these rows of all variables; with scales, squares are averaged over where all other variables
        may be, each with all others known, as in `asker.search.variational_em`."""
        linear = LinearModel(self.problem, theta)
        more = (
            linear.predicted_alone(self._known(scales), self.v)
            if scales
            else [np.zeros(f.n) for f in self.problem.factors]
        )
        touching, d = self.touching, self.v.manifold.tangent
        n = len(touching.group)
        found = Entries(np.zeros((n, d, d)), np.zeros((n, d)), np.zeros(n), np.zeros(n), touching.group)
        for k, of_group in enumerate(linear.derivatives_by(self.v)):
            if of_group is None:  # it has no observations
                continue
            own = touching.group == k
            J, r = (x[touching.observation[own]] for x in of_group[:2])
            found.JJ[own], found.Jr[own] = np.swapaxes(J, 1, 2) @ J, np.einsum("npd,np->nd", J, r)
            found.u[own], found.p[own] = np.einsum("np,np->n", r, r), r.shape[1]
            found.u[own] += more[k][touching.observation[own]]
        says_nothing = (self.possible == 0) | ~np.isfinite(found.u) | ~np.isfinite(found.JJ).all(axis=(1, 2))
        for x in (found.JJ, found.Jr, found.u, found.p):
            x[says_nothing] = 0.0
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
            numbers = len(some) * 2 ** min(size, VARIED) * max(size, self.v.manifold.tangent**2)
            for part in np.array_split(some, -(-numbers // AT_ONCE)):
                yield part, ptr[part][:, None] + np.arange(size)


def _logs(scales: Sequence[Scales]) -> Floats:
    """(3, groups): what steps are made in."""
    return np.array([[log(s.variance), log(s.others), log(s.ratio / (1 - s.ratio))] for s in scales]).T


def _from_logs(logs: Floats) -> tuple[Scales, ...]:
    small, large, odds = logs[0], np.maximum(*logs[:2]), np.clip(logs[2], log(RAREST), -log(RAREST))
    return tuple(Scales(*each) for each in zip(np.exp(small), np.exp(large), 1 / (1 + np.exp(-odds)), strict=True))


def _others(variance: float, mean: float, ratio: float) -> float:
    """S², where all have this mean square."""
    return max((mean - ratio * variance) / (1 - ratio), DISTINCT**2 * variance)


def _scales(before: Scales, e_in: float, n_in: float, e_out: float, n_out: float) -> Scales:
    """(2); as before where nothing was seen."""
    if not n_in + n_out > 0:
        return before
    n = n_in + n_out
    variance = max(e_in / max(n_in, RAREST), SMALLEST * max(e_in + e_out, 0.0) / n, TINY)
    ratio = min(max(n_in / n, RAREST), 1 - RAREST)
    return Scales(variance, max(e_out / max(n_out, RAREST), variance), ratio)
