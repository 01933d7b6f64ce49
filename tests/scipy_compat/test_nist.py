"""NIST's Statistical Reference Datasets: every certified minimum is reached from both starts.

The problems with exact data (Lanczos1) have certified sums of squares that are rounding errors; there, the sum must be
as small as the rounding errors of the data allow.
"""

import jax
import numpy as np
import pytest

import asker
import nist
from nist import PROBLEMS

CASES = [("numpy", name, number) for name in PROBLEMS for number in (1, 2)]
CASES += [("jax", name, 1) for name in PROBLEMS]
CASES += [pytest.param("jax", name, 2, marks=pytest.mark.long) for name in PROBLEMS]
PARAMETERS_RTOL = 1e-4
ERRORS_RTOL = 1e-3
ROUNDING_ERRORS = 10
EXACT_DATA = ("Lanczos1",)


def excess(name, cost):
    """Return by how much a cost exceeds that of the certified minimum, relative to it."""
    certified, y = PROBLEMS[name]["ssr"], nist.data(name)[1]
    rounding = (ROUNDING_ERRORS * np.finfo(float).eps * np.linalg.norm(y)) ** 2
    return (2 * cost - certified - rounding) / certified


@pytest.mark.parametrize(("form", "name", "number"), CASES)
def test_the_certified_minimum_is_reached_from_both_starts(form, name, number):
    with jax.enable_x64():
        fit = asker.least_squares(nist.residuals(name, form), nist.start(name, number))
    assert fit.success
    assert excess(name, fit.cost) < 1e-6


@pytest.mark.parametrize("name", PROBLEMS)
def test_parameters_and_standard_errors_are_the_certified_ones(name):
    """The criterion is that of lmfit: the number of digits that agree with the certified values."""
    x, y = nist.data(name)
    f, certified = nist.model(name), PROBLEMS[name]
    popt, pcov = asker.curve_fit(lambda x, *b: f(b, x), x, y, nist.start(name, 2), jac="3-point")
    exact, errors = np.array(certified["certified"]), np.array(certified["se"])
    assert (np.abs(popt - exact) < np.maximum(PARAMETERS_RTOL * np.abs(exact), 1e-3 * errors)).all()
    if name not in EXACT_DATA:
        np.testing.assert_allclose(np.sqrt(np.diag(pcov)), errors, rtol=ERRORS_RTOL)


@pytest.mark.parametrize("name", ["MGH17", "BoxBOD", "Eckerle4"])
def test_units_of_parameters_do_not_matter(name):
    """The iterates of a problem in other units are the same with x_scale="jac"."""
    start = nist.start(name, 2)
    units = 10.0 ** np.linspace(-6, 6, len(start))
    f = nist.residuals(name, "jax")
    with jax.enable_x64():
        usual = asker.least_squares(f, start, x_scale="jac")
        other = asker.least_squares(lambda b: f(b * units), start / units, x_scale="jac")
    np.testing.assert_allclose(other.x * units, usual.x, rtol=1e-6)
    assert abs(other.nfev - usual.nfev) <= 2


def test_scales_that_are_given_are_kept():
    """MGH17 is not solved from its first start without adaptive scales, by asker as by SciPy's method of Moré."""
    f, start = nist.residuals("MGH17"), nist.start("MGH17", 1)
    fixed = asker.least_squares(f, start, x_scale=1.0, max_nfev=200)
    adapted = asker.least_squares(f, start, x_scale="jac")
    assert adapted.success
    assert excess("MGH17", adapted.cost) < 1e-6 < excess("MGH17", fixed.cost)
