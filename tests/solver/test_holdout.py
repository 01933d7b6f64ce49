"""Hold-out validation: the draw of observations, independence of held-out values, and the score."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.applications import applications, bundle
from asker.applications.bundle.problem import bundle_problem
from asker.geometry.spanning import connected_parts
from asker.solver.holdout import Prediction, held_out_masks

SHARES = (0.05, 0.3, 0.9)


def scene(seed=0, **more):
    return bundle.make_scene(8, 500, noise=0.5, outlier_ratio=0.2, start_error=4.0, seed=seed, **more)


def problem_of(start, kernel=None):
    return bundle_problem(start, kernel or asker.Cauchy(1.0)).problem


def line(x, y):
    """Return a line fit y = a x + b with one variable."""

    def residual(ab, x, y):
        return ab[0] * x + ab[1] - y

    ab = asker.Variables(np.zeros((1, 2)), name="line")
    return asker.Problem(asker.Factors(residual, ab[np.zeros(len(x), int)], data=(x, y), kernel=asker.Cauchy(0.1)))


def chain(n, extra=(), fixed=(), weight=None):
    """Return numbers with measured differences of neighbours and of extra pairs."""
    pairs = np.array([*((k, k + 1) for k in range(n - 1)), *extra])

    def difference(a, b, d):
        return b - a - d

    x = asker.Variables(np.zeros(n), fixed=np.isin(np.arange(n), fixed), name="numbers")
    slots = x[pairs[:, 0]], x[pairs[:, 1]]
    return asker.Problem(asker.Factors(difference, *slots, data=np.ones(len(pairs)), weight=weight)), pairs


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", range(3))
def test_every_variable_stays_determined(share, seed):
    start = scene(seed).start
    problem = problem_of(start)
    (mask,) = held_out_masks(problem, share, seed)
    assert 0 < mask.sum() <= round(share * len(mask))
    if share < 0.1:
        assert mask.sum() == round(share * len(mask))
    for index, n, least in (
        (start.point_index, start.n_points, 2),
        (start.camera_index, start.n_cameras, 3),
    ):
        whole, left = np.bincount(index, minlength=n), np.bincount(index[~mask], minlength=n)
        assert np.all(left >= np.minimum(whole, least))
    parts = [
        connected_parts(
            start.camera_index[of], start.n_cameras + start.point_index[of], start.n_cameras + start.n_points
        )
        for of in (slice(None), ~mask)
    ]
    assert parts[0][0] == parts[1][0]


@pytest.mark.parametrize("dof", [6, 9])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_few_points_in_many_images_stay_determined(dof, share):
    """Ten points in ten cameras: the redundancy of the whole is less than that of all variables."""
    rng = np.random.default_rng(0)
    camera, point = (x.ravel().astype(np.int32) for x in np.meshgrid(range(10), range(10)))
    cameras = np.tile([0.0, 0, 0, 0, 0, -10, 800, 0, 0], (10, 1)) + 0.1 * rng.normal(size=(10, 9))
    made = bundle_problem(bundle.Bundle(cameras, rng.normal(size=(10, 3)), camera, point, np.zeros((100, 2))), dof=dof)
    (mask,) = held_out_masks(made.problem, share)
    left = np.bincount(camera[~mask], minlength=10)
    assert 2 * left.min() >= dof
    needed = 10 * dof + 30 - 7  # the gauge has 7 degrees of freedom
    assert needed <= 2 * left.sum()
    if share > 0.5:
        assert 2 * left.sum() <= needed + 8


def test_the_only_prior_is_kept():
    def difference(a, b, d):
        return b - a - d

    def prior(a, d):
        return a - d

    x = asker.Variables(np.zeros(4), name="numbers")
    i, j = np.array([0, 1, 2, 0, 1]), np.array([1, 2, 3, 3, 3])
    chain = asker.Factors(difference, x[i], x[j], data=np.ones(5))
    problem = asker.Problem(chain, asker.Factors(prior, x[np.array([0])], data=np.zeros(1)))
    for seed in range(20):
        of_chain, of_prior = held_out_masks(problem, 0.3, seed)
        assert of_chain.sum() == 2
        assert not of_prior.any()


def test_a_triangle_has_one_redundant_edge_for_every_seed():
    problem, _ = chain(3, extra=[(0, 2)])
    for seed in range(10):
        assert held_out_masks(problem, 0.4, seed)[0].sum() == 1


@pytest.mark.parametrize("seed", range(5))
def test_connected_variables_stay_connected(seed):
    problem, pairs = chain(12, extra=[(0, 5), (5, 11), (2, 9), (3, 4), (1, 10), (0, 11)])
    (mask,) = held_out_masks(problem, 0.9, seed)
    assert mask.sum() == 6  # a tree of 12 needs 11 of the 17
    assert connected_parts(*pairs[~mask].T, 12)[0] == 1


def test_connections_to_known_variables_are_kept():
    problem, _ = chain(3, extra=[(1, 2), (1, 2)], fixed=[0])
    for seed in range(10):
        (mask,) = held_out_masks(problem, 0.9, seed)
        assert not mask[0]
        assert mask.sum() == 2


def test_observations_of_weight_0_are_ignored():
    problem, _ = chain(2, extra=[(0, 1), (0, 1)], weight=np.array([0.0, 1.0, 1.0]))
    for seed in range(10):
        (mask,) = held_out_masks(problem, 0.9, seed)
        assert not mask[0]
        assert mask.sum() == 1


def test_the_draw_is_independent_of_values():
    start = scene().start
    (one,) = held_out_masks(problem_of(start), 0.2, 3)
    changed = bundle.Bundle(start.cameras, start.points + 1, start.camera_index, start.point_index, start.uv * 2)
    (other,) = held_out_masks(problem_of(changed), 0.2, 3)
    assert np.array_equal(one, other)
    assert not np.array_equal(one, held_out_masks(problem_of(start), 0.2, 4)[0])


def test_no_observation_is_in_both_sets():
    x = np.linspace(0, 1, 40)
    training, judge = asker.holdout(line(x, x), 0.25)
    used, unused = training.factors[0].data[0], judge.factors[0].data[0]
    assert sorted([*used, *unused]) == sorted(x)
    assert len(unused) == 10


def test_held_out_values_change_the_score_and_not_the_solution():
    start = scene().start
    (mask,) = held_out_masks(problem_of(start), 0.1)
    rng, uv = np.random.default_rng(0), start.uv.copy()
    uv[mask] = rng.permutation(uv[mask])
    outcomes = []
    for observed in (start.uv, uv):
        made = bundle.Bundle(start.cameras, start.points, start.camera_index, start.point_index, observed)
        training, judge = asker.holdout(problem_of(made), 0.1)
        result = asker.solve(training, max_iterations=20)
        outcomes.append((result.cost, result["points"], judge(result).score))
    assert outcomes[0][0] == outcomes[1][0]
    assert np.array_equal(outcomes[0][1], outcomes[1][1])
    assert outcomes[1][2] > 2 * outcomes[0][2]


def test_the_score_agrees_with_numpy():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 200)
    y = 2 * x + 1 + 0.1 * rng.normal(size=200)
    training, judge = asker.holdout(line(x, y), 0.2, unit=0.1)
    result = asker.solve(training)
    x, y = judge.factors[0].data
    r = np.abs(result.x[0] * x + result.x[1] - y) / 0.1
    prediction = judge(result)
    assert len(r) == 40
    np.testing.assert_allclose(prediction.norms, r)
    assert prediction.score == pytest.approx(np.minimum(r, 4).mean() / 4)
    assert (prediction.median, prediction.mean) == (pytest.approx(np.median(r)), pytest.approx(r.mean()))
    assert prediction.below(1) == pytest.approx(np.mean(r <= 1))
    assert prediction.as_dict()["below_2"] == prediction.below(2)
    assert judge.start.score > prediction.score
    assert "40 held out: score" in str(prediction)


def test_batched_residuals_are_scored():
    x = np.linspace(0, 1, 30)

    def residual(ab, x, y):
        return ab[:, 0] * x + ab[:, 1] - y

    def jacobian(ab, x, y):
        return np.stack([x, np.ones_like(x)], axis=1)[:, None]

    ab = asker.Variables(np.ones((1, 2)), name="line")
    factors = asker.Factors(residual, ab[np.zeros(30, int)], data=(x, 3 * x), jacobian=jacobian)
    training, judge = asker.holdout(asker.Problem(factors), 0.2)
    assert judge.start.median > 0.1
    assert judge(asker.solve(training)).norms == pytest.approx(np.zeros(6), abs=1e-6)


def test_only_candidates_are_held_out():
    def residual(x, y):
        return x - y

    x = asker.Variables(np.zeros(1))
    groups = [asker.Factors(residual, x[np.zeros(20, int)], data=np.ones(20), name=name) for name in "ab"]
    problem = asker.Problem(*groups)
    training, judge = asker.holdout(problem, 0.5, among=[np.zeros(20, bool), None])
    assert [f.n for f in training.factors] == [20, 10]
    assert [f.name for f in judge.factors] == ["b"]
    with pytest.raises(ValueError, match="1 masks for 2 factor groups"):
        held_out_masks(problem, 0.5, among=[None])
    with pytest.raises(ValueError, match=r"a: among is float64 \(3,\), expected a mask: bool \(20,\)"):
        held_out_masks(problem, 0.5, among=[np.zeros(3), None])


@pytest.mark.parametrize("share", [0, 1, -0.1, 2, float("nan"), "a", None])
def test_a_share_outside_of_0_to_1_is_rejected(share):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        asker.holdout(line(np.arange(9.0), np.arange(9.0)), share)


def test_a_problem_without_redundancy_is_rejected():
    with pytest.raises(asker.ProblemError, match="none of 2 observations can be held out: the variables need each"):
        asker.holdout(line(np.arange(2.0), np.arange(2.0)), 0.5)
    with pytest.raises(asker.ProblemError, match=r"a share of 0.1 of 4 observations is less than one"):
        asker.holdout(line(np.arange(4.0), np.arange(4.0)), 0.1)
    with pytest.raises(asker.ProblemError, match="none of 4 observations may be held out"):
        asker.holdout(line(np.arange(4.0), np.arange(4.0)), 0.5, among=[np.zeros(4, bool)])


@pytest.mark.parametrize("what", ["unit", "cap"])
def test_units_that_are_not_positive_are_rejected(what):
    with pytest.raises(ValueError, match=f"{what} must be positive"):
        asker.holdout(line(np.arange(9.0), np.arange(9.0)), 0.2, **{what: 0.0})


def test_observations_without_a_finite_residual_are_lost():
    prediction = Prediction(np.array([1.0, np.inf, 3.0, np.inf]))
    assert (prediction.n_lost, prediction.score, prediction.mean, prediction.median) == (2, 0.75, 2.0, np.inf)
    assert np.isnan(Prediction(np.array([np.inf])).mean)

    def residual(x, y):
        return jnp.log(x) - y

    x = asker.Variables(np.array([1.0]))
    _, judge = asker.holdout(asker.Problem(asker.Factors(residual, x[np.zeros(10, int)], data=np.zeros(10))), 0.2)
    values = asker.Groups([np.array([-1.0])], [x.name], [x])
    assert judge(values).n_lost == 2


def test_a_held_out_point_behind_its_camera_is_lost():
    start = scene().start
    (application,) = (one for one in applications() if one.name == "bundle")
    validation = application.hold_out(start, {"camera": "pixel"}, 0.1, 0)
    correct = validation.predicted(start)
    mirrored = bundle.Bundle(start.cameras, 1e3 * start.points, start.camera_index, start.point_index, start.uv)
    lost = validation.predicted(mirrored)
    assert correct.n_lost < lost.n_lost
    assert lost.score > correct.score


def test_an_argument_that_is_no_result_is_rejected():
    training, judge = asker.holdout(line(np.arange(9.0), np.arange(9.0)), 0.2)
    result = asker.solve(training)
    assert judge(result).score == judge(result.values).score
    with pytest.raises(TypeError, match=r"a judge takes the result of `asker.solve`, or its `values`, not ndarray"):
        judge(result["line"])
    with pytest.raises(ValueError, match="seed must be a whole number"):
        asker.holdout(line(np.arange(9.0), np.arange(9.0)), 0.2, -1)
