"""The interface of strategies, `init` and `step` on a frozen state, and functions that several strategies use.

A strategy uses an engine through the verbs of `asker.engines.interface`.  It computes the weights a, b, c of the
quadratic model for each residual, and decides which steps to accept.  `asker.solver.loop` does everything else.

A *descent* (IRLS, Triggs, √ψ) is a strategy that minimises Ψ itself.  It only needs the point, its cost and λ, so it
can continue from the state of any other strategy; `asker.strategies.composite.phases` composes strategies in this way.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite
from typing import Protocol, Self, TypeVar

from asker.engines.interface import (
    Engine,
    Formula,
    Model,
    PerFactor,
    Point,
    TrialFunction,
    Tried,
    TupleFormula,
    Verbs,
    psi,
)
from asker.engines.interface import omega as omega

Detail = float | int | str | tuple[float, float]
"""A value that a strategy adds to the history."""
SMALLEST_DAMPING = 1e-8
LARGEST_DAMPING = 1e16
ROUNDING = 1e-12
"""Relative change of the cost that may be due to rounding."""


@dataclass(frozen=True, eq=False)
class State:
    """The state of a strategy between two steps.  Strategies add fields in subclasses."""

    point: Point
    cost: float
    """Ψ of the target kernel at the point."""
    damping: float
    """λ"""
    accepted: bool = True
    """True if the last trial was accepted."""
    at_rest: bool = False
    """True if the last trial was rejected with a cost that differs only by rounding: the cost cannot decrease."""
    off_limits: bool = False
    """True if the last trial was rejected because its residuals are not finite."""
    border: float = inf
    """λ of the last trial with non-finite residuals, until a step with such a small λ succeeds; the loop sets it."""
    on_target: bool = True
    """True if the strategy minimises its final objective, so that a small decrease means convergence."""
    budget: int = 0
    """Total number of iterations, for strategies with a schedule."""
    left: int = 0
    """Remaining number of iterations, for strategies with a schedule."""
    descending: bool = False
    """True if the state is in a first descent (composite/phases.py)."""
    last_phase: bool = False
    """True if the state is in the last phase (composite/phases.py)."""
    n_steps: int = 0
    """Number of steps so far, for strategies that count them (composite/with_block_moves.py)."""
    in_all: int = 0
    """Total number of iterations, for strategies that assign a part to a method (composite/with_block_moves.py)."""
    spent: int = 0
    """Work other than steps, as a number of iterations (composite/with_block_moves.py); the loop counts it too."""
    best: tuple[float, Point] | None = None
    """The lowest Ψ before the strategy minimises its final objective, and its point (composite/phases.py)."""

    @property
    def objective(self) -> float:
        """The function that an accepted step decreases: Ψ, unless a strategy overrides it."""
        return self.cost

    @property
    def phase(self) -> str | None:
        """The current phase: `first`, `last`, or None for the method itself."""
        return "first" if self.descending else "last" if self.last_phase else None

    @property
    def details(self) -> dict[str, Detail]:
        """Additional values for the history."""
        return {} if self.phase is None else {"phase": self.phase}

    def unrelaxed(self, engine: Engine) -> Self:
        """Return the state at the same point without relaxation: its objective is Ψ, and a descent may continue."""
        return replace(self, on_target=True)


S = TypeVar("S", bound=State)


class Strategy(Protocol[S]):
    """A minimisation method; its settings are the fields of a frozen dataclass."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> S:
        """Return the state at the start."""

    def step(self, engine: Engine, state: S) -> S:
        """Return the state after one linear solve."""


class Descent(Protocol):
    """A strategy that minimises Ψ itself, and can continue from the state of any strategy."""

    @property
    def damping(self) -> float:
        """λ at the start."""

    def init(self, engine: Engine, start: Point, max_iterations: int) -> State:
        """Return the state at the start."""

    def step(self, engine: Engine, state: S) -> S:
        """Return the state after one linear solve."""


def termination_test(method: Strategy[S]) -> Callable[[S], bool] | None:
    """Return the criterion `is_over(state)` of a method that decides by itself when it is finished, or None."""
    return getattr(method, "is_over", None)


def cost(engine: Verbs, point: Point) -> float:
    """Return Ψ(θ)."""
    return engine.total(psi, point)


def attempt(engine: Engine, point: Point, model: Model, damping: float) -> Point | None:
    """Return the point after the step of a model, or None if the linear system has no solution."""
    step = engine.solve(point, model, damping)
    return None if step is None else engine.move(step)


def descend(engine: Engine, state: S, trial: Point | None) -> S:
    """Accept or reject a trial by the Levenberg-Marquardt rule for Ψ.

    A trial with a lower cost is accepted and λ ← λ/10; any other trial, also one with a NaN, is rejected and λ ← 10λ.
    """
    return judged(state, trial, float("nan") if trial is None else cost(engine, trial))


def reweighted(engine: Engine, state: S, weights: Formula | TupleFormula, **numbers: float) -> S:
    """Return the state after a step whose model has the weights of a formula (`model_of`), accepted as by `descend`."""
    tried = engine.together(reweighted_trial(weights), state.point, lam=state.damping, **numbers)
    return judged(state, None, float("nan")) if tried is None else judged(state, tried.point, tried.totals)


@cache
def reweighted_trial(weights: Formula | TupleFormula) -> TrialFunction:
    """Return a trial function: the step of the model with these weights, and Ψ after it."""

    def trial(verbs: Verbs, point: Point, *, lam: float, **numbers: float) -> Tried | None:
        step = verbs.solve(point, model_of(verbs.each(weights, point, **numbers)), lam)
        if step is None:
            return None
        to = verbs.move(step)
        return Tried(to, (), cost(verbs, to))

    return trial


def model_of(weights: PerFactor | tuple[PerFactor, ...]) -> Model:
    """Return the model with weights ω; or ω and b; or a, b and c."""
    if not isinstance(weights[0], tuple):
        return Model(weights, None, weights)
    a, b, *c = weights
    return Model(a, b, *(c or (a,)))


def judged(state: S, trial: Point | None, trial_cost: float) -> S:
    """Return the state after a trial with this cost, accepted or rejected as by `descend`."""
    if trial is None or not trial_cost < state.cost:
        at_rest = trial_cost - state.cost <= ROUNDING * state.cost
        return replace(refused(state, trial_cost, trial), at_rest=at_rest)
    return replace(state, point=trial, cost=trial_cost, damping=lowered(state.damping), accepted=True, at_rest=False)


def refused(state: S, value: float, trial: object) -> S:
    """Return the state after a rejected trial; `value` is its objective, and `trial` is None if there was no step."""
    off_limits = trial is not None and not isfinite(value)
    return replace(state, damping=10 * state.damping, accepted=False, off_limits=off_limits)


def lowered(damping: float) -> float:
    """Return λ after an accepted step."""
    return max(damping / 10, SMALLEST_DAMPING)
