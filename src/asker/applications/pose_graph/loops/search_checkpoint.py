"""The solves of a search, one after the other, in a file: a search that was killed goes on, and ends as if nothing had
happened.

What a search asks for follows from what its solves have found (`asker.search.checkpoint`).  One that begins anew is
handed the solves that had ended, and goes on with the one that was under way.  A solve that a limit, or the user, has
cut short has not ended; those after it are not written.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import asker
from asker._solve import EVERY, engine_for
from asker.applications.pose_graph.loops.noise_scale import CUT_SHORT
from asker.io.files import FilePath
from asker.problem.problem import Problem
from asker.search.checkpoint import DescentFile, Journal, SearchFile, in_stage
from asker.solver.result import Iteration, Result, Status
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy

OF_ENGINE = ("engine", "linear_solver", "eliminate", "relative_damping")
"""The limits that say which engine solves."""


@dataclass(frozen=True, eq=False)
class Ended:
    """The end of a solve; the rest of its result follows from the values."""

    values: list[np.ndarray]
    cost: float
    initial_cost: float
    status: str
    history: list[Iteration]


class RememberedSolves:
    """`asker.solve`, as a search calls it."""

    def __init__(self, path: FilePath, how: str, problem: Problem, limits: dict[str, Any]):
        """
        how      the settings that decide what the search does, in words
        problem  the one that the search begins with
        limits   go to every solve
        """
        engine = engine_for(problem, **{name: limits[name] for name in OF_ENGINE if name in limits})
        self.limits, self.n_solves, self.n_lines = limits, 0, 1
        self.is_cut_short = False
        self.file = SearchFile(path, limits.get("every", EVERY), engine, IRLS())
        self.file.of["strategy"] = how
        self.start = IRLS().init(engine, engine.start(), 0)
        self.journal = Journal(self.file, (Ended, Iteration))
        begin = time.perf_counter()
        self.journal.seconds = lambda: time.perf_counter() - begin
        self.journal.read(self.start)
        if not self.journal.history:
            cost = self.start.cost
            self.journal.history = [Iteration(0, cost, cost, 0.0, self.start.damping, True, {"stage": "start"})]

    def __call__(self, problem: Problem, strategy: Strategy, **limits: Any) -> Result:
        if self.is_cut_short:
            return self._solve(problem, strategy, **limits)
        self.n_solves += 1
        name = f"solve {self.n_solves}, {type(strategy).__name__}"
        solved: list[Result] = []

        def find() -> Ended:
            part = partial(DescentFile, self.journal, name)
            solved.append(self._solve(problem, strategy, checkpoint=part, **limits))
            return _ended(solved[0])

        ended = self.journal.remember(name, find, lambda: not self._cuts_short(solved[0], limits))
        if not solved:
            self.n_lines += ended.history[-1].iteration
            return self._again(problem, strategy, ended)
        lines = solved[0].history[1:]
        self.journal.history[self.n_lines :] = [in_stage(x, self.n_lines + k, name) for k, x in enumerate(lines)]
        self.n_lines += len(lines)
        if self._cuts_short(solved[0], limits):
            self.save()
            self.is_cut_short = True
        return solved[0]

    def save(self) -> None:
        """At the end."""
        if not self.is_cut_short:
            self.journal.save(at_the_end=True)

    def told(self, result: Result) -> Result:
        """A result that says what became of the file."""
        return replace(result, continued_from=self.file.continued_from, unwritten=self.file.unwritten)

    def _solve(self, problem: Problem, strategy: Strategy, **limits: Any) -> Result:
        return asker.solve(problem, strategy, **(self.limits | limits))

    def _cuts_short(self, result: Result, limits: dict[str, Any]) -> bool:
        """Whether a limit of the user's has ended it; the search has limits of its own, which are part of it."""
        is_users = "max_iterations" not in limits and self.limits.get("max_iterations") is not None
        return result.status in CUT_SHORT or (is_users and result.status is Status.MAX_ITERATIONS)

    def _again(self, problem: Problem, strategy: Strategy, ended: Ended) -> Result:
        """The result of a solve that had ended."""
        start = dict(zip((v.name for v in problem.variables), ended.values, strict=True))
        there = self._solve(problem, strategy, start=start, max_iterations=0, on_iteration=None, time_limit=None)
        self.file.check_cost("end of a solve", ended.cost, there.cost, self.start)
        status, before = Status[ended.status], ended.initial_cost
        return replace(there, cost=ended.cost, initial_cost=before, status=status, history=ended.history)


def _ended(result: Result) -> Ended:
    values = [np.asarray(x) for x in result.values]
    return Ended(values, result.cost, result.initial_cost, result.status.name, result.history)
