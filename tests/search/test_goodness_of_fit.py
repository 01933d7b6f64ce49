"""The proof that all residuals are noise of one scale."""

import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.engines.cpu.engine import CpuEngine
from asker.search.goodness_of_fit import ROUGHLY, SHOWN, SINGLY, can_be_proved, hidden_ratio, one_noise
from asker.statistics.scale import Noise, estimate
from asker.strategies.irls import IRLS


def descended(engine, point, n=20):
    state = IRLS().init(engine, point, n)
    for _ in range(n):
        state = IRLS().step(engine, state)
    return state.point


def fitted(problem, n=20):
    """‖r‖² after a plain descent."""
    engine = CpuEngine(problem)
    return engine.in_user_order(descended(engine, engine.start(), n).u)


def scene_of(outliers, noise=1.0, n=8000, **how):
    return bundle.make_scene(10, n, noise=noise, outlier_ratio=outliers, start_error=5.0, seed=95_010, **how)


def problem_of(scene):
    return bundle.bundle_problem(scene.start, asker.Quadratic(1.0)).problem


@pytest.mark.parametrize("noise", [0.2, 1.5])
@pytest.mark.parametrize("mean_track", [3.5, 6.0])
def test_least_squares_of_noise_alone_is_proved(noise, mean_track):
    problem = problem_of(scene_of(0.0, noise, mean_track=mean_track))
    (found,) = one_noise(problem, fitted(problem), [None])
    assert found.sigma == pytest.approx(noise, rel=0.03)
    assert found.inlier_ratio == 1.0


@pytest.mark.parametrize("outliers", [0.02, 0.1, 0.3, 0.6])
def test_least_squares_among_outliers_is_not(outliers):
    """Also where the noise, as it is estimated, is that of everything."""
    problem = problem_of(scene_of(outliers))
    assert one_noise(problem, fitted(problem), [None]) is None


@pytest.mark.parametrize("law", ["laplace", "student"])
def test_noise_with_tails_is_not(law):
    problem = problem_of(scene_of(0.0, noise_law=law))
    assert one_noise(problem, fitted(problem), [None]) is None


def test_a_point_far_from_the_minimum_is_not():
    problem = problem_of(scene_of(0.0))
    assert one_noise(problem, fitted(problem, 0), [None]) is None


def test_few_variables_prove_nothing():
    problem = problem_of(scene_of(0.0, n=3000))
    assert not can_be_proved(problem, shown=SHOWN)
    assert one_noise(problem, fitted(problem), [None]) is None


def inliers_at(problem, noise, outliers, kernel):
    """Rows, ‖r‖², inliers and noise of a fit that ends under a kernel of a noise, from a wide one."""
    engine = CpuEngine(problem.under([asker.Cauchy(10 * noise)]))
    point = descended(engine.under([kernel]), descended(engine, engine.start()))
    u = engine.in_user_order(point.u)
    return engine.rows(point), u, [x <= 9 * 2 * noise**2 for x in u], [Noise(noise, 1 - outliers, 1e4)]


@pytest.mark.parametrize("outliers", [0.0, 0.03, 0.1, 0.2])
@pytest.mark.parametrize("kind", ["ring", "path"])
def test_inliers_of_the_right_solution_are_proved(kind, outliers):
    scene = bundle.make_scene(20, 16_000, noise=1.0, outlier_ratio=outliers, start_error=5.0, seed=660_000, kind=kind)
    problem = problem_of(scene)
    seen = inliers_at(problem, 1.0, outliers, asker.SmoothTruncated(5.0))
    assert hidden_ratio(problem, *seen, [None]) == SINGLY


@pytest.mark.parametrize("law", ["laplace", "student"])
def test_inliers_with_tails_are_not_proved(law):
    problem = problem_of(scene_of(0.0, noise_law=law, n=16_000))
    assert hidden_ratio(problem, *inliers_at(problem, 1.0, 0.0, asker.SmoothTruncated(5.0)), [None]) == 1


@pytest.mark.parametrize("seed", range(660_010, 660_013))
@pytest.mark.parametrize("outlier_kind", ["gross", "near"])
@pytest.mark.parametrize("kind", ["ring", "path"])
def test_outliers_that_pass_for_noise_in_sums_do_not_one_by_one(kind, outlier_kind, seed):
    """Least squares spreads a majority of outliers evenly over all variables."""
    how = {"outlier_kind": outlier_kind, "kind": kind, "start_error": 5.0}
    problem = problem_of(bundle.make_scene(20, 10_000, noise=1.0, outlier_ratio=0.7, seed=seed, **how))
    engine = CpuEngine(problem)
    point = descended(engine, engine.start())
    u = engine.in_user_order(point.u)
    (noise,) = estimate(problem.factors, u)
    assert noise.inlier_ratio > 0.99
    inliers = [x <= 18 * noise.sigma**2 for x in u]
    assert hidden_ratio(problem, engine.rows(point), u, inliers, [noise], [None]) == 1


@pytest.mark.parametrize("mean_track", [3.0, 6.0])
@pytest.mark.parametrize("n", [1200, 2500])
def test_few_variables_prove_roughly_where_all_fit(n, mean_track):
    """Of single observations fewer are left, and more may be hidden."""
    problem = problem_of(scene_of(0.0, n=n, mean_track=mean_track))
    seen = inliers_at(problem, 1.0, 0.0, asker.SmoothTruncated(5.0))
    assert hidden_ratio(problem, *seen, [None]) == 1
    assert SINGLY < hidden_ratio(problem, *seen, [None], ROUGHLY) < ROUGHLY


def repeated(noises, n=3000, track=8, seed=95_014):
    """n numbers measured so often, each with a noise of its own; at their means."""
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(n), track)
    y = (np.resize(noises, n)[index] * rng.normal(size=n * track))[:, None]
    means = np.bincount(index, y[:, 0]) / track
    x = asker.Variables(means[:, None], name="x")
    problem = asker.Problem(asker.Factors(lambda x, y: x - y, x[index], data=y, kernel=asker.Quadratic()))
    u = [(means[index] - y[:, 0]) ** 2]
    return problem, [x.rows], u, [np.ones(len(index), bool)], [Noise(1.0, 1.0, 1e4)]


def test_what_is_no_noise_is_seen_in_sums_or_one_by_one(monkeypatch):
    """Sums see noises that differ from variable to variable, single ones a law that is not Gaussian."""
    assert hidden_ratio(*repeated([1.0]), [None]) == SINGLY
    unlike = repeated([0.85, 1.15])
    assert hidden_ratio(*unlike, [None]) == 1
    problem, rows, u, inliers, noises = repeated([1.0])
    of = np.repeat(np.arange(3000), 8)
    parts = np.random.default_rng(7).permuted(np.tile([0, 0, 0, 0, 1, 2, 3, 8], (3000, 1)), axis=1).ravel() / 14
    same_sums = parts * np.bincount(of, u[0])[of]
    changed = asker.Problem(problem.factors[0].with_data(rows[0][of] - np.sqrt(same_sums)[:, None]))
    assert hidden_ratio(changed, rows, [same_sums], inliers, noises, [None]) == 1
    monkeypatch.setattr(
        "asker.search.goodness_of_fit.studentised", lambda *of: [np.random.default_rng(1).chisquare(1, 9000)]
    )
    assert hidden_ratio(*unlike, [None]) == 1
    assert hidden_ratio(changed, rows, [same_sums], inliers, noises, [None]) == SINGLY  # its sums are those of noise


@pytest.mark.parametrize("touches", [True, False])
def test_groups_beside_it_do_not_keep_a_group_from_its_proof(touches):
    """One of a user's kernel, on the same variables or on others."""
    problem, rows, u, inliers, noises = repeated([1.0])
    x, other = problem.variables[0], asker.Variables(np.zeros((3, 1)), name="other")
    slot = x[np.arange(40)] if touches else other[np.arange(40) % 3]
    given = asker.Factors(lambda a, y: a - y, slot, data=np.zeros((40, 1)), kernel=asker.Cauchy(1.0))
    both = asker.Problem(*problem.factors, given)
    rows = [*rows, *([] if touches else [other.rows])]
    seen = [*u, np.zeros(40)], [*inliers, np.ones(40, bool)], [*noises, Noise(1.0, 1.0, 40)]
    assert hidden_ratio(both, rows, *seen, [None, asker.Cauchy(1.0)]) == SINGLY


def test_variables_that_are_only_just_determined_prove_nothing():
    """A group with one measurement each, under the user's kernel, beside one whose noise is sought."""
    rng = np.random.default_rng(8)
    x, y = asker.Variables(np.zeros((3000, 1)), name="x"), asker.Variables(np.zeros((3, 1)), name="y")
    given = asker.Factors(lambda x, m: x - m, x[np.arange(3000)], data=rng.normal(size=(3000, 1)), kernel=asker.Huber())
    sought = asker.Factors(lambda y, m: y - m, y[np.arange(90) % 3], data=rng.normal(size=(90, 1)))
    result = asker.solve(asker.Problem(given, sought))
    assert result.noise[1].sigma == pytest.approx(1.0, rel=0.3)


def test_variables_that_hang_on_few_inliers_prove_nothing():
    """Here most points have no inlier to spare; the way that follows the noise would end 1.7 times as far off."""
    how = {"kind": "path", "mean_track": 3.5, "noise": 3.0, "outlier_ratio": 0.4, "start_error": 24.0}
    scene = bundle.make_scene(20, 3150, seed=20_143, **how)
    result = asker.solve(bundle.bundle_problem(scene.start, None).problem)
    assert "from the start" in {line.details["stage"] for line in result.history}


@pytest.mark.parametrize("seed", range(4))
def test_near_outliers_of_small_scenes_are_still_looked_for(seed):
    """A proof by a few hundred points does not see them: the sets of inliers do."""
    how = {"outlier_kind": "near", "outlier_ratio": 0.6, "noise": 0.5, "start_error": 24.0}
    scene = bundle.make_scene(12, 1800, seed=seed, **how)
    (noise,) = asker.solve(bundle.bundle_problem(scene.start, None).problem).noise
    assert noise.sigma < 1.0
    assert noise.inlier_ratio < 0.7


@pytest.mark.parametrize(("n_cameras", "n"), [(8, 900), (12, 3000), (20, 5000)])
def test_small_scenes_that_all_fit_end_the_search_at_once(n_cameras, n):
    scene = bundle.make_scene(n_cameras, n, noise=0.5, outlier_ratio=0.0, start_error=24.0, seed=95_013)
    result = asker.solve(bundle.bundle_problem(scene.start, None).problem)
    assert {line.details["stage"] for line in result.history} <= {"start", "following", "end", "weighed"}
    assert result.noise[0].sigma == pytest.approx(0.5, rel=0.1)


def two_groups(touches):
    """3000 numbers measured six times each, without outliers, and 60 measurements of others, or of some of them, a
    third of which are outliers."""
    rng = np.random.default_rng(95_012)
    x, y = asker.Variables(np.zeros((3000, 1)), name="x"), asker.Variables(np.zeros((3, 1)), name="y")
    many, few = np.repeat(np.arange(3000), 6), np.arange(60)
    far = np.where(rng.random((60, 1)) < 1 / 3, 50.0, 0.1) * rng.normal(size=(60, 1))
    first = asker.Factors(lambda x, m: x - m, x[many], data=rng.normal(size=(18_000, 1)))
    slot = x[few] if touches else y[few % 3]
    return asker.Problem(first, asker.Factors(lambda x, m: x - m, slot, data=far))


@pytest.mark.parametrize("touches", [True, False])
def test_every_group_must_prove_it(touches):
    problem = two_groups(touches)
    u = fitted(problem.under([asker.Quadratic(1.0), asker.Quadratic(1.0)]))
    assert one_noise(problem, u, [None, None]) is None
    alone = one_noise(problem, u, [None, asker.Cauchy(1.0)])
    assert (alone is None) is touches  # outliers that pull at the same variables are seen there, too


def test_outliers_of_a_small_group_are_seen_beside_a_large_one_without_any():
    result = asker.solve(two_groups(False))
    assert result.noise[1].sigma == pytest.approx(0.1, rel=0.5)
    assert result.noise[1].inlier_ratio < 0.8


def test_exact_data_have_no_noise():
    problem = problem_of(scene_of(0.0))
    assert one_noise(problem, [np.zeros(f.n) for f in problem.factors], [None]) is None


@pytest.mark.parametrize("kind", ["ring", "path"])
def test_where_the_start_is_as_good_as_the_noise_no_graduated_descent_is_tried(kind):
    scene = bundle.make_scene(20, 8000, noise=1.5, outlier_ratio=0.0, start_error=5.0, seed=95_011, kind=kind)
    result = asker.solve(bundle.bundle_problem(scene.start, None).problem)
    assert {line.details["stage"] for line in result.history} <= {
        "start",
        "following",
        "from the start",
        "least squares",
        "end",
        "weighed",
    }
    assert result.noise[0].sigma == pytest.approx(1.5, rel=0.03)


@pytest.mark.parametrize(("kind", "seed"), [("path", 300_000), ("path", 300_007), ("ring", 300_007)])
def test_points_that_meet_two_observations_too_well_are_not_taken_for_the_noise(kind, seed):
    """Clean, with a start as good as the noise: a tenth of the observations can be fitted with a fifth of the noise."""
    scene = bundle.make_scene(20, 2500, noise=1.5, outlier_ratio=0.0, start_error=5.0, seed=seed, kind=kind)
    (noise,) = asker.solve(bundle.bundle_problem(scene.start, None).problem).noise
    assert noise.inlier_ratio > 0.99
    assert noise.sigma == pytest.approx(1.5, rel=0.1)


def test_outliers_that_a_descent_has_spread_evenly_end_no_search():
    """Here the residuals after the first descent pass for noise of 73 px; the estimate finds 1.4 px in three tenths."""
    how = {"kind": "path", "noise": 1.5, "start_error": 24.0, "outlier_ratio": 0.7}
    scene = bundle.make_scene(20, 6000, seed=66_000, outlier_kind="gross", **how)
    result = asker.solve(bundle.bundle_problem(scene.start, None).problem)
    assert result.noise[0].sigma < 3.0
