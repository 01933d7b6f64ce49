"""The square root of the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asker.strategies.sqrt_psi import sqrt_psi_weights
from asker.tracing.array_namespace import float64
from small_problems import SMOOTH, residuals

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_sqrt_psi_is_gauss_newton_on_the_rooted_residual(kernel, p):
    def rooted(r):
        return jnp.sqrt(2 * kernel.psi(r @ r) / (r @ r)) * r

    def cost(r):
        return kernel.psi(r @ r)

    def derivatives(r):
        return jax.jacfwd(rooted)(r), jax.grad(cost)(r)

    each = np.array(residuals(p))
    with float64():
        Js, gradients = map(np.asarray, jax.jit(jax.vmap(derivatives))(each))
    for r, J, gradient in zip(each, Js, gradients, strict=True):
        a, b, c = sqrt_psi_weights(kernel, np.float64(r @ r))
        np.testing.assert_allclose(a * np.eye(p) + b * np.outer(r, r), J.T @ J, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(c * r, gradient, rtol=1e-9, atol=1e-12)
