"""Iteration of a strategy until convergence, and the construction of the result."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from asker.engines.interface import Engine, Point, omega
from asker.engines.validity import Conditions
from asker.problem.by_group import Groups
from asker.problem.variables import ProblemError
from asker.solver.checkpoint import Checkpoint, ProgressFile, Snapshot
from asker.solver.doubts import Doubt
from asker.solver.iteration import CurrentIteration, by_factor, residuals_at, values_at
from asker.solver.result import Analysis, Iteration, Result, Status
from asker.solver.stationarity import has_few_unknowns, predicted_decrease
from asker.statistics.inliers import Classified, classify
from asker.statistics.noise import Noise
from asker.statistics.scale import estimate
from asker.strategies.strategy import LARGEST_DAMPING, ROUNDING, State, Strategy

OnIteration = Callable[[CurrentIteration], bool | None]
AT_BORDER = "steps were shortened because longer ones give residuals that are not finite: the cost may be lower there"
ABOVE_BEST = (
    "the method converged at a cost of {:.6g}, above {:.6g} at an earlier point, which is returned and need not be a "
    "minimum: continue from it with `start=` and `asker.IRLS()`"
)
NO_WEIGHT = "all observations have kernel weight 0, so the gradient is 0: use a wider kernel or another initial guess"


class SolveLoop:
    """Loop over the steps of a strategy, with the history and the best state."""

    def __init__(
        self,
        begin: float,
        on_iteration: OnIteration | None,
        file: ProgressFile | None = None,
        earlier: float = 0.0,
    ):
        """
        Parameters
        ----------
        begin
            Time at which the solve was called, by `time.perf_counter`.
        on_iteration
            Callback for each iteration; returns whether to stop.
        file
            File from which the run is resumed and to which it is saved.
        earlier
            Seconds of earlier runs that this one resumes.
        """
        self.begin, self.on_iteration, self.file, self.earlier = begin, on_iteration, file, earlier
        self.history: list[Iteration] = []
        self.best: State
        self.last: tuple[State, State, int]
        """Current state, best state, and number of records of the history up to them."""
        self.is_above_best = False
        """True if the method converged at a higher cost than the best point, which is returned."""
        self.is_at_border = False
        """True if the last steps were shortened because longer ones give residuals that are not finite."""

    @property
    def seconds(self) -> float:
        """Seconds since the solve was called."""
        return time.perf_counter() - self.begin

    def run(
        self,
        engine: Engine,
        strategy: Strategy,
        start: Point,
        max_iterations: int,
        tol: float,
        time_limit: float | None,
        least: float = 0.0,
        certified: bool = True,
    ) -> Status:
        """Iterate until convergence or a limit, and return the reason; the outcome is in `best` and `history`.

        Parameters
        ----------
        engine, strategy, start
            Engine, strategy and initial point.
        max_iterations, tol, time_limit
            As for `asker.solve`.
        least
            Absolute decrease of the objective at or below which a step indicates convergence, as one below `tol` does.
        certified
            Whether a small decrease indicates convergence only if the derivatives predict no larger one.
        """
        state = self.best = strategy.init(engine, start, max_iterations)
        if self.file and (earlier := self.file.read(state, lambda point: strategy.init(engine, point, 0).cost)):
            state, self.best, self.history = earlier.state, earlier.best, earlier.history
            self.earlier = earlier.seconds
        self.last = state, self.best, len(self.history)
        try:
            status = self._iterate(engine, strategy, state, max_iterations, tol, time_limit, least, certified)
        except KeyboardInterrupt:
            if not self.history:
                raise
            status = Status.INTERRUPTED
        self.is_at_border = self.last[0].border < inf
        self.is_above_best = status is Status.CONVERGED and self.last[0].cost - self.best.cost > tol * self.best.cost
        self._save(at_the_end=True)
        return status

    def _iterate(
        self,
        engine: Engine,
        strategy: Strategy,
        state: State,
        max_iterations: int,
        tol: float,
        time_limit: float | None,
        least: float,
        certified: bool,
    ) -> Status:
        if not self.history and self._record(engine, state):
            return Status.STOPPED
        if state.cost == 0:
            _check_underflow(engine, state.point)
            return Status.CONVERGED
        while len(self.history) + state.spent <= max_iterations:
            before = replace(state, off_limits=False) if state.off_limits else state
            state = strategy.step(engine, before)
            border = _border(before, state)
            state = state if state.border == border else replace(state, border=border)
            stop = self._record(engine, state)
            self._save()
            if stop:
                return Status.STOPPED
            if _has_converged(before, state, tol, least):
                if state.border < inf and state.cost > 0:
                    return Status.AT_BORDER
                if not certified or self._may_be_a_minimum(engine, state, max(tol * state.cost, least)):
                    return Status.CONVERGED
            if not state.accepted and state.damping > LARGEST_DAMPING:
                return Status.STALLED
            if time_limit is not None and engine.any(self.seconds > time_limit):
                return Status.TIME_LIMIT
        return Status.MAX_ITERATIONS

    def _may_be_a_minimum(self, engine: Engine, state: State, threshold: float) -> bool:
        """Return False if all weights are 0 or, with few unknowns, the predicted decrease exceeds a threshold."""
        if state.cost == self.history[0].cost and engine.largest(omega, state.point) == 0:
            return False
        if not has_few_unknowns(engine.problem):
            return True
        from asker.engines.cpu.linearized_problem import LinearModel

        rows, weights = engine.rows(state.point), engine.in_user_order(engine.each(omega, state.point))
        predicted = predicted_decrease(LinearModel(engine.problem, rows), rows, weights)
        return predicted <= max(threshold, ROUNDING * state.cost)

    def _record(self, engine: Engine, state: State) -> bool:
        """Append a record to the history, and return whether the user requests to stop."""
        if state.cost < self.best.cost:
            self.best = state
        number, seconds = len(self.history), self.earlier + self.seconds
        fields = number, state.cost, self.best.cost, seconds, state.damping, state.accepted, state.details
        self.history.append(Iteration(*fields))
        self.last = state, self.best, len(self.history)  # in one statement: Ctrl-C may interrupt between any two
        if self.on_iteration is None:
            return False
        return bool(self.on_iteration(CurrentIteration(*fields, engine, state.point)))

    def _save(self, at_the_end: bool = False) -> None:
        state, best, n = self.last
        if self.file and n and (at_the_end or (n - 1) % self.file.every == 0):
            self.file.save(Snapshot(state, best, self.history[:n], self.earlier + self.seconds), at_the_end)


def result_of(
    engine: Engine,
    strategy: object,
    loop: SolveLoop,
    status: Status,
    analysis: Analysis,
    noises: tuple[Noise, ...] | None = None,
) -> Result:
    """Return the result of a loop; `noises` are those of the factor groups if they were estimated, else None."""
    engine.release_workspaces()
    engine, problem, point = engine.for_results(), engine.problem, loop.best.point
    known, possible = _classified(engine, point, noises)
    weights = engine.in_user_order(engine.each(omega, point))
    no_step = len(loop.history) > 1 and not any(line.accepted for line in loop.history[1:])
    is_stuck = status is Status.STALLED or (no_step and status is not Status.CONVERGED)
    fault = _nonfinite_derivative(engine, point) if is_stuck else ""
    doubts = _doubts_of_loop(loop, status, fault)
    if fault and no_step:
        raise ProblemError(
            f"{fault} at the start, and no step can be made (for example of a square root or a norm at 0)"
        )
    return Result(
        problem=problem.restored,
        values=values_at(engine, point),
        cost=loop.best.cost,
        initial_cost=loop.history[0].cost,
        status=status,
        history=loop.history,
        residuals=residuals_at(engine, point),
        weights=by_factor(problem, weights),
        informative=by_factor(problem, [np.ones(len(w), dtype=bool) for w in weights]),
        seconds=engine.seconds | {"total": loop.seconds},
        strategy=strategy,
        engine=engine.name,
        linear_solver=engine.linear_solver,
        relative_damping=engine.relative_damping,
        found_doubts=(*doubts, *(() if fault else _doubts(engine, point, weights, analysis))),
        unwritten=loop.file.unwritten if isinstance(loop.file, Checkpoint) else "",
        continued_from=loop.file.continued_from if isinstance(loop.file, Checkpoint) else 0,
        analysis=analysis,
        estimated_noise=known.noises if known and noises else None,
        known_inliers=known,
        possible=possible,
    )


def _classified(
    engine: Engine, point: Point, noises: tuple[Noise, ...] | None
) -> tuple[Classified | None, Groups[np.ndarray] | None]:
    """Return the inliers, and the observations that `valid=` does not exclude.

    Inliers are only classified if the noise was estimated or the problem is distributed; otherwise on access.
    """
    problem, possible, known = engine.problem, None, None
    if any(f.valid is not None for f in problem.factors):
        possible = tuple(~no for no in Conditions(engine).impossible(engine.rows_here(point)))
    if noises is not None or problem.portion is not None:
        u = [x / f.balance**2 for f, x in zip(problem.factors, engine.here(point.u), strict=True)]
        noises = noises or estimate(problem.factors, u, sums=engine.sums)
        known = classify(problem.factors, u, noises, possible, engine.sums)
        known = known._replace(inliers=tuple(by_factor(problem, engine.whole(known.inliers))))
    return known, None if possible is None else by_factor(problem, engine.whole(possible))


def _doubts_of_loop(loop: SolveLoop, status: Status, fault: str) -> list[Doubt]:
    """Return the reasons why the best point need not be a minimum; `fault` describes a derivative or is ""."""
    doubts = []
    if fault:
        doubts.append(Doubt(f"{fault} at this point, and no step can be made from it", Doubt.NOT_CONVERGED))
    if loop.is_at_border or status is Status.AT_BORDER:
        doubts.append(Doubt(AT_BORDER, Doubt.NOT_CONVERGED))
    if loop.is_above_best:
        last, best = float(loop.last[0].cost), float(loop.best.cost)
        doubts.append(Doubt(ABOVE_BEST.format(last, best), Doubt.NOT_CONVERGED, cost=last, best_cost=best))
    return doubts


def _doubts(engine: Engine, point: Point, weights: Sequence[np.ndarray], analysis: Analysis) -> tuple[Doubt, ...]:
    """Return doubts that all weights are 0, and that the data do not determine some of few unknowns.

    Problems with many unknowns are not tested for the latter, since most of them have a gauge.
    """
    has_weight = engine.sums.any(any(w.any() for w in weights))
    no_weight = () if has_weight else (Doubt(NO_WEIGHT, Doubt.NOT_CONVERGED),)
    if not has_few_unknowns(engine.problem):
        return no_weight
    from asker.engines.cpu.linearized_problem import LinearModel

    undetermined = analysis.undetermined(LinearModel(engine.problem, engine.rows_here(point)), weights)
    return (*no_weight, undetermined) if undetermined else no_weight


def _nonfinite_derivative(engine: Engine, point: Point) -> str:
    """Return the result of `LinearModel.nonfinite_derivative`, for the observations of all processes."""
    from asker.engines.cpu.linearized_problem import LinearModel

    fault = LinearModel(engine.problem, engine.rows_here(point)).nonfinite_derivative()
    elsewhere = "a derivative is not finite in another process" if engine.sums.any(bool(fault)) else ""  # collective
    return fault or elsewhere


def _check_underflow(engine: Engine, point: Point) -> None:
    """Raise a `ProblemError` if the square of a nonzero residual underflows to 0."""
    for f, r, u in zip(engine.problem.factors, engine.residuals(point), engine.in_user_order(point.u), strict=True):
        has_weight = np.ones(f.n, dtype=bool) if f.weight is None else f.weight > 0
        vanish = has_weight & (u == 0) & r.any(axis=1) if len(r) == f.n else np.zeros(f.n, dtype=bool)
        if vanish.any():
            raise ProblemError(
                f"{f.name}: the squared residual of observation {np.argmax(vanish)} underflows at the start; use other "
                "units"
            )


def _border(before: State, after: State) -> float:
    """Return λ of the last trial with residuals that are not finite; inf after a finite trial with λ as small."""
    if after.off_limits:
        return before.damping
    return inf if before.damping <= before.border else before.border


def _has_converged(before: State, after: State, tol: float, least: float) -> bool:
    """Return whether an accepted step on Ψ itself had a negligible decrease, or no decrease is possible."""
    threshold = max(tol * before.objective, least)
    if threshold > 0 and after.at_rest and after.on_target and before.on_target:
        return True
    if not (after.accepted and after.on_target and before.on_target):
        return False
    return after.cost == 0 or (threshold > 0 and 0 <= before.objective - after.objective <= threshold)
