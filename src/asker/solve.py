"""The one loop."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from asker.manifolds import Product
from asker.problem import Problem, ProblemError, Variables
from asker.result import Iteration, Result, Status
from asker.strategies.irls import IRLS
from asker.strategies.strategy import State, Strategy

LARGEST_DAMPING = 1e16


def set_threads(n: int) -> None:
    """Use `n` threads from now on; all cores, or `OMP_NUM_THREADS`, when never called."""
    from asker.engines.cpu import threads

    threads.set_threads(n)


def solve(
    problem: Problem,
    strategy: Strategy | None = None,
    *,
    max_iterations: int = 100,
    tol: float = 1e-9,
    time_limit: float | None = None,
    on_iteration: Callable[[Iteration], bool | None] | None = None,
    linear_solver: Any = "auto",
    eliminate: Variables | bool = True,
    relative_damping: bool | None = None,
    threads: int | None = None,
) -> Result:
    """Minimise Ψ and return the best point seen.

    strategy        how: `IRLS()` and its siblings, with their settings as fields
    max_iterations  linear solves; a refused step counts as one
    tol             stop when an accepted step lowers Ψ by less than this part of it; 0 to go on
    time_limit      seconds
    on_iteration    called with each `Iteration`; return True to stop
    linear_solver   auto, dense-cholesky, sparse-cholesky, cg, reference, or `asker.engines.cpu.factorise.CG(...)`
    eliminate       the variables to eliminate first; True to choose, False for none
    relative_damping  damp with λ diag(H) in place of λI, for variables whose numbers have different units;
                    when not given: if a variable is a `Product`
    threads         how many to use from now on; all cores when not given

    Ctrl-C ends the loop and returns the best point so far.
    """
    from asker.engines.cpu.engine import CpuEngine

    begin = time.perf_counter()
    strategy = IRLS() if strategy is None else strategy
    if max_iterations < 0:
        raise ValueError(f"max_iterations must not be negative, got {max_iterations}")
    if threads is not None:
        set_threads(threads)
    if relative_damping is None:
        relative_damping = any(v.is_free and isinstance(v.manifold, Product) for v in problem.variables)
    engine = CpuEngine(problem, linear_solver, eliminate, relative_damping)
    start = engine.start()
    _check_start(engine, start)
    state = strategy.init(engine, start, max_iterations)
    best, initial_cost = state, state.cost
    history: list[Iteration] = []

    def record(state: State, iteration: int) -> bool:
        seconds = time.perf_counter() - begin
        line = Iteration(iteration, state.cost, best.cost, seconds, state.damping, state.accepted, dict(state.details))
        history.append(line)
        return bool(on_iteration and on_iteration(line))

    status = Status.MAX_ITERATIONS
    try:
        stop = record(state, 0)
        if state.cost == 0:
            status, max_iterations = Status.CONVERGED, 0
        for iteration in range(1, max_iterations + 1):
            if stop:
                break
            before, state = state, strategy.step(engine, state)
            if state.cost < best.cost:
                best = state
            stop = record(state, iteration)
            if _converged(before, state, tol):
                status = Status.CONVERGED
                break
            if not state.accepted and state.damping > LARGEST_DAMPING:
                status = Status.STALLED
                break
            if time_limit is not None and history[-1].seconds > time_limit:
                status = Status.TIME_LIMIT
                break
        if stop:
            status = Status.STOPPED
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    seconds = dict(engine.seconds, total=time.perf_counter() - begin)
    return _result(engine, strategy, best, initial_cost, status, history, seconds)


def _converged(before: State, after: State, tol: float) -> bool:
    """An accepted step on Ψ itself gained next to nothing."""
    if not (after.accepted and after.on_target and before.on_target):
        return False
    return after.cost == 0 or (tol > 0 and 0 <= before.objective - after.objective <= tol * before.objective)


def _check_start(engine: Any, point: Any) -> None:
    if point.finite:
        return
    for factors, r in zip(engine.problem.factors, engine.residuals(point), strict=True):
        bad = np.flatnonzero(~np.isfinite(r).all(axis=1))
        if bad.size:
            raise ProblemError(f"{factors.name}: the residual of observation {bad[0]} is not finite at the start")
    raise ProblemError("a squared residual overflows at the start")


def _weight(kernel, u):
    return kernel.omega(u)


def _result(engine, strategy, best: State, initial_cost: float, status, history, seconds) -> Result:
    problem = engine.problem
    theta = zip(problem.variables, best.point.theta, strict=True)
    residuals = engine.residuals(best.point)
    inliers = []
    for factors, r in zip(problem.factors, residuals, strict=True):
        radius = factors.kernel.inlier_radius / factors.kernel.tau * factors.tau
        inliers.append(np.linalg.norm(r, axis=1) <= radius)
    return Result(
        problem=problem,
        values={v: v.manifold.unpack(rows.copy()) for v, rows in theta},
        cost=best.cost,
        initial_cost=initial_cost,
        status=status,
        history=history,
        residuals=residuals,
        weights=engine.in_user_order(engine.each(_weight, best.point)),
        inliers=tuple(inliers),
        seconds=seconds,
        strategy=strategy,
        engine=engine.name,
    )
