"""Efficiency of Cauchy's kernel under Gaussian noise."""

import numpy as np
import pytest

import asker
from asker.kernels.efficiency import efficiency, efficient_width


def test_the_width_for_one_number_is_that_of_the_textbooks():
    assert efficient_width(1) == pytest.approx(2.385, abs=1e-3)


@pytest.mark.parametrize("p", [2, 3])
def test_the_efficiency_of_a_robust_mean_is_the_prescribed_one(p):
    """The variance of robust means of Gaussian noise is compared with that of plain means."""
    noise = np.random.default_rng(3).normal(size=(4000, 40, p))
    width, mean = efficient_width(p), np.zeros((4000, 1, p))
    for _ in range(20):
        w = asker.Cauchy(width).omega(((noise - mean) ** 2).sum(axis=2))[:, :, None]
        mean = (w * noise).sum(axis=1, keepdims=True) / w.sum(axis=1, keepdims=True)
    ratio = noise.mean(axis=1).var() / mean.var()
    assert ratio == pytest.approx(0.95, abs=0.015)
    assert efficiency(width, p) == pytest.approx(0.95)


def test_the_width_is_positive_for_any_size_of_residual():
    assert all(2 <= efficient_width(p) < 10 for p in (1, 7, 50, 300))
