"""Bounded variables: all values stay within their bounds, and solves converge to the constrained minimum."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares, lsq_linear

import asker
from asker.engines.cpu.engine import CpuEngine

pytestmark = pytest.mark.filterwarnings("ignore:engine xla without a GPU")
N, LOWER, UPPER = 12, np.array([-0.1, -np.inf, 0.0]), np.array([0.1, 0.3, np.inf])
START = np.array([0.0, 0.2, 0.5])


def line(x, a, b):
    return a @ x - b


def between(x, y, d):
    """Difference of neighbours minus its measured value d."""
    return y - x - d


@pytest.fixture(scope="module")
def plain():
    """Return a linear problem of connected variables whose unconstrained minimum violates many bounds."""
    rng = np.random.default_rng(0)
    x = asker.Variables(np.tile(START, (N, 1)), lower=LOWER, upper=UPPER, name="x")
    i, k = rng.integers(0, N, 80), np.arange(N - 1)
    A, b, d = rng.normal(size=(80, 3)), rng.normal(size=80), 0.3 * rng.normal(size=(N - 1, 3))
    J = np.zeros((80 + 3 * len(k), 3 * N))
    J[np.arange(80)[:, None], 3 * i[:, None] + np.arange(3)] = A
    J[80:, :] = np.eye(3 * N)[3:] - np.eye(3 * N)[:-3]
    y = np.concatenate([b, d.ravel()])

    def problem(kernel=None):
        kernel = kernel or asker.Quadratic()
        return asker.Problem(
            asker.Factors(line, x[i], data=(A, b), kernel=kernel),
            asker.Factors(between, x[k], x[k + 1], data=d, kernel=kernel),
        )

    return problem, J, y


def is_inside(result, lower=LOWER, upper=UPPER):
    return all(((x >= lower) & (x <= upper)).all() for x in result.values)


SOLVERS = [
    *[("cpu", solver) for solver in ("auto", "sparse-cholesky", "cg", "reference")],
    *[pytest.param("xla", solver, marks=pytest.mark.slow) for solver in ("auto", "cg")],
]


@pytest.mark.parametrize(("engine", "solver"), SOLVERS)
def test_least_squares_between_bounds_is_that_of_scipy(plain, engine, solver):
    problem, J, y = plain
    result = asker.solve(problem(), engine=engine, linear_solver=solver, tol=1e-13)
    best = lsq_linear(J, y, (np.tile(LOWER, N), np.tile(UPPER, N)), tol=1e-14)
    assert np.count_nonzero(best.active_mask) > 5
    assert result.cost == pytest.approx(best.cost, rel=1e-9)
    np.testing.assert_allclose(result["x"].ravel(), best.x, atol=1e-5)
    assert is_inside(result)


def test_a_gradient_at_the_end_leads_out_of_the_bounds(plain):
    """The conditions of Karush, Kuhn and Tucker, for a convex kernel that is not quadratic."""
    problem, J, y = plain
    kernel = asker.PseudoHuber(0.3)
    result = asker.solve(problem(kernel), tol=1e-14)
    assert is_inside(result)
    weights = np.concatenate([result.weights[0], np.repeat(result.weights[1], 3)])
    g = (J.T @ (weights * (J @ result["x"].ravel() - y))).reshape(N, 3)
    x = result["x"]
    inside, low, high = (x > LOWER) & (x < UPPER), x == LOWER, x == UPPER
    assert (low | high).any()
    assert inside.any()
    np.testing.assert_allclose(g[inside], 0, atol=1e-5)
    assert (g[low] > -1e-6).all()
    assert (g[high] < 1e-6).all()


@pytest.mark.parametrize("engine", ["cpu", pytest.param("xla", marks=pytest.mark.slow)])
def test_variables_that_are_eliminated_have_bounds_too(engine):
    rng = np.random.default_rng(2)
    many = asker.Variables(np.tile(START, (N, 1)), lower=LOWER, upper=UPPER, name="many")
    one = asker.Variables(START[None], upper=[0.05, 9.0, 9.0], name="one")
    i, d = np.repeat(np.arange(N), 3), 0.5 * rng.normal(size=(3 * N, 3))
    factors = asker.Factors(between, one[0 * i], many[i], data=d, kernel=asker.Quadratic())
    result = asker.solve(asker.Problem(factors), engine=engine, eliminate=many, tol=1e-13)
    J = np.kron(np.eye(N)[i], np.eye(3))
    J = np.hstack([np.tile(-np.eye(3), (3 * N, 1)), J])
    low, high = np.r_[[-np.inf] * 3, np.tile(LOWER, N)], np.r_[0.05, 9.0, 9.0, np.tile(UPPER, N)]
    best = lsq_linear(J, d.ravel(), (low, high), tol=1e-14)
    assert result.cost == pytest.approx(best.cost, rel=1e-9)
    many_x = result["many"]
    assert ((many_x >= LOWER) & (many_x <= UPPER)).all()
    assert ((many_x == LOWER) | (many_x == UPPER)).any()
    assert result["one"][0, 0] <= 0.05


def curve(x, t, y):
    return x[0] * jnp.exp(-x[1] * t) + x[2] - y


@pytest.fixture(scope="module")
def curves():
    rng = np.random.default_rng(1)
    t = np.linspace(0, 3, 40)
    y = 2 * np.exp(-1.5 * t) + 0.5 + 0.02 * rng.normal(size=40)
    y[::3] += rng.uniform(-5, 5, 14)
    x = asker.Variables([[1.0, 0.9, 0.0]], lower=[0.0, 0.0, -0.4], upper=[1.8, 1.0, 0.4], name="x")

    def problem(kernel):
        return asker.Problem(asker.Factors(curve, x[np.zeros(40, int)], data=(t, y), kernel=kernel))

    return problem, x, t, y


@pytest.mark.parametrize("method", asker.METHODS)
def test_no_method_leaves_the_bounds(method, curves, monkeypatch):
    problem, x, _, _ = curves
    low, high = x.manifold.parts(x.rows)[1:3]
    seen = []

    def evaluate(self, theta, plain=CpuEngine.evaluate):
        seen.extend(rows for v, rows in zip(self.problem.variables, theta, strict=True) if v.bounds)
        return plain(self, theta)

    monkeypatch.setattr(CpuEngine, "evaluate", evaluate)
    result = asker.solve(problem(asker.Cauchy(0.2)), asker.METHODS[method](), max_iterations=30)
    assert result.cost <= result.initial_cost
    rows = np.concatenate(seen)[:, :3]
    assert len(rows) > 3
    assert (rows >= low).all()
    assert (rows <= high).all()
    assert (rows == high).any()


def test_a_curve_between_bounds_is_that_of_scipy(curves):
    problem, x, t, y = curves
    low, high = x.manifold.parts(x.rows[0])[1:3]
    best = least_squares(
        lambda p: p[0] * np.exp(-p[1] * t) + p[2] - y, [1.0, 0.9, 0.0], bounds=(low, high), loss="soft_l1", f_scale=0.1,
        ftol=1e-14, xtol=1e-14, gtol=1e-14,
    )  # fmt: skip
    result = asker.solve(problem(asker.PseudoHuber(0.1)), tol=1e-14)
    np.testing.assert_allclose(result.x, best.x, atol=1e-5)
    assert result.cost == pytest.approx(best.cost, rel=1e-9)
    assert (np.isclose(result.x, low) | np.isclose(result.x, high)).any()


def test_bounds_hold_if_the_noise_scale_is_unknown(curves):
    """Fits to subsets of the observations respect the bounds as well."""
    problem, x, _, _ = curves
    result = asker.solve(problem(None))
    assert result.estimated_noise is not None
    assert is_inside(result, *x.manifold.parts(x.rows[0])[1:3])


def test_a_start_at_a_bound_leaves_it_if_the_minimum_is_inside():
    x = asker.Variables([[0.0], [1.0]], lower=0.0, upper=1.0)
    factors = asker.Factors(lambda x, y: x - y, x[[0, 1]], data=np.array([[0.25], [0.75]]), kernel=asker.Quadratic())
    np.testing.assert_allclose(asker.solve(asker.Problem(factors)).values[0], [[0.25], [0.75]], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lower": 1.0}, "points: values have a number beyond its bounds at index 0"),
        ({"lower": -1.0, "upper": [-2.0, 3.0]}, "points: values have a lower bound above the upper one at index 0"),
        ({"upper": np.ones(3)}, r"points: values have shape \(4, 2\), and upper has \(3,\)"),
        ({"unit": 0.0}, "points: values have a unit that is not positive and finite at index 0"),
        ({"lower": np.nan}, "points: values have NaN in lower"),
    ],
)
def test_invalid_bounds_are_rejected(options, message):
    with pytest.raises(asker.ProblemError, match=message):
        asker.Variables(np.zeros((4, 2)), name="points", **options)


def test_units_of_coordinates_make_a_solve_independent_of_their_scale(curves):
    """λI in units of the coordinates equals λI of the problem that is stated in these units."""
    _, _, t, y = curves
    unit = np.array([1e6, 1e-4, 1.0])

    def in_units(x, t, y):
        return curve(x / unit, t, y)

    start, zeros = np.array([1.0, 0.9, 0.0]), np.zeros(40, int)
    plain, scaled = asker.Variables(start[None]), asker.Variables((start * unit)[None], unit=unit)
    kernel = asker.PseudoHuber(0.1)
    first = asker.solve(asker.Problem(asker.Factors(curve, plain[zeros], data=(t, y), kernel=kernel)))
    second = asker.solve(asker.Problem(asker.Factors(in_units, scaled[zeros], data=(t, y), kernel=kernel)))
    np.testing.assert_allclose(second.x / unit, first.x, rtol=1e-6)
    assert second.iterations == first.iterations


def test_only_euclidean_variables_have_bounds():
    with pytest.raises(asker.ProblemError, match="lower, upper and unit are for Euclidean ones"):
        asker.Variables(np.eye(3)[None], manifold=asker.SO3, lower=0.0)


def test_a_parameter_at_a_bound_has_no_standard_error():
    t = np.linspace(0, 3, 50)
    y = 2.0 * np.exp(-0.7 * t) + 0.01 * np.random.default_rng(0).normal(size=50)

    def errors(upper):
        p = asker.Variables([[1.0, 0.5]], lower=0.0, upper=[[upper, np.inf]], name="p")
        f = asker.Factors(lambda p, t, y: p[0] * jnp.exp(-p[1] * t) - y, p[np.zeros(50, int)], data=(t, y),
                          kernel=asker.Huber(0.5))  # fmt: skip
        result = asker.solve(asker.Problem(f))
        return result, result.standard_errors("p")[0]

    result, active = errors(1.5)
    np.testing.assert_array_equal(np.isnan(active), [True, False])
    assert any("p[0, 0] is at a bound and has no standard error" in doubt for doubt in result.doubts)
    assert "at a bound" in result.uncertainty().gauge
    free, inactive = errors(3.0)
    assert np.isfinite(inactive).all()
    assert free.doubts == ()


@pytest.mark.parametrize("function", [lambda x, d: math.sin(x) - d, lambda x, d: float(x) - d])
def test_functions_of_math_are_named(function):
    x = asker.Variables(np.ones(1))
    with pytest.raises(asker.ProblemError, match=r"use jax\.numpy in place of math"):
        asker.Problem(asker.Factors(function, x[[0]], data=np.ones(1)))
