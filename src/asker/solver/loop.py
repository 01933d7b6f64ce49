"""The one loop."""

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
from asker.solver.iteration import CurrentIteration, by_factor, residuals_at, values_at
from asker.solver.result import Analysis, Iteration, Result, Status
from asker.solver.stationarity import has_few_unknowns, promised_decrease
from asker.statistics.inliers import Classified, classify
from asker.statistics.scale import Noise, estimate
from asker.strategies.strategy import LARGEST_DAMPING, ROUNDING, State, Strategy

OnIteration = Callable[[CurrentIteration], bool | None]
AT_BORDER = "steps were shortened because residuals are not finite where longer ones lead: the cost may be lower there"
ABOVE_BEST = (
    "the method converged at a cost of {:.6g}, above {:.6g} at a point that it has passed, which is returned and need "
    "not be a minimum: continue from there with `start=` and `asker.IRLS()`"
)
NO_WEIGHT = "every observation has weight 0, and nothing moves the variables: use a wider kernel, or start elsewhere"


class SolveLoop:
    """The loop, and what it remembers: the history and the best state."""

    def __init__(
        self,
        begin: float,
        on_iteration: OnIteration | None,
        file: ProgressFile | None = None,
        earlier: float = 0.0,
    ):
        """`earlier`: seconds of the run that this one continues."""
        self.begin, self.on_iteration, self.file, self.earlier = begin, on_iteration, file, earlier
        self.history: list[Iteration] = []
        self.best: State
        self.last: tuple[State, State, int]
        """Where the run stands: the state, the best one, and how many lines of the history belong to them."""
        self.is_above_best = False
        """Whether the method converged above the best point, which is returned."""
        self.is_at_border = False
        """Whether the last steps were shortened because residuals are not finite where longer ones lead."""

    @property
    def seconds(self) -> float:
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
        """From the start to the end; what was found is in `best` and `history`.

        `least`: a step that lowers the objective by no more is the last, as one below `tol` is.
        `certified`: a small gain counts as convergence only where the derivatives do not contradict it.
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
            if _gains_nothing(before, state, tol, least):
                if state.border < inf and state.cost > 0:
                    return Status.AT_BORDER
                if not certified or self._may_be_a_minimum(engine, state, max(tol * state.cost, least)):
                    return Status.CONVERGED
            if not state.accepted and state.damping > LARGEST_DAMPING:
                return Status.STALLED
            if time_limit is not None and engine.any(self.seconds > time_limit):
                return Status.TIME_LIMIT
        return Status.MAX_ITERATIONS

    def _may_be_a_minimum(self, engine: Engine, state: State, enough: float) -> bool:
        """Return whether nothing known prevents a minimum: weights that are all 0 or, in a problem of few unknowns, a
        decrease that damping has hidden."""
        if state.cost == self.history[0].cost and engine.largest(omega, state.point) == 0:
            return False
        if not has_few_unknowns(engine.problem):
            return True
        from asker.engines.cpu.linearized_problem import LinearModel

        rows, weights = engine.rows(state.point), engine.in_user_order(engine.each(omega, state.point))
        promised = promised_decrease(LinearModel(engine.problem, rows), rows, weights)
        return promised <= max(enough, ROUNDING * state.cost)

    def _record(self, engine: Engine, state: State) -> bool:
        """Whether the user asks to stop."""
        if state.cost < self.best.cost:
            self.best = state
        number, seconds = len(self.history), self.earlier + self.seconds
        told = number, state.cost, self.best.cost, seconds, state.damping, state.accepted, state.details
        self.history.append(Iteration(*told))
        self.last = state, self.best, len(self.history)  # at once: Ctrl-C may come between any two lines
        if self.on_iteration is None:
            return False
        return bool(self.on_iteration(CurrentIteration(*told, engine, state.point)))

    def _save(self, at_the_end: bool = False) -> None:
        state, best, n = self.last
        if self.file and n and (at_the_end or (n - 1) % self.file.every == 0):
            self.file.save(Snapshot(state, best, self.history[:n], self.earlier + self.seconds), at_the_end)


def result_of(
    engine: Engine,
    strategy: Strategy,
    loop: SolveLoop,
    status: Status,
    analysis: Analysis,
    noises: tuple[Noise, ...] | None = None,
) -> Result:
    """Return the result of a loop.  `noises` has the scale of each factor group, if it was estimated."""
    engine.done()
    engine, problem, point = engine.for_results(), engine.problem, loop.best.point
    known, possible = _classified(engine, point, noises)
    weights = engine.in_user_order(engine.each(omega, point))
    no_step = len(loop.history) > 1 and not any(line.accepted for line in loop.history[1:])
    is_stuck = status is Status.STALLED or (no_step and status is not Status.CONVERGED)
    fault = _without_derivative(engine, point) if is_stuck else ""
    doubts = [f"{fault} at this point, and no step can be made from it"] if fault else []
    if loop.is_at_border or status is Status.AT_BORDER:
        doubts.append(AT_BORDER)
    if loop.is_above_best:
        doubts.append(ABOVE_BEST.format(loop.last[0].cost, loop.best.cost))
    if fault and no_step:
        raise ProblemError(f"{fault} at the start, and no step can be made (as of a root or a norm at 0)")
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
    """Return the inliers where the noise was sought or processes must act together, and the possible observations."""
    problem, possible, known = engine.problem, None, None
    if any(f.valid is not None for f in problem.factors):
        possible = tuple(~no for no in Conditions(engine).impossible(engine.rows_here(point)))
    if noises is not None or problem.portion is not None:
        u = [x / f.balance**2 for f, x in zip(problem.factors, engine.here(point.u), strict=True)]
        noises = noises or estimate(problem.factors, u, sums=engine.sums)
        known = classify(problem.factors, u, noises, possible, engine.sums)
        known = known._replace(inliers=tuple(by_factor(problem, engine.whole(known.inliers))))
    return known, None if possible is None else by_factor(problem, engine.whole(possible))


def _doubts(engine: Engine, point: Point, weights: Sequence[np.ndarray], analysis: Analysis) -> tuple[str, ...]:
    """Return whether no observation has a weight, and what the data do not determine of problems with few unknowns:
    larger ones have a gauge as a rule."""
    no_weight = () if engine.sums.any(any(w.any() for w in weights)) else (NO_WEIGHT,)
    if not has_few_unknowns(engine.problem):
        return no_weight
    from asker.engines.cpu.linearized_problem import LinearModel

    told = analysis.undetermined(LinearModel(engine.problem, engine.rows_here(point)), weights)
    return (*no_weight, told) if told else no_weight


def _without_derivative(engine: Engine, point: Point) -> str:
    """What `LinearModel.without_derivative` says; where a process has a portion: of any of its observations."""
    from asker.engines.cpu.linearized_problem import LinearModel

    told = LinearModel(engine.problem, engine.rows_here(point)).without_derivative()
    elsewhere = "a derivative is not finite in another process" if engine.sums.any(bool(told)) else ""  # all ask
    return told or elsewhere


def _check_underflow(engine: Engine, point: Point) -> None:
    """Refuse residuals whose squares are too small to be numbers."""
    for f, r, u in zip(engine.problem.factors, engine.residuals(point), engine.in_user_order(point.u), strict=True):
        has_weight = np.ones(f.n, dtype=bool) if f.weight is None else f.weight > 0
        vanish = has_weight & (u == 0) & r.any(axis=1) if len(r) == f.n else np.zeros(f.n, dtype=bool)
        if vanish.any():
            raise ProblemError(
                f"{f.name}: the squared residual of observation {np.argmax(vanish)} underflows at the start; use other "
                "units"
            )


def _border(before: State, after: State) -> float:
    """Return λ of the last trial whose residuals are not finite; inf once they are after a step with as small a λ."""
    if after.off_limits:
        return before.damping
    return inf if before.damping <= before.border else before.border


def _gains_nothing(before: State, after: State, tol: float, least: float) -> bool:
    """Whether an accepted step on Ψ itself gained next to nothing, or there is nothing to gain."""
    enough = max(tol * before.objective, least)
    if enough > 0 and after.at_rest and after.on_target and before.on_target:
        return True
    if not (after.accepted and after.on_target and before.on_target):
        return False
    return after.cost == 0 or (enough > 0 and 0 <= before.objective - after.objective <= enough)
