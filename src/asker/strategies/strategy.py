"""Every strategy is `init` and `step` on a frozen state.

A strategy sees an engine through the verbs of engines/point.py.  It gives, per residual, the numbers a, b, c of
the one linear model, and decides what to accept.  The loop in loop.py does everything else.

A *descent* (IRLS, Triggs, √ψ) is a strategy that minimises Ψ itself.  It needs no more than a point, its cost and λ, so
it steps on the state of any other strategy: phases.py makes first and last phases of that.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite
from typing import Any, Protocol, Self, TypeVar

from asker.engines.interface import Engine, Formula, Model, Point, Together, Tried, Verbs, psi
from asker.engines.interface import omega as omega

SMALLEST_DAMPING = 1e-8
LARGEST_DAMPING = 1e16
ROUNDING = 1e-12
"""The part of the cost by which rounding may change it."""


@dataclass(frozen=True, eq=False)
class State:
    """Where a strategy stands.  Strategies with more to remember add fields."""

    point: Point
    cost: float
    """Ψ of the target kernel at the point."""
    damping: float
    """λ"""
    accepted: bool = True
    """Whether the last trial was taken."""
    at_rest: bool = False
    """Whether the last trial was refused, and its cost is the same but for rounding: there is nothing to gain."""
    off_limits: bool = False
    """Whether the last trial was refused because its residuals are not finite."""
    border: float = inf
    """λ of the last such trial, until residuals are finite after a step with as small a λ; the loop keeps it."""
    on_target: bool = True
    """Whether the strategy is on its last objective, so that a small decrease means convergence."""
    budget: int = 0
    """Iterations in all, for strategies that plan with them."""
    left: int = 0
    """Iterations left, for the same."""
    descending: bool = False
    """Whether a first descent goes on (phases.py)."""
    last_phase: bool = False
    """Whether the last phase has begun (phases.py)."""
    n_steps: int = 0
    """Steps so far, for strategies that count them (with_moves.py)."""
    in_all: int = 0
    """Iterations in all, for strategies that give a method some of them (with_moves.py)."""
    spent: int = 0
    """Iterations that something else than steps has taken the time of (with_moves.py): the loop counts them too."""
    best: tuple[float, Point] | None = None
    """The lowest Ψ seen before the strategy came to its target, and where (phases.py)."""

    @property
    def objective(self) -> float:
        """What an accepted step lowers: Ψ, unless the strategy says otherwise."""
        return self.cost

    @property
    def phase(self) -> str | None:
        """Which descent is at work: `first` or `last`; None for the method itself."""
        return "first" if self.descending else "last" if self.last_phase else None

    @property
    def details(self) -> dict[str, Any]:
        """What the history records beside the fields above."""
        return {} if self.phase is None else {"phase": self.phase}

    def unrelaxed(self, engine: Engine) -> Self:
        """The same point with nothing relaxed: Ψ itself is the objective, and a descent may go on from here."""
        return replace(self, on_target=True)


S = TypeVar("S", bound=State)


class Strategy(Protocol):
    """A way to get down: `init` and `step`.  Settings are the fields of a frozen dataclass."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> Any:
        """The state at the start."""

    def step(self, engine: Engine, state: Any) -> Any:
        """The state after one linear solve."""


class Descent(Protocol):
    """A strategy that minimises Ψ itself, from the state of any strategy."""

    @property
    def damping(self) -> float:
        """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        """The state at the start."""

    def step(self, engine: Engine, state: S) -> S:
        """The state after one linear solve."""


def cost(engine: Verbs, point: Point) -> float:
    """Ψ(θ)"""
    return engine.total(psi, point)


def attempt(engine: Engine, point: Point, model: Model, damping: float) -> Point | None:
    """Where the model's step leads; None when the linear system has no solution."""
    step = engine.solve(point, model, damping)
    return None if step is None else engine.move(step)


def descend(engine: Engine, state: S, trial: Point | None) -> S:
    """Levenberg-Marquardt on Ψ: accept if it falls, then λ ← λ/10; else λ ← 10λ.  A NaN is refused."""
    return judged(state, trial, float("nan") if trial is None else cost(engine, trial))


def reweighted(engine: Engine, state: S, weights: Formula, **numbers: float) -> S:
    """The same, with the trial: a step of the model whose weights a formula gives (`model_of`)."""
    tried = engine.together(reweighted_trial(weights), state.point, lam=state.damping, **numbers)
    return judged(state, None, float("nan")) if tried is None else judged(state, tried.point, tried.totals)


@cache
def reweighted_trial(weights: Formula) -> Together:
    """The trial step, and Ψ there."""

    def trial(verbs: Verbs, point: Point, *, lam: float, **numbers: float) -> Tried | None:
        step = verbs.solve(point, model_of(verbs.each(weights, point, **numbers)), lam)
        if step is None:
            return None
        to = verbs.move(step)
        return Tried(to, (), cost(verbs, to))

    return trial


def model_of(weights: Any) -> Model:
    """From what `each` gave: ω; or ω and b; or a, b and c."""
    if not isinstance(weights[0], tuple):
        return Model(weights, None, weights)
    a, b, *c = weights
    return Model(a, b, *(c or (a,)))


def judged(state: S, trial: Point | None, trial_cost: float) -> S:
    """The state after a trial with this cost: what `descend` says of it."""
    if trial is None or not trial_cost < state.cost:
        at_rest = trial_cost - state.cost <= ROUNDING * state.cost
        return replace(refused(state, trial_cost, trial), at_rest=at_rest)
    return replace(state, point=trial, cost=trial_cost, damping=lowered(state.damping), accepted=True, at_rest=False)


def refused(state: S, value: float, trial: object) -> S:
    """Return the state after a trial with this objective that is not taken; `trial` is None where there was no step."""
    off_limits = trial is not None and not isfinite(value)
    return replace(state, damping=10 * state.damping, accepted=False, off_limits=off_limits)


def lowered(damping: float) -> float:
    """λ after an accepted step."""
    return max(damping / 10, SMALLEST_DAMPING)
