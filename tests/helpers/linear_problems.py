"""Linear systems of many sparsity structures, with a dense reference solution.

The residuals and Jacobians are random and passed as batched functions, so that only the linear system is tested.  A new
structure is tested by adding it to `STRUCTURES`.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from asker.engines.interface import Model
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import Variables

EXACT_CG = {"loosest": 1e-13, "tightest": 1e-13, "max_iterations": 2000}

# ------------------------------------------------------------------ problems


@dataclass
class Observations:
    """Random residuals and Jacobians of one factor group, without weights, in the user's order."""

    p: int
    slots: tuple
    r: np.ndarray
    J: list
    weight: np.ndarray | None
    traced: bool

    def factors(self):
        if self.traced:
            return Factors(linear, *self.slots, data=(self.r, *self.J), weight=self.weight)
        batched = {"jacobian": lambda *_: tuple(self.J), "weight": self.weight, "name": f"p{self.p}"}
        return Factors(lambda *_: self.r, *self.slots, **batched)


def linear(x, r, J):
    """Return a residual that equals r with Jacobian J at x = 0."""
    return r + J @ x


def observe(rng, p, *slots, weight=None, traced=False):
    n = len(slots[0].index)
    J = [rng.normal(size=(n, p, slot.variables.manifold.tangent)) for slot in slots]
    return Observations(p, slots, rng.normal(size=(n, p)), J, weight, traced)


def group(n, d, **options):
    return Variables(np.zeros((n, d)), **options)


def cameras(n=5, **options):
    return group(n, 3, name="cameras", **options)


def points(n=14, **options):
    return group(n, 2, name="points", **options)


def pairs(rng, n_cameras=5, n_points=14, n=50):
    """Return random distinct pairs of camera and point indices."""
    chosen = rng.permutation(n_cameras * n_points)[:n]
    return chosen % n_cameras, chosen // n_cameras


def bundle(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, cameras()[i], points()[j])]


def sorted_by_point(rng):
    i, j = pairs(rng)
    order = np.lexsort((i, j))
    return [observe(rng, 2, cameras()[i[order]], points()[j[order]])]


def point_before_camera(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, points()[j], cameras()[i])]


def two_kinds_of_observations(rng):
    c, x = cameras(), points()
    (i, j), (k, m) = pairs(rng), pairs(rng, n=20)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, c[k], x[m])]


def two_reduced_groups(rng):
    rigs = group(3, 1, name="rigs")
    i, j = pairs(rng)
    return [observe(rng, 2, cameras()[i], points()[j], rigs[rng.integers(0, 3, 50)])]


def reduced_groups_in_separate_factors(rng):
    c, x, rigs = cameras(), points(), group(3, 1, name="rigs")
    (i, j), (_, m) = pairs(rng), pairs(rng, n=20)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 2, rigs[rng.integers(0, 3, 20)], x[m])]


def priors(rng):
    c, x = cameras(), points()
    i, j = pairs(rng)
    on_points = observe(rng, 1, x[np.arange(4)])
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, c[np.array([0, 0, 3])]), on_points]


def some_fixed_variables(rng):
    i, j = pairs(rng)
    some, one = np.arange(5) < 2, np.arange(14) == 6
    return [observe(rng, 2, cameras(fixed=some)[i], points(fixed=one)[j])]


def fixed_cameras(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, cameras(fixed=True)[i], points()[j])]


def observations_of_fixed_variables_only(rng):
    c, x, constant = cameras(), points(), cameras(3, fixed=True)
    i, j = pairs(rng)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, constant[np.array([0, 2, 2])], traced=True)]


def points_observed_once(rng):
    return [observe(rng, 2, cameras()[rng.integers(0, 5, 14)], points()[rng.permutation(14)])]


def unobserved_points(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, cameras(9)[i + 2], points(30)[j * 2])]


def points_observed_twice_by_a_camera(rng):
    i, j = pairs(rng, n=20)
    return [observe(rng, 2, cameras()[np.tile(i, 2)], points()[np.tile(j, 2)])]


def empty_factor_group(rng):
    c, x = cameras(), points()
    i, j = pairs(rng)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, c[np.zeros(0, int)], traced=True)]


def weighted(rng):
    i, j = pairs(rng)
    weight = rng.uniform(0.1, 9, 50)
    weight[3] = 0.0
    return [observe(rng, 2, cameras()[i], points()[j], weight=weight)]


def two_cameras_and_a_point(rng):
    c, x = cameras(), points()
    first, second, j = rng.integers(0, 5, 60), rng.integers(0, 5, 60), rng.integers(0, 14, 60)
    return [observe(rng, 2, c[first], c[second], x[j])]


def graph(rng):
    nodes = cameras(12)
    first, second = rng.integers(0, 12, 40), rng.integers(0, 12, 40)
    second[:3] = first[:3]  # one variable, twice in a factor
    return [observe(rng, 2, nodes[first], nodes[second]), observe(rng, 1, nodes[np.array([0])])]


def graph_and_points(rng):
    c, x = cameras(), points()
    i, j = pairs(rng)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 2, c[np.arange(4)], c[np.arange(1, 5)])]


def one_variable(rng):
    return [observe(rng, 2, cameras(1)[np.zeros(9, int)])]


def few_variables(rng):
    return [observe(rng, 2, cameras(3)[rng.integers(0, 3, 20)])]


def many_small_problems(rng):
    x = points(20)
    return [observe(rng, 2, x[rng.integers(0, 20, 50)]), observe(rng, 1, x[np.arange(20)])]


STRUCTURES = [
    bundle,
    sorted_by_point,
    point_before_camera,
    two_kinds_of_observations,
    two_reduced_groups,
    reduced_groups_in_separate_factors,
    priors,
    some_fixed_variables,
    fixed_cameras,
    observations_of_fixed_variables_only,
    points_observed_once,
    unobserved_points,
    points_observed_twice_by_a_camera,
    empty_factor_group,
    weighted,
    two_cameras_and_a_point,
    graph,
    graph_and_points,
    one_variable,
    few_variables,
    many_small_problems,
]
EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.__name__)

# ------------------------------------------------------------------ dense reference


@dataclass
class Setup:
    """Problem with the coefficients a, b, c of a model for each observation, in the user's order."""

    observations: list
    problem: Problem
    a: list
    b: list | None
    c: list

    def model(self, engine):
        """Return the model in the engine's order."""
        return Model(*[None if x is None else engine.in_own_order(tuple(x)) for x in (self.a, self.b, self.c)])

    def rows(self):
        """Yield r (p,), J (p, N) over all free variables, a, b and c of each observation."""
        free = [v for v in self.problem.variables if v.is_free]
        starts = np.cumsum([0, *[v.rows.size for v in free]])
        first = dict(zip(free, starts, strict=False))
        for k, o in enumerate(self.observations):
            for n in range(len(o.r)):
                J = np.zeros((o.p, starts[-1]))
                for slot, block in zip(o.slots, o.J, strict=True):
                    v, index = slot.variables, slot.index[n]
                    if v in first and not v.fixed[index]:
                        d = v.manifold.tangent
                        J[:, first[v] + index * d : first[v] + (index + 1) * d] += block[n]
                root = 1.0 if o.weight is None else np.sqrt(o.weight[n])
                b = 0.0 if self.b is None else self.b[k][n]
                yield root * o.r[n], root * J, self.a[k][n], b, self.c[k][n]

    def step(self, damping, relative=False):
        """Return the step δ over all free variables, from the dense matrix."""
        H, g = 0.0, 0.0
        for r, J, a, b, c in self.rows():
            H = H + J.T @ (a * np.eye(len(r)) + b * np.outer(r, r)) @ J
            g = g + c * J.T @ r
        unit = np.where(np.diag(H) > 0, np.diag(H), 1.0) if relative else np.ones(len(g))
        return np.linalg.solve(H + damping * np.diag(unit), -g)

    def flat(self, delta):
        return np.concatenate([delta[v].ravel() for v in self.problem.variables if v.is_free])


def make_setup(structure, seed=0, radial=True) -> Setup:
    rng = np.random.default_rng(seed)
    observations = structure(rng)
    problem = Problem(*[o.factors() for o in observations])
    a, b, c = [], [], []
    for o in observations:
        n = len(o.r)
        u = (o.r**2).sum(axis=1) * (1.0 if o.weight is None else o.weight)
        a.append(rng.uniform(0.05, 1, n))
        ratio = rng.uniform(0.05, 2, n)  # (a + b u) / a, so that b has either sign
        b.append(a[-1] * (ratio - 1) / np.maximum(u, 1e-3))
        c.append(rng.normal(size=n))
    return Setup(observations, problem, a, b if radial else None, c)


def close(ours, expected, tol=1e-8):
    return np.abs(ours - expected).max() <= tol * np.abs(expected).max()


def line_problem(shift=0.0):
    """Return the fit of a line to points, a small problem for any engine."""

    def residual(x, t, y):
        return jnp.stack([x[0] * t + x[1] - y])

    t = np.linspace(0, 1, 20)
    x = Variables(np.zeros((1, 2)), name="x")
    return Problem(Factors(residual, x[np.zeros(20, int)], data=(t, 2 * t + shift)))


def traced(o):
    """Return the same observations as factors with a JAX function."""
    n = len(o.slots)

    def affine(*arguments):
        x, r, J = arguments[:n], arguments[n], arguments[n + 1 :]
        return r + sum(A @ y for A, y in zip(J, x, strict=True))

    return Factors(affine, *o.slots, data=(o.r, *o.J), weight=o.weight)
