"""Families of one group of unknowns and one group of observations, the oracle for them, and SciPy on them.

Such a family is a `MadeFamily`: it has an announced noise, conditions, and a function that makes data as a `Made`.
The noise itself is `condition["noise"]` times the announced one; no solver is told.
"""

import importlib
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import log, pi, sqrt
from typing import Any

import jax
import numpy as np
import scipy.optimize

import asker
from asker.kernels.kernels import Mixture
from asker.tracing.array_namespace import float64
from families.family import Condition, Instance, Peer

SWEEP = (0.3, 1.0, 2.0, 5.0)
"""Times the user's number.  The noise is 0.3 to 3 times the announced one, so the best setting is among these."""
REACH = 3.0
"""The user's number over the announced noise: what is farther off is taken for an outlier."""


@dataclass(frozen=True, eq=False)
class Made:
    """Data with a known truth."""

    residual: Callable[..., Any]
    """Of one observation, as `asker.Factors` takes it."""
    truth: Any
    """The true values of the unknowns, as `asker.Variables` takes them."""
    start: Any
    data: tuple[np.ndarray, ...]
    right: np.ndarray
    """Which observations are no outliers, (n,)."""
    error: Callable[[Any], float]
    """How far values are from the truth."""
    manifold: asker.Manifold | None = None
    index: tuple[np.ndarray, ...] | None = None
    """The unknown of each observation, for each argument of the residual; the first and only one when not given."""
    fixed: Any = False
    valid: Callable[..., Any] | None = None
    """Where an observation is possible, as `asker.Factors` takes it."""
    density: float | None = None
    """That of outliers where they are; None: not told."""

    def factors(self, kernel: asker.Kernel | None, values: Any, chosen: Any = slice(None)) -> asker.Factors:
        """The chosen observations under a kernel, with `values` for a start."""
        unknowns = asker.Variables(values, self.manifold, self.fixed, name="unknowns")
        index = self.index or (np.zeros(len(self.right), dtype=int),)
        slots = [unknowns[i[chosen]] for i in index]
        return asker.Factors(
            self.residual, *slots, data=tuple(d[chosen] for d in self.data), kernel=kernel, valid=self.valid
        )


@dataclass(frozen=True)
class MadeFamily:
    """A family by its conditions and a function that makes its data."""

    name: str
    noise: float
    """The announced one, per coordinate."""
    made: Callable[[np.random.Generator, Condition, float], Made]
    """Of a source of random numbers, a condition and the noise itself."""
    conditions: Sequence[Condition]
    quick: Sequence[Condition]
    seeds: int = 2
    peers: Callable[[Made, float], dict[str, Peer]] | None = None
    """Of the data and the user's number: those beside SciPy."""
    sweep: Sequence[float] = SWEEP
    methods: Sequence[str] | None = None
    n_oracles: int = 20

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        if quick:
            return [(condition, 0) for condition in self.quick]
        return [(condition, seed) for condition in self.conditions for seed in range(self.seeds)]

    def make(self, condition: Condition, seed: int) -> Instance:
        made = self.made(random(self.name, condition, seed), condition, condition.get("noise", 1.0) * self.noise)
        number = REACH * self.noise
        noise = condition.get("noise", 1.0) * self.noise
        told = None if made.density is None else lambda: finite(made.error(likeliest(made, noise)))
        return replace(instance(made, number, self.peers(made, number) if self.peers else {}), told_all=told)


def likeliest(made: Made, sigma: float) -> Any:
    """The values that are likeliest under the noise σ, the share and the density of outliers: of where descents with
    moves lead to from the start, from asker's own result, and from the truth, which nobody knows: there may be others
    that are likelier still."""
    assert made.density is not None
    ratio = made.right.mean()
    c = log(ratio / (1 - ratio) / (sqrt(2 * pi) * sigma * made.density))
    kernel, own = Mixture(sqrt(2 * c) * sigma, c), asker.solve(asker.Problem(made.factors(None, made.start)))
    problems = (asker.Problem(made.factors(kernel, values)) for values in (made.start, own.values[0], made.truth))
    found = [asker.solve(problem, asker.METHODS["asker-moves"](), max_iterations=300) for problem in problems]
    return min(found, key=lambda result: result.cost).values[0]


def instance(made: Made, number: float, peers: dict[str, Peer]) -> Instance:
    """The instance of made data, with SciPy among its peers."""

    def oracle() -> float:
        factors = made.factors(asker.Quadratic(), made.truth, made.right)
        return made.error(asker.solve(asker.Problem(factors), asker.IRLS()).values[0])

    scipy_peers = {f"SciPy {loss}": partial(scipy_error, made, loss) for loss in ("soft_l1", "cauchy")}
    return Instance(
        problem=lambda kernel: asker.Problem(made.factors(kernel, made.start)),
        error=lambda result: finite(made.error(result.values[0])),
        oracle=oracle(),
        number=number,
        at_truth=lambda: asker.Problem(made.factors(None, made.truth)),
        peers=scipy_peers | peers,
    )


def finite(error: float) -> float:
    """The error, or infinity for what is no number."""
    return float(error) if np.isfinite(error) else np.inf


def scipy_error(made: Made, loss: str, number: float | None) -> float:
    """The error of `scipy.optimize.least_squares` with exact derivatives; its own `f_scale` is 1."""
    factors = made.factors(None, made.start)
    unknowns = factors.slots[0].variables
    free = np.flatnonzero(~unknowns.fixed)
    arguments = (unknowns.rows, free, tuple(slot.index for slot in factors.slots), factors.data)
    residuals = partial(_residuals, made.residual, unknowns.manifold)
    with float64():
        found = scipy.optimize.least_squares(
            lambda step: np.asarray(residuals(step, *arguments)),
            np.zeros(len(free) * unknowns.manifold.tangent),
            lambda step: np.asarray(_derivatives(made.residual, unknowns.manifold, step, *arguments)),
            loss=loss,
            f_scale=1.0 if number is None else number,
        )
        rows = np.asarray(_moved(unknowns.manifold, found.x, unknowns.rows, free))
    return finite(made.error(unknowns.manifold.unpack(rows)))


def _moved(manifold: asker.Manifold, step: Any, rows: Any, free: Any) -> Any:
    """The rows of all unknowns after one step, in which the free ones follow each other."""
    rows = jax.numpy.asarray(rows)
    steps = jax.numpy.reshape(step, (-1, manifold.tangent))
    return rows.at[free].set(jax.vmap(manifold.retract)(rows[free], steps))


@partial(jax.jit, static_argnums=(0, 1))
def _residuals(residual: Any, manifold: Any, step: Any, rows: Any, free: Any, index: Any, data: Any) -> Any:
    """All residuals as one vector."""
    moved = _moved(manifold, step, rows, free)
    views = [jax.vmap(manifold.view)(moved[i]) for i in index]
    return jax.vmap(residual)(*views, *data).ravel()


_derivatives = jax.jit(jax.jacfwd(_residuals, argnums=2), static_argnums=(0, 1))


def mixed(condition: Condition, right: np.ndarray, wrong: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
    """Observations, of which the first are clutter or, where the condition says so, of a second kind; who is right."""
    is_right = np.arange(len(right)) >= round(condition["outliers"] * len(right))
    other = second if condition["clutter"] == "second" else wrong
    return np.where(is_right.reshape(-1, *[1] * (right.ndim - 1)), right, other), is_right


def random(family: str, condition: Condition, seed: int) -> np.random.Generator:
    """The source of a case; no two cases draw the same numbers."""
    return np.random.default_rng([zlib.crc32((family + json.dumps(condition, sort_keys=True)).encode()), seed])


@cache
def module(name: str) -> Any:
    """A module of another program; None, and a line that says so, where it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return None
