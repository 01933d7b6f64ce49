"""Figures of fitted curves show every observation once, in the group of its class."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import asker
from asker.regression.distance import robust_distances

X = np.append(np.linspace(0, 5, 40), [20.0, 22.0])


def measured():
    y = 2.0 * X - 1.0 + np.random.default_rng(0).normal(size=len(X))
    y[[3, 41]] += 15.0
    return y


def line(x, slope, intercept):
    return slope * x + intercept


CURVE = asker.curve_fit(line, X, measured(), method="mm", n_subsets=100)
DRAWN = {asker.plot.fit: 1, asker.plot.residuals: 1, asker.plot.leverage: 1, asker.plot.weights: 1}


@pytest.mark.parametrize("draw", DRAWN, ids=lambda f: f.__name__)
def test_axes_that_are_given_are_used_and_show_every_observation(draw):
    ax = Figure().add_subplot()
    assert draw(CURVE, ax) is ax
    groups = [line for line in ax.lines if line.get_label().startswith(("inliers", "doubtful", "outliers"))]
    assert sum(len(line.get_xdata()) for line in groups) == len(X)
    outliers = next(line for line in groups if line.get_label() == "outliers (2)")
    assert len(outliers.get_xdata()) == 2
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert draw(CURVE).figure is not None


def test_good_and_bad_leverage_points_are_marked():
    distance, cutoff = robust_distances(CURVE.regression)
    assert set(np.flatnonzero(distance > cutoff)) == {40, 41}
    ax = asker.plot.leverage(CURVE)
    marked = {c.get_label(): c.get_offsets() for c in ax.collections if "leverage" in c.get_label()}
    np.testing.assert_allclose(marked["good leverage"][:, 0], distance[[40]])
    np.testing.assert_allclose(marked["bad leverage"][:, 0], distance[[41]])


def test_robust_distances_do_not_depend_on_the_units_of_the_parameters():
    other = asker.curve_fit(lambda x, a, b: 1e6 * a * x + 1e-3 * b, X, measured(), p0=[1e-6, 0], method="mm")
    np.testing.assert_allclose(
        robust_distances(other.regression)[0], robust_distances(CURVE.regression)[0], rtol=1e-3, atol=1e-3
    )


def test_surfaces_and_other_objects_are_rejected():
    with pytest.raises(ValueError, match="draws curves of one variable"):
        asker.plot.fit(asker.curve_fit(lambda x, a, b: a * x[0] + b * x[1], np.stack([X, X**2]), measured()))
    with pytest.raises(ValueError, match=r"expected the result of asker\.curve_fit, not tuple"):
        asker.plot.weights((1, 2))
