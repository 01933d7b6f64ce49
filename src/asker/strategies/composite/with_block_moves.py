"""A method, followed by cycles of moves of single variables (`asker.strategies.composite.block_moves`) and a descent.

Moves do not replace a graduated method, which estimates the cameras; they complement it, since every point in a poor
minimum of its own is re-estimated from its observations alone.  A round of moves is charged by its derivative
evaluations as a number of iterations.  The cycles end when one decreases Ψ too little, or when no further one fits into
the iterations; then the descent converges.
"""

from dataclasses import dataclass, replace

from asker.engines.interface import Engine, Point
from asker.strategies.asker import ASKER
from asker.strategies.composite.block_moves import Moves
from asker.strategies.composite.phases import lower
from asker.strategies.strategy import Descent, S, State, Strategy, cost
from asker.strategies.triggs import Triggs


@dataclass(frozen=True)
class WithMoves:
    """A method for a share of the iterations, followed by alternating moves and descents."""

    method: Strategy = ASKER()
    """Method before the first round of moves."""
    share: float = 0.3
    """Share of the iterations for the method."""
    steps: int = 5
    """Number of steps of the descent after each round of moves."""
    trials: int = 8
    """Maximum number of observation subsets that are evaluated per variable in each round."""
    last: Descent = Triggs(damping=1e-2, epsilon=0.6)
    """Descent on Ψ after each round of moves."""
    pays: float = 1e-4
    """Relative decrease of Ψ below which a cycle is the last one."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        n = self._for_method(max_iterations)
        state = self.method.init(engine, start, n)
        return replace(state, n_steps=-n, in_all=max_iterations, on_target=False, best=(state.cost, state.point))

    def step(self, engine: Engine, state: S) -> S:
        if state.n_steps < 0:
            after = self.method.step(engine, state)
            best = lower(replace(after, best=state.best))
            after = replace(after, best=best, on_target=False, n_steps=state.n_steps + 1, in_all=state.in_all)
            return after if after.n_steps < 0 else self._unrelaxed(engine, after)
        if state.n_steps % self.steps == 0:
            state = self._moved(engine, state) if self._fits(state) else replace(state, on_target=True)
        after = self.last.step(engine, state)
        return replace(after, n_steps=state.n_steps + 1, on_target=state.on_target, best=state.best)

    def _for_method(self, max_iterations: int) -> int:
        """Return the number of iterations of the method."""
        return max(int(self.share * max_iterations), 1)

    def _fits(self, state: State) -> bool:
        """Return True if another round of moves, as long as the earlier ones, fits into the iterations."""
        left = state.in_all - self._for_method(state.in_all) - state.n_steps - state.spent
        return state.n_steps == 0 or left > state.spent * self.steps / state.n_steps

    def _unrelaxed(self, engine: Engine, state: S) -> S:
        """Return the state at the best point of the method, without relaxation."""
        assert state.best is not None  # set by `init`
        best_cost, point = state.best
        plain = state.unrelaxed(engine)
        return replace(plain, point=point, cost=best_cost, damping=self.last.damping, last_phase=True, on_target=False)

    def _moved(self, engine: Engine, state: S) -> S:
        """Return the state after a round of moves; `best` has Ψ at the beginning of the last cycle."""
        assert state.best is not None  # set by `init`
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
