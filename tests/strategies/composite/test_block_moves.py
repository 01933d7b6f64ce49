"""Moves, and the batched trials that minimal subsets use, too."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.engines.cpu.engine import CpuEngine
from asker.engines.xla.engine import XlaEngine
from asker.kernels.kernels import Cauchy, Quadratic
from asker.strategies.composite.batched_subproblems import Pairs, Trials, drawn, lowest, subsets_of
from asker.strategies.composite.block_moves import Moves, colours
from asker.strategies.strategy import cost
from search_problems import circle_problem

ENGINES = pytest.mark.parametrize("engine", [CpuEngine, XlaEngine])


def test_subsets_are_distinct_and_even():
    rng = np.random.default_rng(0)
    found = drawn(rng, np.full(20_000, 5), 3)
    assert (np.diff(np.sort(found, axis=1)) > 0).all()
    assert np.bincount(found.ravel()) / 60_000 == pytest.approx(0.2, abs=0.01)
    assert (np.sort(drawn(rng, np.array([3, 3]), 3), axis=1) == [0, 1, 2]).all()


def test_few_subsets_are_all_taken_and_many_are_drawn():
    n = np.array([5, 3, 2, 4])
    of, found = subsets_of(np.random.default_rng(0), n, 2, most=6)
    assert np.bincount(of).tolist() == [6, 3, 1, 6]  # of 10, 3, 1 and 6
    assert (np.diff(of) >= 0).all()
    assert (found < n[of][:, None]).all()
    assert found[of == 1].tolist() == [[0, 1], [0, 2], [1, 2]]
    assert len(np.unique(found[of == 3], axis=0)) == 6


def test_the_lowest_cost_of_each():
    costs = np.array([3.0, 1.0, 1.0, np.nan, 2.0, np.nan])
    assert lowest(costs, np.array([0, 0, 0, 1, 1, 2])).tolist() == [1, 4, 5]


@ENGINES
def test_steps_at_full_length_go_where_depth_is_hardly_determined(engine):
    """One step solves a linear problem, although one direction has only a millionth of the curvature."""
    a, b = asker.Variables([[0.0, 0.0]], name="a"), asker.Variables([[0.0, 0.0]], name="b")

    def flat(x, other, y):
        return jnp.array([x[0] + x[1], x[0] + 1.01 * x[1]]) - y + 0 * other

    data = np.array([[3.0, 3.02]])
    made = engine(asker.Problem(asker.Factors(flat, a[[0]], b[[0]], data=data, kernel=Cauchy())), "auto", True, True)
    trials = Trials(made, made.rows(made.start()), 1, alone=True)
    pairs = [Pairs(0, 0, np.array([0]), np.array([0]))]
    found, costs = trials.stepped({a: np.zeros((1, 2))}, pairs, [Quadratic(1.0)], 2)
    np.testing.assert_allclose(found[a], [[1.0, 2.0]], atol=0.1)
    assert costs[0] < 1e-6


@ENGINES
def test_a_diverging_trial_keeps_its_values_and_does_not_affect_others(engine):
    x, y = asker.Variables([[0.04]], name="x"), asker.Variables([[0.0]], name="y")
    factors = asker.Factors(
        lambda x, y, z: jnp.sqrt(x) - z + 0 * y, x[[0, 0]], y[[0, 0]], data=np.array([[0.3], [-3.0]]), kernel=Cauchy()
    )
    made = engine(asker.Problem(factors), "auto", True, True)
    trials = Trials(made, made.rows(made.start()), 2, alone=True)
    pairs = [Pairs(0, 0, np.array([0, 1]), np.array([0, 1]))]
    found, costs = trials.stepped({x: np.full((2, 1), 0.04)}, pairs, [Quadratic(1.0)], 4)
    np.testing.assert_allclose(found[x][:, 0], [0.09, 0.04], atol=1e-5)  # √x would have to be negative
    assert np.isfinite(costs).all()


@ENGINES
def test_each_trial_is_a_problem_of_its_own(engine):
    """Three circles through three points each are fitted from the same start."""
    made = engine(circle_problem(0.0, 0.0, 0, start=(28.0, 19.0, 9.0)), "auto", True, True)
    circle = made.problem.variables[0]
    rows = made.rows(made.start())
    trial, seen = np.repeat(np.arange(3), 3), np.array([169, 118, 69, 131, 168, 185, 141, 71, 51])
    trials = Trials(made, rows, 3, alone=False)
    copies, pairs = {circle: np.tile(rows[0], (3, 1))}, [Pairs(0, None, trial, seen)]
    found, costs = trials.fitted(copies, pairs, [Quadratic(1.0)], 20)
    np.testing.assert_allclose(found[circle], np.tile([30.0, 20.0, 10.0], (3, 1)), atol=1e-5)
    assert costs == pytest.approx(0, abs=1e-9)


def test_moves_bring_points_back():
    """Points far from their true positions, with some outliers, return to them, and the cost does not increase."""
    scene = bundle.make_scene(8, 900, noise=0.3, outlier_ratio=0.1, start_error=1.0, seed=3)
    rng = np.random.default_rng(1)
    points = scene.truth.points.copy()
    lost = rng.choice(len(points), 15, replace=False)
    points[lost] += rng.normal(0, 0.3, (15, 3))
    shifted = replace(scene.start, cameras=scene.truth.cameras, points=points)
    made = bundle.bundle_problem(shifted, Cauchy(0.6))
    machine = CpuEngine(made.problem, "auto", True, True)
    start = machine.start()
    point, n = Moves(made.problem)(machine, start)
    assert n >= 10
    assert cost(machine, point) < cost(machine, start)
    found = dict(zip(made.problem.variables, machine.rows(point), strict=True))
    off = np.linalg.norm(next(x for v, x in found.items() if v.name == "points") - scene.truth.points, axis=1)
    before = np.linalg.norm(points - scene.truth.points, axis=1)
    assert np.count_nonzero(off[lost] < 0.2 * before[lost]) >= 10


def test_a_point_that_two_cameras_see_is_moved():
    """Four numbers and three unknowns are redundant, so the point may have a better value."""
    truth = bundle.make_scene(4, 400, noise=0.1, outlier_ratio=0.0, start_error=0.5, seed=2).truth
    kept = np.ones(truth.n_observations, dtype=bool)
    kept[np.flatnonzero(truth.point_index == 0)[2:]] = False
    shifted = truth.points.copy()
    shifted[0] += 0.1
    two = replace(
        truth, camera_index=truth.camera_index[kept], point_index=truth.point_index[kept], uv=truth.uv[kept],
        points=shifted,
    )  # fmt: skip
    problem = bundle.bundle_problem(two, Cauchy(1.0)).problem
    machine = CpuEngine(problem)
    _, n = Moves(problem, near=True)(machine, machine.start())
    assert n == 1


def test_a_round_counts_its_derivatives():
    """An iteration has two derivatives per observation with two variables."""
    scene = bundle.make_scene(6, 600, noise=0.3, outlier_ratio=0.3, start_error=2.0, seed=4)
    problem = bundle.bundle_problem(scene.start, Cauchy(0.6)).problem
    machine = CpuEngine(problem)
    few, many = Moves(problem, 2, near=True), Moves(problem, 6, near=True)
    assert [len(m.colours) for m in (few, Moves(problem))] == [1, 2]
    for moves in (few, many):
        moves(machine, machine.start())
        assert moves.iterations(machine) == moves.n_derivatives / (2 * problem.n_residuals)
    assert 0 < few.iterations(machine) < many.iterations(machine)


@pytest.mark.parametrize("method", [asker.ASKER(), asker.FirstDescent(asker.GNC())])
def test_rounds_of_moves_are_iterations_too(method):
    """The loop counts steps and the work of the rounds as iterations; a last round begins only if it fits."""
    scene = bundle.make_scene(8, 1500, noise=0.3, outlier_ratio=0.4, start_error=20.0, seed=5)
    problem = bundle.bundle_problem(scene.start, asker.SmoothTruncated(1.0)).problem
    engine, strategy = CpuEngine(problem), asker.WithMoves(method, pays=-1.0)
    state = strategy.init(engine, engine.start(), 60)
    rounds, n = [], 0
    while n + 1 + state.spent <= 60:
        before, state, n = state, strategy.step(engine, state), n + 1
        rounds += [state.spent - before.spent] * (state.spent > before.spent)
    assert len(rounds) >= 2
    assert n + state.spent <= 60 + max(rounds) - min(rounds)
    result = asker.solve(problem, strategy, max_iterations=60, tol=0)
    assert len(result.history) - 1 == n < 60
    assert result.status is asker.Status.MAX_ITERATIONS


def test_nothing_moves_without_outliers():
    scene = bundle.make_scene(6, 300, noise=0.0, outlier_ratio=0.0, start_error=0.5, seed=1)
    made = bundle.bundle_problem(scene.truth, Cauchy(1.0))
    engine = CpuEngine(made.problem)
    point = engine.start()
    assert Moves(made.problem)(engine, point) == (point, 0)


def test_no_two_of_a_colour_share_a_factor():
    rng = np.random.default_rng(0)
    i, j = rng.integers(30, size=(2, 80))
    places = asker.Variables(rng.normal(size=(30, 2)), fixed=np.arange(30) < 3)
    factors = asker.Factors(lambda a, b: a - b, places[i], places[j], kernel=Cauchy())
    sets = list(colours(asker.Problem(factors), places))
    assert sorted(np.concatenate(sets)) == list(range(3, 30))
    for members in sets:
        assert not np.any(np.isin(i, members) & np.isin(j, members) & (i != j))


@pytest.mark.parametrize("n_outliers", range(6))
def test_most_observations_leave_no_other_place(n_outliers):
    """Five observations, each of which determines the variable, admit another value only with enough outliers.

    With one outlier, a majority at any other value would contain inliers of the current one, and no move is tried; with
    three outliers, their value has the majority.
    """
    place = asker.Variables(np.zeros((2, 2)), name="place")
    seen = np.zeros((10, 2))
    seen[:n_outliers] = 9.0  # of the first one
    made = asker.Factors(lambda x, y: x - y, place[np.repeat([0, 1], 5)], data=seen, kernel=asker.Cauchy(0.1))
    problem = asker.Problem(made)
    engine, moves = CpuEngine(problem), Moves(problem)
    point, n = moves(engine, engine.start(), lambda point: [engine.in_user_order(point.u)[0] < 1])
    assert (n > 0) == (n_outliers > 1)
    assert (engine.rows(point)[0][0] > 8).all() == (n_outliers > 2)
