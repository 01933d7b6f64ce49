"""What every strategy is: `init` and `step` on a frozen state.

A strategy sees an engine through the verbs of engines/cpu/engine.py.  It gives, per residual, the numbers a, b, c of
the one linear model, and decides what to accept.  The loop in solve.py does everything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from asker.engines.point import Point

Engine = Any


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
    on_target: bool = True
    """Whether the strategy now minimises Ψ itself, so that a small decrease means convergence."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """For the history."""


class Strategy(Protocol):
    def init(self, engine: Engine, start: Point) -> Any: ...
    def step(self, engine: Engine, state: Any) -> Any: ...


def target(kernel, u):
    """ψ of one residual."""
    return kernel.psi(u)


def cost(engine: Engine, point: Point) -> float:
    """Ψ(θ)"""
    return engine.total(target, point)
