"""Descents one after the other, where the noise is not known: what `asker.search.search` runs on an engine.

Where the noise of several factor groups is sought, each counts as the noise asks for that was found
(`asker.search.group_weights`): the search goes on from its best point while the noises that are found say otherwise;
from the beginning, where they say something else altogether.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from asker.engines.interface import Engine, Point
from asker.io.files import FilePath
from asker.io.log import devices
from asker.problem.problem import Problem
from asker.search.checkpoint import DescentFile, Journal, SearchFile, in_stage
from asker.search.group_weights import NEAR_ENOUGH, Balance, at_the_start, by_noise, can_be_balanced, even
from asker.search.search import Candidate, Search
from asker.solver.iteration import CurrentIteration
from asker.solver.loop import OnIteration, SolveLoop, result_of
from asker.solver.result import Iteration, Result, Status
from asker.statistics.gaussian_mixture import DISTINCT
from asker.statistics.inliers import Classified
from asker.statistics.scale import Noise
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Strategy, cost
from asker.uncertainty.analysis import ANALYSIS

T = TypeVar("T")
ENOUGH = 1e-4
"""The relative decrease at which a stage ends: others follow."""
ROUNDS = 5
"""How often factor groups are balanced, at most."""


class Stages:
    """Descents one after the other, each a loop of its own; their histories follow each other."""

    def __init__(
        self,
        begin: float,
        on_iteration: OnIteration | None,
        max_iterations: int,
        tol: float,
        time_limit: float | None,
        engine_for: Callable[[Problem], Engine],
    ):
        """`engine_for`: an engine of the same kind for the same problem with other weights."""
        self.engine_for = engine_for
        self.begin, self.on_iteration, self.left, self.tol = begin, on_iteration, max_iterations, tol
        self.time_limit = time_limit
        self.journal = Journal()
        self.engine: Engine
        self.search: Search
        self.balance: Balance
        self.start: Point
        """Where the search begins."""
        self.ended: Status | None = None
        """Why no descent goes on any more."""
        self.is_cut_short = False
        """Whether one has ended for want of iterations."""
        self.last = Status.CONVERGED
        """How the last one ended that was to converge."""

    @property
    def history(self) -> list[Iteration]:
        return self.journal.history

    def keep(self, path: FilePath, every: int, engine: Engine, strategy: Strategy) -> None:
        """On disk, and go on with what is there."""
        file = SearchFile(path, every, engine, strategy)
        file.of["strategy"] = f"estimated noise, {file.of['strategy']}, tol {self.tol!r}"
        self.journal = Journal(file, (Candidate, Noise))
        self.journal.seconds = lambda: time.perf_counter() - self.begin

    def result(self, engine: Engine, strategy: Strategy, start: Point) -> Result:
        """Of the best of all candidates."""
        self.engine = engine
        if portion := engine.problem.portion:
            devices.info(
                "noise estimation on several processes: block coordinate moves change only %s", portion.variables.name
            )
        self.balance, rows = even(engine.problem), engine.rows(start)
        self._begin(engine, strategy, start)
        journal, file = self.journal, self.journal.file
        journal.read(IRLS().init(engine, start, 0))
        if not self.history:
            begun = SolveLoop(self.begin, partial(self._record, "start"))
            self._note(begun.run(engine, IRLS(), start, 0, self.tol, None))
        self.left -= (journal.begun[0]["n_before"] if journal.begun else len(self.history)) - 1
        try:
            best = self._balanced(strategy)
        except KeyboardInterrupt:  # between two descents
            self.ended = Status.INTERRUPTED
            best = self.search.so_far(self.start)
        journal.save(at_the_end=True)
        final, point = self.engine.under(best.kernels), best.point
        loop = SolveLoop(self.begin, None)
        loop.best, loop.history = IRLS().init(final, point, 0), self.history
        result = result_of(final, strategy, loop, self.ended or self.last, ANALYSIS, self.balance.undone(best.noises))
        initial_cost = cost(final, start if self.engine is engine else final.evaluate(rows))
        return replace(
            result,
            initial_cost=initial_cost,
            history=_from_start_to_result(self.history, initial_cost, result.cost),
            found_doubts=self.search.doubts(best, _here(result)) + result.found_doubts,
            unwritten=file.unwritten if file else "",
            continued_from=file.continued_from if file else 0,
        )

    def _begin(self, engine: Engine, strategy: Strategy, start: Point) -> None:
        self.engine, self.start, self.journal.engine = engine, start, engine
        self.search = Search(engine, self.descend, self.goes_on, strategy, IRLS(), self.remember)

    def _balanced(self, strategy: Strategy) -> Candidate:
        """The best of all candidates, where each factor group counts as its noise asks for."""
        user = self.engine
        if not can_be_balanced(user.problem):
            return self.search.best(self.start)[0]
        self._balance(at_the_start(user, self.start), user, strategy, self.start)
        best = self.search.best(self.start)[0]
        for _ in range(ROUNDS):
            noises = self.balance.undone(best.noises)
            asked = by_noise(user.problem, noises, self.balance)
            off = asked.off(self.balance)
            if off < NEAR_ENOUGH or not self.goes_on():
                break
            before = self.search
            broad = asked.converted(before.broad, self.balance)
            self._balance(asked, user, strategy, best.point)
            new = self.search
            best = new.again(self.start, broad, before) if off < DISTINCT else new.best(self.start)[0]
        return best

    def _balance(self, asked: Balance, user: Engine, strategy: Strategy, point: Point) -> None:
        """Begin again at a point, with factor groups that count so; `user`: the engine in which all count alike."""
        if asked == self.balance:
            return
        engine = self.engine_for(asked.of(user.problem))
        start = engine.evaluate(self.engine.rows(point))
        self._begin(engine, strategy, start)
        self.balance = asked

    def goes_on(self) -> bool:
        """Whether no limit was met, since the search has come to where it stood."""
        if self.journal.goes_over_what_was_found:
            return True
        late = self.time_limit is not None and self.engine.any(time.perf_counter() - self.begin > self.time_limit)
        if self.ended is None and (late or self.left <= 0):
            self.ended = Status.TIME_LIMIT if late else Status.MAX_ITERATIONS
        return self.ended is None

    def remember(self, name: str, find: Callable[[], T]) -> T:
        """A finding of the search; what a limit has cut short does not count as one."""
        return self.journal.remember(name, find, lambda: self.ended is None and not self.is_cut_short)

    def descend(
        self, engine: Engine, strategy: Strategy, point: Point, n: int | None, stage: str, least: float = 0.0
    ) -> Point:
        """Where a descent of n iterations leads, or one that converges; once one was ended by a limit or the user, the
        others stay where they are."""
        return self.remember(stage, lambda: self._descended(engine, strategy, point, n, stage, least))

    def _descended(
        self, engine: Engine, strategy: Strategy, point: Point, n: int | None, stage: str, least: float
    ) -> Point:
        if not self.goes_on():
            return point
        widths = np.array([f.kernel.tau for f in engine.problem.factors])
        engine.check_same(
            widths.tobytes(), "estimate different noise scales: use processors of one type, since rounding differs"
        )
        file = DescentFile(self.journal, stage, engine) if self.journal.file else None
        loop = SolveLoop(self.begin, partial(self._record, stage), file, self.journal.earlier)
        most, tol = (self.left, self.tol) if n is None else (min(n, self.left), max(self.tol, ENOUGH))
        status = loop.run(engine, strategy, point, most, tol, self.time_limit, least, certified=False)
        self.left -= loop.history[-1].iteration
        self.is_cut_short = status is Status.MAX_ITERATIONS and (n is None or most < n)
        self.last = status if n is None else self.last
        self._note(status)
        return loop.best.point

    def _note(self, status: Status) -> None:
        """No descent goes on after one that a limit or the user has ended."""
        if status in (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED):
            self.ended = status

    def _record(self, stage: str, line: CurrentIteration) -> bool:
        """A line of the whole history; the start of a stage is where the last one was, and no iteration."""
        if line.iteration == 0 and self.history:
            return False
        whole = in_stage(line, len(self.history), stage)
        assert isinstance(whole, CurrentIteration)
        self.history.append(whole.recorded)
        return bool(self.on_iteration and self.on_iteration(whole))


def _from_start_to_result(history: list[Iteration], initial_cost: float, final_cost: float) -> list[Iteration]:
    """The history, whose first and last lines are those of the start and of the result under the kernels that were
    found; in between every stage has kernels of its own."""
    first = replace(history[0], cost=initial_cost, best_cost=initial_cost)
    lines = [first, *history[1:]]
    return [*lines[:-1], replace(lines[-1], cost=final_cost, best_cost=final_cost)]


def _here(result: Result) -> Classified:
    """Return the inliers among the observations that this process has, without those of weight 0."""
    problem = result.problem
    assert problem is not None
    if problem.portion is None:
        return result.of_informative.classified
    found = result.classified
    if problem.portion.in_parts:
        return found
    each = zip(found.inliers, problem.portion.observations, strict=True)
    return found._replace(inliers=tuple(mask[own] for mask, own in each))
