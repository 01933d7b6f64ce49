"""Ready models are fitted from their own starting values, also with outliers; lines with errors in both variables."""

import numpy as np
import pytest
from scipy.optimize import minimize

import asker
from asker.models import MODELS, polynomial

CASES = {
    "exponential_decay": (np.linspace(0, 4, 60), [3.0, 1.3, 0.5]),
    "double_exponential_decay": (np.linspace(0, 10, 120), [3.0, 3.0, 2.0, 0.3, 0.5]),
    "michaelis_menten": (np.linspace(1, 400, 50), [12.0, 60.0]),
    "hill": (np.geomspace(0.01, 100, 60), [5.0, 1.5, 2.0]),
    "logistic3": (np.linspace(1900, 2000, 60), [50.0, 0.12, 1950.0]),
    "logistic4": (np.linspace(-50, 50, 60), [2.0, 9.0, 0.2, 5.0]),
    "logistic5": (np.linspace(-50, 50, 120), [2.0, 9.0, 0.2, 5.0, 0.5]),
    "gaussian_peak": (np.linspace(500, 600, 100), [20.0, 541.0, 4.0, 3.0, 0.01]),
    "lorentzian_peak": (np.linspace(0, 1e-3, 100), [20.0, 4e-4, 3e-5, 3.0, 100.0]),
    "power_law": (np.geomspace(0.1, 100, 50), [2.0, 0.7]),
    "sinusoid": (np.linspace(0, 20, 150), [2.0, 1.0, 1.234, 5.0]),
    "arrhenius": (np.linspace(300, 420, 40), [20.0, 50e3]),
}


def data(name, share):
    x, truth = CASES[name]
    rng = np.random.default_rng(0)
    clean = MODELS[name](x, *truth)
    spread = np.ptp(clean)
    y = clean + 0.01 * spread * rng.normal(size=len(x))
    bad = rng.choice(len(x), int(share * len(x)), replace=False)
    y[bad] += spread * rng.choice([-1, 1], len(bad)) * rng.uniform(0.5, 1.5, len(bad))
    return x, y, truth


def test_every_model_is_tested():
    assert set(CASES) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.long), 0.15])
def test_a_model_is_fitted_without_starting_values(name, share):
    """The estimate has the residuals of a fit from the truth, and its parameters within five standard errors."""
    x, y, truth = data(name, share)
    options = {"loss": "cauchy", "f_scale": 0.02 * np.ptp(MODELS[name](x, *truth))} if share else {}
    fit = MODELS[name].fit(x, y, **options)
    best = asker.curve_fit(MODELS[name], x, y, p0=truth, bounds=dict(MODELS[name].bounds), **options)
    assert fit.result.cost <= best.result.cost * (1 + 1e-4)
    assert (np.abs(fit[0] - best[0]) < 0.01 * np.sqrt(np.diag(best[1])) + 1e-6 * np.abs(best[0])).all() or (
        name == "double_exponential_decay"  # its two terms may change places
    )
    assert fit.regression.names == MODELS[name].parameters


def test_the_formula_of_a_model_is_its_function():
    for name, (x, truth) in CASES.items():
        model = MODELS[name]
        known = {f: getattr(np, f) for f in ("exp", "sin", "cos", "pi")} | {"x": x}
        values = eval(model.formula, known | dict(zip(model.parameters, truth, strict=True)))
        np.testing.assert_allclose(model(x, *truth), values, rtol=1e-9)


def test_a_polynomial_is_that_of_numpy():
    x = np.linspace(-2, 2, 30)
    y = 1 - 2 * x + 0.5 * x**3 + 0.1 * np.random.default_rng(0).normal(size=30)
    np.testing.assert_allclose(polynomial(3).fit(x, y)[0], np.polyfit(x, y, 3)[::-1], rtol=1e-6)
    with pytest.raises(ValueError, match="expected at most 20"):
        polynomial(30)


def test_a_line_with_errors_in_both_variables_is_the_minimum_of_york():
    """The oracle moves the true positions of all points, too; standard errors are those of simulated data."""
    rng = np.random.default_rng(2)
    t = np.linspace(0, 10, 40)
    sx, sy = 0.5 + 0.5 * rng.random(40), 0.2 + rng.random(40)
    x, y = t + sx * rng.normal(size=40), 1 + 2 * t + sy * rng.normal(size=40)
    fit = asker.models.orthogonal_line(x, y, sx, sy)

    def york(p):
        return np.sum(((x - p[2:]) / sx) ** 2 + ((y - p[0] - p[1] * p[2:]) / sy) ** 2)

    oracle = minimize(york, np.append([0.0, 1.0], x), options={"gtol": 1e-8})
    np.testing.assert_allclose(fit[0], oracle.x[:2], rtol=1e-4)
    assert fit.conf_band(np.array([3.0])).value == pytest.approx(oracle.x[0] + 3 * oracle.x[1], rel=1e-4)
    slopes = []
    for _ in range(40):
        points = t + sx * rng.normal(size=40), 1 + 2 * t + sy * rng.normal(size=40)
        slopes.append(asker.models.orthogonal_line(*points, sx, sy).params["slope"])
    assert fit.stderr["slope"] == pytest.approx(np.std(slopes), rel=0.35)
    steep = asker.models.orthogonal_line(y, x, sy, sx)
    assert steep.params["slope"] == pytest.approx(1 / fit.params["slope"], rel=1e-4)


def test_parameters_in_which_a_curve_is_affine_are_detected():
    from asker.models.starting_values import _Named, affine_parameters

    def f(x, a, b, c, d):
        return a * np.exp(-b * x) + c * a + d

    curve = _Named(f, np.linspace(0, 1, 9), ("a", "b", "c", "d"))
    assert affine_parameters(curve, list("abcd"), {}, {}, np.random.default_rng(0)) == ["a", "d"]
