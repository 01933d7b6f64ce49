"""Laws that hold for every method, and the equations of each."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.engines.point import Model
from asker.strategies import asker as paper
from asker.strategies import mhq
from asker.strategies.filter import Filter

METHODS = sorted(asker.METHODS)


def curve(x, t, y):
    """A residual of size 2, nonlinear in x (3,)."""
    return jnp.stack([x[0] * jnp.exp(-x[1] * t) + x[2] - y[0], jnp.sin(x[1] * t) * x[2] + x[0] - y[1]])


def curve_problem(seed, n=60, outliers=0.4, kernel=None):
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0.5, 2.0, 3)
    t = rng.uniform(0, 3, n)
    y = np.stack([truth[0] * np.exp(-truth[1] * t) + truth[2], np.sin(truth[1] * t) * truth[2] + truth[0]], axis=1)
    y += rng.normal(0, 0.02, y.shape)
    bad = rng.random(n) < outliers
    y[bad] += rng.uniform(-5, 5, (bad.sum(), 2))
    x = asker.Variables(truth[None] + rng.normal(0, 1.0, (1, 3)), name="x")
    kernel = asker.SmoothTruncated(0.2) if kernel is None else kernel
    return asker.Problem(asker.Factors(curve, x[np.zeros(n, int)], data=(t, y), kernel=kernel))


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), outliers=st.floats(0, 0.8))
def test_no_method_returns_a_cost_above_its_start(method, seed, outliers):
    problem = curve_problem(seed, outliers=outliers)
    result = asker.solve(problem, asker.METHODS[method](), max_iterations=30)
    assert result.cost <= result.initial_cost
    assert result.cost == min(h.cost for h in result.history)
    at_result = asker.Variables(result.values[problem.variables[0]])
    f = problem.factors[0]
    again = asker.Problem(asker.Factors(curve, at_result[f.slots[0].index], data=f.data, kernel=f.kernel))
    assert asker.solve(again, max_iterations=0).cost == pytest.approx(result.cost, rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_problem_gives_the_same_result(method):
    first, second = (asker.solve(curve_problem(3), asker.METHODS[method](), max_iterations=25) for _ in range(2))
    assert first.cost == second.cost
    assert [h.cost for h in first.history] == [h.cost for h in second.history]


def root(x, y):
    """Not a number where x is negative, infinite where it is 0."""
    return jnp.sqrt(x) - y + 1e-3 / x


@pytest.mark.parametrize("method", METHODS)
def test_a_trial_that_is_not_finite_is_refused(method, monkeypatch):
    """Every third move leads nowhere, whatever the method; the others are its own."""
    moves, not_finite = [], []
    move = CpuEngine.move

    def sometimes_nowhere(engine, step):
        trial = move(engine, step)
        moves.append(trial)
        if len(moves) % 3 == 1:
            trial = engine.evaluate((np.full_like(trial.theta[0], -1.0),))
        not_finite.append(not trial.finite)
        return trial

    monkeypatch.setattr(CpuEngine, "move", sometimes_nowhere)
    y = np.linspace(-6, 0.05, 40)  # pulls x below 0
    x = asker.Variables(np.array([0.2]), name="x")
    problem = asker.Problem(asker.Factors(root, x[np.zeros(40, int)], data=y, kernel=asker.SmoothTruncated(8.0)))
    result = asker.solve(problem, asker.METHODS[method](), max_iterations=30)
    assert any(not_finite)
    assert result.values[x][0] > 0
    assert all(np.isfinite(h.cost) for h in result.history)
    assert not result.history[1].accepted


@pytest.mark.parametrize("method", METHODS)
def test_fixed_variables_do_not_move(method):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 3))
    points = asker.Variables(values, fixed=np.arange(6) % 2 == 0, name="points")
    i, j = rng.integers(0, 6, 50), rng.integers(0, 6, 50)

    def apart(a, b, d):
        return a - b - d

    wide = asker.SmoothTruncated(8.0)
    problem = asker.Problem(asker.Factors(apart, points[i], points[j], data=rng.normal(size=(50, 3)), kernel=wide))
    result = asker.solve(problem, asker.METHODS[method](), max_iterations=10)
    moved = np.abs(result[points] - values).max(axis=1)
    assert (moved[::2] == 0).all()
    assert (moved[1::2] > 0).all()


KERNELS = [
    asker.SmoothTruncated(0.3), asker.Huber(0.3), asker.PseudoHuber(0.3), asker.Cauchy(0.3), asker.GemanMcClure(0.3),
    asker.Welsch(0.3), asker.Tukey(0.3), asker.TruncatedQuadratic(0.3), asker.Barron(0.3, alpha=-1.0),
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("method", ["asker", "asker-published"])
def test_asker_works_for_every_kernel(method, kernel):
    result = asker.solve(curve_problem(5, kernel=kernel), asker.METHODS[method](), max_iterations=40)
    assert result.cost < result.initial_cost


def near(x, y):
    return x - y


def equal(a, b):
    return jnp.stack([a - b, 0.5 * (a - b)])


def test_two_factor_groups_with_their_own_kernels():
    """Data terms under one kernel, smoothness under another, residuals of size 1 and 2: a signal with a step."""
    rng = np.random.default_rng(1)
    truth = np.repeat([0.0, 4.0], 20)
    seen = truth + rng.normal(0, 0.05, 40)
    seen[rng.random(40) < 0.4] = 9.0

    def solved(start, strategy):
        x, k = asker.Variables(start, name="x"), np.arange(40)
        data = asker.Factors(near, x[k], data=seen, kernel=asker.SmoothTruncated(0.5))
        smooth = asker.Factors(equal, x[k[:-1]], x[k[1:]], kernel=asker.SmoothTruncated(1.0), weight=np.full(39, 2.0))
        return asker.solve(asker.Problem(data, smooth), strategy)

    found = solved(np.full(40, 2.0), asker.ASKER())
    assert found.cost < solved(np.full(40, 2.0), asker.IRLS()).cost
    assert solved(truth, asker.ASKER()).cost <= solved(truth, asker.IRLS()).cost * (1 + 1e-9)
    assert [w.shape for w in found.weights] == [(40,), (39,)]


# ---------------------------------------------------------------- the equations


def linear_problem(p, seed=0, n=30, d=4, kernel=None):
    """Random affine residuals of size p in one variable of size d."""
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(n, p, d)), rng.normal(size=(n, p))
    x = asker.Variables(rng.normal(size=(1, d)), name="x")

    def affine(x, A, b):
        return A @ x - b

    kernel = asker.SmoothTruncated(1.5) if kernel is None else kernel
    return asker.Problem(asker.Factors(affine, x[np.zeros(n, int)], data=(A, b), kernel=kernel)), A, b


def joint_step(A, r, H_rr, q, H_ss, g_r, g_s, lam):
    """The dense Gauss-Newton step in (θ, s): per residual the blocks H_rr I, q r, H_ss."""
    n, _, d = A.shape
    H, g = np.zeros((d + n, d + n)), np.zeros(d + n)
    for k in range(n):
        Jr = A[k].T @ r[k]
        H[:d, :d] += H_rr[k] * A[k].T @ A[k]
        H[:d, d + k] = H[d + k, :d] = q[k] * Jr
        H[d + k, d + k] = H_ss[k]
        g[:d] += g_r[k] * Jr
        g[d + k] = g_s[k]
    H += lam * np.eye(d + n)
    step = np.linalg.solve(H, -g)
    return step[:d], step[d:]


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
    delta, dw = joint_step(A, r, w**2, w, u + 2 * tau**2 * w**2, w**2, g_w, lam)
    np.testing.assert_allclose(step.delta[problem.variables[0]][0], delta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moved, dw, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("p", [1, 2, 3, 6])
@pytest.mark.parametrize("settings_", [asker.ASKER.published(), asker.ASKER.paper()], ids=["published", "paper"])
def test_the_eliminated_step_of_asker_is_the_joint_step(p, settings_):
    problem, A, b = linear_problem(p)
    engine = CpuEngine(problem)
    point = engine.start()
    s = np.random.default_rng(2).uniform(0.1, 2.0, len(A))
    lam, lam_h, mu_f, mu_h = 0.29, 1.3, settings_.mu_f, settings_.mu_h
    names = settings_._constants(lam_h) | {"lam": lam}
    step = engine.solve(point, Model(*engine.each(paper.cooperative_weights, point, (s,), **names)), lam)
    moved = engine.each(paper.cooperative_update, point, (s,), engine.radial(step), **names)[0] - s
    r = A @ problem.variables[0].rows[0] - b
    u = (r**2).sum(axis=1)
    sigma = 1 + s**2
    w = 1 - np.minimum(u / sigma**2 / 1.5**2, 1)
    # Gauss-Newton on ½ω̂‖r/σ‖²: the derivative of r/σ with respect to s is −2s r/σ²
    H_ss = mu_f * w * u * (2 * s / sigma**2) ** 2
    g_s = -mu_f * w * u * 2 * s / sigma**3
    h_gradient, h_curvature = (2 * s, 2 * (1 + lam_h)) if settings_.as_printed else (s, 1 + lam_h / mu_h)
    a = mu_f * w / sigma**2
    q = -mu_f * w * 2 * s / sigma**3
    unit = 1.5**2  # h = Σ τ²s²
    delta, ds = joint_step(A, r, a, q, H_ss + unit * mu_h * h_curvature, a, g_s + unit * mu_h * h_gradient, lam)
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
    """With τ, residuals and λ in another unit, the scales move as before."""
    rng = np.random.default_rng(3)
    u, s, rJd = rng.uniform(0, 9, 50), rng.uniform(0.1, 3, 50), rng.normal(size=50)
    constants = asker.ASKER()._constants(1.7)
    ours = paper.cooperative_update(asker.SmoothTruncated(1.0), u, s, rJd, **constants, lam=0.3)
    kernel = asker.SmoothTruncated(unit)
    theirs = paper.cooperative_update(kernel, unit**2 * u, s, unit**2 * rJd, **constants, lam=unit**2 * 0.3)
    np.testing.assert_allclose(theirs, ours, rtol=1e-10)


def test_a_filter_accepts_what_beats_every_corner_in_f_or_h():
    corners = Filter().with_corner(1.0, 5.0).with_corner(3.0, 2.0)
    assert corners.accepts(0.9, 100)
    assert corners.accepts(2.9, 4.9)
    assert corners.accepts(100, 1.9)
    assert not corners.accepts(1.0, 5.0)
    assert not corners.accepts(3.5, 2.5)
    assert not corners.accepts(float("nan"), 0.0)
    assert not corners.accepts(0.0, float("nan"))
    assert corners.with_corner(0.5, 1.0).corners == ((0.5, 1.0),)


def test_restoration_takes_the_acceptable_gamma_of_smallest_angle():
    problem, A, b = linear_problem(2, seed=4)
    engine = CpuEngine(problem)
    strategy = asker.ASKER.published(s0=1.5)
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
    strategy = asker.ASKER.published()
    state = strategy.init(engine, engine.start(), 100)
    after = strategy._restore(engine, state, Filter(((0.0, 0.0),)), {})
    assert after.details["gamma"] == 0.5
    assert after.h == pytest.approx(0.25 * state.h)


def test_asker_ends_properly():
    """h = 0 at the end, f = Ψ, and the gradient of Ψ vanishes."""
    problem = curve_problem(11)
    result = asker.solve(problem, asker.ASKER(), tol=1e-14, max_iterations=200)
    assert result.status is asker.Status.CONVERGED
    last = result.history[-1].details
    assert last["phase"] == "last"
    assert last["h"] == 0
    assert last["f"] == pytest.approx(result.cost)
    engine = CpuEngine(problem)
    point = engine.evaluate((result.values[problem.variables[0]],))
    w = engine.each(paper_omega, point)
    gradient, _, _ = engine.gradient_products(point, w, w)
    start, _, _ = engine.gradient_products(engine.start(), *[engine.each(paper_omega, engine.start())] * 2)
    assert gradient < 1e-8 * start


def paper_omega(kernel, u):
    return kernel.omega(u)


def test_the_history_of_asker_has_what_the_figures_need():
    result = asker.solve(curve_problem(2), asker.ASKER.published(), max_iterations=20, tol=0)
    for line in result.history:
        assert {"f", "h", "scale_damping", "phase"} <= set(line.details)
    corners = [line.details["corner"] for line in result.history if "corner" in line.details]
    assert corners  # f rises while the scales fall
    before = {line.details["h"] for line in result.history}
    assert all(h / (1 - 1e-4) == pytest.approx(min(before, key=lambda x, h=h: abs(x - h))) for _, h in corners)


def test_the_history_of_asker_tells_of_restorations(monkeypatch):
    """A filter that accepts nothing forces one; the next step no longer tells of it."""
    answers = iter([False] * 21 + [True] * 100)  # the trial, and the 20 values of γ that are not 0
    monkeypatch.setattr(Filter, "accepts", lambda *pair: next(answers))
    result = asker.solve(curve_problem(2), asker.ASKER.published(), max_iterations=2, tol=0)
    told = {"gamma", "f_refused", "h_refused"}
    assert told <= set(result.history[1].details)
    assert not result.history[1].accepted
    assert not told & set(result.history[2].details)


def test_a_step_that_hurts_the_relaxed_problem_is_refused(monkeypatch):
    """Ψ cannot run away: a trial that raises f(θ, s) by more than a tenth is not taken, whatever the filter says."""
    problem = curve_problem(7, kernel=asker.SmoothTruncated(2.0))
    far = (problem.variables[0].rows + 50.0,)
    for anneal, taken in ((asker.Paced(), False), (asker.FixedRate(), True)):
        engine = CpuEngine(problem)
        strategy = asker.ASKER(anneal=anneal, reach=0.0, s0=0.5)
        before = strategy.init(engine, engine.start(), 100)
        monkeypatch.setattr(engine, "move", lambda step, engine=engine: engine.evaluate(far))
        monkeypatch.setattr(Filter, "accepts", lambda *pair: True)
        after = strategy.step(engine, before)
        assert after.accepted is taken
        assert (after.point is before.point) is not taken


@pytest.mark.parametrize("method", METHODS)
def test_a_method_lowers_its_own_objective(method):
    """An accepted step lowers what the method says it minimises, and an easy problem is solved."""
    problem, A, b = linear_problem(2, kernel=asker.SmoothTruncated(20.0))
    b[:] = A @ np.array([1.0, -2.0, 0.5, 3.0]) + 0.1 * b
    engine = CpuEngine(problem)
    strategy = asker.METHODS[method]()
    state = strategy.init(engine, engine.start(), 60)
    start = state.cost
    for _ in range(60):
        before, state = state, strategy.step(engine, state)
        if state.accepted and before.on_target and state.on_target:
            assert state.objective < before.objective
    assert state.cost < 0.5 * start


def test_mhq_does_not_call_a_flat_cost_converged():
    """With every residual beyond τ, Ψ stays as it is while the lifted cost falls."""
    result = asker.solve(curve_problem(3, kernel=asker.SmoothTruncated(1e-3)), asker.MHQ(), max_iterations=20)
    assert result.iterations > 3


def test_a_level_that_can_go_no_further_gives_way():
    """At the minimum of a level every step is refused; the level ends before the run does."""
    problem, *_ = linear_problem(2, kernel=asker.SmoothTruncated(100.0))
    result = asker.solve(problem, asker.GNC(levels=3, level_tol=0.0), max_iterations=200, tol=0)
    assert result.history[-1].details["level"] == 0


@pytest.mark.parametrize("kernel", [asker.Huber(), asker.TruncatedQuadratic()], ids=repr)
def test_mhq_says_which_kernels_it_cannot_lift(kernel):
    with pytest.raises(asker.ProblemError, match=type(kernel).__name__):
        asker.solve(curve_problem(0, kernel=kernel), asker.MHQ())


@pytest.mark.parametrize("method", ["mhq", "regemm"])
@pytest.mark.parametrize("kernel", [asker.Quadratic(), asker.Barron(alpha=2.0)], ids=repr)
def test_where_there_is_nothing_to_lift_the_weight_stays_1(method, kernel):
    """On quadratic kernels alone, every step is one of IRLS."""
    problem = curve_problem(1, kernel=kernel)
    lifted, plain = (asker.solve(problem, asker.METHODS[m](), max_iterations=6, tol=0) for m in (method, "irls"))
    np.testing.assert_allclose([h.cost for h in lifted.history], [h.cost for h in plain.history], rtol=1e-9)


def test_levels_share_the_iterations():
    result = asker.solve(curve_problem(1), asker.GNC(levels=4, level_tol=0.0), max_iterations=40, tol=0)
    levels = [h.details["level"] for h in result.history[:-1]]
    assert [levels.count(k) for k in (3, 2, 1, 0)] == [10, 10, 10, 10]


def test_relaxed_step_of_irls_is_levenberg_marquardt():
    problem, A, b = linear_problem(2, kernel=asker.Quadratic())
    result = asker.solve(problem, asker.IRLS(damping=0.5), max_iterations=1)
    x0 = problem.variables[0].rows[0]
    J, r = A.reshape(-1, 4), (A @ x0 - b).reshape(-1)
    np.testing.assert_allclose(result.x, x0 - np.linalg.solve(J.T @ J + 0.5 * np.eye(4), J.T @ r), rtol=1e-12)
