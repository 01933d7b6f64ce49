"""ASKER as in the paper: one test for each equation."""

import numpy as np
import pytest

import asker
from asker import GraduatedFilter
from asker.engines.cpu.engine import CpuEngine
from asker.engines.interface import Model
from asker.strategies import graduated_filter as paper
from asker.strategies.filter import Filter
from asker.strategies.graduated_filter import OneScale
from small_problems import curve_problem, joint_step, linear_problem

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("p", [1, 2, 3, 6])
@pytest.mark.parametrize("preset", [GraduatedFilter.published(), GraduatedFilter.paper()], ids=["published", "paper"])
def test_the_eliminated_step_of_asker_is_the_joint_step(p, preset):
    problem, A, b = linear_problem(p)
    engine = CpuEngine(problem)
    point = engine.start()
    s = np.random.default_rng(2).uniform(0.1, 2.0, len(A))
    lam, lam_h, mu_f, mu_h = 0.29, 1.3, preset.mu_f, preset.mu_h
    names = preset._constants(lam_h) | {"lam": lam}
    step = engine.solve(point, Model(*engine.each(paper.cooperative_weights, point, (s,), **names)), lam)
    moved = engine.each(paper.cooperative_update, point, (s,), engine.radial(step), **names)[0] - s
    r = A @ problem.variables[0].rows[0] - b
    u = (r**2).sum(axis=1)
    sigma = 1 + s**2
    w = 1 - np.minimum(u / sigma**2 / 1.5**2, 1)
    # Gauss-Newton on ½ω̂‖r/σ‖²: the derivative of r/σ with respect to s is −2s r/σ²
    H_ss = mu_f * w * u * (2 * s / sigma**2) ** 2
    g_s = -mu_f * w * u * 2 * s / sigma**3
    h_gradient, h_curvature = (2 * s, 2 * (1 + lam_h)) if preset.as_printed else (s, 1 + lam_h / mu_h)
    a = mu_f * w / sigma**2
    q = -mu_f * w * 2 * s / sigma**3
    unit = 1.5**2  # h = Σ τ²s²
    H_ss += unit * mu_h * h_curvature + lam * (unit - 1)  # λτ² in all
    delta, ds = joint_step(A, r, a, q, H_ss, a, g_s + unit * mu_h * h_gradient, lam)
    np.testing.assert_allclose(step.delta[problem.variables[0]][0], delta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moved, ds, rtol=1e-10, atol=1e-10)


def test_the_objectives_of_asker():
    problem, A, b = linear_problem(2)
    engine = CpuEngine(problem)
    s = np.linspace(0, 3, len(A))
    f, h, target = engine.total(paper.objectives, engine.start(), (s,))
    norm = np.linalg.norm(A @ problem.variables[0].rows[0] - b, axis=1)
    psi = problem.factors[0].kernel.psi
    assert f == pytest.approx(psi((norm / (1 + s**2)) ** 2).sum(), rel=1e-13)
    assert h == pytest.approx(1.5**2 * (s**2).sum(), rel=1e-13)
    assert target == pytest.approx(psi(norm**2).sum(), rel=1e-13)


@pytest.mark.parametrize("unit", [1e-3, 7.0])
def test_tau_does_not_shift_the_balance_of_f_and_h(unit):
    """The iteration of the scales does not depend on the unit of τ and of the residuals."""
    rng = np.random.default_rng(3)
    u, s, rJd = rng.uniform(0, 9, 50), rng.uniform(0.1, 3, 50), rng.normal(size=50)
    constants = GraduatedFilter()._constants(1.7)
    ours = paper.cooperative_update(asker.SmoothTruncated(1.0), u, s, rJd, **constants, lam=0.3)
    kernel = asker.SmoothTruncated(unit)
    theirs = paper.cooperative_update(kernel, unit**2 * u, s, unit**2 * rJd, **constants, lam=0.3)
    np.testing.assert_allclose(theirs, ours, rtol=1e-10)


def test_restoration_takes_the_acceptable_gamma_of_smallest_angle():
    problem, A, b = linear_problem(2, seed=4)
    engine = CpuEngine(problem)
    strategy = GraduatedFilter(OneScale(1.5))
    state = strategy.init(engine, engine.start(), 100)
    # a corner that only a smaller h beats: f − ε is below every f that a γ can reach
    after = strategy._restore(engine, state, Filter(((0.0, 0.8 * state.h),)), {})
    gammas = np.linspace(-0.5, 0.5, strategy.grid)

    def angle(gamma):
        s = ((1 - gamma) * state.s[0],)
        x = problem.variables[0].rows[0]
        r = A @ x - b
        u = (r**2).sum(axis=1)
        sigma = 1 + s[0] ** 2
        w = problem.factors[0].kernel.omega(u / sigma**2)
        g_f = np.concatenate([np.einsum("n,npd,np->d", w / sigma**2, A, r), -2 * w * s[0] * u / sigma**3])
        g_h = np.concatenate([np.zeros(4), s[0]])
        return np.arccos(np.clip(g_f @ g_h / np.linalg.norm(g_f) / np.linalg.norm(g_h), -1, 1))

    allowed = [g for g in gammas if (1 - g) ** 2 * state.h < 0.8 * state.h]
    assert after.details["gamma"] == pytest.approx(min(allowed, key=angle))
    assert not after.accepted
    assert after.damping == strategy.damping
    assert after.scale_damping == strategy.scale_damping


def test_restoration_without_an_acceptable_gamma_still_moves():
    problem, *_ = linear_problem(1, seed=4)
    engine = CpuEngine(problem)
    strategy = GraduatedFilter.published()
    state = strategy.init(engine, engine.start(), 100)
    after = strategy._restore(engine, state, Filter(((0.0, 0.0),)), {})
    assert after.details["gamma"] == 0.5
    assert after.h == pytest.approx(0.25 * state.h)


def test_the_history_of_asker_has_what_the_figures_need():
    result = asker.solve(curve_problem(2), GraduatedFilter.published(), max_iterations=20, tol=0)
    for line in result.history:
        assert {"f", "h", "scale_damping", "phase"} <= set(line.details)
    corners = [line.details["corner"] for line in result.history if "corner" in line.details]
    assert corners  # f rises while the scales fall
    before = {line.details["h"] for line in result.history}
    assert all(h / (1 - 1e-4) == pytest.approx(min(before, key=lambda x, h=h: abs(x - h))) for _, h in corners)


def test_the_history_of_asker_contains_restorations(monkeypatch):
    """A filter that rejects every pair forces a restoration, which only the record of this step contains."""
    answers = iter([False] * 21 + [True] * 100)  # the trial, and the 20 values of γ that are not 0
    monkeypatch.setattr(Filter, "accepts", lambda *pair: next(answers))
    result = asker.solve(curve_problem(2), GraduatedFilter.published(), max_iterations=2, tol=0)
    fields = {"gamma", "f_refused", "h_refused"}
    assert fields <= set(result.history[1].details)
    assert not result.history[1].accepted
    assert not fields & set(result.history[2].details)
