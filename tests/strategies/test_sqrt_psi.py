"""Square-rooting the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import SMOOTH, residuals

from asker.arrays import float64
from asker.strategies.sqrt_psi import sqrt_psi_weights

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_sqrt_psi_is_gauss_newton_on_the_rooted_residual(kernel, p):
    def rooted(r):
        return jnp.sqrt(2 * kernel.psi(r @ r) / (r @ r)) * r

    def cost(r):
        return kernel.psi(r @ r)

    for r in residuals(p):
        a, b, c = sqrt_psi_weights(kernel, np.float64(r @ r))
        with float64():
            J, gradient = np.asarray(jax.jacfwd(rooted)(r)), np.asarray(jax.grad(cost)(r))
        np.testing.assert_allclose(a * np.eye(p) + b * np.outer(r, r), J.T @ J, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(c * r, gradient, rtol=1e-9, atol=1e-12)
