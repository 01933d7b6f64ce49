"""Weights where outliers are near."""

import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.engines.cpu.linearized_problem import LinearModel
from asker.search.variational_em import NearOutliers
from asker.statistics.scale import Noise


def test_what_moves_the_observations_of_a_variable_adds_up_to_its_unknowns():
    scene = bundle.make_scene(6, 300, start_error=5.0)
    problem = bundle.bundle_problem(scene.truth, asker.Quadratic()).problem
    a = np.random.default_rng(0).uniform(0.1, 2.0, 300)
    (more,) = LinearModel(problem, tuple(v.rows for v in problem.variables)).predicted_alone([a])
    assert a @ more == pytest.approx(6 * len(scene.truth.cameras) + 3 * len(scene.truth.points))


def near_outliers(y: np.ndarray, noise: Noise) -> NearOutliers:
    """Of numbers around an unknown middle."""
    middle = asker.Variables(np.zeros((1, 2)))
    problem = asker.Problem(asker.Factors(lambda x, y: x - y, middle[np.zeros(len(y), int)], data=y))
    u = [(y**2).sum(axis=1)]
    near = NearOutliers(problem, u, [noise], [(y**2).mean()])
    while near.stand_out and not near.is_at_rest:
        near.step((middle.rows,), u)
    return near


def test_both_scales_and_the_share_of_inliers_are_found():
    rng = np.random.default_rng(1)
    scale = np.where(rng.random(20_000) < 0.6, 0.5, 2.5)
    near = near_outliers(scale[:, None] * rng.normal(size=(20_000, 2)), Noise(0.4, 0.5, 10_000))
    assert near.stand_out
    assert near.noises[0].sigma == pytest.approx(0.5, rel=0.02)
    assert near.noises[0].inlier_ratio == pytest.approx(0.6, rel=0.02)
    w = near.weights[0]
    assert w[scale > 1].min() == pytest.approx(0.5**2 / 2.5**2, rel=0.1)
    assert w.max() < 1


def test_one_noise_has_no_outliers_that_stand_out():
    y = np.random.default_rng(2).normal(size=(5000, 2))
    assert not near_outliers(y, Noise(0.5, 0.5, 2000)).stand_out


def test_near_outliers_of_a_scene_pull_less_than_under_a_heavy_tailed_kernel():
    """One that is told the noise, and begins at the truth."""
    off = np.zeros((4, 2))
    for seed in range(len(off)):
        scene = bundle.make_scene(12, 3600, noise=1.5, outlier_ratio=0.3, outlier_kind="near", seed=seed)
        given = bundle.bundle_problem(scene.start, None), None
        told = bundle.bundle_problem(scene.truth, asker.Cauchy(2.5 * 1.5)), asker.IRLS()
        for k, (made, strategy) in enumerate((given, told)):
            result = asker.solve(made.problem, strategy)
            off[seed, k] = bundle.errors(made.refined(result.values), scene.truth).cameras
            if k == 0:
                noise = result.noise["reprojection"]
                assert noise.sigma == pytest.approx(1.5, rel=0.15)
                assert noise.inlier_ratio == pytest.approx(0.7, abs=0.1)
    assert np.log(off[:, 0]).mean() < np.log(off[:, 1]).mean()
