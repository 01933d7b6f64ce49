"""A method, then cycles: moves of single variables (`asker.strategies.composite.block_moves`), and a few steps of a
descent.

Moves do not replace a graduated method, which brings the cameras to their places; they complete it, since every point
that has ended in a poor minimum of its own is solved from its observations alone.  A round of moves counts as the
iterations that have as many derivatives, which take about as long.  The run ends by itself once a cycle no longer pays,
or no other one fits: then the descent converges.
"""

from dataclasses import dataclass, replace
from typing import Any

from asker.engines.interface import Engine, Point
from asker.strategies.asker import ASKER
from asker.strategies.composite.block_moves import Moves
from asker.strategies.strategy import Descent, Strategy, cost
from asker.strategies.triggs import Triggs


@dataclass(frozen=True)
class WithMoves:
    """The method for a while, then moves and descents in turn."""

    method: Strategy = ASKER()
    share: float = 0.3
    """Of the iterations that the method gets, and plans with."""
    steps: int = 5
    """Of the descent after a round of moves."""
    trials: int = 8
    """Subsets of its observations that a variable is tried with, each time."""
    last: Descent = Triggs(damping=1e-2, epsilon=0.6)
    pays: float = 1e-4
    """A cycle that lowers Ψ by a smaller part is the last."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> Any:
        n = self._for_method(max_iterations)
        state = self.method.init(engine, start, n)
        return replace(state, n_steps=-n, in_all=max_iterations, on_target=False, best=(state.cost, state.point))

    def step(self, engine: Engine, state: Any) -> Any:
        if state.n_steps < 0:
            after = self.method.step(engine, state)
            best = min((state.best, (after.cost, after.point)), key=lambda pair: pair[0])
            after = replace(after, best=best, on_target=False, n_steps=state.n_steps + 1, in_all=state.in_all)
            return after if after.n_steps < 0 else self._unrelaxed(engine, after)
        if state.n_steps % self.steps == 0:
            state = self._moved(engine, state) if self._fits(state) else replace(state, on_target=True)
        after = self.last.step(engine, state)
        return replace(after, n_steps=state.n_steps + 1, on_target=state.on_target, best=state.best)

    def _for_method(self, max_iterations: int) -> int:
        return max(int(self.share * max_iterations), 1)

    def _fits(self, state: Any) -> bool:
        """Whether another round of moves fits into the iterations, if it takes as long as those before it."""
        left = state.in_all - self._for_method(state.in_all) - state.n_steps - state.spent
        return state.n_steps == 0 or left > state.spent * self.steps / state.n_steps

    def _unrelaxed(self, engine: Engine, state: Any) -> Any:
        """From the best point of the method."""
        found, point = state.best
        plain = state.unrelaxed(engine)
        return replace(plain, point=point, cost=found, damping=self.last.damping, last_phase=True, on_target=False)

    def _moved(self, engine: Engine, state: Any) -> Any:
        """After moves; `best` has Ψ at the beginning of the cycle before."""
        pays = state.n_steps == 0 or state.cost < (1 - self.pays) * state.best[0]
        begun, point, value, spent = (state.cost, state.point), state.point, state.cost, state.spent
        if pays:
            moves = Moves(engine.problem, self.trials, seed=state.n_steps, near=True)
            point, n = moves(engine, point)
            value = cost(engine, point) if n else value
            spent += round(moves.iterations(engine))
        return replace(
            state, point=point, cost=value, damping=self.last.damping, best=begun, on_target=not pays, spent=spent
        )
