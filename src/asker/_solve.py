"""`asker.solve`: problem, engine and strategy are brought together."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
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
from asker.search.driver import Stages
from asker.solver.checkpoint import Checkpoint, ProgressFile
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
MANY = 10_000
ENDLESS = "the search has not come to rest in {} iterations: what it has found need not be a minimum"
EVERY = 10
WORTH_A_GPU = 200_000  # residuals
PartOfFile = Callable[[Engine], ProgressFile]
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
    checkpoint: FilePath | PartOfFile | None = None,
    every: int = EVERY,
    threads: int | None = None,
    start: Start | None = None,
    verbose: bool = False,
) -> Result:
    """Minimise Ψ and return the best point seen.

    With factors that have no kernel, and without a strategy, nothing is known of the noise.  Then it is found while
    solving, with a kernel that fits it, and several ways down are tried: see `asker.search.search`.

    strategy        how: `ASKER()` and its siblings, with their settings as fields; when not given, `ASKER()`,
                    or `IRLS()` where every kernel is convex
    max_iterations  linear solves; a refused step counts as one, a round of moves (`WithMoves`) as those that have as
                    many derivatives.  100 when not given; as many as it takes where the noise is not known
    tol             stop when an accepted step lowers the objective by less than this part of it; 0 to go on.  Where the
                    noise is found, and unknowns are many: also when it gains less than the noise lets one tell
    time_limit      seconds
    on_iteration    called with each `Iteration`, whose `values`, `residuals` and `weights` are there while it is the
                    current one; it returns True to stop, and False or None to go on
    engine          cpu; xla: through JAX on an accelerator, or several; auto: xla where there is a GPU and the problem
                    is large enough to gain
    linear_solver   auto, dense-cholesky, sparse-cholesky, cg, reference, or `asker.engines.solvers.CG(...)`;
                    on xla: auto, dense-cholesky, cg, or `CG(...)`
    eliminate       the variables to eliminate first; True to choose, False for none
    relative_damping  damp with λ diag(H) in place of λI, for variables whose numbers have different units;
                    when not given: if a manifold mixes units, as a `Product` does, and where the noise is sought
    checkpoint      a file to write the run to, every `every` iterations and at the last; a run that finds the file
                    continues from it, on whatever engine and number of devices.  Of several solves one after the other:
                    what gives each its part of a file (`asker.search.checkpoint`)
    threads         how many to use in this solve; when not given, see `set_threads`
    start           values to begin with in place of those of the variables: a result, its values, or a table with
                    values for some variables or their names
    verbose         print a line for each iteration, and what is compiled; they go to the logger "asker" in any case

    Ctrl-C ends the loop and returns the best point so far.
    """
    begin = time.perf_counter()
    if not isinstance(problem, Problem):
        raise ProblemError(f"the first argument of solve is {type(problem).__name__}, expected asker.Problem(factors)")
    is_strategy = hasattr(strategy, "init") and hasattr(strategy, "step") and not isinstance(strategy, type)
    if strategy is not None and not is_strategy:
        what = f"the class {strategy.__name__}" if isinstance(strategy, type) else repr(strategy)
        advice = "an object such as asker.ASKER(); asker.METHODS has those of the command line by name"
        raise ProblemError(f"strategy is {what}, expected {advice}")
    check_settings(strategy)
    problem = problem.informative
    unknown = strategy is None and not all(
        f.noise_is_known for f, n in zip(problem.factors, problem.n_observations, strict=True) if n
    )
    if unknown:
        relative_damping = True if relative_damping is None else relative_damping
    has_limit = max_iterations is not None
    if max_iterations is None:
        max_iterations = MANY if unknown else 100
    check_number("max_iterations", max_iterations, whole=True)
    max_iterations = int(max_iterations)
    check_number("tol", tol)
    if time_limit is not None:
        check_number("time_limit", time_limit)
    if on_iteration is not None:
        check_function("on_iteration", on_iteration)
    _check_checkpoint(checkpoint, every)
    if strategy is None:
        strategy = IRLS() if all(f.kernel.convex for f in problem.factors) else ASKER()
    heard = _logged(on_iteration)
    with team_of(threads), spoken(verbose), SignalsInterrupt(signal.SIGINT):
        make = partial(
            engine_for,
            engine=engine,
            linear_solver=linear_solver,
            eliminate=eliminate,
            relative_damping=relative_damping,
        )
        machine = make(problem)
        method = "estimation of the noise scale" if unknown else strategy
        log.info("%s on engine %s by %s: %s", problem, machine.name, machine.linear_solver, method)
        point = machine.start() if start is None else machine.evaluate(rows_to_start(problem, start))
        _check_start(machine, point)
        if unknown:
            stages = Stages(begin, heard, max_iterations, tol, time_limit, make)
            if checkpoint is not None:
                if callable(checkpoint):
                    raise ValueError("a search for the noise has a checkpoint of its own, and no part of another")
                stages.keep(checkpoint, every, machine, strategy)
            result = stages.result(machine, strategy, point)
            if not has_limit and result.status is Status.MAX_ITERATIONS:
                result = replace(result, found_doubts=(*result.found_doubts, ENDLESS.format(max_iterations)))
        else:
            file: ProgressFile | None = None
            if checkpoint is not None:
                file = checkpoint(machine) if callable(checkpoint) else Checkpoint(checkpoint, every, machine, strategy)
            loop = SolveLoop(begin, heard, file)
            status = loop.run(machine, strategy, point, max_iterations, tol, time_limit)
            result = result_of(machine, strategy, loop, status, ANALYSIS)
        log.info("%r", result)
        return result


def engine_for(
    problem: Problem,
    engine: str = "auto",
    linear_solver: LinearSolver = "auto",
    eliminate: Variables | bool = True,
    relative_damping: bool | None = None,
) -> Engine:
    """The engine that solves a problem, with these options of `solve`."""
    if not (relative_damping is None or isinstance(relative_damping, bool)):
        raise ValueError(f"relative_damping must be True, False or None, not {relative_damping!r}")
    if relative_damping is None:
        relative_damping = any(v.is_free and v.mixes_units for v in problem.variables)
    for factors in problem.factors:
        factors.recall()
    return _engine_class(engine, problem, linear_solver)(problem, linear_solver, eliminate, relative_damping)


def _logged(on_iteration: OnIteration | None) -> OnIteration:
    text = ProgressText()

    def heard(line: CurrentIteration) -> bool:
        log.debug("iteration %4d  %s", line.iteration, text(line))
        return on_iteration is not None and asks_to_stop(on_iteration(line))

    return heard


def asks_to_stop(returned: object) -> bool:
    """True if `on_iteration` returned True.  Another number, as of `list.index`, is more likely a mistake."""
    if returned is None or isinstance(returned, bool | np.bool_):
        return bool(returned)
    kind = type(returned).__name__
    raise ProblemError(f"on_iteration returned {returned!r} ({kind}), expected True to stop, False or None")


def _check_checkpoint(checkpoint: object, every: object) -> None:
    if not (checkpoint is None or callable(checkpoint) or isinstance(checkpoint, str | bytes | os.PathLike)):
        raise ValueError(f"checkpoint must be the path of a file, not {checkpoint!r}")
    check_number("every", every, 1, whole=True)


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


def _check_start(engine: Engine, point: Point) -> None:
    if point.finite:
        return
    for factors, r in zip(engine.problem.factors, engine.residuals(point), strict=True):
        bad = np.flatnonzero(~np.isfinite(r).all(axis=1))
        if bad.size:
            number = factors.numbers[bad[0]]
            raise ProblemError(f"{factors.name}: the residual of observation {number} is not finite at the start")
    raise ProblemError("a squared residual overflows at the start")
