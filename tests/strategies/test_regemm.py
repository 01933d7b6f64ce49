"""ReGeMM: the surrogate and its scale."""

import itertools

import numpy as np
import pytest

import asker
from asker.strategies import regemm
from small_problems import SMOOTH


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_the_surrogate_of_regemm_lies_above_the_target(kernel):
    u = np.linspace(0, 9, 60)
    np.testing.assert_allclose(regemm.surrogate(kernel, u, 1.0), kernel.psi(u), rtol=1e-9, atol=1e-12)
    wide = [regemm.surrogate(kernel, u, sigma) for sigma in (1.0, 1.5, 4.0, 20.0)]
    for lower, upper in itertools.pairwise(wide):
        assert (upper >= lower - 1e-12).all()


def test_the_surrogate_of_regemm_lies_in_the_band():
    class Engine:
        calls = 0

        def total(self, formula, point, scale):
            self.calls += 1
            return float(formula(asker.SmoothTruncated(1.0), point, scale).sum())

    engine, u = Engine(), np.random.default_rng(0).uniform(0, 400, 500)
    target = asker.SmoothTruncated(1.0).psi(u).sum()
    for high in (u.sum() / 2, 30 * target, 1.5 * target, 1.01 * target):
        low = (target + high) / 2
        sigma = regemm.ReGeMM()._scale(engine, u, low, high, 1e4)
        assert low <= regemm.surrogate(asker.SmoothTruncated(1.0), u, sigma).sum() <= high
    assert engine.calls < 80
