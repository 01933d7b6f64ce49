"""The width of Cauchy's kernel."""

import numpy as np
import pytest

import asker
from asker.kernels.efficiency import efficiency, efficient_width


def test_the_width_for_one_number_is_the_one_of_the_textbooks():
    assert efficient_width(1) == pytest.approx(2.385, abs=1e-3)


@pytest.mark.parametrize("p", [2, 3])
def test_a_mean_under_the_kernel_loses_what_is_said(p):
    """Of many means of Gaussian noise: their variance beside that of plain means."""
    noise = np.random.default_rng(3).normal(size=(4000, 40, p))
    width, found = efficient_width(p), np.zeros((4000, 1, p))
    for _ in range(20):
        w = asker.Cauchy(width).omega(((noise - found) ** 2).sum(axis=2))[:, :, None]
        found = (w * noise).sum(axis=1, keepdims=True) / w.sum(axis=1, keepdims=True)
    lost = noise.mean(axis=1).var() / found.var()
    assert lost == pytest.approx(0.95, abs=0.015)
    assert efficiency(width, p) == pytest.approx(0.95)


def test_any_number_of_residuals_has_a_width():
    assert all(2 <= efficient_width(p) < 10 for p in (1, 7, 50, 300))
