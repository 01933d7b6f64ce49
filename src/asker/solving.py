"""The one loop."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from asker.checkpoint import Checkpoint, Snapshot
from asker.conditions import Conditions
from asker.covariance import Uncertainty
from asker.current import CurrentIteration, by_factor, values_at, weights_at
from asker.engines.cpu.threads import team_of
from asker.engines.point import Engine, Point
from asker.engines.solvers import CG, XLA_SOLVERS, LinearSolver
from asker.io.files import FilePath
from asker.leverage import leverage
from asker.logs import log, spoken
from asker.problem import Problem
from asker.result import HowSure, Iteration, Result, Status
from asker.starts import Start, rows_to_start
from asker.strategies.default import ASKER
from asker.strategies.irls import IRLS
from asker.strategies.strategy import LARGEST_DAMPING, State, Strategy, cost
from asker.unknown import Search
from asker.variables import ProblemError, Variables

ENGINES = ("auto", "cpu", "xla")
MANY = 10_000
WORTH_A_GPU = 200_000  # residuals
ENOUGH = 1e-6
"""The relative decrease at which a stage ends: others follow."""
OnIteration = Callable[[CurrentIteration], bool | None]
EngineClass = Callable[[Problem, LinearSolver, Variables | bool, bool], Engine]


def solve(
    problem: Problem,
    strategy: Strategy | None = None,
    *,
    max_iterations: int | None = None,
    tol: float = 1e-9,
    time_limit: float | None = None,
    on_iteration: OnIteration | None = None,
    engine: Literal["auto", "cpu", "xla"] = "auto",
    linear_solver: LinearSolver = "auto",
    eliminate: Variables | bool = True,
    relative_damping: bool | None = None,
    checkpoint: FilePath | None = None,
    every: int = 10,
    threads: int | None = None,
    start: Start | None = None,
    verbose: bool = False,
) -> Result:
    """Minimise Ψ and return the best point seen.

    With factors that have no kernel, and without a strategy, nothing is known of the noise.  Then it is found while
    solving, with a kernel that fits it, and several ways down are tried: see `asker.unknown`.

    strategy        how: `ASKER()` and its siblings, with their settings as fields; when not given, `ASKER()`,
                    or `IRLS()` where every kernel is convex
    max_iterations  linear solves; a refused step counts as one.  100 when not given; as many as it takes where the
                    noise is not known
    tol             stop when an accepted step lowers the objective by less than this part of it; 0 to go on
    time_limit      seconds
    on_iteration    called with each `Iteration`, whose `values`, `residuals` and `weights` are there while it is the
                    current one; return True to stop
    engine          cpu; xla: through JAX on an accelerator, or several; auto: xla where there is a GPU and the problem
                    is large enough to gain
    linear_solver   auto, dense-cholesky, sparse-cholesky, cg, reference, or `asker.engines.solvers.CG(...)`;
                    on xla: auto, dense-cholesky, cg, or `CG(...)`
    eliminate       the variables to eliminate first; True to choose, False for none
    relative_damping  damp with λ diag(H) in place of λI, for variables whose numbers have different units;
                    when not given: if a manifold mixes units, as a `Product` does
    checkpoint      a file to write the run to, every `every` iterations and at the last; a run that finds the file
                    continues from it, on whatever engine and number of devices
    threads         how many to use in this solve; when not given, see `set_threads`
    start           values to begin with in place of those of the variables: a result, its values, or a table with
                    values for some variables or their names
    verbose         print a line for each iteration, and what is compiled; they go to the logger "asker" in any case

    Ctrl-C ends the loop and returns the best point so far.
    """
    begin = time.perf_counter()
    if not isinstance(problem, Problem):
        raise ProblemError(f"the first argument of solve is {type(problem).__name__}, expected asker.Problem(factors)")
    if isinstance(strategy, str | type):
        what = repr(strategy) if isinstance(strategy, str) else f"the class {strategy.__name__}"
        advice = "an object such as asker.ASKER(); asker.METHODS has those of the command line by name"
        raise ProblemError(f"strategy is {what}, expected {advice}")
    unknown = strategy is None and not all(f.noise_is_known for f in problem.factors if f.n)
    if max_iterations is None:
        max_iterations = MANY if unknown else 100
    _check_limits(max_iterations, tol, time_limit)
    if strategy is None:
        strategy = IRLS() if all(f.kernel.convex for f in problem.factors) else ASKER()
    if relative_damping not in (None, True, False):
        raise ValueError(f"relative_damping must be True, False or None, not {relative_damping!r}")
    if relative_damping is None:
        relative_damping = any(v.is_free and v.mixes_units for v in problem.variables)
    if unknown and (checkpoint is not None or problem.portion is not None):
        need = "is for one process that has the whole problem" if problem.portion else "goes without a checkpoint"
        raise ProblemError(f"finding the noise {need}: give each of the factors a kernel, as SmoothTruncated(tau=1)")
    for factors in problem.factors:
        factors.recall()
    heard = _logged(on_iteration)
    with team_of(threads), spoken(verbose):
        machine = _engine_class(engine, problem, linear_solver)(problem, linear_solver, eliminate, relative_damping)
        log.info("%s on engine %s by %s: %s", problem, machine.name, machine.linear_solver, strategy)
        point = machine.start() if start is None else machine.evaluate(rows_to_start(problem, start))
        _check_start(machine, point)
        if unknown:
            stages = Stages(begin, heard, max_iterations, tol, time_limit)
            result = stages.result(machine, strategy, point)
        else:
            file = None if checkpoint is None else Checkpoint(checkpoint, every, machine, strategy)
            loop = SolveLoop(begin, heard, file)
            status = loop.run(machine, strategy, point, max_iterations, tol, time_limit)
            result = _result(machine, strategy, loop, status)
        log.info("%r", result)
        return result


def _logged(on_iteration: OnIteration | None) -> OnIteration:
    def heard(line: CurrentIteration) -> bool:
        told = line.iteration, line.cost, line.best_cost, line.damping, "" if line.accepted else "  refused"
        log.debug("iteration %4d  cost %.7g  best %.7g  damping %.0e%s", *told)
        return on_iteration is not None and bool(on_iteration(line))

    return heard


def _check_limits(max_iterations: int, tol: float, time_limit: float | None) -> None:
    if not max_iterations >= 0:
        raise ValueError(f"max_iterations must not be negative, got {max_iterations}")
    for name, given in (("tol", tol), ("time_limit", time_limit)):
        if given is not None and not given >= 0:
            raise ValueError(f"{name} must be 0 or more, got {given}")


def _engine_class(name: str, problem: Problem, linear_solver: LinearSolver) -> EngineClass:
    """The class of the engine; `auto` takes xla where there is a GPU, enough for it to do, and a solver it has."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    if problem.portion is not None:
        if name == "cpu":
            raise ProblemError("this problem is a portion of a larger one, which only engine='xla' solves")
        name = "xla"
    if name == "auto":
        large = problem.n_residuals >= WORTH_A_GPU and all(f.jacobian is None for f in problem.factors)
        has_solver = isinstance(linear_solver, CG) or linear_solver in XLA_SOLVERS
        name = "xla" if large and has_solver and _has_gpu() else "cpu"
    if name == "xla":
        from asker.engines.xla.engine import XlaEngine

        return XlaEngine
    from asker.engines.cpu.engine import CpuEngine

    return CpuEngine


def _has_gpu() -> bool:
    import jax

    return jax.default_backend() in ("gpu", "cuda", "rocm")


class SolveLoop:
    """The loop, and what it remembers: the history and the best state."""

    def __init__(self, begin: float, on_iteration: OnIteration | None, file: Checkpoint | None = None):
        self.begin, self.on_iteration, self.file = begin, on_iteration, file
        self.earlier = 0.0
        """Seconds of the run that this one continues."""
        self.history: list[Iteration] = []
        self.best: State
        self.last: tuple[State, State, int]
        """Where the run stands: the state, the best one, and how many lines of the history belong to them."""

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
    ) -> Status:
        """From the start to the end; what was found is in `best` and `history`."""
        state = self.best = strategy.init(engine, start, max_iterations)
        if self.file and (earlier := self.file.read(state)):
            state, self.best, self.history = earlier.state, earlier.best, earlier.history
            self.earlier = earlier.seconds
        self.last = state, self.best, len(self.history)
        try:
            status = self._iterate(engine, strategy, state, max_iterations, tol, time_limit)
        except KeyboardInterrupt:
            if not self.history:
                raise
            status = Status.INTERRUPTED
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
    ) -> Status:
        if not self.history and self._record(engine, state):
            return Status.STOPPED
        if state.cost == 0:
            return Status.CONVERGED
        while len(self.history) <= max_iterations:
            before, state = state, strategy.step(engine, state)
            stop = self._record(engine, state)
            self._save()
            if stop:
                return Status.STOPPED
            if _converged(before, state, tol):
                return Status.CONVERGED
            if not state.accepted and state.damping > LARGEST_DAMPING:
                return Status.STALLED
            if time_limit is not None and engine.any(self.seconds > time_limit):
                return Status.TIME_LIMIT
        return Status.MAX_ITERATIONS

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


class Stages:
    """Descents one after the other, each a loop of its own; their histories follow each other."""

    def __init__(
        self,
        begin: float,
        on_iteration: OnIteration | None,
        max_iterations: int,
        tol: float,
        time_limit: float | None,
    ):
        self.begin, self.on_iteration, self.left, self.tol = begin, on_iteration, max_iterations, tol
        self.time_limit = time_limit
        self.history: list[Iteration] = []
        self.ended: Status | None = None
        """Why no descent goes on any more."""
        self.last = Status.CONVERGED
        """How the last one ended."""

    def result(self, engine: Engine, strategy: Strategy, start: Point) -> Result:
        """Of the best of all candidates."""
        search = Search(engine, self.descend, self.goes_on, strategy, IRLS())
        SolveLoop(self.begin, partial(self._record, "start")).run(engine, IRLS(), start, 0, self.tol, None)
        try:
            best = search.best(start)[0]
        except KeyboardInterrupt:  # between two descents
            self.ended = Status.INTERRUPTED
            best = search.so_far(start)
        final = engine.under(best.kernels)
        state = IRLS().init(final, best.point, 0)
        loop = SolveLoop(self.begin, None)
        loop.best, loop.history = state, self.history
        result = _result(final, strategy, loop, self.ended or self.last)
        return replace(result, initial_cost=cost(final, start), found_noise=best.noises, doubts=search.doubts(best))

    def goes_on(self) -> bool:
        """Whether no limit was met."""
        late = self.time_limit is not None and time.perf_counter() - self.begin > self.time_limit
        if self.ended is None and (late or self.left <= 0):
            self.ended = Status.TIME_LIMIT if late else Status.MAX_ITERATIONS
        return self.ended is None

    def descend(self, engine: Engine, strategy: Strategy, point: Point, n: int, stage: str) -> Point:
        """Where a descent leads; once one was ended by a limit or the user, the others stay where they are."""
        if not self.goes_on():
            return point
        loop = SolveLoop(self.begin, partial(self._record, stage))
        n = min(n, self.left)
        tol = self.tol if stage == "end" else max(self.tol, ENOUGH)
        self.last = status = loop.run(engine, strategy, point, n, tol, self.time_limit)
        self.left -= loop.history[-1].iteration
        if status in (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED):
            self.ended = status
        return loop.best.point

    def _record(self, stage: str, line: CurrentIteration) -> bool:
        """A line of the whole history; the start of a stage is where the last one was, and no iteration."""
        if line.iteration == 0 and self.history:
            return False
        number = len(self.history)
        whole = replace(line, iteration=number, details={"stage": stage} | line.details)
        self.history.append(whole.recorded)
        return bool(self.on_iteration and self.on_iteration(whole))


def _converged(before: State, after: State, tol: float) -> bool:
    """An accepted step on Ψ itself gained next to nothing, or there is nothing to gain."""
    if tol > 0 and after.at_rest and after.on_target and before.on_target:
        return True
    if not (after.accepted and after.on_target and before.on_target):
        return False
    return after.cost == 0 or (tol > 0 and 0 <= before.objective - after.objective <= tol * before.objective)


def _check_start(engine: Engine, point: Point) -> None:
    if point.finite:
        return
    for factors, r in zip(engine.problem.factors, engine.residuals(point), strict=True):
        bad = np.flatnonzero(~np.isfinite(r).all(axis=1))
        if bad.size:
            raise ProblemError(f"{factors.name}: the residual of observation {bad[0]} is not finite at the start")
    raise ProblemError("a squared residual overflows at the start")


def _result(engine: Engine, strategy: Strategy, loop: SolveLoop, status: Status) -> Result:
    engine.done()
    problem, point = engine.problem, loop.best.point
    residuals = engine.residuals(point)
    inliers = []
    taus = engine.whole(tuple(np.broadcast_to(f.tau, f.n) for f in problem.factors))
    for factors, r, tau in zip(problem.factors, residuals, taus, strict=True):
        radius = factors.kernel.inlier_radius / factors.kernel.tau * tau
        inliers.append(np.linalg.norm(r, axis=1) <= radius)
    if problem.portion is None:
        impossible = Conditions(engine).impossible(engine.rows(point))
        inliers = [inlier & ~no for inlier, no in zip(inliers, impossible, strict=True)]
    return Result(
        problem=problem,
        values=values_at(engine, point),
        cost=loop.best.cost,
        initial_cost=loop.history[0].cost,
        status=status,
        history=loop.history,
        residuals=by_factor(problem, residuals),
        weights=weights_at(engine, point),
        inliers=by_factor(problem, inliers),
        seconds=engine.seconds | {"total": loop.seconds},
        strategy=strategy,
        engine=engine.name,
        linear_solver=engine.linear_solver,
        relative_damping=engine.relative_damping,
        unwritten=loop.file.unwritten if loop.file else "",
        how_sure=HowSure(Uncertainty, leverage),
    )
