"""Checkpoints of a loop search: a search that was killed resumes, with the same result as without the interruption.

The sequence of solves is determined by the results of earlier ones (`asker.applications.pose_graph.loops.journal`).  A
resumed search therefore takes completed solves from the file and continues the one that was running.  A solve ended by
a limit or by the user is incomplete; neither it nor later solves are saved as completed.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import asker
from asker._solve import CHECKPOINT_INTERVAL, engine_for
from asker.applications.pose_graph.loops.journal import DescentFile, Journal, SearchFile, in_stage
from asker.applications.pose_graph.loops.noise_scale import EARLY_STOPS
from asker.io.files import FilePath
from asker.problem.problem import Problem
from asker.solver.result import Iteration, Result, Status
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

ENGINE_LIMITS = ("engine", "linear_solver", "eliminate", "relative_damping")
"""Limits that select the engine."""


@dataclass(frozen=True, eq=False)
class Ended:
    """End of a completed solve; the rest of its result is computed from the values."""

    values: list[np.ndarray]
    cost: float
    initial_cost: float
    status: str
    history: list[Iteration]


class CheckpointedSolves:
    """A replacement for `asker.solve` that saves completed solves to a file and reuses them."""

    def __init__(self, path: FilePath, settings: str, problem: Problem, limits: dict[str, Any]):
        """Open the checkpoint and read completed solves.

        Parameters
        ----------
        path
            Checkpoint file.
        settings
            Settings that determine the sequence of solves, in words; a resumed search must have the same.
        problem
            First problem of the search.
        limits
            Keyword arguments of every solve.
        """
        engine = engine_for(problem, **{name: limits[name] for name in ENGINE_LIMITS if name in limits})
        self.limits, self.n_solves, self.n_lines = limits, 0, 1
        self.stopped_early = False
        self.file = SearchFile(path, limits.get("every", CHECKPOINT_INTERVAL), engine, IRLS())
        self.file.of["strategy"] = settings
        self.start = IRLS().init(engine, engine.start(), 0)
        self.journal = Journal(self.file, (Ended, Iteration))
        begin = time.perf_counter()
        self.journal.seconds = lambda: time.perf_counter() - begin
        self.journal.read(self.start)
        if not self.journal.history:
            cost = self.start.cost
            self.journal.history = [Iteration(0, cost, cost, 0.0, self.start.damping, True, {"stage": "start"})]

    def __call__(self, problem: Problem, strategy: Strategy, **limits: Any) -> Result:
        if self.stopped_early:
            return self._solve(problem, strategy, **limits)
        self.n_solves += 1
        name = f"solve {self.n_solves}, {type(strategy).__name__}"
        solved: list[Result] = []

        def run() -> Ended:
            file = partial(DescentFile, self.journal, name)
            solved.append(self._solve(problem, strategy, checkpoint=file, **limits))
            return _ended(solved[0])

        ended = self.journal.remember(name, run, lambda: not self._is_incomplete(solved[0], limits))
        if not solved:
            self.n_lines += ended.history[-1].iteration
            return self._restored(problem, strategy, ended)
        lines = solved[0].history[1:]
        self.journal.history[self.n_lines :] = [in_stage(x, self.n_lines + k, name) for k, x in enumerate(lines)]
        self.n_lines += len(lines)
        if self._is_incomplete(solved[0], limits):
            self.save()
            self.stopped_early = True
        return solved[0]

    def save(self) -> None:
        """Save the checkpoint at the end of the search."""
        if not self.stopped_early:
            self.journal.save(at_the_end=True)

    def with_file_status(self, result: Result) -> Result:
        """Return a result with the status of the file."""
        return replace(result, continued_from=self.file.continued_from, unwritten=self.file.unwritten)

    def _solve(self, problem: Problem, strategy: Strategy, **limits: Any) -> Result:
        return asker.solve(problem, strategy, **(self.limits | limits))

    def _is_incomplete(self, result: Result, limits: dict[str, Any]) -> bool:
        """Return whether a limit of the user ended the solve; limits that the search sets are part of it."""
        is_users = "max_iterations" not in limits and self.limits.get("max_iterations") is not None
        return result.status in EARLY_STOPS or (is_users and result.status is Status.MAX_ITERATIONS)

    def _restored(self, problem: Problem, strategy: Strategy, ended: Ended) -> Result:
        """Return the result of a completed solve."""
        start = dict(zip((v.name for v in problem.variables), ended.values, strict=True))
        result = self._solve(problem, strategy, start=start, max_iterations=0, on_iteration=None, time_limit=None)
        self.file.check_cost("end of a solve", ended.cost, result.cost, self.start)
        status, before = Status[ended.status], ended.initial_cost
        return replace(result, cost=ended.cost, initial_cost=before, status=status, history=ended.history)


def _ended(result: Result) -> Ended:
    values = [np.asarray(x) for x in result.values]
    return Ended(values, result.cost, result.initial_cost, result.status.name, result.history)
