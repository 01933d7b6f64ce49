"""Solutions from minimal subsets of the observations: RANSAC for any residual that can be differentiated.

Fischler and Bolles: Random Sample Consensus, Communications of the ACM 1981.
Chum, Matas, Kittler: Locally Optimized RANSAC, DAGM 2003.
Moisan, Stival: A Probabilistic Criterion to Detect Rigid Point Matches, IJCV 2004 (a contrario).

For problems of few unknowns.  No threshold is given: a trial is judged by the number k of observations for which

    gain = max over k of (k·p − d)/2 · log(Q²/σ²) − log C(n, k),   σ² = (the k smallest ‖r‖², summed)/(k·p − d)

is largest: how unlikely it is that k of n observations agree so well by chance.

Algorithm   (1) trials of ⌈d/p⌉ observations each, and of one more: a few Gauss-Newton steps from the start
            (2) the best ones again, with the observations that agree with them
            (3) more trials, until one of them should have had inliers alone
            (4) the best of all with every observation, under a Cauchy kernel as wide as the best one's σ
"""

from collections.abc import Sequence
from math import ceil, log, sqrt

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, Point
from asker.kernels.kernels import Cauchy, Kernel, Quadratic
from asker.statistics.gaussian_mixture import DISTINCT, TINY
from asker.strategies.composite.batched_subproblems import Copies, Floats, Pairs, Trials, drawn

FEW = 12
"""Unknowns, at most."""
BATCH, NUMBERS = 512, 1 << 25
"""Trials at once, at most, and residuals of theirs."""
AT_LEAST, MOST = 2000, 10_000
"""Trials where nothing agrees, and in all."""
STEPS = 12
SMALLEST = 1e-140
"""The width of a kernel where all is exact."""
SEEN = 500
"""Observations of each factor group that a trial is judged by, at most."""
GOOD, KEPT = 20, 20
"""Trials of a batch that are fitted again, and solutions that are kept."""
ALIKE = 0.8
"""Of the observations that agree with a solution: where so many agree with an earlier one, it is that."""
CHANCE = 1e-3
"""That no trial had inliers alone, when the search ends."""


class Subsets:
    """The search for solutions in minimal subsets."""

    def __init__(self, engine: Engine, start: Point, trusted: Sequence[bool], seed: int = 0):
        """`trusted`: which factor groups have no outliers; they take part in every trial."""
        self.engine, self.trusted = engine, trusted
        self.rng = np.random.default_rng(seed)
        self.start = dict(zip(engine.problem.variables, engine.rows(start), strict=True))
        self.free = [v for v in engine.problem.variables if v.is_free]
        self.d = engine.problem.n_unknowns
        factors = engine.problem.factors
        self.p = [f.residual_size for f in factors]
        self.drawn_from = [k for k, f in enumerate(factors) if f.n and not trusted[k]]
        self.seen = [
            np.sort(self.rng.choice(f.n, SEEN, replace=False)) if f.n > SEEN else np.arange(f.n) for f in factors
        ]

    @staticmethod
    def suit(engine: Engine, trusted: Sequence[bool]) -> bool:
        """Whether the problem has few unknowns, and more observations than they need; one process has all of them."""
        d, factors = engine.problem.n_unknowns, engine.problem.factors
        numbers = sum(f.n * f.residual_size for f, sure in zip(factors, trusted, strict=True) if not sure)
        n_trusted = sum(f.n for f, sure in zip(factors, trusted, strict=True) if sure)
        return d <= FEW and numbers > 2 * d and n_trusted <= FEW and engine.problem.portion is None

    def best(self, n: int, broad: Sequence[float], share: float) -> list[tuple[Floats, ...]]:
        """Rows of all variables for the n best trials, the best first.

        broad  Q² of each group
        share  of the observations that the best solution so far explains
        """
        found: list[tuple[float, tuple[Floats, ...]]] = []
        done, numbers = 0, sum(len(seen) * p for seen, p in zip(self.seen, self.p, strict=True))
        while done < self._enough(share):  # (3)
            size = min(ceil(self._enough(share) - done), BATCH, max(1, NUMBERS // numbers))
            found = sorted([*found, *self._batch(size, broad)], key=lambda each: -each[0])[:KEPT]
            done += size
            if found[0][0] > log(done):  # by chance one in `done` gains so much
                share = max(share, self._share(found[0][1], broad))
        if not found:
            return []
        found = sorted(self._fitted_to_all([rows for _, rows in found], broad), key=lambda each: -each[0])
        return self._distinct([rows for _, rows in found], n, broad)

    def _fitted_to_all(
        self, found: list[tuple[Floats, ...]], broad: Sequence[float]
    ) -> list[tuple[float, tuple[Floats, ...]]]:
        """(4): gains and rows"""
        held = list(self.start.values())
        trials = Trials(self.engine, held, len(found), alone=False)
        each = {v: [rows[k] for rows in found] for k, v in enumerate(self.engine.problem.variables)}
        copies = {v: np.concatenate(each[v]) for v in self.free}
        u = self._squares(trials, copies)
        widths = [max(sqrt(self._variance(k, x[0], broad)), SMALLEST) for k, x in enumerate(u)]
        kernels: list[Kernel] = [
            Quadratic(1.0) if sure else Cauchy(2 * w) for sure, w in zip(self.trusted, widths, strict=True)
        ]
        copies, _ = trials.fitted(copies, self._everything(trials.n), kernels, STEPS)
        gains, _ = self._gains(self._squares(trials, copies), broad)
        return [(float(gain), self._rows(copies, t)) for t, gain in enumerate(gains)]

    def _distinct(self, found: list[tuple[Floats, ...]], n: int, broad: Sequence[float]) -> list[tuple[Floats, ...]]:
        """The first n, without those that explain what an earlier one does."""
        k = self.drawn_from[0]
        chosen: list[tuple[Floats, ...]] = []
        explained: list[NDArray] = []
        for rows in found:
            u = self.engine.in_user_order(self.engine.evaluate(rows).u)[k][self.seen[k]]
            count = int(gains_of(u[None], self.p[k], self.d, broad[k])[1][0])
            own = u <= np.sort(u)[count - 1]
            if not any(np.count_nonzero(own & other) > ALIKE * count for other in explained):
                chosen.append(rows)
                explained.append(own)
        return chosen[:n]

    def _enough(self, share: float) -> float:
        """Trials, at this share of inliers, 0 where nothing agrees yet: then there may be no more inliers than one
        beyond those that determine the unknowns."""
        size = -(-self.d // min(self.p[k] for k in self.drawn_from)) + 1
        least = min(size / self.engine.problem.factors[k].n for k in self.drawn_from)
        clean = min(max(max(share, least) ** size, 1e-12), 1 - 1e-12)
        return min(log(CHANCE) / log(1 - clean), MOST if share else AT_LEAST)

    def _batch(self, n: int, broad: Sequence[float]) -> list[tuple[float, tuple[Floats, ...]]]:
        """(1) and (2): gains and rows"""
        quadratic: list[Kernel] = [Quadratic(1.0) for _ in self.p]
        held = list(self.start.values())
        trials = Trials(self.engine, held, n, alone=False)
        copies = {v: np.tile(self.start[v], (n, 1)) for v in self.free}
        copies, _ = trials.fitted(copies, self._subsets(n), quadratic, STEPS)
        u = self._squares(trials, copies)
        gains, counts = self._gains(u, broad)
        good = np.argsort(-gains)[:GOOD]
        again = Trials(self.engine, held, len(good), alone=False)
        copies = {v: _of_trials(rows, len(v), good) for v, rows in copies.items()}
        agreeing = [self._agreeing(k, x[good], counts[k][good]) for k, x in enumerate(u)]
        copies, _ = again.fitted(copies, agreeing, quadratic, STEPS // 2)
        gains, _ = self._gains(self._squares(again, copies), broad)
        return [(float(gain), self._rows(copies, t)) for t, gain in enumerate(gains)]

    def _rows(self, copies: Copies, t: int) -> tuple[Floats, ...]:
        """Of all variables in one trial."""
        at = np.array([t])
        return tuple(_of_trials(copies[v], len(v), at) if v in copies else rows for v, rows in self.start.items())

    def _subsets(self, n: int) -> list[Pairs]:
        """Minimal ones, half of them with one observation more, each of one factor group."""
        pairs = []
        ways = [(k, extra) for k in self.drawn_from for extra in (0, 1)]
        for (k, extra), trials in zip(ways, np.array_split(np.arange(n), len(ways)), strict=True):
            of = self.engine.problem.factors[k].n
            size = min(-(-self.d // self.p[k]) + extra, of)
            observations = drawn(self.rng, np.full(len(trials), of), size)
            pairs.append(Pairs(k, None, np.repeat(trials, size), observations.ravel()))
        for k, f in enumerate(self.engine.problem.factors):
            if self.trusted[k]:
                pairs.append(Pairs(k, None, np.repeat(np.arange(n), f.n), np.tile(np.arange(f.n), n)))
        return pairs

    def _squares(self, trials: Trials, copies: Copies) -> list[Floats]:
        """(trials, seen) for each factor group; what is not finite is infinite."""
        u = trials.squares(copies, self._everything(trials.n))
        return [np.where(np.isfinite(x), x, np.inf).reshape(trials.n, -1) for x in u]

    def _everything(self, n: int) -> list[Pairs]:
        """All that is seen, for each of n trials."""
        return [
            Pairs(k, None, np.repeat(np.arange(n), len(seen)), np.tile(seen, n)) for k, seen in enumerate(self.seen)
        ]

    def _gains(self, u: Sequence[Floats], broad: Sequence[float]) -> tuple[Floats, list[NDArray]]:
        """Of each trial, over all groups; and how many of those seen agree with it in each group."""
        each = [gains_of(x, p, self.d, Q) for x, p, Q in zip(u, self.p, broad, strict=True)]
        return np.sum([gain for gain, _ in each], axis=0), [count for _, count in each]

    def _agreeing(self, k: int, u: Floats, counts: NDArray) -> Pairs:
        """The observations of group k that agree with each trial."""
        order = np.argsort(u, axis=1)
        mask = np.arange(u.shape[1]) < counts[:, None]
        return Pairs(k, None, np.nonzero(mask)[0], self.seen[k][order[mask]])

    def _share(self, rows: tuple[Floats, ...], broad: Sequence[float]) -> float:
        """Of the inliers, at these rows: the lowest of the groups that subsets are drawn from; 0 where none agree."""
        u = self.engine.in_user_order(self.engine.evaluate(rows).u)
        shares = []
        for k in self.drawn_from:
            x = u[k][self.seen[k]]
            n = int(gains_of(x[None], self.p[k], self.d, broad[k])[1][0])
            shares.append(n / len(x) if DISTINCT**2 * self._variance(k, x, broad) < broad[k] else 0.0)
        return min(shares)

    def _variance(self, k: int, u: Floats, broad: Sequence[float]) -> float:
        """σ² of the observations of group k that agree, of those seen."""
        n = int(gains_of(u[None], self.p[k], self.d, broad[k])[1][0])
        return float(np.sort(u)[:n].sum()) / max(n * self.p[k] - self.d, 1)


def gains_of(u: Floats, p: int, d: int, Q: float) -> tuple[Floats, NDArray]:
    """The gain of each row of squared norms (trials, n), and how many agree."""
    from scipy.special import gammaln

    n = u.shape[1]
    if not n * p > d:
        return np.zeros(len(u)), np.full(len(u), n)
    k = np.arange(1, n + 1)
    spare = np.maximum(k * p - d, 1e-9)
    variance = np.maximum(np.cumsum(np.sort(u, axis=1), axis=1) / spare, max(1e-26 * Q, TINY))
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + log(n)
    with np.errstate(divide="ignore"):  # of a trial that has run away
        gain = np.where(k * p - d >= 1, spare / 2 * np.log(Q / variance) - ways, -np.inf)
    best = np.argmax(gain, axis=1)
    return gain[np.arange(len(u)), best], best + 1


def _of_trials(values: Floats, per_trial: int, trials: NDArray) -> Floats:
    return values.reshape(-1, per_trial, values.shape[1])[trials].reshape(-1, values.shape[1])
