"""Laws of the status: independence of units, and CONVERGED only at points that may be minima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.engines.cpu.linearized_problem import LinearModel
from asker.kernels.registry import KERNELS
from asker.solver.stationarity import predicted_decrease
from asker.tracing.array_namespace import float64

N = 60
RNG = np.random.default_rng(3)
T = np.abs(RNG.uniform(-5, 5, N))
Y = np.where(RNG.random(N) < 0.3, RNG.uniform(-8, 8, N), np.exp(-0.7 * T) + 0.5) + 0.05 * RNG.normal(size=N)
AT = np.zeros(N, int)


def curve(x, t, y, unit):
    return (x[0] * jnp.exp(-x[1] * t) + x[2] - y) * unit


def in_units(unit, kernel):
    """Return a curve fit with outliers whose residuals and kernel width are multiplied by `unit`."""
    x = asker.Variables(np.array([[1.0, 0.3, 0.2]]), name="x")
    data = T, Y, np.full(N, unit)
    return asker.Problem(asker.Factors(curve, x[AT], data=data, kernel=kernel(tau=0.3 * unit)))


def path(result, unit):
    """Return the accepted flags and the costs of a solve, independent of the unit."""
    return [(line.accepted, line.cost / unit**2) for line in result.history]


# ------------------------------------------------------------------ units

UNITS = [2.0**k for k in (-332, -66, 66, 332)]
"""Units from 1e-100 to 1e100; they are powers of two, so that rounding errors agree."""


def check_units(kernel, method):
    plain = asker.solve(in_units(1.0, kernel), method(), max_iterations=30, relative_damping=True)
    assert plain.cost < plain.initial_cost
    for unit in UNITS:
        other = asker.solve(in_units(unit, kernel), method(), max_iterations=30, relative_damping=True)
        assert other.status is plain.status
        accepted, costs = zip(*path(other, unit), strict=True)
        expected = tuple(zip(*path(plain, 1.0), strict=True))
        assert accepted == expected[0]
        np.testing.assert_allclose(costs, expected[1], rtol=1e-9)


@pytest.mark.parametrize("method", asker.METHODS)
def test_the_unit_of_the_residuals_has_no_influence(method):
    check_units(asker.SmoothTruncated, asker.METHODS[method])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_unit_of_the_residuals_has_no_influence_under_any_kernel(kernel):
    check_units(KERNELS[kernel], asker.IRLS)


@pytest.mark.parametrize("alpha", [-np.inf, -2.0, 0.0, 0.5, 1.0, 1.5])
def test_a_kernel_that_is_far_too_wide_is_least_squares(alpha):
    """The surrogate of ReGeMM does not suffer from cancellation if τ² is 1e13 times a squared residual."""

    def solved(kernel, method):
        x = asker.Variables(np.zeros((1, 2)), name="x")
        factors = asker.Factors(lambda x, t, y: x[0] * t + x[1] - y, x[AT], data=(T, Y), kernel=kernel)
        return asker.solve(asker.Problem(factors), method)

    plain, wide = solved(asker.Quadratic(), asker.IRLS()), solved(asker.Barron(3e6, alpha=alpha), asker.ReGeMM())
    assert wide.status is plain.status is asker.Status.CONVERGED
    assert wide.cost == pytest.approx(plain.cost, rel=1e-9)


# ------------------------------------------------------------------ end points that are no minima


def with_root(x, y):
    """Residual that is NaN for negative x; its gradient is unbounded towards 0."""
    return jnp.sqrt(x) - y


def with_edge(x, y):
    """Residual that is NaN for x < 1, without any change of the gradient before."""
    return jnp.where(x < 1, jnp.nan, x) - y


def at_border(residual, kernel):
    """Return a problem whose minimum is beyond the domain of the residual."""
    x = asker.Variables([4.0], name="x")
    y = np.linspace(-2, -1, 9)
    return asker.Problem(asker.Factors(residual, x[np.zeros(9, int)], data=y, kernel=kernel))


def check_border(result):
    assert result.status is not asker.Status.CONVERGED
    assert any("longer ones give residuals that are not finite" in doubt for doubt in result.doubts)


@pytest.mark.parametrize("residual", [with_root, with_edge])
@pytest.mark.parametrize("method", asker.METHODS)
def test_an_end_at_the_border_of_finite_residuals_is_reported(method, residual):
    check_border(asker.solve(at_border(residual, asker.Cauchy(5.0)), asker.METHODS[method](), max_iterations=200))


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_end_at_the_border_is_reported_under_any_kernel(kernel):
    result = asker.solve(at_border(with_edge, KERNELS[kernel](9.0)), asker.IRLS(), max_iterations=200)
    check_border(result)
    assert result.values[0][0] == pytest.approx(1.0, abs=1e-3)


def test_a_border_that_only_early_steps_cross_is_not_reported():
    """Long first steps leave the domain, but the minimum is inside."""
    x = asker.Variables([40.0], name="x")
    factors = asker.Factors(with_root, x[np.zeros(9, int)], data=np.linspace(0.9, 1.1, 9), kernel=asker.Quadratic())
    result = asker.solve(asker.Problem(factors), asker.IRLS(damping=1e-8))
    assert not all(line.accepted for line in result.history)
    assert result.status is asker.Status.CONVERGED
    assert not result.doubts
    assert result.values[0][0] == pytest.approx(1.0)


@pytest.mark.parametrize("method", asker.METHODS)
def test_steps_shortened_by_damping_are_not_convergence(method):
    """The damping λI depends on the units of the variables and residuals."""
    result = asker.solve(in_units(1e-100, asker.Cauchy), asker.METHODS[method]())
    assert result.cost > 0.999 * result.initial_cost
    assert result.status is not asker.Status.CONVERGED


REDESCENDING = [asker.SmoothTruncated, asker.Tukey, asker.TruncatedQuadratic]


def far_off(n, kernel):
    """Return a problem of n points with three observations each, all far from the initial guess."""
    x = asker.Variables(np.zeros((n, 2)), name="x")
    data = 100 + RNG.normal(size=(3 * n, 2))
    return asker.Problem(asker.Factors(lambda x, y: x - y, x[np.repeat(np.arange(n), 3)], data=data, kernel=kernel))


def check_weights(result):
    assert result.cost == result.initial_cost
    assert result.status is not asker.Status.CONVERGED
    assert any("all observations have kernel weight 0" in doubt for doubt in result.doubts)


@pytest.mark.parametrize("n", [1, 30])
@pytest.mark.parametrize("kernel", REDESCENDING)
def test_weights_of_0_are_not_convergence(kernel, n):
    check_weights(asker.solve(far_off(n, kernel()), asker.IRLS()))


@pytest.mark.parametrize("method", ["irls", "triggs", "sqrt-psi", "mhq", "regemm", "moo", "gnc"])
def test_weights_of_0_are_not_convergence_for_any_method(method):
    """The weights are 0 even under the widest kernel of GNC."""
    check_weights(asker.solve(far_off(1, asker.SmoothTruncated(1e-3)), asker.METHODS[method]()))


def test_convergence_above_the_best_point_is_a_doubt():
    """Graduated kernels leave the cluster at the start, whose cost is lower than that of the final one."""
    data = np.concatenate([np.zeros(10), 2.5 + np.linspace(-0.4, 0.4, 9), np.full(3, 5.0)])
    x = asker.Variables([0.0], name="x")
    factors = asker.Factors(lambda x, y: x - y, x[np.zeros(22, int)], data=data, kernel=asker.TruncatedQuadratic(1.0))
    result = asker.solve(asker.Problem(factors), asker.GNC())
    assert result.status is asker.Status.CONVERGED
    assert result.cost == pytest.approx(6.0)
    assert result.history[-1].cost == pytest.approx(6.8)
    assert any("converged at a cost of 6.8, above 6 " in doubt for doubt in result.doubts)
    assert not asker.solve(asker.Problem(factors), asker.IRLS()).doubts


def test_squares_that_underflow_or_overflow_are_rejected():
    for unit, message in ((1e-170, "squared residual of observation 0 underflows"), (1e170, "overflows")):
        with pytest.raises(asker.ProblemError, match=message):
            asker.solve(in_units(unit, lambda tau: asker.Quadratic()), asker.IRLS())


def test_exact_residuals_do_not_underflow():
    x = asker.Variables([2.0, 0.0])
    weight, kernel = [1.0, 0.0], asker.Quadratic()
    factors = asker.Factors(lambda x, y: x - y, x[[0, 1]], data=np.array([2.0, 5.0]), weight=weight, kernel=kernel)
    result = asker.solve(asker.Problem(factors), asker.IRLS())
    assert result.status is asker.Status.CONVERGED


# ------------------------------------------------------------------ stationarity


def newton_decrement(result, problem):
    """Return ½ gᵀH⁻¹g over the coordinates without an active bound, computed by JAX."""
    f, x = problem.factors[0], jnp.asarray(result.x)
    with float64():
        each = [jnp.asarray(d) for d in f.data]
        r = np.asarray(jax.vmap(lambda *d: curve(x, *d))(*each))
        J = np.asarray(jax.vmap(lambda *d: jax.jacfwd(curve)(x, *d))(*each))
    w = np.asarray(f.kernel.omega(r**2))
    g, H = J.T @ (w * r), (J.T * w) @ J
    low, high = problem.variables[0].manifold.parts(problem.variables[0].rows[0])[1:3]
    free = ~((result.x <= low) & (g > 0) | (result.x >= high) & (g < 0))
    return g[free] @ np.linalg.lstsq(H[np.ix_(free, free)], g[free], rcond=1e-12)[0] / 2


@pytest.mark.parametrize("kernel", [asker.SmoothTruncated(1.0), asker.PseudoHuber(0.3)], ids=repr)
@pytest.mark.parametrize("method", asker.METHODS)
def test_convergence_is_a_stationary_point_between_bounds(method, kernel):
    x = asker.Variables([[0.5, 0.3, 0.2]], lower=[0.0, 0.0, 0.0], upper=[0.8, 5.0, 0.6], name="x")
    problem = asker.Problem(asker.Factors(curve, x[AT], data=(T, Y, np.ones(N)), kernel=kernel))
    result = asker.solve(problem, asker.METHODS[method](), tol=1e-7)
    if result.status is asker.Status.CONVERGED:
        assert newton_decrement(result, problem) <= 1.001e-7 * result.cost


def chain(a, b, d):
    return b - a - d


def test_the_predicted_decrease_is_a_lower_bound_of_that_of_newton():
    """The bound is tight for one variable."""
    for n in (1, 2, 4):
        x = asker.Variables(RNG.normal(size=(n, 2)), name="x")
        k, y = np.arange(n - 1), RNG.normal(size=(3 * n, 2))
        at = asker.Factors(lambda x, y: x - y, x[np.repeat(np.arange(n), 3)], data=y, kernel=asker.Quadratic())
        ties = asker.Factors(chain, x[k], x[k + 1], data=np.ones((n - 1, 2)), kernel=asker.Quadratic())
        problem = asker.Problem(at, ties) if n > 1 else asker.Problem(at)
        weights = [np.ones(f.n) for f in problem.factors]
        predicted = predicted_decrease(LinearModel(problem, (x.rows,)), (x.rows,), weights)
        best = asker.solve(problem, asker.IRLS(damping=1e-12), tol=1e-14)
        newton = best.initial_cost - best.cost
        assert predicted <= newton * (1 + 1e-9)
        assert predicted >= newton / (1 if n == 1 else 8) * (1 - 1e-9)


# ------------------------------------------------------------------ intervals and doubts


def plane(x, a, y):
    return a @ x - y


@pytest.mark.parametrize("method", ["irls", "regemm"])
def test_an_interval_that_is_nan_comes_with_a_doubt(method):
    """Some variables only have outliers, under a kernel whose weights never vanish."""
    n_open = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        m, n = int(rng.integers(3, 7)), int(rng.integers(25, 60))
        i, a = rng.integers(0, m, n), rng.normal(size=(n, 2))
        y = np.einsum("nd,nd->n", a, rng.normal(size=(m, 2))[i]) + 0.05 * rng.normal(size=n)
        y += np.where(rng.random(n) < 0.5, rng.uniform(-8, 8, n), 0)
        x = asker.Variables(np.zeros((m, 2)), name="x")
        problem = asker.Problem(asker.Factors(plane, x[i], data=(a, y), kernel=asker.Barron(3e6)))
        result = asker.solve(problem, asker.METHODS[method]())
        try:
            is_open = np.isnan(result.interval("x")).any()
        except asker.ProblemError:
            continue
        n_open += is_open
        assert result.doubts or not is_open
    assert n_open


# ------------------------------------------------------------------ both engines


@pytest.mark.filterwarnings("ignore:engine xla without a GPU")
@pytest.mark.parametrize(
    "make",
    [
        lambda: at_border(with_edge, asker.Cauchy(5.0)),
        lambda: in_units(1e-100, asker.Cauchy),
        lambda: far_off(30, asker.Tukey()),
        lambda: in_units(1.0, asker.Cauchy),
    ],
    ids=["border", "tiny", "no weight", "plain"],
)
def test_both_engines_agree_on_status_and_doubts(make):
    problem = make()
    cpu, xla = (asker.solve(problem, asker.IRLS(), engine=engine, max_iterations=200) for engine in ("cpu", "xla"))
    assert cpu.status is xla.status
    assert cpu.doubts == xla.doubts
