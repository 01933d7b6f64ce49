"""Reports, profiles, bands and tests of fitted curves: oracles are formulas of linear models, SciPy and simulation."""

import json
import pickle
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy import stats

import asker

X = np.linspace(0, 5, 40)
TRUTH = {"amplitude": 3.0, "rate": 0.8, "offset": 1.0}
ROBUST: list[dict] = [{"method": method, "n_subsets": 60} for method in asker.estimators.ESTIMATORS]
ROBUST += [{"loss": None}, {"loss": asker.Tukey(0.5)}]
METHODS = pytest.mark.parametrize("options", [{}, {"loss": "soft_l1", "f_scale": 0.1}, *ROBUST], ids=str)
MM: dict = {"method": "mm", "n_subsets": 60}


def decay(x, amplitude, rate, offset):
    return amplitude * np.exp(-rate * x) + offset


def measured(seed=0, n_outliers=0):
    rng = np.random.default_rng(seed)
    y = decay(X, *TRUTH.values()) + 0.1 * rng.normal(size=len(X))
    y[1 : 1 + 3 * n_outliers : 3] += 3.0
    return y


def line(x, slope, intercept):
    return slope * x + intercept


LINE = line(X, 2.0, -1.0) + np.random.default_rng(5).normal(size=len(X))


@METHODS
def test_the_report_fits_a_terminal_and_names_everything(options):
    fit = asker.curve_fit(decay, X, measured(n_outliers=3), p0=[1, 1, 1], **options)
    text = fit.summary()
    assert max(map(len, text.splitlines())) <= 80
    for word in (*TRUTH, "std. error", "p-value", "residual scale", "outliers", "condition number", "converged"):
        assert word in text
    for value in fit.params.values():
        assert f"{value:.6g}" in text
        assert f"{value:.6g}" in fit._repr_html_()
    json.dumps(fit.as_dict())
    assert len(fit) == 2
    assert fit[0].shape == (3,)


@pytest.mark.parametrize("options", ROBUST, ids=str)
def test_planted_outliers_are_listed_with_their_positions(options):
    y = measured(n_outliers=3)
    y[20] = np.nan
    fit = asker.curve_fit(decay, X, y, p0=[1, 1, 1], nan_policy="omit", **options)
    assert {o.index for o in fit.outliers} == {1, 4, 7}
    assert fit.regression.n == len(X) - 1
    assert all(o.standardised_residual > 10 for o in fit.outliers)  # observed minus fitted


def test_the_numbers_of_a_line_are_those_of_the_textbook():
    fit = asker.curve_fit(line, X, LINE)
    slope, intercept, r, p, se = stats.linregress(X, LINE)
    oracle = stats.linregress(X, LINE)
    assert fit.params == pytest.approx({"slope": slope, "intercept": intercept})
    assert fit.stderr == pytest.approx({"slope": se, "intercept": oracle.intercept_stderr}, rel=1e-5)
    assert fit.r_squared == pytest.approx(r**2)
    assert fit.wald_test({"slope": 0.0}).p_value == pytest.approx(p, rel=1e-3)
    low, high = fit.profile("slope").interval
    t = stats.t.ppf(0.975, len(X) - 2)
    np.testing.assert_allclose([low, high], [slope - t * se, slope + t * se], rtol=2e-3)
    np.testing.assert_allclose(fit.regression.leverage, 1 / len(X) + (X - X.mean()) ** 2 / ((X - X.mean()) ** 2).sum())


def test_bands_of_a_line_are_those_of_the_textbook():
    fit = asker.curve_fit(line, X, LINE)
    new = np.array([-1.0, 2.5, 9.0])
    s, t = fit.regression.scale, stats.t.ppf(0.95, len(X) - 2)
    h = 1 / len(X) + (new - X.mean()) ** 2 / ((X - X.mean()) ** 2).sum()
    curve, prediction = fit.conf_band(new, 0.9), fit.conf_band(new, 0.9, prediction=True)
    np.testing.assert_allclose(curve.upper - curve.value, t * s * np.sqrt(h), rtol=1e-4)
    np.testing.assert_allclose(prediction.value - prediction.lower, t * s * np.sqrt(1 + h), rtol=1e-4)


def test_prediction_bands_contain_new_observations():
    inside = []
    for seed in range(40):
        fit = asker.curve_fit(decay, X, measured(seed), p0=[1, 1, 1])
        band = fit.conf_band(X, 0.9, prediction=True)
        new = measured(1000 + seed)
        inside.append((band.lower < new) & (new < band.upper))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("options", [{}, MM], ids=str)
def test_a_profile_is_the_minimum_with_the_parameter_fixed(options):
    y = measured()
    fit = asker.curve_fit(decay, X, y, p0=[1, 1, 1], **options)
    profile = fit.profile("rate", 0.9)
    assert profile.interval[0] < fit.params["rate"] < profile.interval[1]
    assert (np.diff(profile.z) > 0).all()
    if options:
        return
    s = fit.regression.scale
    for end in profile.interval:
        fixed = asker.curve_fit(decay, X, y, p0=[1, 1, 1], fixed={"rate": end}, xtol=1e-12, ftol=1e-12)
        ratio = (np.sum(fixed.regression.residuals**2) - np.sum(fit.regression.residuals**2)) / s**2
        assert np.sqrt(ratio) == pytest.approx(stats.t.ppf(0.95, len(X) - 3), rel=2e-3)


def test_fixed_parameters_and_bounds_by_name():
    y = measured()
    fit = asker.curve_fit(decay, X, y, p0={"rate": 0.5}, fixed={"offset": 1.0}, bounds={"amplitude": (0, 2.5)})
    assert fit.params["offset"] == 1.0
    assert fit.params["amplitude"] == 2.5
    assert fit.stderr["offset"] == 0
    popt, _ = scipy.optimize.curve_fit(lambda x, rate: decay(x, 2.5, rate, 1.0), X, y)
    assert fit.params["rate"] == pytest.approx(popt[0], rel=1e-5)
    assert "fixed" in fit.summary()


def test_functions_of_jax_may_have_fixed_parameters():
    def f(x, a, b):
        return a * jnp.exp(-b * x)

    y = 2 * np.exp(-0.7 * X)
    fit = asker.curve_fit(f, X, y, fixed={"a": 2.0})
    assert fit.params == pytest.approx({"a": 2.0, "b": 0.7})


def test_nested_models_are_compared():
    y = measured(n_outliers=3)
    larger = asker.curve_fit(decay, X, y, p0=[1, 1, 1], **MM)
    right = asker.curve_fit(decay, X, y, p0=[1, 1, 1], fixed={"offset": 1.0}, **MM)
    wrong = asker.curve_fit(decay, X, y, p0=[1, 1, 1], fixed={"offset": 0.0}, **MM)
    assert larger.wald_test(right).p_value > 0.01
    assert larger.wald_test(wrong).p_value < 1e-10
    with pytest.raises(ValueError, match="not nested"):
        right.wald_test(larger)


def test_robust_r_squared_ignores_outliers():
    clean = asker.curve_fit(decay, X, measured(), p0=[1, 1, 1]).r_squared
    y = measured(n_outliers=3)
    assert asker.curve_fit(decay, X, y, p0=[1, 1, 1], **MM).r_squared == pytest.approx(clean, abs=0.02)
    assert asker.curve_fit(decay, X, y, p0=[1, 1, 1]).r_squared < clean - 0.2


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_undetermined_directions_are_named(xp):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.optimize.OptimizeWarning)
        fit = asker.curve_fit(lambda x, a, b, c: xp.exp(0 * x) * (a + b) * x + c, X, LINE, p0=[1.0, 0.5, 0.0])
    assert fit.regression.undetermined == ("a, b",)
    assert "not determined: a, b" in " ".join(fit.summary().split())


def test_the_result_unpacks_and_pickles_as_the_tuple_of_scipy():
    fit = asker.curve_fit(line, X, LINE, full_output=True)
    popt, _, info, message, status = fit
    np.testing.assert_array_equal(info["fvec"], fit.regression.residuals)
    assert (type(message), type(status)) == (str, int)
    assert type(pickle.loads(pickle.dumps(fit))) is tuple
    np.testing.assert_array_equal(popt, fit.regression.x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fixed": {"k": 1.0}}, "fixed names 'k', which is not among the parameters slope, intercept"),
        ({"bounds": {"slope": 3}}, "expected a pair"),
        ({"fixed": {"slope": 1.0, "intercept": 0.0}}, "all parameters are fixed"),
        ({"p0": {"slop": 1.0}}, "p0 names 'slop'"),
    ],
)
def test_wrong_names_are_reported(given, message):
    with pytest.raises(ValueError, match=message):
        asker.curve_fit(line, X, LINE, **given)
    with pytest.raises(ValueError, match="there is no parameter 'k'"):
        asker.curve_fit(line, X, LINE).profile("k")
