"""Triggs' correction."""

import jax
import numpy as np
import pytest

from asker.strategies.triggs import triggs_weights
from asker.tracing.array_namespace import float64
from small_problems import SMOOTH, residuals

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_triggs_is_the_hessian_kept_convex(kernel, p):
    epsilon, each = 0.3, np.array(residuals(p))
    with float64():
        hessians = np.asarray(jax.jit(jax.vmap(jax.hessian(lambda r: kernel.psi(r @ r))))(each))
    for r, H in zip(each, hessians, strict=True):
        w, b = triggs_weights(kernel, np.float64(r @ r), epsilon)
        M = w * np.eye(p) + b * np.outer(r, r)
        u = r @ r
        assert r @ M @ r / u == pytest.approx(max(r @ H @ r / u, epsilon * w), rel=1e-9)
        across = np.eye(p) - np.outer(r, r) / u  # at right angles to r
        np.testing.assert_allclose(across @ M @ across, across @ H @ across, rtol=1e-8, atol=1e-10)
