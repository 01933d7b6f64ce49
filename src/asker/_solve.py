"""`asker.solve`, which combines a problem, an engine and a strategy."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from asker._arguments import check_function, check_number, check_settings
from asker.engines.cpu.threads import team_of
from asker.engines.interface import Engine, Point
from asker.engines.solvers import CG, XLA_SOLVERS, LinearSolver
from asker.io.files import FilePath
from asker.io.interrupts import SignalsInterrupt
from asker.io.log import log, spoken
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables
from asker.search.driver import Search, SearchRun
from asker.solver.checkpoint import Checkpoint, ProgressFile
from asker.solver.doubts import Doubt
from asker.solver.initial_values import Start, rows_to_start
from asker.solver.iteration import CurrentIteration
from asker.solver.loop import OnIteration, SolveLoop, result_of
from asker.solver.progress import ProgressText
from asker.solver.result import Result, Status
from asker.strategies.asker import ASKER
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy
from asker.uncertainty.analysis import ANALYSIS

ENGINES = ("auto", "cpu", "xla")
MAX_ITERATIONS = 100
"""Default maximum number of iterations of a single strategy."""
MAX_SEARCH_ITERATIONS = 10_000
"""Default maximum number of iterations if the noise scale is estimated."""
NOT_CONVERGED = "the search has not converged in {} iterations: the result need not be a minimum"
CHECKPOINT_INTERVAL = 10
"""Default number of iterations between two checkpoints."""
MIN_GPU_RESIDUALS = 200_000
"""Number of residuals from which engine="auto" prefers a GPU."""
PartOfFile = Callable[[Engine], ProgressFile]
"""Function of the engine that returns the part of a checkpoint file that belongs to one of several solves."""
EngineClass = Callable[[Problem, LinearSolver, Variables | bool, bool], Engine]


def solve(
    problem: Problem,
    strategy: Strategy | Search | None = None,
    *,
    max_iterations: int | None = None,
    tol: float = 1e-9,
    time_limit: float | None = None,
    on_iteration: OnIteration | None = None,
    engine: Literal["auto", "cpu", "xla"] = "auto",
    linear_solver: LinearSolver = "auto",
    eliminate: Variables | bool = True,
    relative_damping: bool | None = None,
    checkpoint: FilePath | PartOfFile | None = None,
    every: int = CHECKPOINT_INTERVAL,
    threads: int | None = None,
    start: Start | None = None,
    verbose: bool = False,
) -> Result:
    """Minimise the robust cost Ψ and return the best point.

    If a factor group has no kernel and no strategy is given, the noise scale is unknown.  It is then estimated together
    with the variables and a suitable kernel, from several local optimisations: see `asker.search.search`.  Ctrl-C ends
    the iteration and returns the best point so far.

    Parameters
    ----------
    problem
        Problem to solve.
    strategy
        Minimisation method with its settings as fields, such as `ASKER()`.  By default `ASKER()`, or `IRLS()` if all
        kernels are convex.
    max_iterations
        Maximum number of linear solves.  Rejected steps count; a round of moves (`WithMoves`) counts as the iterations
        with as many derivative evaluations.  By default 100, or 10 000 if the noise scale is estimated.
    tol
        Relative decrease of the objective in an accepted step at which the iteration terminates; 0 to disable this
        criterion.  If the noise scale of a problem with many unknowns is estimated, the iteration also terminates at a
        decrease that is insignificant relative to the noise.
    time_limit
        Maximum time in seconds.
    on_iteration
        Callback for each iteration with an `Iteration`, whose `values`, `residuals` and `weights` are available while
        it is the current one.  It returns True to stop, and False or None to continue.
    engine
        "cpu"; "xla" for JAX on one or several accelerators; or "auto": xla if there is a GPU and the problem is large
        enough to be faster on it.
    linear_solver
        "auto", "dense-cholesky", "sparse-cholesky", "cg", "reference" (only on the CPU), or
        `asker.engines.solvers.CG(...)` with settings.
    eliminate
        Variables to eliminate first; True to choose them automatically, False for none.
    relative_damping
        Damp with λ diag(H) instead of λI, for variables whose coordinates have different units.  By default only if a
        manifold mixes units, such as a `Product`, or if the noise scale is estimated.
    checkpoint
        File to which the run is written every `every` iterations and at its end.  A run whose file exists is resumed
        from it, on any engine and number of devices.  For several solves in sequence, a function that returns the part
        of the file of each solve (`asker.solver.checkpoint`).
    every
        Number of iterations between two checkpoints.
    threads
        Number of threads of this solve; by default that of `set_threads`.
    start
        Initial values instead of those of the variables: a result, its values, or a dictionary of values by variables
        or by their names.
    verbose
        Print a line for each iteration and each compilation; the logger "asker" always receives them.

    Returns
    -------
    Result
        Best point, its cost and the history of the run.
    """
    begin = time.perf_counter()
    _check_problem(problem)
    _check_strategy(strategy)
    problem = problem.informative
    estimates_noise = (strategy is None or isinstance(strategy, Search)) and _has_unknown_noise(problem)
    if estimates_noise and relative_damping is None:
        relative_damping = True
    limits = _limits_of(max_iterations, tol, time_limit, estimates_noise)
    if on_iteration is not None:
        check_function("on_iteration", on_iteration)
    _check_checkpoint(checkpoint, every)
    method = strategy if isinstance(strategy, Search) else Search()
    chosen = _default_strategy(problem) if strategy is None or isinstance(strategy, Search) else strategy
    run = _Run(begin, chosen, limits, _logged(on_iteration), checkpoint, every, method)
    with team_of(threads), spoken(verbose), SignalsInterrupt(signal.SIGINT):
        make = partial(
            engine_for,
            engine=engine,
            linear_solver=linear_solver,
            eliminate=eliminate,
            relative_damping=relative_damping,
        )
        machine = make(problem)
        used = run.method if estimates_noise else run.strategy
        log.info("%s on engine %s by %s: %s", problem, machine.name, machine.linear_solver, used)
        point = machine.start() if start is None else machine.evaluate(rows_to_start(problem, start))
        _check_start(machine, point)
        result = run.search(machine, point, make) if estimates_noise else run.minimise(machine, point)
        log.info("%r", result)
        return result


@dataclass(frozen=True)
class _Limits:
    """Limits at which a run terminates."""

    max_iterations: int
    has_default_iterations: bool
    """Whether `max_iterations` was chosen by default."""
    tol: float
    time_limit: float | None


@dataclass(frozen=True)
class _Run:
    """Settings of one call of `solve`, after their checks."""

    begin: float
    """Time at which the call began."""
    strategy: Strategy
    limits: _Limits
    on_iteration: OnIteration
    checkpoint: FilePath | PartOfFile | None
    every: int
    method: Search
    """Method if the noise scale is estimated."""

    def search(self, engine: Engine, start: Point, make: Callable[[Problem], Engine]) -> Result:
        """Estimate the noise scales together with the variables; `make` returns the engine of a reweighted problem."""
        limits = self.limits
        begin, most = self.begin, limits.max_iterations
        search = SearchRun(self.method, begin, self.on_iteration, most, limits.tol, limits.time_limit, make)
        if self.checkpoint is not None:
            if callable(self.checkpoint):
                raise ValueError(
                    "checkpoint must be a path if the noise scale is estimated; a function requires a strategy"
                )
            search.keep(self.checkpoint, self.every, engine)
        result = search.result(engine, start)
        if limits.has_default_iterations and result.status is Status.MAX_ITERATIONS:
            doubt = Doubt(NOT_CONVERGED.format(most), Doubt.NOT_CONVERGED, max_iterations=most)
            return replace(result, found_doubts=(*result.found_doubts, doubt))
        return result

    def minimise(self, engine: Engine, start: Point) -> Result:
        """Minimise the cost with the strategy, for kernels and noise scales that are given."""
        limits, path = self.limits, self.checkpoint
        file: ProgressFile | None = None
        if path is not None:
            file = path(engine) if callable(path) else Checkpoint(path, self.every, engine, self.strategy)
        loop = SolveLoop(self.begin, self.on_iteration, file)
        status = loop.run(engine, self.strategy, start, limits.max_iterations, limits.tol, limits.time_limit)
        return result_of(engine, self.strategy, loop, status, ANALYSIS)


def _check_problem(problem: object) -> None:
    if not isinstance(problem, Problem):
        raise ProblemError(f"the first argument of solve is {type(problem).__name__}, expected asker.Problem(factors)")


def _check_strategy(strategy: object) -> None:
    """Raise a `ProblemError` if this is neither None nor a strategy with valid settings."""
    if isinstance(strategy, Search):
        return
    is_strategy = hasattr(strategy, "init") and hasattr(strategy, "step") and not isinstance(strategy, type)
    if strategy is not None and not is_strategy:
        given = f"the class {strategy.__name__}" if isinstance(strategy, type) else repr(strategy)
        advice = "an object such as asker.ASKER(); asker.METHODS has those of the command line by name"
        raise ProblemError(f"strategy is {given}, expected {advice}")
    check_settings(strategy)


def _has_unknown_noise(problem: Problem) -> bool:
    """Return True if the noise scale of a factor group that has observations is unknown."""
    groups = zip(problem.factors, problem.n_observations, strict=True)
    return not all(f.noise_is_known for f, n in groups if n)


def _default_strategy(problem: Problem) -> Strategy:
    """Return `IRLS()` if all kernels are convex, else `ASKER()`."""
    return IRLS() if all(f.kernel.convex for f in problem.factors) else ASKER()


def _limits_of(max_iterations: int | None, tol: float, time_limit: float | None, estimates_noise: bool) -> _Limits:
    """Return the limits of a run after checks; by default a search has more iterations than a single strategy."""
    is_default = max_iterations is None
    if max_iterations is None:
        max_iterations = MAX_SEARCH_ITERATIONS if estimates_noise else MAX_ITERATIONS
    check_number("max_iterations", max_iterations, whole=True)
    check_number("tol", tol)
    if time_limit is not None:
        check_number("time_limit", time_limit)
    return _Limits(int(max_iterations), is_default, tol, time_limit)


def engine_for(
    problem: Problem,
    engine: str = "auto",
    linear_solver: LinearSolver = "auto",
    eliminate: Variables | bool = True,
    relative_damping: bool | None = None,
) -> Engine:
    """Return the engine for a problem, with these options of `solve`."""
    if not (relative_damping is None or isinstance(relative_damping, bool)):
        raise ValueError(f"relative_damping must be True, False or None, not {relative_damping!r}")
    if relative_damping is None:
        relative_damping = any(v.is_free and v.mixes_units for v in problem.variables)
    for factors in problem.factors:
        factors.recall()
    return _engine_class(engine, problem, linear_solver)(problem, linear_solver, eliminate, relative_damping)


def _logged(on_iteration: OnIteration | None) -> OnIteration:
    """Return a callback that logs each iteration and calls `on_iteration`."""
    text = ProgressText()

    def logged(line: CurrentIteration) -> bool:
        log.debug("iteration %4d  %s", line.iteration, text(line))
        return on_iteration is not None and asks_to_stop(on_iteration(line))

    return logged


def asks_to_stop(returned: object) -> bool:
    """Return True if a callback returned True; raise a `ProblemError` for values other than True, False and None."""
    if returned is None or isinstance(returned, bool | np.bool_):
        return bool(returned)
    kind = type(returned).__name__
    raise ProblemError(f"on_iteration returned {returned!r} ({kind}), expected True to stop, False or None")


def _check_checkpoint(checkpoint: object, every: object) -> None:
    if not (checkpoint is None or callable(checkpoint) or isinstance(checkpoint, str | bytes | os.PathLike)):
        raise ValueError(f"checkpoint must be the path of a file, not {checkpoint!r}")
    check_number("every", every, 1, whole=True)


def _engine_class(name: str, problem: Problem, linear_solver: LinearSolver) -> EngineClass:
    """Return the class of the engine; `auto` is xla if there is a GPU, enough residuals, and the linear solver."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    if problem.portion is not None:
        if name == "cpu":
            raise ProblemError("this problem is a portion of a larger one: only engine='xla' can solve it")
        name = "xla"
    if name == "auto":
        large = problem.n_residuals >= MIN_GPU_RESIDUALS and all(f.jacobian is None for f in problem.factors)
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


def _check_start(engine: Engine, point: Point) -> None:
    """Raise a `ProblemError` if a residual is not finite at the start."""
    if point.finite:
        return
    for factors, r in zip(engine.problem.factors, engine.residuals(point), strict=True):
        bad = np.flatnonzero(~np.isfinite(r).all(axis=1))
        if bad.size:
            number = factors.numbers[bad[0]]
            raise ProblemError(f"{factors.name}: the residual of observation {number} is not finite at the start")
    raise ProblemError("a squared residual overflows at the start")
