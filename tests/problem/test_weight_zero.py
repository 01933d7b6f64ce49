"""Observations of weight 0 have no influence: all statistics of a result are those of a problem without them."""

from dataclasses import astuple

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.solver.holdout import held_out_masks
from asker.uncertainty.covariance import Uncertainty
from asker.uncertainty.weak_variables import group_supports

KERNELS = (None, asker.Huber(0.1), asker.SmoothTruncated(0.3), asker.Cauchy(0.1), asker.GemanMcClure(0.2))
ENGINES = ("cpu", "xla")
PER_OBSERVATION = ("residuals", "weights", "inliers")


def off_line(p, x, y):
    return p[0] * x + p[1] - y


def lines(weight, chosen, kernel, n=240):
    """Return two line fits to points, a quarter of which are outliers, and a prior for their difference."""
    rng = np.random.default_rng(3)
    x, k = rng.uniform(-5, 5, n), np.arange(n) % 2
    y = np.where(k, -0.3 * x + 2, 0.8 * x - 1) + rng.normal(0, 0.05, n)
    y[: n // 4] = rng.uniform(-8, 8, n // 4)
    p = asker.Variables(np.zeros((2, 2)), name="p")
    data, weight = (x[chosen], y[chosen]), weight[chosen]
    points = asker.Factors(off_line, p[k[chosen]], data=data, weight=weight, kernel=kernel, name="points")
    prior = asker.Factors(
        lambda a, b: a - b - jnp.array([1.1, -3.0]), p[[0]], p[[1]], kernel=asker.Quadratic(1.0), name="prior"
    )
    return asker.Problem(points, prior), p


def weights_of(n=240):
    """Return weights, a fifth of which are 0, independent of inliers and outliers."""
    rng = np.random.default_rng(5)
    return rng.choice([0.5, 1.0, 2.0, 0.0], n, p=[0.3, 0.4, 0.1, 0.2])


@pytest.fixture(scope="module", params=[(e, k) for e in ENGINES for k in KERNELS], ids=str)
def solved(request):
    engine, kernel = request.param
    weight = weights_of()
    everything, chosen = np.arange(len(weight)), np.flatnonzero(weight)
    results = [asker.solve(lines(weight, some, kernel)[0], engine=engine) for some in (everything, chosen)]
    return *results, chosen


def test_values_and_history_are_those_without_it(solved):
    result, without, _ = solved
    assert np.array_equal(result["p"], without["p"])
    assert (result.cost, result.initial_cost, result.status) == (without.cost, without.initial_cost, without.status)
    for a, b in zip(result.history, without.history, strict=True):
        assert (a.cost, a.best_cost, a.damping, a.accepted) == (b.cost, b.best_cost, b.damping, b.accepted)


def test_noise_inlier_ratios_and_doubts_are_those_without_it(solved):
    result, without, _ = solved
    np.testing.assert_equal(*([astuple(noise) for noise in r.noise] for r in (result, without)))
    assert result.inlier_ratio == without.inlier_ratio
    assert result.doubts == without.doubts
    rows = [line for line in str(result).splitlines() if line.startswith("inliers")]
    assert rows == [line for line in str(without).splitlines() if line.startswith("inliers")]


def test_uncertainties_are_those_without_it(solved):
    result, without, chosen = solved
    for options in ({}, {"sandwich": True}, {"sigma": 0.05}):
        ours, theirs = Uncertainty(result, **options), Uncertainty(without, **options)
        assert np.array_equal(ours.covariance("p").blocks, theirs.covariance("p").blocks)
        assert np.array_equal(ours.interval("p"), theirs.interval("p"))
        assert np.array_equal(ours.chance("p"), theirs.chance("p"))
        assert str(ours) == str(theirs)
    ours, theirs = result.leverage["points"], without.leverage["points"]
    assert np.array_equal(ours.used[chosen], theirs.used)
    assert np.array_equal(ours.studentised[chosen], theirs.studentised)
    excluded = np.setdiff1d(np.arange(len(ours.used)), chosen)
    assert not ours.used[excluded].any()
    assert np.isnan(ours.studentised[excluded]).all()
    for support, other in zip(group_supports(result).values(), group_supports(without).values(), strict=True):
        assert np.array_equal(support.n_inliers, other.n_inliers)
        assert np.array_equal(support.uncertainty, other.uncertainty)


def test_arrays_have_a_row_for_each_observation_of_the_user(solved):
    result, without, chosen = solved
    for what in PER_OBSERVATION:
        assert np.array_equal(getattr(result, what)["points"][chosen], getattr(without, what)["points"])
    f = result.problem.factors[0]
    excluded = np.flatnonzero(f.weight == 0)
    x, y = f.data
    a, b = result["p"][f.slots[0].index].T
    assert result.residuals["points"][:, 0] == pytest.approx(a * x + b - y, abs=1e-12)
    assert not result.weights["points"][excluded].any()
    assert not result.inliers["points"][excluded].any()
    assert np.array_equal(result.informative["points"], f.weight > 0)
    assert result.informative["prior"].all()


def test_the_problem_of_a_result_can_be_solved_again(solved):
    result, without, _ = solved
    assert result.problem.factors[0].n == 240
    assert result.residuals[result.problem.factors[0]] is result.residuals[0]
    again, other = (asker.solve(r.problem, asker.IRLS(), start=r) for r in (result, without))
    assert again.cost == other.cost
    assert np.array_equal(again["p"], other["p"])


def test_a_saved_result_keeps_the_masks_of_informative_observations(tmp_path, solved):
    result, without, _ = solved
    result.save(tmp_path / "r.npz")
    loaded = asker.Result.load(tmp_path / "r.npz")
    assert loaded.inlier_ratio == without.inlier_ratio
    assert all(map(np.array_equal, loaded.informative, result.informative))


@pytest.mark.parametrize("engine", ENGINES)
def test_iterations_have_residuals_and_weights_of_all_observations(engine):
    weight = weights_of()
    problem, _ = lines(weight, np.arange(len(weight)), asker.Huber(0.1))
    arrays = []
    result = asker.solve(
        problem, engine=engine, on_iteration=lambda line: arrays.append((line.residuals[0], line.weights[0]))
    )
    assert {(r.shape, w.shape) for r, w in arrays} == {((240, 1), (240,))}
    assert all(not w[weight == 0].any() and w[weight > 0].all() for _, w in arrays)
    assert arrays[-1][0] == pytest.approx(result.residuals[0], abs=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_variable_without_other_observations_does_not_change(engine):
    x = asker.Variables([0.0, 5.0, 7.0], name="x")
    y = asker.Variables([1.0], name="y")
    data, weight = np.array([1.0, 1.2, 3.0, 9.0]), [1.0, 2.0, 0.0, 0.0]
    f = asker.Factors(lambda x, d: x - d, x[[0, 0, 1, 2]], data=data, weight=weight, kernel=asker.Quadratic())
    g = asker.Factors(lambda a, b, d: a - b - d, x[[0, 2]], y[[0, 0]], data=np.ones(2), weight=[0.0, 0.0], name="ties")
    result = asker.solve(asker.Problem(f, g), engine=engine)
    assert result["x"] == pytest.approx([3.4 / 3, 5.0, 7.0])
    assert result["y"] == 1.0
    assert result.residuals["ties"][:, 0] == pytest.approx([3.4 / 3 - 2, 5.0])
    assert "ties none" in str(result)
    assert "x[1]" in result.doubts[0]
    assert np.isfinite(result.standard_errors("x", sigma=1.0)).ravel().tolist() == [True, False, False]


def test_batched_functions():
    """A residual with a `jacobian` only receives observations of positive weight."""
    x, index, data = asker.Variables(np.zeros(2), name="x"), np.arange(40) % 2, np.arange(40.0)
    weight = np.where(np.arange(40) < 10, 0.0, 1.0)
    result = asker.solve(
        asker.Problem(
            asker.Factors(
                lambda x, d: (x - d)[:, None],
                x[index],
                data=data,
                weight=weight,
                kernel=asker.Quadratic(),
                jacobian=lambda x, d: np.ones((len(d), 1, 1)),
            )
        )
    )
    assert result["x"] == pytest.approx([24.0, 25.0])
    assert result.residuals[0][:2, 0] == pytest.approx([24.0, 24.0])


@pytest.mark.parametrize("loss", [None, asker.Huber(0.1), asker.Quadratic()], ids=str)
def test_least_squares_excludes_them(loss):
    rng = np.random.default_rng(0)
    t, w = np.linspace(0, 4, 60), np.where(np.arange(60) % 4 == 1, 0.0, 1.0 + np.arange(60) % 3)
    y = 2.5 * np.exp(-1.3 * t) + rng.normal(0, 0.05, 60) / np.sqrt(np.maximum(w, 1.0))

    def fit(some):
        return asker.least_squares(
            lambda p: p[0] * jnp.exp(-p[1] * t[some]) - y[some], [1.0, 1.0], loss=loss, weight=w[some]
        )

    fit, without = fit(np.arange(60)), fit(np.flatnonzero(w))
    for value in (lambda r: r.x, lambda r: r.covariance, lambda r: r.result.interval("x"), lambda r: r.cost):
        assert value(fit) == pytest.approx(value(without), rel=1e-6)
    assert fit.result.noise[0].sigma == pytest.approx(without.result.noise[0].sigma, rel=1e-6)
    np.testing.assert_allclose(fit.grad, without.grad, atol=1e-9)
    assert np.sqrt(np.diag(fit.covariance)) == pytest.approx(fit.result.standard_errors("x")[0], rel=0.1)


def test_weights_of_least_squares_need_a_kernel():
    with pytest.raises(asker.ProblemError, match="weight is for a kernel"):
        asker.least_squares(lambda x: x - 1.0, [0.0, 0.0], weight=[1.0, 2.0])


def test_their_residuals_need_not_be_finite():
    x = asker.Variables([1.0], name="x")

    def solve(weight):
        f = asker.Factors(lambda x, d: x / d, x[[0, 0, 0]], data=[2.0, 0.0, 1.0], weight=weight, kernel=asker.Huber())
        return asker.solve(asker.Problem(f))

    assert solve([1.0, 0.0, 1.0])["x"] == pytest.approx(0.0)
    with pytest.raises(asker.ProblemError, match="residual of observation 1 is not finite"):
        solve([0.0, 1.0, 1.0])
    with pytest.raises(asker.ProblemError, match="every observation has weight 0"):
        solve([0.0, 0.0, 0.0])


def test_they_are_not_held_out():
    weight = weights_of()
    everything, chosen = np.arange(len(weight)), np.flatnonzero(weight)
    (whole, _), (without, _) = (lines(weight, some, asker.Huber(0.1)) for some in (everything, chosen))
    for seed in range(5):
        ours, theirs = (held_out_masks(p, 0.2, seed) for p in (whole, without))
        assert np.array_equal(ours[0][chosen], theirs[0])
        assert not ours[0][weight == 0].any()
    training, judge = asker.holdout(whole, 0.2)
    assert asker.holdout(without, 0.2).judge.start.score == judge.start.score
    assert training.factors[0].n == 240 - held_out_masks(whole, 0.2)[0].sum()
