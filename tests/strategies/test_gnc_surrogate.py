"""GNC-GM and GNC-TLS: weights and schedules."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker._solve import engine_for
from asker.strategies import gnc_surrogate


def test_gm_weights_are_those_of_a_wide_kernel():
    u = np.linspace(0, 30, 50)
    for mu in (1.0, 2.0, 40.0):
        wide = asker.GemanMcClure(1.3 * np.sqrt(mu))
        np.testing.assert_allclose(gnc_surrogate.gm_weights(asker.SmoothTruncated(1.3), u, mu), wide.omega(u))


def test_tls_weights_fall_from_one_to_zero_and_end_as_truncation():
    kernel = asker.SmoothTruncated(0.8)
    u = np.linspace(0, 4, 4001)
    for mu in (0.05, 1.0, 20.0):
        w = gnc_surrogate.tls_weights(kernel, u, mu)
        assert (w[u <= mu / (mu + 1) * 0.64] == 1).all()
        assert (w[u >= (mu + 1) / mu * 0.64] == 0).all()
        assert (np.diff(w) <= 0).all()
        assert np.abs(np.diff(w)).max() < 0.2  # no jump
    off = np.abs(u - 0.64) > 1e-3
    np.testing.assert_array_equal(
        gnc_surrogate.tls_weights(kernel, u, 1e6)[off], asker.TruncatedQuadratic(0.8).omega(u)[off]
    )


def test_schedules():
    gm, tls, fast = gnc_surrogate.GM(), gnc_surrogate.TLS(), gnc_surrogate.TLS(superlinear=True)
    assert gm.start(50.0) == 100
    assert tls.start(50.0) == pytest.approx(1 / 99)
    assert (gm.next(14.0), tls.next(0.25), fast.next(0.25), fast.next(4.0)) == pytest.approx((10, 0.35, 0.7, 5.6))
    assert not gm.is_over(1.0)
    assert gm.is_over(0.99)


@pytest.mark.parametrize("schedule", [gnc_surrogate.GM(), gnc_surrogate.TLS()])
def test_the_damping_of_the_schedule_ends_with_it(schedule):
    """λ may increase without bound while no step is accepted, and would stop the descent on Ψ."""
    x = asker.Variables([5.0], name="x")
    factors = asker.Factors(lambda x, d: x - d, x[np.zeros(9, int)], data=np.arange(9.0), kernel=asker.Huber())
    engine, strategy = engine_for(asker.Problem(factors)), asker.SurrogateGNC(schedule)
    state = strategy.init(engine, engine.start(), 100)
    last = schedule.last_mu / 1.1 if isinstance(schedule, gnc_surrogate.TLS) else 1.1
    after = strategy.step(engine, replace(state, mu=last, on_target=False, damping=1e16))
    assert after.on_target
    assert after.damping == strategy.damping
