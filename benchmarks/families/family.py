"""Interface of a family, that is, test problems of one kind with a known truth, for `benchmarks/truth.py`.

A family lists its cases; a case is a condition (noise, outlier ratio, initial guess, …) and a seed.  `make` returns the
`Instance` of a case: the problem with its initial guess, the error of an estimate, and the error of the oracle.  The
oracle is least squares on the true inliers, started at the truth: no method can be much more accurate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import asker

Condition = dict[str, Any]
"""Parameters of a case apart from the seed, such as {"noise": 0.4, "outliers": 0.3}."""
Peer = Callable[[float | None], float]
"""Error of another program on the same data, as a function of its scale parameter; None is the program's default."""


@dataclass(frozen=True, eq=False)
class Instance:
    """One test problem with its error measure and its oracle."""

    problem: Callable[[asker.Kernel | None], asker.Problem]
    """Return the problem at its initial guess with a kernel; None leaves kernel and scale unspecified."""
    error: Callable[[asker.Result], float]
    """Return the error of a result; infinite for values that are not finite."""
    oracle: float | None
    """Error of the oracle; None if there is no oracle: the lowest error of all runs then replaces it."""
    number: float
    """Scale that a user would specify: 1 pixel, or three times the nominal noise.  The actual noise differs."""
    default: Callable[[], float] | None = None
    """Return the error of asker's default if that is more than `asker.solve(problem(None))`; else None."""
    at_truth: Callable[[], asker.Problem] | None = None
    """Return the problem without a kernel, started at the truth; None if the truth is unknown or `default` has no
    initial guess."""
    told_all: Callable[[], float] | None = None
    """Return the error of the maximum likelihood solution for known noise, outlier ratio and outlier density (only the
    inlier labels are unknown); None if it is not computed."""
    peers: dict[str, Peer] = field(default_factory=dict)
    """Installed peers by name."""
    without_number: frozenset[str] = frozenset()
    """Names of the peers without a scale parameter, which run once."""
    max_iterations: int = 100
    time_limit: float | None = None
    """Seconds for one run of asker; `error` raises a `TimeoutError` for a result that reached the limit."""


class Family(Protocol):
    """Test problems of one kind."""

    @property
    def name(self) -> str:
        """Name on the command line and in the tables."""

    @property
    def sweep(self) -> Sequence[float]:
        """Factors of the user's scale among which the best setting is chosen."""

    @property
    def methods(self) -> Sequence[str] | None:
        """Names of asker's methods in `truth.py` to run; None for all."""

    @property
    def n_oracles(self) -> int:
        """Number of seeds for the standard deviation of the oracle's error; 0 if it is deterministic."""

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        """Return the conditions and seeds; a small subset if `quick`."""

    def make(self, condition: Condition, seed: int) -> Instance:
        """Return the instance of a case; the same arguments give the same instance."""
