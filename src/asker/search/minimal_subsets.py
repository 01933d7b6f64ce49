"""Solutions from minimal subsets of the observations: RANSAC for any differentiable residual, without a threshold.

Fischler and Bolles: Random Sample Consensus, Communications of the ACM 1981.
Chum, Matas, Kittler: Locally Optimized RANSAC, DAGM 2003.
Moisan, Stival: A Probabilistic Criterion to Detect Rigid Point Matches, IJCV 2004 (a contrario).
Rousseeuw, Van Driessen: Computing LTS Regression for Large Data Sets, Data Mining and Knowledge Discovery 2006.

Score        of a trial, from ‖r‖² of all observations, and the number k of those that agree with it:
             a contrario    max over k of (k·p − d)/2 · log(Q/σ²) − log C(n, k),  σ² = (k smallest ‖r‖²)/(k·p − d):
                            how unlikely it is that k of n observations agree so well by chance
             trimmed        −log of the sum of the h smallest ‖r‖², h = (n + d/p)/2 + 1: the smallest majority
Algorithm    (1) trials of ⌈d/p⌉ observations, and of one more: a few Gauss-Newton steps from the start
             (2) the best ones again, with the observations that agree with them
             (3) more trials, until one of them should have had inliers alone
             (4) the best of all with every observation, under a Cauchy kernel as wide as the best one's σ
"""

from collections.abc import Callable, Sequence
from math import ceil, log, sqrt

import numpy as np
from numpy.typing import NDArray

from asker.kernels.kernels import Cauchy, Kernel, Quadratic
from asker.search.context import SearchContext
from asker.statistics.scale_mixture import TINY
from asker.strategies.composite.batched_subproblems import Copies, Floats, Pairs, Trials, drawn

Score = Callable[[Floats, int, int, float], tuple[Floats, NDArray]]
"""Function of ‖r‖² (trials, n), p, d and Q that returns the score of each trial and how many observations agree."""
Found = tuple[float, tuple[Floats, ...]]
"""Score of a trial, and the rows of all variables."""
BATCH_SIZE, MAX_BATCH_RESIDUALS = 512, 1 << 25
"""Maximum number of trials in a batch, and of their residuals."""
MAX_TRIALS_WITHOUT_INLIERS, MAX_TRIALS = 2000, 10_000
"""Maximum number of trials if nothing agrees, and in all."""
SUBSET_STEPS = 12
"""Steps with a subset."""
MAX_SCORED_OBSERVATIONS = 500
"""Maximum number of observations of each factor group by which a trial is scored."""
N_REFITTED, N_RETAINED = 20, 20
"""Trials of a batch that are fitted again, and solutions that are retained."""
SAME_SUPPORT = 0.8
"""Share of the observations that agree, from which on two solutions are the same."""
MISS_PROBABILITY = 1e-3
"""Probability that no trial had inliers alone when the search ends."""
INLIER_SEPARATION = 2.0
"""√Q over the σ of inliers that stand out."""
SMALLEST_WIDTH = 1e-140
"""Width of a kernel if all residuals are 0."""


def a_contrario_score(u: Floats, p: int, d: int, Q: float) -> tuple[Floats, NDArray]:
    """Return the a-contrario score of each row of ‖r‖² (trials, n), and how many observations agree."""
    from scipy.special import gammaln

    n = u.shape[1]
    if not n * p > d:
        return np.zeros(len(u)), np.full(len(u), n)
    k = np.arange(1, n + 1)
    spare = np.maximum(k * p - d, 1e-9)
    variance = np.maximum(np.cumsum(np.sort(u, axis=1), axis=1) / spare, max(1e-26 * Q, TINY))
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + log(n)
    with np.errstate(divide="ignore"):  # of a trial that diverged
        gain = np.where(k * p - d >= 1, spare / 2 * np.log(Q / variance) - ways, -np.inf)
    best = np.argmax(gain, axis=1)
    return gain[np.arange(len(u)), best], best + 1


def trimmed_score(u: Floats, p: int, d: int, Q: float) -> tuple[Floats, NDArray]:
    """Return the score of least trimmed squares of each row of ‖r‖² (trials, n), and the size of the majority."""
    n = u.shape[1]
    h = min((n + ceil(d / p)) // 2 + 1, n)
    total = np.maximum(np.sort(u, axis=1)[:, :h].sum(axis=1) / max(h * p - d, 1), max(1e-26 * Q, TINY))
    with np.errstate(divide="ignore"):  # of a trial that diverged
        return h * p / 2 * np.log(Q / total), np.full(len(u), h)


class Subsets:
    """Search for solutions in minimal subsets."""

    def __init__(self, context: SearchContext, score: Score, seed: int = 0):
        self.context, self.engine, self.score = context, context.engine, score
        self.rng = np.random.default_rng(seed)
        factors = self.engine.problem.factors
        self.start = dict(zip(self.engine.problem.variables, self.engine.rows(context.start), strict=True))
        self.free = [v for v in self.engine.problem.variables if v.is_free]
        self.d, self.p = context.n_unknowns, context.p
        self.trusted = _trusted(context)
        self.drawn_from = [k for k, f in enumerate(factors) if f.n and not self.trusted[k]]
        self.seen = [self._scored(f.n) for f in factors]
        self.Q = context.reference_variance

    @staticmethod
    def suit(context: SearchContext) -> bool:
        """Return whether the problem has few unknowns and more observations than they need, in one process."""
        factors, trusted = context.problem.factors, _trusted(context)
        numbers = sum(f.n * f.residual_size for f, sure in zip(factors, trusted, strict=True) if not sure)
        n_trusted = sum(f.n for f, sure in zip(factors, trusted, strict=True) if sure)
        enough = numbers > 2 * context.n_unknowns and n_trusted <= context.settings.max_subset_unknowns
        return context.has_few_unknowns and enough and context.problem.portion is None

    def best(self) -> list[tuple[Floats, ...]]:
        """Return the rows of all variables for the best distinct trials, the best first."""
        found: list[Found] = []
        done, share, numbers = 0, 0.0, sum(len(seen) * p for seen, p in zip(self.seen, self.p, strict=True))
        while done < self._enough(share) and self.context.goes_on():  # (3)
            size = min(ceil(self._enough(share) - done), BATCH_SIZE, max(1, MAX_BATCH_RESIDUALS // numbers))
            found = sorted([*found, *self._batch(size)], key=lambda each: -each[0])[:N_RETAINED]
            done += size
            if found[0][0] > log(done):  # by chance one of `done` trials scores as high
                share = max(share, self._share(found[0][1]))
        if not found:
            return []
        found = sorted(self._fitted_to_all([rows for _, rows in found]), key=lambda each: -each[0])
        return self._distinct([rows for _, rows in found], self.context.settings.n_subset_solutions)

    def _scored(self, n: int) -> NDArray:
        """Return the numbers of the observations by which trials are scored."""
        some = self.rng.choice(n, MAX_SCORED_OBSERVATIONS, replace=False) if n > MAX_SCORED_OBSERVATIONS else range(n)
        return np.sort(np.asarray(some, dtype=np.int64))

    def _fitted_to_all(self, found: list[tuple[Floats, ...]]) -> list[Found]:
        """Return the trials after descents on all observations."""  # (4)
        trials = Trials(self.engine, list(self.start.values()), len(found), alone=False)
        each = {v: [rows[k] for rows in found] for k, v in enumerate(self.engine.problem.variables)}
        copies = {v: np.concatenate(each[v]) for v in self.free}
        u = self._squares(trials, copies)
        widths = [max(sqrt(self._variance(k, x[0])), SMALLEST_WIDTH) for k, x in enumerate(u)]
        kernels: list[Kernel] = [
            Quadratic(1.0) if sure else Cauchy(2 * w) for sure, w in zip(self.trusted, widths, strict=True)
        ]
        copies, _ = trials.fitted(copies, self._everything(trials.n), kernels, SUBSET_STEPS)
        scores, _ = self._scores(self._squares(trials, copies))
        return [(float(score), self._rows(copies, t)) for t, score in enumerate(scores)]

    def _distinct(self, found: list[tuple[Floats, ...]], n: int) -> list[tuple[Floats, ...]]:
        """Return the first n without those that explain what an earlier one does."""
        k = self.drawn_from[0]
        chosen: list[tuple[Floats, ...]] = []
        explained: list[NDArray] = []
        for rows in found:
            u = self.engine.in_user_order(self.engine.evaluate(rows).u)[k][self.seen[k]]
            count = self._count(k, u)
            own = u <= np.sort(u)[count - 1]
            if not any(np.count_nonzero(own & other) > SAME_SUPPORT * count for other in explained):
                chosen.append(rows)
                explained.append(own)
        return chosen[:n]

    def _enough(self, share: float) -> float:
        """Return the number of trials for an inlier ratio; 0 if nothing agrees so far."""
        size = -(-self.d // min(self.p[k] for k in self.drawn_from)) + 1
        least = min(size / self.engine.problem.factors[k].n for k in self.drawn_from)
        clean = min(max(max(share, least) ** size, 1e-12), 1 - 1e-12)
        return min(log(MISS_PROBABILITY) / log(1 - clean), MAX_TRIALS if share else MAX_TRIALS_WITHOUT_INLIERS)

    def _batch(self, n: int) -> list[Found]:
        """Return the best trials of a batch."""  # (1), (2)
        quadratic: list[Kernel] = [Quadratic(1.0) for _ in self.p]
        constant = list(self.start.values())
        trials = Trials(self.engine, constant, n, alone=False)
        copies = {v: np.tile(self.start[v], (n, 1)) for v in self.free}
        copies, _ = trials.fitted(copies, self._subsets(n), quadratic, SUBSET_STEPS)
        u = self._squares(trials, copies)
        scores, counts = self._scores(u)
        good = np.argsort(-scores)[:N_REFITTED]
        again = Trials(self.engine, constant, len(good), alone=False)
        copies = {v: _of_trials(rows, len(v), good) for v, rows in copies.items()}
        agreeing = [self._agreeing(k, x[good], counts[k][good]) for k, x in enumerate(u)]
        copies, _ = again.fitted(copies, agreeing, quadratic, SUBSET_STEPS // 2)
        scores, _ = self._scores(self._squares(again, copies))
        return [(float(score), self._rows(copies, t)) for t, score in enumerate(scores)]

    def _rows(self, copies: Copies, t: int) -> tuple[Floats, ...]:
        """Return the rows of all variables in one trial."""
        at = np.array([t])
        return tuple(_of_trials(copies[v], len(v), at) if v in copies else rows for v, rows in self.start.items())

    def _subsets(self, n: int) -> list[Pairs]:
        """Return minimal subsets, half of them with one observation more, each of one factor group."""
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
        """Return ‖r‖² (trials, scored) for each factor group; infinite if it is not finite."""
        u = trials.squares(copies, self._everything(trials.n))
        return [np.where(np.isfinite(x), x, np.inf).reshape(trials.n, -1) for x in u]

    def _everything(self, n: int) -> list[Pairs]:
        """Return all scored observations for each of n trials."""
        return [
            Pairs(k, None, np.repeat(np.arange(n), len(seen)), np.tile(seen, n)) for k, seen in enumerate(self.seen)
        ]

    def _scores(self, u: Sequence[Floats]) -> tuple[Floats, list[NDArray]]:
        """Return the score of each trial over all groups, and how many of the scored observations agree."""
        each = [self.score(x, p, self.d, Q) for x, p, Q in zip(u, self.p, self.Q, strict=True)]
        return np.sum([score for score, _ in each], axis=0), [count for _, count in each]

    def _agreeing(self, k: int, u: Floats, counts: NDArray) -> Pairs:
        """Return the observations of group k that agree with each trial."""
        order = np.argsort(u, axis=1)
        mask = np.arange(u.shape[1]) < counts[:, None]
        return Pairs(k, None, np.nonzero(mask)[0], self.seen[k][order[mask]])

    def _count(self, k: int, u: Floats) -> int:
        """Return how many of the scored observations of group k agree."""
        return int(self.score(u[None], self.p[k], self.d, self.Q[k])[1][0])

    def _share(self, rows: tuple[Floats, ...]) -> float:
        """Return the lowest inlier ratio of the groups that subsets are drawn from; 0 if no inliers stand out."""
        u = self.engine.in_user_order(self.engine.evaluate(rows).u)
        shares = []
        for k in self.drawn_from:
            x = u[k][self.seen[k]]
            stands_out = INLIER_SEPARATION**2 * self._variance(k, x) < self.Q[k]
            shares.append(self._count(k, x) / len(x) if stands_out else 0.0)
        return min(shares)

    def _variance(self, k: int, u: Floats) -> float:
        """Return σ² of the scored observations of group k that agree."""
        n = self._count(k, u)
        return float(np.sort(u)[:n].sum()) / max(n * self.p[k] - self.d, 1)


def _trusted(context: SearchContext) -> list[bool]:
    """Return for each group whether its kernel is convex, so that it has no outliers and takes part in every trial."""
    return [kernel is not None and kernel.convex for kernel in context.fixed_kernels]


def _of_trials(values: Floats, per_trial: int, trials: NDArray) -> Floats:
    return values.reshape(-1, per_trial, values.shape[1])[trials].reshape(-1, values.shape[1])
