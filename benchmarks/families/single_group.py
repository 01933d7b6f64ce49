"""Families with one group of unknowns and one group of observations, their oracle, and SciPy as a peer.

Such a family is a `SimulatedFamily`: it has a nominal noise, conditions, and a function that simulates data as a
`SimulatedData`. The actual noise is `condition["noise"]` times the nominal one; no solver knows it.
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
"""Factors of the user's scale.  The noise is 0.3 to 3 times the nominal one, so the best setting is among these."""
OUTLIER_SIGMAS = 3.0
"""User's scale in units of the nominal noise; larger residuals count as outliers."""


@dataclass(frozen=True, eq=False)
class SimulatedData:
    """Synthetic data with a known truth."""

    residual: Callable[..., Any]
    """Residual function of one observation, for `asker.Factors`."""
    truth: Any
    """True values of the unknowns, for `asker.Variables`."""
    start: Any
    data: tuple[np.ndarray, ...]
    right: np.ndarray
    """Inlier mask of the observations, (n,)."""
    error: Callable[[Any], float]
    """Return the error of values of the unknowns."""
    manifold: asker.Manifold | None = None
    index: tuple[np.ndarray, ...] | None = None
    """Index of the unknown of each observation, for each argument of the residual; by default there is one unknown."""
    fixed: Any = False
    valid: Callable[..., Any] | None = None
    """Function that is positive if an observation is possible, for `asker.Factors`."""
    density: float | None = None
    """Probability density of the outliers; None if `told_all` is not computed."""

    def factors(self, kernel: asker.Kernel | None, values: Any, chosen: Any = slice(None)) -> asker.Factors:
        """Return the factors of the chosen observations with a kernel, with `values` as the initial guess."""
        unknowns = asker.Variables(values, self.manifold, self.fixed, name="unknowns")
        index = self.index or (np.zeros(len(self.right), dtype=int),)
        slots = [unknowns[i[chosen]] for i in index]
        return asker.Factors(
            self.residual, *slots, data=tuple(d[chosen] for d in self.data), kernel=kernel, valid=self.valid
        )


@dataclass(frozen=True)
class SimulatedFamily:
    """Family defined by its conditions and a function that simulates its data."""

    name: str
    noise: float
    """Nominal standard deviation per coordinate."""
    simulate: Callable[[np.random.Generator, Condition, float], SimulatedData]
    """Simulate data for a random generator, a condition and the actual noise."""
    conditions: Sequence[Condition]
    quick: Sequence[Condition]
    seeds: int = 2
    peers: Callable[[SimulatedData, float], dict[str, Peer]] | None = None
    """Return the peers other than SciPy for the data and the user's scale."""
    sweep: Sequence[float] = SWEEP
    methods: Sequence[str] | None = None
    n_oracles: int = 20

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        if quick:
            return [(condition, 0) for condition in self.quick]
        return [(condition, seed) for condition in self.conditions for seed in range(self.seeds)]

    def make(self, condition: Condition, seed: int) -> Instance:
        data = self.simulate(random(self.name, condition, seed), condition, condition.get("noise", 1.0) * self.noise)
        number = OUTLIER_SIGMAS * self.noise
        noise = condition.get("noise", 1.0) * self.noise
        known_noise = None if data.density is None else lambda: finite(data.error(likeliest(data, noise)))
        return replace(instance(data, number, self.peers(data, number) if self.peers else {}), told_all=known_noise)


def likeliest(data: SimulatedData, sigma: float) -> Any:
    """Return the maximum likelihood values for known noise σ, outlier ratio and outlier density.

    It is the best local optimum of descents with block moves from the initial guess, from asker's result and from the
    truth; there may be a better one.
    """
    assert data.density is not None
    ratio = data.right.mean()
    c = log(ratio / (1 - ratio) / (sqrt(2 * pi) * sigma * data.density))
    kernel, default = Mixture(sqrt(2 * c) * sigma, c), asker.solve(asker.Problem(data.factors(None, data.start)))
    problems = (asker.Problem(data.factors(kernel, values)) for values in (data.start, default.values[0], data.truth))
    optima = [asker.solve(problem, asker.METHODS["asker-moves"](), max_iterations=300) for problem in problems]
    return min(optima, key=lambda result: result.cost).values[0]


def instance(data: SimulatedData, number: float, peers: dict[str, Peer]) -> Instance:
    """Return the instance of synthetic data, with SciPy among its peers."""

    def oracle() -> float:
        factors = data.factors(asker.Quadratic(), data.truth, data.right)
        return data.error(asker.solve(asker.Problem(factors), asker.IRLS()).values[0])

    scipy_peers = {f"SciPy {loss}": partial(scipy_error, data, loss) for loss in ("soft_l1", "cauchy")}
    return Instance(
        problem=lambda kernel: asker.Problem(data.factors(kernel, data.start)),
        error=lambda result: finite(data.error(result.values[0])),
        oracle=oracle(),
        number=number,
        at_truth=lambda: asker.Problem(data.factors(None, data.truth)),
        peers=scipy_peers | peers,
    )


def finite(error: float) -> float:
    """Return the error, or infinity if it is not finite."""
    return float(error) if np.isfinite(error) else np.inf


def scipy_error(data: SimulatedData, loss: str, number: float | None) -> float:
    """Return the error of `scipy.optimize.least_squares` with exact derivatives; its default `f_scale` is 1."""
    factors = data.factors(None, data.start)
    unknowns = factors.slots[0].variables
    free = np.flatnonzero(~unknowns.fixed)
    arguments = (unknowns.rows, free, tuple(slot.index for slot in factors.slots), factors.data)
    residuals = partial(_residuals, data.residual, unknowns.manifold)
    with float64():
        solution = scipy.optimize.least_squares(
            lambda step: np.asarray(residuals(step, *arguments)),
            np.zeros(len(free) * unknowns.manifold.tangent),
            lambda step: np.asarray(_derivatives(data.residual, unknowns.manifold, step, *arguments)),
            loss=loss,
            f_scale=1.0 if number is None else number,
        )
        rows = np.asarray(_moved(unknowns.manifold, solution.x, unknowns.rows, free))
    return finite(data.error(unknowns.manifold.unpack(rows)))


def _moved(manifold: asker.Manifold, step: Any, rows: Any, free: Any) -> Any:
    """Return the values of all unknowns after a step in the tangent space of the free ones."""
    rows = jax.numpy.asarray(rows)
    steps = jax.numpy.reshape(step, (-1, manifold.tangent))
    return rows.at[free].set(jax.vmap(manifold.retract)(rows[free], steps))


@partial(jax.jit, static_argnums=(0, 1))
def _residuals(residual: Any, manifold: Any, step: Any, rows: Any, free: Any, index: Any, data: Any) -> Any:
    """Return all residuals as one vector."""
    moved = _moved(manifold, step, rows, free)
    views = [jax.vmap(manifold.view)(moved[i]) for i in index]
    return jax.vmap(residual)(*views, *data).ravel()


_derivatives = jax.jit(jax.jacfwd(_residuals, argnums=2), static_argnums=(0, 1))


def mixed(condition: Condition, right: np.ndarray, wrong: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return observations whose first ones are outliers, clutter or of the second kind, and the inlier mask."""
    is_right = np.arange(len(right)) >= round(condition["outliers"] * len(right))
    other = second if condition["clutter"] == "second" else wrong
    return np.where(is_right.reshape(-1, *[1] * (right.ndim - 1)), right, other), is_right


def random(family: str, condition: Condition, seed: int) -> np.random.Generator:
    """The source of a case; no two cases draw the same numbers."""
    return np.random.default_rng([zlib.crc32((family + json.dumps(condition, sort_keys=True)).encode()), seed])


@cache
def module(name: str) -> Any:
    """Import a module of another program; print a message and return None if it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"{name} is skipped: {error}", file=sys.stderr)
        return None
