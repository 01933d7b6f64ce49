"""Widths of kernels by efficiency and by breakdown point: textbooks, simulation, identities."""

import numpy as np
import pytest

import asker
from asker.kernels.tuning import breakdown, efficiency

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("kernel", "width"),
    [(asker.Tukey, 4.685), (asker.Huber, 1.345), (asker.Cauchy, 2.385), (asker.Welsch, 2.985), (asker.LQQ, 0.9823)],
)
def test_widths_at_95_percent_efficiency_are_those_of_the_textbooks(kernel, width):
    """Holland and Welsch 1977; Koller and Stahel 2011 (the c of lqq with b = 1.4734 is 0.98227)."""
    assert kernel.at_efficiency(0.95).tau == pytest.approx(width, abs=6e-4)


@pytest.mark.parametrize(("kernel", "width"), [(asker.Tukey, 1.54764), (asker.LQQ, 0.2676971)])
def test_widths_at_50_percent_breakdown_are_those_of_the_textbooks(kernel, width):
    assert kernel.at_breakdown(0.5).tau == pytest.approx(width, abs=3e-5)


@pytest.mark.parametrize("kernel", [asker.Tukey, asker.LQQ, asker.Huber, asker.GemanMcClure])
def test_the_efficiency_is_that_of_simulated_locations(kernel):
    """The influence function gives the variance of the estimate in many large samples."""
    chosen = kernel.at_efficiency(0.8, sigma=2.0)
    e = 2.0 * RNG.normal(size=400_000)
    influence = chosen.omega(e * e) * e
    slope = np.mean(chosen.omega((e + 1e-3) ** 2) * (e + 1e-3) - chosen.omega((e - 1e-3) ** 2) * (e - 1e-3)) / 2e-3
    assert 4.0 / (np.mean(influence**2) / slope**2) == pytest.approx(0.8, abs=0.02)
    assert efficiency(kernel.at_efficiency(0.8)) == pytest.approx(0.8)


@pytest.mark.parametrize("kernel", [asker.Tukey, asker.LQQ, asker.Welsch, asker.GemanMcClure])
@pytest.mark.parametrize("value", [0.25, 0.5])
def test_the_mean_cost_of_gaussian_errors_is_the_breakdown_point(kernel, value):
    chosen = kernel.at_breakdown(value)
    e = RNG.normal(size=400_000)
    largest = chosen.psi(np.array(1e12))
    assert np.mean(chosen.psi(e * e)) / largest == pytest.approx(value, abs=3e-3)
    assert breakdown(chosen) == pytest.approx(value)


def test_kernels_without_such_a_width_are_rejected():
    with pytest.raises(ValueError, match=r"no width of Huber has breakdown 0\.5"):
        asker.Huber.at_breakdown(0.5)
    with pytest.raises(ValueError, match=r"no width of Quadratic has efficiency 0\.95"):
        asker.Quadratic.at_efficiency(0.95)
    with pytest.raises(ValueError, match=r"efficiency must lie between 0 and 1, not 1\.5"):
        asker.Tukey.at_efficiency(1.5)
