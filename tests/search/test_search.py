"""Problems whose noise is not known: the noise is found, and the best of several solutions."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.engines.cpu.engine import CpuEngine
from asker.engines.xla.engine import XlaEngine
from asker.search.generators import GENERATORS
from asker.strategies.strategy import cost, omega
from search_problems import Interrupted, circle_problem, off_circle


@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("outliers", [0.0, 0.3, 0.5])
def test_a_circle_whose_noise_nobody_knows(sigma, outliers):
    result = asker.solve(circle_problem(sigma, outliers, 0))
    assert result.noise[0].sigma == pytest.approx(sigma, rel=0.3)
    assert result.x == pytest.approx([30, 20, 10], abs=1.2 * sigma)
    assert result.cost < result.initial_cost


def test_a_scene_whose_noise_nobody_knows():
    """At τ = 1, noise of 2 pixels costs a factor of two and more."""
    scene = bundle.make_scene(10, 3000, noise=2.0, outlier_ratio=0.3, start_error=15.0, seed=4)
    errors = {}
    for kernel in (asker.SmoothTruncated(), None):
        made = bundle.bundle_problem(scene.start, kernel)
        result = asker.solve(made.problem)
        errors[kernel] = bundle.errors(made.refined(result.values), scene.truth).cameras
    assert result.noise["reprojection"].sigma == pytest.approx(2.0, rel=0.1)
    assert errors[None] < 0.7 * errors[asker.SmoothTruncated()]


def test_trusted_factors_keep_their_kernel():
    rng = np.random.default_rng(0)

    def residual(x, y):
        return x - y

    x = asker.Variables(np.zeros(1), name="x")
    data = np.concatenate([rng.normal(3.0, 0.1, 60), rng.uniform(-50, 50, 40)])
    loops = asker.Factors(residual, x[np.zeros(100, int)], data=data, name="loops")
    prior = asker.Factors(residual, x[np.zeros(1, int)], data=np.zeros(1), kernel=asker.Quadratic(2.0), name="prior")
    result = asker.solve(asker.Problem(loops, prior))
    assert isinstance(result.problem.factors[1].kernel, asker.Quadratic)
    assert result.x == pytest.approx(3.0, abs=0.15)
    assert len(result.residuals[loops]) == 100  # by the factors that the user has


def test_converged_means_that():
    """A descent from the result, under the kernel that it ended with, gains next to nothing."""
    result = asker.solve(circle_problem(0.1, 0.3, 0))
    assert result.status is asker.Status.CONVERGED
    again = circle_problem(0.1, 0.3, 0, start=tuple(result.x), kernel=result.problem.factors[0].kernel)
    assert asker.solve(again, asker.IRLS()).cost > (1 - 1e-6) * result.cost


@pytest.mark.parametrize("seed", [95_000, 95_001])
def test_no_limit_ends_a_run_that_was_given_none(seed):
    """Many points hang on two observations: the descent creeps, and ends where a step tells nothing any more."""
    scene = bundle.make_scene(5, 300, noise=0.5, mean_track=3.0, outlier_ratio=0.6, start_error=24.0, seed=seed)
    result = asker.solve(bundle.bundle_problem(scene.start, None).problem)
    assert result.status is asker.Status.CONVERGED
    assert result.iterations < 1000


@pytest.mark.parametrize("n", [2, 8, 14])
def test_a_search_that_is_cut_short_keeps_what_it_has(n):
    scene = bundle.make_scene(
        20, 8000, noise=1.0, outlier_kind="near", outlier_ratio=0.5, start_error=24.0, seed=660_003
    )
    result = asker.solve(bundle.bundle_problem(scene.start, None).problem, max_iterations=n)
    assert result.status is asker.Status.MAX_ITERATIONS
    assert result.cost < result.initial_cost or n == 2


@pytest.mark.parametrize("n", [None, 0, 1, 5, 60])
@pytest.mark.parametrize("outliers", [0.0, 0.3])
def test_the_history_begins_at_the_start_and_ends_at_the_result(n, outliers):
    """Both under the kernels that were found: those of single stages are others."""
    result = asker.solve(circle_problem(0.1, outliers, 0), max_iterations=n)
    assert result.history[0].cost == result.history[0].best_cost == result.initial_cost or n == 0
    assert result.history[-1].cost == result.history[-1].best_cost == result.cost
    under = asker.solve(result.problem, asker.IRLS(), start=result, max_iterations=0)
    assert under.cost == pytest.approx(result.cost, rel=1e-12)


def test_limits_hold_for_all_stages_together():
    problem = circle_problem(0.1, 0.3, 0)
    lines = []
    result = asker.solve(problem, max_iterations=7, on_iteration=lines.append)
    assert result.status is asker.Status.MAX_ITERATIONS
    assert [line.iteration for line in lines] == list(range(8)) == [line.iteration for line in result.history]
    assert all("stage" in line.details for line in lines)
    stopped = asker.solve(problem, on_iteration=lambda line: line.iteration == 3)
    assert stopped.status is asker.Status.STOPPED
    assert stopped.iterations == 3


def test_without_iterations_nothing_moves():
    problem = circle_problem(0.1, 0.3, 0)
    result = asker.solve(problem, max_iterations=0)
    assert result.x == pytest.approx([20, 15, 8], abs=0)
    assert result.status is asker.Status.MAX_ITERATIONS


def test_an_interrupt_between_two_descents_keeps_the_best():
    method = asker.Search((*GENERATORS[:3], Interrupted()))
    result = asker.solve(circle_problem(0.1, 0.1, 0), method)
    assert result.status is asker.Status.INTERRUPTED
    assert result.x == pytest.approx([30, 20, 10], abs=0.5)


def test_a_strategy_that_is_given_is_used_alone():
    result = asker.solve(circle_problem(0.1, 0.3, 0), asker.IRLS())
    assert result.problem.factors[0].kernel == asker.SmoothTruncated()
    assert not any("stage" in line.details for line in result.history)


def test_exact_data_has_an_end():
    result = asker.solve(circle_problem(0.0, 0.3, 0))
    assert result.x == pytest.approx([30, 20, 10], abs=1e-5)


@pytest.mark.parametrize("engine", [CpuEngine, XlaEngine])
@pytest.mark.parametrize("weight", [None, 2.0])
def test_an_engine_under_other_kernels_is_one_made_for_them(engine, weight):
    given = circle_problem(0.1, 0.3, 0)
    f = given.factors[0]
    given = asker.Problem(asker.Factors(off_circle, *f.slots, data=f.data, weight=weight))
    kernels = [asker.Cauchy(0.7)]
    one, other = engine(given).under(kernels), engine(given.under(kernels))
    a, b = one.start(), other.start()
    assert cost(one, a) == pytest.approx(cost(other, b), rel=1e-12)
    for p, q in zip(*(e.in_user_order(e.each(omega, x)) for e, x in ((one, a), (other, b))), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-12)
    first, again = (asker.IRLS().step(e, asker.IRLS().init(e, x, 5)) for e, x in ((one, a), (other, b)))
    assert first.cost == pytest.approx(again.cost, rel=1e-10)


@pytest.mark.parametrize("sigma", [0.0, 0.1])
@pytest.mark.parametrize("outliers", [0.0, 0.3])
def test_a_good_solution_leaves_no_doubts(sigma, outliers):
    assert asker.solve(circle_problem(sigma, outliers, 0)).doubts == ()


def two_circles(n_other):
    """Return the problem of two circles, one of 60 points and one of others, with the same errors."""
    points = circle_problem(0.1, 0.0, 1, n=60).factors[0].data[0]
    circle = asker.Variables(np.array([[40.0, 20.0, 8.0]]), name="circle")
    both = np.concatenate([points, points[:n_other] + np.array([25.0, 0.0])])
    return asker.Problem(asker.Factors(off_circle, circle[np.zeros(len(both), int)], data=both))


def test_two_solutions_that_explain_as_much_are_reported():
    result = asker.solve(two_circles(60))
    (other,) = result.alternatives
    found = sorted([result.x, other["circle"][0]], key=lambda x: x[0])
    np.testing.assert_allclose(found, [[30, 20, 10], [55, 20, 10]], atol=0.2)
    assert abs(other.evidence_difference) < 5
    assert other.noise[0].sigma == pytest.approx(result.noise[0].sigma, rel=0.1)
    assert len(other.deciding[0]) > 100
    (doubt,) = result.doubts
    assert doubt.kind is asker.Doubt.AMBIGUOUS
    assert doubt.numbers == {"n_alternatives": 1}
    assert result.inliers[0].sum() == pytest.approx(60, abs=8)


def test_a_solution_that_the_data_exclude_is_not_reported():
    result = asker.solve(two_circles(40))
    np.testing.assert_allclose(result.x, [30, 20, 10], atol=0.2)
    assert not result.alternatives
    assert not result.doubts


def test_variables_without_a_redundant_inlier_are_reported():
    rng = np.random.default_rng(0)
    places = asker.Variables(np.zeros((6, 1)), name="places")
    index = np.concatenate([np.repeat(np.arange(5), 20), [5]])
    seen = index + 0.1 * rng.normal(size=len(index))
    result = asker.solve(asker.Problem(asker.Factors(lambda x, y: x - y, places[index], data=seen)))
    assert result.doubts == ("1 of 6 places have no redundant inlier: their inliers cannot be cross-checked",)


def test_noise_that_cannot_be_estimated_is_a_doubt():
    """As many numbers as unknowns leave no degrees of freedom."""
    x = np.linspace(0, 1, 4)

    def residuals(p):
        return p[0] + p[1] * x + p[2] * x**2 + p[3] * x**3 - np.sin(9 * x)

    few = asker.least_squares(residuals, np.zeros(4), loss=None).result
    assert not few.noise[0].is_known
    assert asker.Doubt.SCALE_UNKNOWN in [doubt.kind for doubt in few.doubts]
    assert any("cannot be estimated" in doubt and "kernel" in doubt for doubt in few.doubts)
    assert all(doubt in str(few) for doubt in few.doubts)


def test_values_that_are_rounded_have_the_noise_of_both():
    """The errors of rounding to whole numbers have a variance of 1/12."""
    rng = np.random.default_rng(0)
    y = np.round(20.4 + 0.3 * rng.normal(size=60))
    y[:30] += rng.uniform(5, 50, 30)
    mean = asker.Variables([[15.0]], name="mean")
    factors = asker.Factors(lambda m, y: m[0] - y, mean[np.zeros(60, int)], data=y, name="values")
    result = asker.solve(asker.Problem(factors))
    assert result.x == pytest.approx(20.4, abs=0.3)
    assert result.noise[0].sigma == pytest.approx(np.hypot(0.3, 1 / np.sqrt(12)), rel=0.3)


def test_a_start_that_fits_exactly_stays():
    line = asker.Variables([[2.0]], name="line")
    x = np.linspace(1, 5, 40)
    factors = asker.Factors(lambda a, x, y: a[0] * x - y, line[np.zeros(40, int)], data=(x, 2 * x))
    assert asker.solve(asker.Problem(factors)).x == pytest.approx([2.0])


@pytest.mark.parametrize("n", [1, 300])
def test_what_is_not_possible_does_not_pull(n):
    """However well it fits: each mean is that of the observations that are possible."""
    rng = np.random.default_rng(0)
    seen = 5 + 0.1 * rng.normal(size=(n, 100))
    possible = np.where(np.arange(n * 100) % 100 < 60, 1.0, -1.0)
    seen[:, 60:] += 0.15
    x = asker.Variables(np.full((n, 1), 4.0), name="x")
    factors = asker.Factors(
        lambda x, y, _: x - y,
        x[np.repeat(np.arange(n), 100)],
        data=(seen.ravel(), possible),
        valid=lambda x, y, ok: ok,
    )
    found = asker.solve(asker.Problem(factors))["x"][:, 0]
    np.testing.assert_allclose(found, seen[:, :60].mean(axis=1), atol=0.025)


@pytest.mark.parametrize("seed", range(3))
def test_a_group_too_small_to_tell_its_noise_decides_between_two_places(seed):
    """x² is about 4 in most of a hundred observations, and x about −2 in five; of nine others eight are at 2."""
    rng = np.random.default_rng(seed)
    is_square = np.arange(100) >= 5
    y = np.where(is_square, 4.0, -2.0) + 0.1 * rng.normal(size=100)
    y[80:] += rng.uniform(-20, 20, 20)
    few = 2 + 0.05 * rng.normal(size=9)
    few[0] = -40.0

    def of_either(x, y, is_square):
        return jnp.where(is_square, x[0] ** 2, x[0]) - y

    x = asker.Variables([[-1.0]], name="x")
    result = asker.solve(
        asker.Problem(
            asker.Factors(of_either, x[np.zeros(100, int)], data=(y, is_square)),
            asker.Factors(lambda x, y: x[0] - y, x[np.zeros(9, int)], data=few),
        )
    )
    assert result["x"][0, 0] == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("stuck", ["zero", "saturated"])
def test_a_sensor_that_is_stuck_does_not_beat_the_others(stuck, n, share):
    """A start at 0 meets all zeros exactly, and a flat line what is cut off."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, n)
    y = 1 + 2 * x + rng.normal(0, 0.1, n)
    if stuck == "zero":
        y[: int(share * n)] = 0.0
    else:
        y = np.minimum(y, np.quantile(y, 1 - share))
    line = asker.Variables([[0.0, 0.0]], name="line")
    problem = asker.Problem(asker.Factors(lambda c, x, y: c[0] + c[1] * x - y, line[np.zeros(n, int)], data=(x, y)))
    result = asker.solve(problem)
    np.testing.assert_allclose(result[line], [[1.0, 2.0]], atol=0.25)
    assert result.noise[0].inlier_ratio > 0.5


def test_exact_data_among_outliers_are_found():
    """They must be the majority: readings of a stuck sensor agree exactly, too."""
    rng = np.random.default_rng(6)
    x, y = rng.uniform(-1, 1, 200), rng.uniform(-4, 4, 200)
    y[:110] = 1 + 2 * x[:110]
    line = asker.Variables([[0.0, 0.0]], name="line")
    problem = asker.Problem(asker.Factors(lambda c, x, y: c[0] + c[1] * x - y, line[np.zeros(200, int)], data=(x, y)))
    result = asker.solve(problem)
    np.testing.assert_allclose(result[line], [[1.0, 2.0]], atol=1e-9)
    assert result.noise[0].sigma == 0


def test_candidates_outside_the_domain_of_a_residual_are_left_out():
    """The logarithm of a negative number is none; warnings of such numbers are errors here."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 50)
    y = 1 + 2 * x + rng.normal(0, 0.05, 50)
    c = asker.Variables([[0.5, 0.0]], name="c")
    factors = asker.Factors(lambda c, x, y: jnp.log(c[0] + x) + c[1] - y, c[np.zeros(50, int)], data=(x, y))
    result = asker.solve(asker.Problem(factors))
    plain = asker.solve(asker.Problem(factors.under(asker.Quadratic())), asker.IRLS())
    np.testing.assert_allclose(result[c], plain[c], atol=0.02)


def test_a_search_that_does_not_converge_is_reported(monkeypatch):
    """It is not reported if the user has specified `max_iterations`."""
    scene = bundle.make_scene(20, 3000, noise=1.0, outlier_ratio=0.3, start_error=24.0, seed=660_003)
    problem = bundle.bundle_problem(scene.start, None).problem
    assert not any("has not converged" in doubt for doubt in asker.solve(problem, max_iterations=5).doubts)
    monkeypatch.setattr("asker._solve.MAX_SEARCH_ITERATIONS", 5)
    assert any("not converged in 5 iterations" in doubt for doubt in asker.solve(problem).doubts)


def test_an_observation_may_have_one_variable_twice():
    """Small subsets are solved apart from each other, and the variable of one is not eliminated then."""
    x = asker.Variables([[0.0, 0.0]], name="x")
    twice = asker.Factors(lambda a, b, d: a - b - d, x[np.zeros(4, int)], x[np.zeros(4, int)], data=np.ones((4, 2)))
    result = asker.solve(asker.Problem(twice))
    np.testing.assert_array_equal(result["x"], 0.0)
    assert any("the data do not determine x[0, 0], x[0, 1]" in doubt for doubt in result.doubts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [30, 1000])
def test_clean_gaussian_data_have_no_outliers(n, seed):
    """The estimate is that of least squares, with the unbiased variance."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-5, 5, n)
    y = 0.8 * x - 1 + 0.3 * rng.normal(size=n)
    line = asker.Variables([[3.0, 5.0]], name="line")
    result = asker.solve(
        asker.Problem(asker.Factors(lambda c, x, y: c[0] * x + c[1] - y, line[np.zeros(n, int)], data=(x, y)))
    )
    A = np.column_stack([x, np.ones(n)])
    fit, (total,), _, _ = np.linalg.lstsq(A, y, rcond=None)
    np.testing.assert_allclose(result.x, fit, rtol=0.01)
    assert result.noise[0].sigma == pytest.approx(np.sqrt(total / (n - 2)), rel=0.02)
    assert result.inlier_ratio > 1 - max(0.005, 1.1 / n)
    assert not result.doubts
