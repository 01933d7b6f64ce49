"""The interface of a family: problems of one kind whose truth is known, for `benchmarks/truth.py`.

A family lists its cases; a case is a condition (noise, share of outliers, start, …) and a seed.  `make` gives its
`Instance`: the problem from its start, how far an estimate is from the truth, and the oracle.  The oracle is least
squares on the true inliers from the truth: the floor that nobody can beat by much.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import asker

Condition = dict[str, Any]
"""What tells one case from another beside the seed, such as {"noise": 0.4, "outliers": 0.3}."""
Peer = Callable[[float | None], float]
"""Another program on the same data: the error that it ends with, for the number it is given; None: its own default."""


@dataclass(frozen=True, eq=False)
class Instance:
    """One made problem, and what is known of it."""

    problem: Callable[[asker.Kernel | None], asker.Problem]
    """The problem from its start, under a kernel; None: nothing is given."""
    error: Callable[[asker.Result], float]
    """How far a result is from the truth; infinite where it is no result."""
    oracle: float | None
    """The error of the oracle; None: there is none, and the lowest error of all that is run stands in its place."""
    number: float
    """What a user would give: 1 pixel, or three times the announced noise.  The noise itself is another one."""
    default: Callable[[], float] | None = None
    """What asker does when nothing is given, where that is more than `asker.solve(problem(None))`: its error."""
    at_truth: Callable[[], asker.Problem] | None = None
    """The problem with nothing given, started at the truth; None: the truth is not known, or `default` takes none."""
    told_all: Callable[[], float] | None = None
    """The error of the likeliest solution where the noise, the share of outliers and their density are known, but not
    which observations they are; None: there is no such line."""
    peers: dict[str, Peer] = field(default_factory=dict)
    """Those that can be run here, by name."""
    without_number: frozenset[str] = frozenset()
    """Those of the peers that take no number, and are run once."""
    max_iterations: int = 100
    time_limit: float | None = None
    """Seconds for one run of asker; `error` raises a `TimeoutError` for a result that met it."""


class Family(Protocol):
    """Problems of one kind."""

    @property
    def name(self) -> str:
        """As the command line and the tables call it."""

    @property
    def sweep(self) -> Sequence[float]:
        """Times the user's number: the settings among which the best one is looked for."""

    @property
    def methods(self) -> Sequence[str] | None:
        """Of asker, as `truth.py` names them; None: all."""

    @property
    def n_oracles(self) -> int:
        """Seeds from which it is seen how much the oracle's error varies by chance; 0: it does not."""

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        """Conditions and seeds."""

    def make(self, condition: Condition, seed: int) -> Instance:
        """The same arguments give the same instance."""
