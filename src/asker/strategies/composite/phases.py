"""Strategies made of strategies: what may come before, after and around any method.

    FirstDescent(method)    Ψ is minimised for a while, and the method begins where that leads
    LastPhase(method)       Ψ is minimised once the method has done its part
    BestKept(method)        where the method comes to rest above a point that it has seen, it goes on from there

They can be put around each other: `BestKept(LastPhase(GNC()))`; `ASKER()` is made of all three (default.py).  A descent
steps on the method's own state (see strategy.py), so a composed strategy has the state of its method, and what phases
remember are fields that every state has.  The details of the history tell which phase an iteration belongs to.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from asker.engines.interface import Engine, Point
from asker.strategies.irls import IRLS
from asker.strategies.strategy import Descent, State, Strategy
from asker.strategies.triggs import Triggs

AT_REST = 1e-6  # a step on the target that gains less, relatively
NEARLY_AT_REST = 1e-4  # the same of a first descent, which need not be exact


def is_at_rest(before: State, after: State, tol: float) -> bool:
    """Whether a step was accepted and lowered the objective by less than `tol` of it."""
    return after.accepted and before.objective - after.objective < tol * before.objective


@dataclass(frozen=True)
class FirstDescent:
    """A descent on Ψ, then the method from where that leads.  For starts that are worth something."""

    method: Strategy
    first: Descent = IRLS()
    """How Ψ is minimised,"""
    share: float = 0.2
    """and the share of the iterations that this may take; the method is told of the others."""

    @property
    def is_over(self) -> Callable[[Any], bool] | None:
        """The method's own, where it says by itself that it is over."""
        return getattr(self.method, "is_over", None)

    def init(self, engine: Engine, start: Point, max_iterations: int) -> Any:
        state = self.method.init(engine, start, max_iterations)
        if self.share * max_iterations < 1:
            return state
        return replace(
            state.unrelaxed(engine), damping=self.first.damping, on_target=False, descending=True,
            budget=max_iterations, left=max_iterations,
        )  # fmt: skip

    def step(self, engine: Engine, state: Any) -> Any:
        if not state.descending:
            return self.method.step(engine, state)
        after = replace(self.first.step(engine, state), left=state.left - 1)
        used = after.left <= (1 - self.share) * state.budget
        if not (used or is_at_rest(state, after, NEARLY_AT_REST)):
            return after
        begun = self.method.init(engine, after.point, after.left)
        return replace(begun, cost=after.cost, accepted=after.accepted)


@dataclass(frozen=True)
class LastPhase:
    """The method, then a descent on Ψ itself.

    It begins where the method says that it is over (`is_over`), as the graduated filter does when its scales are down
    (with the paper's fixed rate they never are); any other method is over when it comes to rest on its target.
    """

    method: Strategy
    last: Descent = Triggs(damping=1e-2, epsilon=0.6)
    """How Ψ is minimised."""
    rest: float = 1e-3
    """A method is at rest when an accepted step lowers its objective by less than this part of it."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> Any:
        return self.method.init(engine, start, max_iterations)

    def step(self, engine: Engine, state: Any) -> Any:
        says = getattr(self.method, "is_over", None)
        if says and not (state.last_phase or state.descending) and says(state):
            state = self._begin(engine, state)
        if state.last_phase:
            return self.last.step(engine, state)
        after = self.method.step(engine, state)
        on_target = state.on_target and after.on_target
        if says or not (on_target and is_at_rest(state, after, self.rest)):
            return after
        return self._begin(engine, after)

    def _begin(self, engine: Engine, state: Any) -> Any:
        return replace(state.unrelaxed(engine), damping=self.last.damping, last_phase=True)


@dataclass(frozen=True)
class BestKept:
    """The method; where it comes to rest above the best point that it has seen, it goes on from that point.

    That is for methods which end on Ψ itself; M-HQ, which lowers a cost of its own to the end, is left as it is.
    """

    method: Strategy
    damping: float = 1e-2
    """λ at that point."""

    @property
    def is_over(self) -> Callable[[Any], bool] | None:
        """The method's own, where it says by itself that it is over."""
        return getattr(self.method, "is_over", None)

    def init(self, engine: Engine, start: Point, max_iterations: int) -> Any:
        state = self.method.init(engine, start, max_iterations)
        return replace(state, best=(state.cost, state.point))

    def step(self, engine: Engine, state: Any) -> Any:
        after = replace(self.method.step(engine, state), best=state.best)
        if not after.on_target:
            return replace(after, best=lower(after))
        is_above = after.best is not None and after.best[0] < after.cost == after.objective
        if not (is_above and is_at_rest(state, after, AT_REST)):
            return after
        cost, point = after.best
        return replace(after, point=point, cost=cost, damping=self.damping, best=None)


def lower(state: State) -> tuple[float, Point]:
    """The lower of the best point seen and the present one."""
    if state.best is not None and not state.cost < state.best[0]:
        return state.best
    return state.cost, state.point
