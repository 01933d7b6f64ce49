"""Similarities between point sets with outliers."""

import numpy as np
import pytest

from asker.geometry.alignment import distances, robust_similarity, similarity
from asker.geometry.rotations import matrix_from_angle_axis


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("n", [3, 4, 60])
def test_a_robust_similarity_is_exact_despite_outliers(n, scale):
    rng = np.random.default_rng(n)
    R, t, s = matrix_from_angle_axis(rng.normal(size=(1, 3)))[0], np.array([100.0, -50.0, 3.0]), 2.5 if scale else 1.0
    source = rng.normal(size=(n, 3))
    target = s * source @ R.T + t
    wrong = np.arange(n) < (0.4 * n if n > 4 else 0)
    target[wrong] += rng.uniform(-30, 30, (wrong.sum(), 3))
    fit = robust_similarity(source, target, scale)
    assert fit[0] == pytest.approx(s, rel=1e-6)
    assert distances(fit, source, target)[~wrong].max() < 1e-5
    if wrong.any():
        assert distances(similarity(source, target, scale), source, target)[~wrong].min() > 0.1


def test_points_of_weight_zero_are_ignored():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(2, 9, 3))
    some = np.arange(9) < 6
    for a, b in zip(
        similarity(source, target, weights=some * 1.0), similarity(source[some], target[some]), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-12)
