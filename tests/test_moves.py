"""Moves, minimal subsets and the trials that both are made of."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.engines.cpu.engine import CpuEngine
from asker.engines.xla.engine import XlaEngine
from asker.kernels import Cauchy, Quadratic
from asker.likelihood import mean_squares
from asker.moves import Moves, colours
from asker.strategies.strategy import cost
from asker.subsets import Subsets, gains_of
from asker.trials import Pairs, Trials, drawn
from test_unknown import circle_problem

ENGINES = pytest.mark.parametrize("engine", [CpuEngine, XlaEngine])


def test_subsets_are_distinct_and_even():
    rng = np.random.default_rng(0)
    found = drawn(rng, np.full(20_000, 5), 3)
    assert (np.diff(np.sort(found, axis=1)) > 0).all()
    assert np.bincount(found.ravel()) / 60_000 == pytest.approx(0.2, abs=0.01)
    assert (np.sort(drawn(rng, np.array([3, 3]), 3), axis=1) == [0, 1, 2]).all()


@ENGINES
def test_each_trial_is_a_problem_of_its_own(engine):
    """Three circles through three points each, from one start."""
    made = engine(circle_problem(0.0, 0.0, 0, start=(28.0, 19.0, 9.0)), "auto", True, True)
    circle = made.problem.variables[0]
    rows = made.rows(made.start())
    trial, seen = np.repeat(np.arange(3), 3), np.array([169, 118, 69, 131, 168, 185, 141, 71, 51])
    trials = Trials(made, rows, 3, alone=False)
    copies, pairs = {circle: np.tile(rows[0], (3, 1))}, [Pairs(0, None, trial, seen)]
    found, costs = trials.fitted(copies, pairs, [Quadratic(1.0)], 20)
    np.testing.assert_allclose(found[circle], np.tile([30.0, 20.0, 10.0], (3, 1)), atol=1e-5)
    assert costs == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("outliers", [0.2, 0.4])
def test_a_circle_from_far_is_found_in_subsets(outliers):
    made = CpuEngine(circle_problem(0.1, outliers, 2, start=(0.0, 0.0, 1.0)), "auto", True, True)
    start = made.start()
    (rows,) = Subsets(made, start, [False]).best(1, mean_squares(made, start), 0.0)
    np.testing.assert_allclose(rows[0], [[30, 20, 10]], atol=0.2)


def test_the_gain_counts_what_agrees():
    u = np.concatenate([np.full(40, 0.01), np.full(60, 100.0)])[None]
    gain, count = gains_of(u, 1, 3, 100.0)
    assert count[0] == 40
    assert gain[0] > 90
    none, _ = gains_of(np.full((1, 100), 100.0), 1, 3, 100.0)
    assert none[0] < 1


def test_moves_bring_points_back():
    """Points far off their place, some of their observations wrong: each returns, and the cost never rises."""
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
