"""What the search evaluates on an engine: residuals, weights and leverage under the mixtures of all factor groups."""

from collections.abc import Callable, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Engine, PerFactor, Point, omega, psi
from asker.engines.inverse_blocks import SingularError
from asker.engines.linearised import linear_model
from asker.engines.validity import Conditions
from asker.geometry.manifolds import Euclidean
from asker.kernels.kernels import Kernel, Quadratic
from asker.problem.problem import Problem
from asker.problem.variables import Variables
from asker.search.data_checks import Dependence, first_copies, is_degenerate
from asker.search.settings import SearchSettings
from asker.search.state import Background
from asker.statistics.leverage import remaining_fractions
from asker.statistics.scale_mixture import TINY, Residuals, ScaleMixture, background, log_likelihoods, weights
from asker.strategies.strategy import Strategy

Floats = NDArray[np.float64]
DAMPING, LINEAR_DAMPING = 1e-3, 1e-9
"""λ at the start of a descent; a step of a linear problem needs none."""
MAX_TANGENT = 6
"""Maximum number of unknowns of an independent variable."""
Models = Sequence[ScaleMixture | None]
Leverage = tuple[Floats, ...]
Run = Callable[[Engine, Strategy, Point, int, str], Point]
"""Runs a strategy from a point for at most so many iterations of a stage, and returns the best point."""
LEAST_REMAINING = 1e-6
"""Smallest fraction of an observation that a fit leaves, against division by 0."""
LEAST_WEIGHT = 1e-12
"""Smallest weight relative to the largest in the leverage, so that the information stays invertible."""


class SearchContext:
    """One problem on an engine, with the knowledge that all candidates share."""

    def __init__(self, engine: Engine, start: Point, settings: SearchSettings, run: Run, goes_on: Callable[[], bool]):
        """
        Parameters
        ----------
        engine
            Engine of the problem under the kernels of the user.
        start
            Initial values.
        settings
            Settings of the search.
        run
            Function that runs a descent.
        goes_on
            Function that returns False after a limit was reached.
        """
        problem = engine.problem
        self.settings, self.run, self.goes_on = settings, run, goes_on
        self.is_known = False
        """True while a resumed search repeats descents that its history has."""
        self.fixed_kernels: list[Kernel | None] = [f.kernel if f.noise_is_known else None for f in problem.factors]
        self.estimated = [k for k, f in enumerate(problem.factors) if not f.noise_is_known]
        """Numbers of the groups whose noise scale is unknown."""
        self.engine = engine.under([kernel or Quadratic() for kernel in self.fixed_kernels])
        """Engine on which the groups of unknown scale are quadratic; weights are passed to each step."""
        self.problem, self.sums = problem, engine.sums
        self.p = [f.residual_size for f in problem.factors]
        self.n_unknowns = problem.n_unknowns
        self.has_few_unknowns = self.n_unknowns <= settings.max_subset_unknowns
        self.gain_nats = settings.gain_nats * self.n_unknowns
        """Gain of evidence that is worth another round."""
        self.damping = LINEAR_DAMPING if problem.is_linear else DAMPING
        """λ at the start of a descent."""
        self.is_small = self.n_unknowns <= settings.max_small_unknowns
        look = self.has_few_unknowns
        self.unique = [first_copies(f) if look and k in self.estimated else None for k, f in enumerate(problem.factors)]
        """Numbers of the observations that are no copies of others, for each group with copies."""
        self.log_background: list[Floats] = []
        self.reference_variance: list[float] = []
        """Variance of each group in the least-squares solution."""
        self.least_variance: list[float] = []
        """Lower bounds of the variances: rounding errors in double precision, or of the data."""
        self.start = start
        """Initial values."""
        self.first: Point = self.start
        """End of the Cauchy descent from the initial values."""
        self.least_squares: Point = self.start
        """Least-squares solution, which defines the background."""
        self.independent = independent_variables(problem, settings.max_enumerated_observations)
        """Variables whose inlier sets are enumerated, if any."""
        self._squares: WeakKeyDictionary[Point, tuple[Floats, ...]] = WeakKeyDictionary()

    @cached_property
    def conditions(self) -> Conditions:
        """Conditions under which observations are possible."""
        return Conditions(self.engine)

    @cached_property
    def dependence(self) -> Dependence | None:
        """Sensitivity of the residuals to the data, for problems with few unknowns in one process."""
        if not self.has_few_unknowns or self.problem.portion is not None:
            return None
        return Dependence(self.engine, [self.problem.factors[k] for k in self.estimated], self.engine.rows(self.start))

    def is_degenerate(self, point: Point) -> bool:
        """Return whether the residuals depend far less on the data than at the start."""
        of = self.dependence
        return of is not None and is_degenerate(of.at_start, of.at(self.engine.rows(point)))

    def squares(self, point: Point) -> tuple[Floats, ...]:
        """Return w‖r‖² of the observations of this process, infinite for impossible and undefined ones."""
        if point not in self._squares:
            u = tuple(np.where(np.isnan(x), np.inf, x) for x in self.all_squares(point))
            if any(f.valid is not None for f in self.problem.factors):
                impossible = self.conditions.impossible(self.engine.rows_here(point))
                u = tuple(np.where(mask, np.inf, x) for mask, x in zip(impossible, u, strict=True))
            self._squares[point] = u
        return self._squares[point]

    def all_squares(self, point: Point) -> tuple[Floats, ...]:
        """Return w‖r‖² of the observations of this process, whether they are possible or not."""
        return self.engine.here(point.u)

    def use_background(self, found: Background) -> None:
        """Take a least-squares solution as the explanation of all observations as noise."""
        self.first, self.least_squares = found.first, found.point
        self.reference_variance = [max(x, TINY) for x in found.variances]
        least = [self.settings.exact_ratio**2 * x for x in self.reference_variance]
        self.least_variance = list(found.least_variance or least)
        dofs, each = (
            self.settings.background_dofs,
            zip(self.all_squares(found.point), found.leverage, self.p, strict=True),
        )
        self.log_background = [
            background(u, h, p, dofs, self.sums) if k in self.estimated else np.zeros(len(u))
            for k, (u, h, p) in enumerate(each)
        ]

    def residuals(self, point: Point, h: Leverage, k: int, are_distinct: bool = False) -> Residuals:
        """Return the residuals of group k for the model; `are_distinct` omits copies of other observations."""
        p, u = self.p[k], self.squares(point)[k]
        m = np.maximum(p - h[k], LEAST_REMAINING * p)
        of = Residuals(u, m, self.log_background[k], self.least_variance[k], self.sums)
        unique = self.unique[k] if are_distinct else None
        return of if unique is None else of.only(unique)

    def weights(self, point: Point, models: Models, h: Leverage) -> list[Floats]:
        """Return the weight of every residual of this process in the solve, in the user's order."""
        found = self._of_fixed(omega, point)
        for k, model in enumerate(models):
            if model is not None:
                found[k] = weights(model, self.residuals(point, h, k))
        return found

    def cost(self, point: Point, models: Models, h: Leverage) -> float:
        """Return the negative log likelihood relative to the background, in nats."""
        costs = [float(x.sum()) for x in self._of_fixed(psi, point)]
        for k, model in enumerate(models):
            if model is not None:
                costs[k] = -float(log_likelihoods(model, self.residuals(point, h, k)).sum())
        return float(sum(self.sums.of(*costs))) if point.finite else float("nan")

    def fixed_cost(self, point: Point) -> float:
        """Return the cost of the groups whose kernel is specified."""
        return float(sum(self.sums.of(*(float(x.sum()) for x in self._of_fixed(psi, point)))))

    def _of_fixed(self, formula: Callable, point: Point) -> list[Floats]:
        """Return a formula for every residual of the groups with a kernel; 0 for the others."""
        if all(kernel is None for kernel in self.fixed_kernels):
            return [np.zeros(f.n) for f in self.problem.factors]
        each = zip(self.engine.here(self.engine.each(formula, point)), self.fixed_kernels, strict=True)
        return [np.zeros(len(x)) if kernel is None else np.asarray(x, dtype=float) for x, kernel in each]

    def for_solve(self, w: Sequence[Floats]) -> PerFactor:
        """Return weights in the order of the engine."""
        return self.engine.in_own_order(self.engine.whole(tuple(np.ascontiguousarray(x) for x in w)))

    def leverage(self, point: Point, w: Sequence[Floats]) -> Leverage:
        """Return the degrees of freedom that a fit with these weights uses up in each observation."""
        is_exact = self.n_unknowns <= self.settings.max_exact_leverage_unknowns and self.problem.portion is None
        exact = self._exact_leverage(point, w) if is_exact else None
        if exact is not None:
            return exact
        largest = [max(self.sums.largest(x), TINY) for x in w]
        relative = [x / top for x, top in zip(w, largest, strict=True)]
        kept = remaining_fractions(self.problem.factors, relative, self.sums, largest)
        return tuple(p * (1 - x) for p, x in zip(self.p, kept, strict=True))

    def _exact_leverage(self, point: Point, w: Sequence[Floats]) -> Leverage | None:
        """Return w tr(J (Σ w JᵀJ)⁻¹ Jᵀ), or None if the information has no inverse."""
        a = [np.maximum(x, LEAST_WEIGHT * x.max(initial=0.0)) for x in w]
        try:
            model = linear_model("cpu", self.problem, self.engine.rows_here(point))
            variances = model.predicted(model.inverse(a))
        except (SingularError, np.linalg.LinAlgError, FloatingPointError):
            return None
        h = tuple(np.clip(x * v, 0.0, p) for x, v, p in zip(a, variances, self.p, strict=True))
        return h if all(np.isfinite(x).all() for x in h) else None

    def even_leverage(self) -> Leverage:
        """Return a leverage that is the same for all numbers, as a first guess."""
        total = sum(n * p for n, p in zip(self.problem.n_observations, self.p, strict=True))
        share = min(self.n_unknowns / max(total, 1), 0.9)
        return tuple(np.full(f.n, share * p) for f, p in zip(self.problem.factors, self.p, strict=True))


def independent_variables(problem: Problem, max_observations: int) -> Variables | None:
    """Return the group of variables to marginalise, or None if there is none or it is too large."""
    groups = [f for f in problem.factors if f.n]
    free = [v for v in problem.variables if v.is_free]
    suited = [v for v in free if all(sum(s.variables is v for s in f.slots) == 1 for f in groups)]
    v = max(suited, key=problem.count, default=None)
    if v is None or problem.portion is not None or sum(f.n for f in groups) > max_observations:
        return None
    is_simple = isinstance(v.manifold, Euclidean) and v.manifold.tangent <= MAX_TANGENT and not v.fixed.any()
    is_group = problem.count(v) > 1 and len(free) > 1 and not v.bounds
    return v if is_simple and is_group and not any(f.noise_is_known for f in groups) else None
