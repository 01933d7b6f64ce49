"""Near outliers of independent variables, such as the points of a scene: EM over all sets of their inliers.

Where outliers are only a few times as large as the noise, a fit to all observations of a point shows neither who they
are nor how large σ is: four residuals of which two are wrong look like four with more noise.  But the largest group of
variables no two of which share a factor can be marginalised for every set of inliers (`asker.statistics.inlier_sets`).

Algorithm   (1) distribution of the inlier sets of every variable, with all other variables constant
            (2) s², S² and π of every factor group, by EM; every third step is extrapolated (SQUAREM)
            (3) a step of all other variables: least squares on a problem in which every independent variable has a copy
                for each of its likely sets, whose observations count as P(A)/s²; the variable itself goes to the mean
            (4) back to (1) until all of them are at rest
Applied     if on a sample of the variables two components have more evidence than one noise for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, inf, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.linearized_problem import LinearModel
from asker.engines.interface import Point
from asker.kernels.kernels import Quadratic
from asker.problem.problem import Problem
from asker.problem.variables import Slot, Variables
from asker.search.context import SearchContext
from asker.search.state import Candidate
from asker.statistics.inlier_sets import Floats, Ints, Marginal, Observations, marginal
from asker.statistics.scale_mixture import TINY, ScaleMixture, posterior, squarem
from asker.strategies.composite.batched_subproblems import with_rows
from asker.strategies.composite.block_moves import Touching
from asker.strategies.weighted import Weighted

Models = Sequence[ScaleMixture | None]
Rows = tuple[Floats, ...]
BATCH = 2**19
"""Approximate number of matrix entries that are processed together."""
MAX_OUTLIER = 3.0
"""Residual of an outlier in S², at most, in standard deviations of the background."""
MAX_LOG_ODDS = 30.0
"""Largest log odds of an inlier ratio."""
MIN_SEPARATION = 2.0
"""S/s below which both components are one."""
DAMPING = 1e-6
"""λ of a step, relative to the diagonal."""


class Copies(NamedTuple):
    """Copies of the independent variables, one for each likely set."""

    rows: Floats
    of: Ints
    """Variable of each copy."""
    P: Floats
    """Probability of its set; the copies of a variable add up to 1."""
    entry: Ints
    """Observations of the copies, as entries of `Touching`."""
    copy: Ints
    """Copy of each of these observations."""
    w: Floats
    """Weight of each of these observations."""


def with_sample_evidence(context: SearchContext, candidate: Candidate) -> Candidate:
    """Return a candidate with the evidence of enumerated inlier sets, extrapolated from a sample of the variables."""
    v = context.independent
    if v is None or _is_exact(context, candidate):
        return replace(candidate, mixture_evidence=candidate.evidence)
    sets = InlierSets(context, v, candidate.point, candidate.models)
    has_two = sets.have_near_outliers()
    ratio = min(model.inlier_ratio for model in sets.models if model) if has_two else 1.0
    return replace(candidate, evidence=sets.sample_evidence, mixture_evidence=candidate.evidence, support=ratio)


def _is_exact(context: SearchContext, candidate: Candidate) -> bool:
    """Return whether the inliers of a group fit exactly: then they are certain."""
    each = zip(candidate.models, context.reference_variance, strict=True)
    return any(model and model.variance <= context.settings.exact_ratio * Q for model, Q in each)


def marginalised(context: SearchContext, candidate: Candidate) -> Candidate:
    """Return a candidate after EM over inlier sets if there are near outliers, else the same."""
    v = context.independent
    has_heavy_tails = any(model and model.dof < inf for model in candidate.models)
    if v is None or has_heavy_tails or _is_exact(context, candidate) or not context.goes_on():
        return candidate
    sets = InlierSets(context, v, candidate.point, candidate.models)
    sets.start_from(candidate.leverage)
    if not sets.have_near_outliers():
        return candidate
    point, models = sets.solved()
    weights = context.weights(point, models, candidate.leverage)
    leverage = context.leverage(point, weights)
    return replace(candidate, point=point, models=models, leverage=leverage, is_marginal=True)


class InlierSets:
    """The observations of all independent variables, at a point that moves."""

    def __init__(self, context: SearchContext, v: Variables, point: Point, models: Models):
        self.context, self.problem, self.v = context, context.problem, v
        self.touching, self.pool = Touching.of(context.problem, v), Pool()
        self.at: Point = point
        self.models = tuple(models)
        n, d = len(self.touching.group), v.manifold.tangent
        self.JJ, self.Jr = np.zeros((n, d, d)), np.zeros((n, d))
        self.u, self.p = np.zeros(n), np.ones(n)
        self.outliers = np.ones(len(models))
        """S² of each factor group."""
        self.sample_evidence = -inf
        """Evidence of a sample of the variables, by which candidates can be compared."""
        self.last = np.full(n, 0.5)
        """Probability of each observation to be an inlier, as it was last."""
        self._linearise(point)

    def _linearise(self, point: Point) -> None:
        """Set the derivatives of all observations at a point."""
        self.at, linear = point, LinearModel(self.problem, self.context.engine.rows(point))
        for k, derivatives in enumerate(linear.derivatives_by(self.v)):
            if derivatives is None:
                continue
            own = self.touching.group == k
            chosen = self.touching.observation[own]
            J, r = (x[chosen] for x in derivatives[:2])
            self.JJ[own], self.Jr[own] = np.swapaxes(J, 1, 2) @ J, np.einsum("npd,np->nd", J, r)
            self.u[own], self.p[own] = self.context.squares(point)[k][chosen], r.shape[1]
        bad = ~np.isfinite(self.JJ).all(axis=(1, 2)) | ~np.isfinite(self.Jr).all(axis=1)
        self.JJ[bad], self.Jr[bad], self.u[bad] = 0.0, 0.0, np.inf

    def _batches(self, some: Ints | None = None) -> Iterator[tuple[Ints, Ints]]:
        """Yield variables with equally many observations, and the entries of these, (n, m)."""
        ptr, (n_varied, d) = self.touching.ptr, (self.context.settings.max_varied, self.Jr.shape[1])
        counts = np.diff(ptr)
        chosen = counts > 0
        if some is not None:
            chosen &= np.isin(np.arange(len(counts)), some)
        for m in np.unique(counts[chosen]).tolist():
            own = np.flatnonzero(chosen & (counts == m))
            size = len(own) * 2 ** min(m, n_varied) * max(m, d * d)
            for part in np.array_split(own, -(-size // BATCH)):
                yield part, ptr[part][:, None] + np.arange(m)

    def _of(self, at: Ints, models: Models, outliers: Floats, n_varied: int) -> Marginal:
        """Return the distribution of the inliers of some variables."""  # (1)
        group = self.touching.group[at]
        variance = np.array([model.variance if model else 1.0 for model in models])[group]
        ratio = np.array([model.inlier_ratio if model else 1.0 for model in models])[group]
        of = Observations(self.JJ[at], self.Jr[at], self.u[at], self.p[at])
        last = self.last[at] if n_varied else np.ones(at.shape)
        return marginal(of, variance, outliers[group], ratio, last, n_varied)

    def step_of_mixtures(
        self, models: Models, outliers: Floats, some: Ints | None, n_varied: int
    ) -> tuple[float, tuple[ScaleMixture | None, ...], Floats]:
        """Return the evidence of mixtures with variances of the outliers, and both after one EM step."""  # (2)
        n, evidence = len(self.touching.group), 0.0
        found, seen = np.zeros((3, n)), np.zeros(n, dtype=bool)
        for _, at in self._batches(some):
            part = self._of(at, models, outliers, n_varied)
            evidence += float(part.evidence.sum())
            seen[at] = True
            for whole, x in zip(found, (part.inlier, part.squares, part.outlier_squares), strict=True):
                whole[at] = x
        self.last = np.where(seen & (n_varied > 0), found[0], self.last)
        new, variances = [], outliers.copy()
        for k, model in enumerate(models):
            own = seen & (self.touching.group == k)
            if model is None or not own.any():
                new.append(model)
                continue
            p, q, most = self.p[own], found[0, own], MAX_OUTLIER**2 * self.context.reference_variance[k]
            variance = max(float(found[1, own].sum()) / max(float(q @ p), TINY), self.context.least_variance[k], TINY)
            least = 0.5 / len(q)
            outside = float(np.minimum(found[2, own], (1 - q) * p * most).sum()) / max(float((1 - q) @ p), TINY)
            variances[k] = max(outside, variance)
            ratio = min(max(float(q.mean()), least), 1 - least)
            new.append(replace(model, variance=variance, inlier_ratio=ratio))
        return evidence, tuple(new), variances

    def _outlier_variances(self, models: Models) -> Floats:
        """Return S² of each group, where all observations have their mean square."""
        found = []
        for k, model in enumerate(models):
            u, p = self.u[self.touching.group == k], self.p[self.touching.group == k]
            mean = float(np.minimum(u, MAX_OUTLIER**2 * p * self.context.reference_variance[k]).sum())
            mean /= max(float(p.sum()), TINY)
            s2, ratio = (model.variance, model.inlier_ratio) if model else (1.0, 0.5)
            found.append(max((mean - ratio * s2) / max(1 - ratio, TINY), MIN_SEPARATION**2 * s2))
        return np.array(found)

    def have_near_outliers(self) -> bool:
        """Return whether two components have more evidence than one noise: on a sample of the variables, which is
        doubled while the gain is positive and not decisive."""
        settings, counts = self.context.settings, np.diff(self.touching.ptr)
        light = np.flatnonzero((counts > 1) & (counts <= settings.max_varied))
        light = light if len(light) else np.flatnonzero(counts > 1)
        starts: list[tuple[ScaleMixture | None, ...]] = [self.models, self._halves()]
        size = settings.enumeration_sample
        while True:
            some = light[:: max(len(light) // size, 1)]
            fits = [self._on_sample(start, some) for start in starts]
            with_two, models, outliers = max(fits, key=lambda each: each[0])
            one = tuple(model and replace(model, inlier_ratio=1 - 0.5 / len(self.u)) for model in self._halves(1.0))
            for _ in range(settings.max_agreement_rounds):
                with_one, one, _ = self.step_of_mixtures(one, outliers, some, 0)
            n = max(int(counts[some].sum()), 2)
            gain = with_two - with_one
            price = log(n) * sum(model is not None for model in one) + settings.alternative_nats  # S² and π: ½ log n
            if not 0 < gain < price or len(some) == len(light):
                break
            starts, size = [models], 2 * size
        self.models, self.outliers = models, outliers
        self.sample_evidence = max(with_two, with_one) * (len(self.u) / n)
        return gain > price

    def _halves(self, part: float = 1 / 16) -> tuple[ScaleMixture | None, ...]:
        """Return mixtures in which half of what looks like one noise are outliers; `part` of its variance is noise."""
        found = []
        for k, model in enumerate(self.models):
            own = (self.touching.group == k) & np.isfinite(self.u)
            most = MAX_OUTLIER**2 * self.context.reference_variance[k]
            mean = float(np.minimum(self.u[own], self.p[own] * most).sum()) / max(float(self.p[own].sum()), TINY)
            found.append(model and replace(model, variance=max(part * mean, TINY), inlier_ratio=0.5, dof=inf))
        return tuple(found)

    def _on_sample(self, models: Models, some: Ints) -> tuple[float, tuple[ScaleMixture | None, ...], Floats]:
        """Return the evidence, mixtures and outlier variances after a few EM steps on some of the variables."""
        settings, evidence, found = self.context.settings, -inf, tuple(models)
        outliers = self._outlier_variances(found)
        for _ in range(settings.max_agreement_rounds):
            evidence, found, outliers = self.step_of_mixtures(found, outliers, some, settings.max_varied)
        return evidence, found, outliers

    def solved(self) -> tuple[Point, tuple[ScaleMixture | None, ...]]:
        """Return the point and the mixtures after EM."""
        settings, parameters = self.context.settings, [_parameters(self.models, self.outliers)]
        for _ in range(settings.max_enumeration_steps):
            _, models, outliers = self.step_of_mixtures(self.models, self.outliers, None, settings.max_varied)
            copies = self._copies()
            point = self.context.engine.evaluate(self._moved(copies))
            if not point.finite or not self.context.goes_on():
                break
            before = parameters[-1]
            self.models, self.outliers = models, outliers
            self._linearise(point)
            parameters.append(_parameters(models, outliers))
            if np.abs(parameters[-1] - before).max() < settings.scale_rtol:  # (4)
                break
            if len(parameters) == 3:
                self.models, self.outliers = _with_parameters(models, squarem(*parameters))
                parameters = [_parameters(self.models, self.outliers)]
        return self.at, self.models

    def _copies(self) -> Copies:
        """Return a copy of every variable for each of its likely sets."""
        settings, own = self.context.settings, self.context.engine.rows(self.at)[self.problem.variables.index(self.v)]
        inside = 1 / np.array([model.variance if model else 1.0 for model in self.models])
        parts, n = [], 0
        for some, at in self._batches():
            part = self._of(at, self.models, self.outliers, settings.max_varied)
            which, number = np.nonzero(settings.least_set_ratio * part.P.max(axis=1, keepdims=True) <= part.P)
            P = part.P[which, number]
            P = P / np.bincount(which, P, minlength=len(some))[which]
            group, sets = self.touching.group[at[which]], part.sets[which, number]
            w = (sets * inside[group] + (1 - sets) / self.outliers[group]) * np.isfinite(self.u[at[which]])
            copy = np.repeat(n + np.arange(len(which)), at.shape[1])
            rows = own[some[which]] + part.delta[which, number]
            parts.append((rows, some[which], P, at[which].ravel(), copy, w.ravel()))
            n += len(which)
        return Copies(*(np.concatenate(x) for x in zip(*parts, strict=True)))

    def _moved(self, copies: Copies) -> Rows:
        """Return the rows of all variables after a step, on the CPU: the number of copies changes every time."""  # (3)
        theta, variables = self.context.engine.rows(self.at), self.problem.variables
        instead = {v: with_rows(v, rows, v.fixed) for v, rows in zip(variables, theta, strict=True)}
        instead[self.v] = with_rows(self.v, copies.rows, np.zeros(len(copies.rows), bool))
        made, weights = [], []
        for k, f in enumerate(self.problem.factors):
            own = (self.touching.group[copies.entry] == k) & (copies.w > 0)
            chosen, copy = self.touching.observation[copies.entry[own]], copies.copy[own]
            slots = [Slot(instead[s.variables], copy if s.variables is self.v else s.index[chosen]) for s in f.slots]
            made.append(f.on(slots, chosen).under(Quadratic(1.0)))
            weights.append((copies.P[copies.copy] * copies.w)[own])
        engine = CpuEngine(Problem(*made), "auto", instead[self.v], True, self.pool)
        descent = Weighted(engine.in_own_order(tuple(weights)), DAMPING)
        point = descent.step(engine, descent.init(engine, engine.start(), 1)).point
        found = dict(zip(engine.problem.variables, engine.rows(point), strict=True))
        means = theta[variables.index(self.v)].copy()
        means[copies.of] = 0.0
        np.add.at(means, copies.of, copies.P[:, None] * found.get(instead[self.v], copies.rows))
        each = zip(variables, theta, strict=True)
        return tuple(means if v is self.v else found.get(instead[v], rows) for v, rows in each)

    def start_from(self, h: tuple[Floats, ...]) -> None:
        """Take the posterior of the mixtures as the last probabilities."""
        for k, model in enumerate(self.models):
            own: NDArray[np.bool_] = self.touching.group == k
            if model is not None:
                self.last[own] = posterior(model, self.context.residuals(self.at, h, k))[self.touching.observation[own]]


def _parameters(models: Models, outliers: Floats) -> Floats:
    """Return log s², log S² and the log odds of π of all mixtures, (3, groups), as one array."""
    variance = [log(model.variance) if model else 0.0 for model in models]
    odds = [log(model.inlier_ratio / (1 - model.inlier_ratio)) if model else 0.0 for model in models]
    return np.array([*variance, *np.log(outliers), *odds])


def _with_parameters(models: Models, at: Floats) -> tuple[tuple[ScaleMixture | None, ...], Floats]:
    """Return the mixtures and the variances of outliers with other parameters."""
    variance, outliers, odds = np.split(at, 3)
    ratio = 1 / (1 + np.exp(-np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)))
    found = [
        model and replace(model, variance=exp(variance[k]), inlier_ratio=float(ratio[k]))
        for k, model in enumerate(models)
    ]
    return tuple(found), np.exp(np.maximum(outliers, variance))
