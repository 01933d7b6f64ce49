"""Compositions of strategies: phases before and after any method, and the return to its best point.

    FirstDescent(method)    minimise Ψ for some iterations, and start the method at the result
    LastPhase(method)       minimise Ψ after the method
    BestKept(method)        if the method converges above its best point, continue from that point

Compositions can be nested: `BestKept(LastPhase(GNC()))`; `ASKER()` consists of all three (strategies/asker.py).  A
descent steps on the state of the method (see strategy.py), so a composed strategy has the state of its method, and the
fields for phases belong to every state.  The details of the history state the phase of each iteration.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from asker.engines.interface import Engine, Point
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Descent, S, State, Strategy, termination_test
from asker.strategies.triggs import Triggs

CONVERGENCE_TOL = 1e-6
"""Relative decrease of Ψ in a step below which a method has converged on its target."""
FIRST_DESCENT_TOL = 1e-4
"""Relative decrease of Ψ in a step below which a first descent ends; it need not be exact."""


def is_at_rest(before: State, after: State, tol: float) -> bool:
    """Return True if a step was accepted and its relative decrease of the objective is below `tol`."""
    return after.accepted and before.objective - after.objective < tol * before.objective


@dataclass(frozen=True)
class FirstDescent:
    """A descent on Ψ, followed by the method from its result; for informative initial guesses."""

    method: Strategy
    """Method after the descent."""
    first: Descent = IRLS()
    """Descent on Ψ."""
    share: float = 0.2
    """Maximum share of the iterations for the descent; the method plans with the others."""

    @property
    def is_over(self) -> Callable[[State], bool] | None:
        """Criterion by which the method decides that it is finished, or None if it has none."""
        return termination_test(self.method)

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        state = self.method.init(engine, start, max_iterations)
        if self.share * max_iterations < 1:
            return state
        return replace(
            state.unrelaxed(engine), damping=self.first.damping, on_target=False, descending=True,
            budget=max_iterations, left=max_iterations,
        )  # fmt: skip

    def step(self, engine: Engine, state: S) -> S:
        if not state.descending:
            return self.method.step(engine, state)
        after = replace(self.first.step(engine, state), left=state.left - 1)
        used = after.left <= (1 - self.share) * state.budget
        if not (used or is_at_rest(state, after, FIRST_DESCENT_TOL)):
            return after
        begun = self.method.init(engine, after.point, after.left)
        return replace(begun, cost=after.cost, accepted=after.accepted)


@dataclass(frozen=True)
class LastPhase:
    """The method, followed by a descent on Ψ itself.

    The descent begins when the method has finished by its own criterion (`is_over`): the graduated filter has finished
    when its scales are small, which does not happen with the fixed rate of the paper.  A method without such a
    criterion has finished when it converges on its target.
    """

    method: Strategy
    """Method before the descent."""
    last: Descent = Triggs(damping=1e-2, epsilon=0.6)
    """Descent on Ψ."""
    rest: float = 1e-3
    """Relative decrease of the objective in an accepted step below which the method has converged."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        return self.method.init(engine, start, max_iterations)

    def step(self, engine: Engine, state: S) -> S:
        is_over = termination_test(self.method)
        if is_over and not (state.last_phase or state.descending) and is_over(state):
            state = self._begin(engine, state)
        if state.last_phase:
            return self.last.step(engine, state)
        after = self.method.step(engine, state)
        on_target = state.on_target and after.on_target
        if is_over or not (on_target and is_at_rest(state, after, self.rest)):
            return after
        return self._begin(engine, after)

    def _begin(self, engine: Engine, state: S) -> S:
        """Return the state at the start of the last phase."""
        return replace(state.unrelaxed(engine), damping=self.last.damping, last_phase=True)


@dataclass(frozen=True)
class BestKept:
    """The method; if it converges above its best earlier point, it continues from that point.

    This applies to methods that end with the minimisation of Ψ itself.  M-HQ minimises another cost to the end, and is
    not changed.
    """

    method: Strategy
    """Method that continues from its best point."""
    damping: float = 1e-2
    """λ at the best point."""

    @property
    def is_over(self) -> Callable[[State], bool] | None:
        """Criterion by which the method decides that it is finished, or None if it has none."""
        return termination_test(self.method)

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        state = self.method.init(engine, start, max_iterations)
        return replace(state, best=(state.cost, state.point))

    def step(self, engine: Engine, state: S) -> S:
        after = replace(self.method.step(engine, state), best=state.best)
        if not after.on_target:
            return replace(after, best=lower(after))
        is_above = after.best is not None and after.best[0] < after.cost == after.objective
        if not (is_above and is_at_rest(state, after, CONVERGENCE_TOL)):
            return after
        cost, point = after.best
        return replace(after, point=point, cost=cost, damping=self.damping, best=None)


def lower(state: State) -> tuple[float, Point]:
    """Return the lowest Ψ so far and its point: the best earlier one or that of the state."""
    if state.best is not None and not state.cost < state.best[0]:
        return state.best
    return state.cost, state.point
