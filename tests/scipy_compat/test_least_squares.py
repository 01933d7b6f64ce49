"""`least_squares` and `curve_fit` replace those of SciPy by a change of the import."""

import doctest
import re
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy.sparse import csr_array
from scipy.sparse.linalg import aslinearoperator

import asker
import scipy_suite
from asker.problem.finite_differences import differences
from asker.problem.vector_problem import _of_each
from asker.scipy_compat.losses import LOSSES

T = np.linspace(0, 3, 40)
TRUTH = np.array([2.0, 1.5, 0.5])


def curve(p, xp=np):
    return p[0] * xp.exp(-p[1] * T) + p[2]


@pytest.fixture(scope="module")
def data():
    """Return a curve with noise of 0.02, every fifth value of which is an outlier."""
    y = curve(TRUTH) + 0.02 * np.random.default_rng(0).normal(size=40)
    y[::5] += 1.0
    return y


def doubled(z):
    """Return ρ of a kernel that has no name in SciPy."""
    return np.stack([2 * np.log1p(z / 2), 1 / (1 + z / 2), -0.5 / (1 + z / 2) ** 2])


@pytest.mark.parametrize("loss", [*LOSSES, doubled])
@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), ([0, 0, 0], [1.8, 9, 9])])
def test_the_minimum_of_every_loss_is_that_of_scipy(loss, bounds, data):
    asked = {"loss": loss, "f_scale": 0.1, "bounds": bounds, "xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}
    ours = asker.least_squares(lambda p: curve(p) - data, [1.0, 1.0, 1.0], **asked)
    best = scipy.optimize.least_squares(lambda p: curve(p) - data, [1.0, 1.0, 1.0], **asked)
    np.testing.assert_allclose(ours.x, best.x, rtol=1e-4)
    assert ours.cost == pytest.approx(best.cost, rel=1e-8)
    np.testing.assert_allclose(ours.fun, best.fun, atol=1e-4)
    np.testing.assert_allclose(ours.grad, best.grad, atol=1e-5)
    assert set(best) <= set(ours)
    assert ours.success
    np.testing.assert_array_equal(ours.active_mask, best.active_mask)


def test_the_fields_of_the_result_are_those_of_scipy(data):
    for loss in LOSSES:
        ours, best = (
            each.least_squares(lambda p: curve(p) - data, TRUTH, "3-point", loss=loss, f_scale=0.3, max_nfev=1)
            for each in (asker, scipy.optimize)
        )
        for name in ("x", "cost", "fun", "jac", "grad", "optimality", "nfev", "njev", "status", "success"):
            np.testing.assert_allclose(ours[name], best[name], rtol=1e-6, atol=1e-8, err_msg=f"{loss} {name}")


def test_a_function_of_jax_is_differentiated_by_jax(data):
    def fun(p):
        return curve(p, jnp) - data

    seen = asker.least_squares(fun, [1.0, 1.0, 1.0])
    assert seen.x.dtype == float
    exact = np.stack([np.exp(-seen.x[1] * T), -seen.x[0] * T * np.exp(-seen.x[1] * T), np.ones(40)], axis=1)
    np.testing.assert_allclose(seen.jac, exact, rtol=1e-12)
    plain = asker.least_squares(lambda p: curve(p) - data, [1.0, 1.0, 1.0])
    np.testing.assert_allclose(seen.x, plain.x, rtol=1e-6)


def test_the_fit_is_robust_if_the_noise_is_estimated(data):
    """Estimates with SciPy's losses and the correct scale are farther from the truth."""
    ours = asker.least_squares(lambda p: curve(p) - data, [1.0, 1.0, 1.0], loss=None)
    assert ours.success
    error = np.linalg.norm(ours.x - TRUTH)
    for loss in ("linear", "soft_l1"):
        asked = {"loss": loss, "f_scale": 0.02}
        best = scipy.optimize.least_squares(lambda p: curve(p) - data, [1.0, 1.0, 1.0], **asked)
        assert error < 0.8 * np.linalg.norm(best.x - TRUTH)
    assert ours.result.noise[0].sigma == pytest.approx(0.02, rel=0.4)
    np.testing.assert_array_equal(ours.result.inliers[0][::5], False)


def test_a_kernel_is_minimised_as_by_solve(data):
    ours = asker.least_squares(lambda p: curve(p) - data, [1.0, 1.0, 1.0], loss=asker.Tukey(0.05), f_scale=2.0)
    assert ours.result.problem.factors[0].kernel == asker.Tukey(0.1)
    assert type(ours.result.strategy).__name__ == "ASKER"
    np.testing.assert_allclose(ours.x, TRUTH, atol=0.05)


def test_the_former_arguments_work_and_warn(data):
    with pytest.warns(DeprecationWarning, match="loss=kernel"):
        former = asker.least_squares(lambda p: curve(p, jnp) - data, [1.0, 1.0, 1.0], asker.Tukey(0.1))
    assert isinstance(former, asker.Result)
    now = asker.least_squares(lambda p: curve(p, jnp) - data, [1.0, 1.0, 1.0], loss=asker.Tukey(0.1))
    np.testing.assert_allclose(former.x, now.x, atol=1e-5)
    with pytest.warns(DeprecationWarning, match="loss=kernel"):
        numpy = asker.least_squares(
            lambda p: curve(p) - data, [1.0, 1.0, 1.0], asker.Huber(0.1), asker.IRLS(), jacobian="2-point"
        )
    assert numpy.strategy == asker.IRLS()


def test_the_covariance_is_that_of_many_fits():
    rng = np.random.default_rng(0)
    estimates, covariances = [], []
    for _ in range(200):
        y = curve(TRUTH) + 0.05 * rng.normal(size=40)
        fit = asker.least_squares(lambda p, y=y: curve(p) - y, TRUTH, loss="huber", f_scale=0.05)
        estimates.append(fit.x)
        covariances.append(fit.covariance)
    np.testing.assert_allclose(np.sqrt(np.diag(np.mean(covariances, axis=0))), np.std(estimates, axis=0), rtol=0.2)


@pytest.mark.parametrize("sigma", [None, 0.1, np.linspace(0.01, 0.1, 40), np.diag(np.linspace(0.01, 0.1, 40)) + 0.001])
@pytest.mark.parametrize("absolute", [False, True])
def test_a_fitted_curve_is_that_of_scipy(sigma, absolute, data):
    def f(t, a, b, c):
        return a * np.exp(-b * t) + c

    asked = {"sigma": sigma, "absolute_sigma": absolute, "xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}
    ours, best = asker.curve_fit(f, T, data, **asked), scipy.optimize.curve_fit(f, T, data, **asked)
    np.testing.assert_allclose(ours[0], best[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], best[1], rtol=1e-3)


@pytest.mark.parametrize("jac", ["2-point", "3-point", "cs"])
def test_differences_are_the_derivatives(jac):
    fit = asker.least_squares(
        lambda p: p[0] * np.exp(-p[1] * T), [2.0, 0.5], jac, max_nfev=1, bounds=([2, 0], [9, 0.5 + 1e-9])
    )
    exact = np.stack([np.exp(-0.5 * T), -2 * T * np.exp(-0.5 * T)], axis=1)
    np.testing.assert_allclose(fit.jac, exact, atol={"2-point": 1e-6, "3-point": 1e-6, "cs": 1e-12}[jac])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of"),
        ({"method": "newton"}, "method must be one of"),
        ({"jac": "4-point"}, "jac must be one of"),
        ({"bounds": (2, 1)}, "not below the upper one at index 0"),
        ({"bounds": (2, 3)}, "outside of provided bounds"),
        ({"x_scale": -1.0}, "x_scale must be"),
        ({"ftol": None, "xtol": None, "gtol": None}, "above the rounding"),
        ({"max_nfev": 0}, "max_nfev must be at least 1 and a whole number"),
    ],
)
def test_invalid_arguments_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        asker.least_squares(lambda x: x - 1.0, [0.0, 0.0], **given)


def slopes(x, a, b):
    return np.stack([np.exp(-b * x), -a * x * np.exp(-b * x)], axis=1)


WRONG_JACOBIANS = {
    "transposed": np.transpose,
    "flat": np.ravel,
    "short": lambda J: J[:-1],
    "with an axis more": lambda J: J[:, None],
    "transposed, sparse": lambda J: csr_array(J.T),
    "transposed, an operator": lambda J: aslinearoperator(J.T.copy()),
    "by JAX": lambda J: jnp.asarray(J.T),
}


@pytest.mark.parametrize("way", WRONG_JACOBIANS)
@pytest.mark.parametrize("sigma", [None, np.full(40, 0.1)], ids=["", "sigma"])
def test_a_jacobian_of_another_shape_is_rejected_as_by_scipy(way, sigma):
    """A transposed Jacobian used to be reshaped, which gave success with wrong parameters."""
    wrong, y = WRONG_JACOBIANS[way], 2 * np.exp(-1.5 * T)
    shape = wrong(slopes(T, 1, 1)).shape
    with pytest.raises(ValueError, match=rf"jac has shape {re.escape(str(shape))}, expected \(40, 2\)"):
        asker.least_squares(lambda p: p[0] * np.exp(-p[1] * T) - y, [1.0, 1.0], lambda p: wrong(slopes(T, *p)))
    with pytest.raises(ValueError, match=rf"jac has shape {re.escape(str(shape))}, expected \(40, 2\)"):
        asker.curve_fit(
            lambda x, a, b: a * np.exp(-b * x), T, y, sigma=sigma, jac=lambda x, a, b: wrong(slopes(x, a, b))
        )


@pytest.mark.parametrize("right", [np.asarray, csr_array, aslinearoperator, np.ndarray.tolist])
def test_a_jacobian_may_be_an_array_a_sparse_matrix_or_an_operator(right):
    y = 2 * np.exp(-1.5 * T)
    fit = asker.least_squares(lambda p: p[0] * np.exp(-p[1] * T) - y, [1.0, 1.0], lambda p: right(slopes(T, *p)))
    found, _ = asker.curve_fit(
        lambda x, a, b: a * np.exp(-b * x), T, y, sigma=np.full(40, 0.1), jac=lambda x, a, b: right(slopes(x, a, b))
    )
    np.testing.assert_allclose([fit.x, found], [[2.0, 1.5]] * 2, rtol=1e-6)


def test_axes_of_length_one_may_be_missing_from_a_jacobian():
    assert asker.least_squares(lambda p: p[0] * T - 2 * T, [1.0], lambda p: T).x == pytest.approx(2)
    assert asker.least_squares(lambda p: p[0] - 3.0, [1.0], lambda p: 1.0).x == pytest.approx(3)


def after_calls(n, first, then):
    """Return a function that calls `first` n times, and `then` afterwards."""
    calls = []

    def function(x):
        calls.append(1)
        return (first if len(calls) <= n else then)(x)

    return function


@pytest.mark.parametrize(
    ("fun", "options", "message"),
    [
        (lambda x: None, {}, "value of fun is NoneType, expected an array of numbers"),
        (lambda x: ["a"], {}, "value of fun is an array of <U1"),
        (lambda x: [1.0, [2.0]], {}, "value of fun is no array"),
        (lambda x: x * 1j, {}, "value of fun is complex"),
        (lambda x: x[:, None], {}, r"value of fun has shape \(2, 1\), expected \(n,\)"),
        (after_calls(3, lambda x: x - 1, lambda x: x[:1]), {}, r"fun has shape \(1,\), and had \(2,\) at the start"),
        (lambda x: x - 1, {"jac": lambda x: np.eye(2) * 1j}, "value of jac is complex"),
        (lambda x: x - 1, {"jac": lambda x: None}, "value of jac is NoneType"),
        (lambda x: x - 1, {"jac": after_calls(1, lambda x: np.eye(2), lambda x: np.eye(3))}, r"jac has shape \(3, 3\)"),
        (lambda x: x - 1, {"loss": lambda z: np.stack([z, z])}, r"value of loss has shape \(2, 2\), expected \(3, 2\)"),
        (lambda x: x - 1, {"loss": lambda z: None}, "value of loss is NoneType"),
    ],
)
def test_the_value_of_a_function_is_checked_at_every_call(fun, options, message):
    with pytest.raises(ValueError, match=message):
        asker.least_squares(fun, [3.0, 4.0], **options)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x, a: (a * x)[:, None], r"f has shape \(40, 1\), expected that of ydata, \(40,\)"),
        (lambda x, a: a * x[1:], r"f has shape \(39,\), expected"),
        (lambda x, a: None, "f is NoneType"),
    ],
)
def test_a_curve_of_another_shape_is_rejected(f, message):
    with pytest.raises(ValueError, match=message):
        asker.curve_fit(f, T, 2 * T)


def test_only_true_returned_by_a_callback_stops_the_fit():
    seen = []
    fit = asker.least_squares(lambda x: x**2 - 2, [3.0], callback=lambda x: seen.append(1) or len(seen))
    assert fit.success
    assert asker.least_squares(lambda x: x**2 - 2, [3.0], callback=lambda x: True).status == -2


def run_examples(function, ours):
    """Return the estimates of the examples of SciPy's documentation, with the import changed."""
    text = function.__doc__.replace("default_rng()", "default_rng(3)").replace("seed=None", "seed=3")
    if ours:
        text = text.replace("from scipy.optimize import", "from asker import")
    found, names = [], {}
    for example in doctest.DocTestParser().get_examples(text):
        source = example.source
        if re.search("plt|broyden|res_3", source):  # pictures; 100 000 unknowns are too many for a dense matrix
            continue
        if f"{function.__name__}(" in source:
            names["popt"] = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, "example", "single") if source.count("\n") == 1 else source, names)
        if f"{function.__name__}(" in source:
            found.append({name: names[name] for name in ("popt", "pcov") if names["popt"] is not None})
            found[-1] |= {name: x for name, x in names.items() if hasattr(x, "optimality")}
    return found


@pytest.mark.parametrize("name", ["least_squares", "curve_fit"])
def test_the_examples_of_scipys_documentation_run(name, capsys):
    function = getattr(scipy.optimize, name)
    ours, best = run_examples(function, True), run_examples(function, False)
    assert len(ours) == len(best) >= {"least_squares": 6, "curve_fit": 5}[name]
    for one, other in zip(ours, best, strict=True):
        assert other.keys() <= one.keys()  # one of them SciPy cannot fit
        for key in other.keys() - {"pcov"}:
            if key == "popt" and not np.isfinite(one["pcov"]).all():
                continue  # any of many are right
            if key == "popt":
                np.testing.assert_allclose(one[key], other[key], rtol=1e-3)
            elif other[key].success:
                np.testing.assert_allclose(one[key].x, other[key].x, rtol=1e-3, atol=1e-4)
            else:  # SciPy is lost in a long valley, once
                assert one[key].success
                assert one[key].cost < other[key].cost


@pytest.mark.slow
def test_some_of_its_own_tests_pass():
    outcome = scipy_suite.run("TestCurveFit and (pcov or nan or bounds_p0 or covariance) or LossFunction and TRF")
    assert len(outcome) > 15
    assert [name for name, (how, _) in outcome.items() if how == "failed" and not scipy_suite.reason_of(name)] == []


@pytest.mark.long
def test_all_of_its_own_tests_pass_but_those_with_a_reason():
    outcome = scipy_suite.run()
    failed = [name for name, (how, _) in outcome.items() if how == "failed"]
    assert len(outcome) - len(failed) >= 151
    assert [name for name in failed if not scipy_suite.reason_of(name)] == []


@pytest.mark.parametrize("jac", ["2-point", "3-point", "cs"])
def test_a_sparse_pattern_saves_calls_and_changes_nothing(jac):
    """Broyden's tridiagonal function with bounds has three groups of unknowns."""
    calls = []

    def broyden(x):
        calls.append(1)
        f = (3 - x) * x + 1
        f[1:] -= x[:-1]
        f[:-1] -= 2 * x[1:]
        return f

    n = 12
    pattern = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 1
    x0, bounds = -np.linspace(0.5, 1.0, n), (-1.0, 0.5)
    whole = asker.least_squares(broyden, x0, jac, bounds=bounds)
    n_whole = len(calls)
    sparse = asker.least_squares(broyden, x0, jac, bounds=bounds, jac_sparsity=pattern)
    np.testing.assert_array_equal(sparse.x, whole.x)
    assert len(calls) - n_whole < n_whole / 2


def test_differences_of_a_pattern_are_those_of_all_columns():
    rng = np.random.default_rng(5)
    pattern = rng.random((9, 6)) < 0.3
    A = np.where(pattern, rng.normal(size=(9, 6)), 0.0)
    x = rng.normal(size=6)
    for way in ("2-point", "3-point", "cs"):
        found = differences(lambda y: A @ y**2, x, A @ x**2, way, pattern=pattern)
        np.testing.assert_allclose(found, 2 * A * x, rtol=1e-6, atol=1e-7)
        assert not found[~pattern].any()


def test_a_function_is_called_once_for_rows_that_follow_each_other():
    calls = []

    def function(x):
        calls.append(x.tolist())
        return x[0] * np.arange(5) + x[1]

    rows = np.repeat([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]], [3, 1, 2], axis=0)
    k = np.array([4, 0, 2, 1, 3, 3])
    np.testing.assert_array_equal(_of_each(function, rows, k), rows[:, 0] * k + rows[:, 1])
    assert calls == [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]


@pytest.mark.parametrize("x_scale", [1.0, [0.01, 30.0], "jac"], ids=str)
def test_intervals_of_the_result_are_of_x_whatever_its_scale(x_scale):
    rng = np.random.default_rng(1)
    y = 3 * np.exp(-0.5 * T) + rng.normal(0, 0.05, len(T))
    fit = asker.least_squares(lambda x: x[0] * np.exp(-x[1] * T) - y, [1.0, 1.0], x_scale=x_scale)
    np.testing.assert_allclose(fit.result.standard_errors("x")[0], np.sqrt(np.diag(fit.covariance)), rtol=0.1)


@pytest.mark.parametrize("loss", [None, asker.Quadratic(), asker.Huber(3.0), asker.Cauchy(9.0)], ids=str)
def test_weights_count_in_the_covariance_and_the_gradient(loss):
    """Weights act as standard deviations do in SciPy's curve_fit.

    The covariance used to be that of equal weights, 26 times too large.
    """
    rng = np.random.default_rng(0)
    t = np.linspace(0, 3, 400)
    sigma = np.where(np.arange(400) % 2, 0.02, 0.2)
    y = 2 * np.exp(-1.5 * t) + sigma * rng.normal(size=400)

    def residuals(p):
        return p[0] * jnp.exp(-p[1] * t) - y

    x0, found = [2.1, 1.4], []
    fit = asker.least_squares(residuals, x0, loss=loss, weight=1 / sigma**2, on_iteration=found.append)
    popt, pcov = scipy.optimize.curve_fit(lambda t, a, b: a * np.exp(-b * t), t, y, p0=x0, sigma=sigma)
    np.testing.assert_allclose(fit.x, popt, atol=0.3 * np.sqrt(np.diag(pcov)).min())
    np.testing.assert_allclose(np.sqrt(np.diag(fit.covariance)), np.sqrt(np.diag(pcov)), rtol=0.1)
    assert fit.optimality < 1e-3 * np.abs(fit.jac * (fit.fun / sigma)[:, None]).sum(axis=0).max()
    assert found


def test_weights_require_a_kernel():
    with pytest.raises(ValueError, match=r"weight is for a kernel as the loss, or loss=None"):
        asker.least_squares(lambda x: x - 1, [3.0, 4.0], weight=np.ones(2))


def test_tolerances_apply_with_a_callback():
    seen = []
    usual = asker.least_squares(lambda x: x**2 + 5, [3.0])
    fit = asker.least_squares(lambda x: x**2 + 5, [3.0], on_iteration=seen.append)
    assert (fit.status, fit.nfev, len(seen) > 1) == (usual.status, usual.nfev, True)
    assert asker.least_squares(lambda x: x**2 + 5, [3.0], on_iteration=lambda line: True).status == -2
