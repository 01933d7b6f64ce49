"""M-HQ: the eliminated step, and which kernels can be lifted."""

import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.engines.interface import Model
from asker.strategies import mhq
from small_problems import curve_problem, joint_step, linear_problem


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_the_eliminated_step_of_mhq_is_the_joint_step(p):
    problem, A, b = linear_problem(p)
    engine = CpuEngine(problem)
    point = engine.start()
    w = np.random.default_rng(1).uniform(0.2, 1.5, len(A))
    lam, tau = 0.37, 1.5
    step = engine.solve(point, Model(*engine.each(mhq.lifted_weights, point, (w,), lam=lam)), lam)
    moved = engine.each(mhq.lifted_update, point, (w,), engine.radial(step), lam=lam)[0] - w
    r = A @ problem.variables[0].rows[0] - b
    u = (r**2).sum(axis=1)
    g_w = w * u + tau**2 * w * (w**2 - 1)
    delta, dw = joint_step(A, r, w**2, w, u + 2 * tau**2 * w**2 + lam * (tau**2 - 1), w**2, g_w, lam)  # λτ² in all
    np.testing.assert_allclose(step.delta[problem.variables[0]][0], delta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moved, dw, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", [asker.SmoothTruncated(1e-3), asker.SmoothTruncated(1e-8), asker.Cauchy(1e-8)])
def test_a_flat_cost_is_not_convergence_of_mhq(kernel):
    """Ψ is constant while the lifted cost decreases, if every residual exceeds τ."""
    result = asker.solve(curve_problem(3, kernel=kernel), asker.MHQ())
    assert result.cost == result.initial_cost
    assert result.status is asker.Status.STALLED


@pytest.mark.parametrize("kernel", [asker.Huber(), asker.TruncatedQuadratic()], ids=repr)
def test_mhq_rejects_kernels_that_cannot_be_lifted(kernel):
    with pytest.raises(asker.ProblemError, match=type(kernel).__name__):
        asker.solve(curve_problem(0, kernel=kernel), asker.MHQ())


@pytest.mark.parametrize("method", ["mhq", "regemm"])
@pytest.mark.parametrize("kernel", [asker.Quadratic(), asker.Barron(alpha=2.0)], ids=repr)
def test_the_weight_of_quadratic_kernels_stays_1(method, kernel):
    """Every step is one of IRLS if all kernels are quadratic."""
    problem = curve_problem(1, kernel=kernel)
    lifted, plain = (asker.solve(problem, asker.METHODS[m](), max_iterations=6, tol=0) for m in (method, "irls"))
    np.testing.assert_allclose([h.cost for h in lifted.history], [h.cost for h in plain.history], rtol=1e-9)
