"""The inverse on a device equals that of the CPU, for every problem structure."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker import Problem
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.engines.cpu.linearized_problem import LinearModel
from asker.engines.xla import linearized_problem
from asker.engines.xla.linearized_problem import DeviceModel
from asker.uncertainty.weak_variables import group_supports
from linear_problems import (
    bundle,
    close,
    graph,
    graph_and_points,
    make_setup,
    points_observed_once,
    some_fixed_variables,
    traced,
    two_kinds_of_observations,
    two_reduced_groups,
    weighted,
)


def check(structure):
    setup = make_setup(structure)
    theta = tuple(v.rows for v in setup.problem.variables)
    ours = DeviceModel(replace(setup, problem=Problem(*map(traced, setup.observations))).problem, theta)
    model = LinearModel(setup.problem, theta)
    model.dense = True
    inverse, expected = ours.inverse(setup.a, setup.b), model.inverse(setup.a, setup.b)
    assert inverse.nullity == expected.nullity
    for v in expected.regularisation.single:
        assert close(inverse.blocks(v), expected.blocks(v))
        for w in expected.regularisation.single:
            at = v, np.array([0, len(v) - 1, 0]), w, np.array([len(w) - 1, 0, 0])
            assert np.abs(inverse.pairs(*at) - expected.pairs(*at)).max() <= 1e-8 * np.abs(expected.blocks(v)).max()
    for found, known in zip(ours.predicted(inverse), model.predicted(expected), strict=True):
        assert not len(known) or close(found, known)
    for v, B in model.diagonal_blocks(setup.a).items():
        assert close(ours.diagonal_blocks(setup.a)[v], B)


@pytest.mark.slow
@pytest.mark.parametrize(
    "structure", [bundle, two_reduced_groups, some_fixed_variables, weighted, graph_and_points, graph]
)
def test_the_inverse_is_that_of_the_processor(structure):
    check(structure)


@pytest.mark.slow
@pytest.mark.parametrize("structure", [two_kinds_of_observations, points_observed_once])
def test_a_few_variables_at_a_time_are_enough(structure, monkeypatch):
    monkeypatch.setattr(linearized_problem, "MAX_BATCH_NUMBERS", 100)
    check(structure)


def test_a_result_of_the_engine_has_its_covariances_from_the_device(monkeypatch):
    scene = make_scene(4, 200, outlier_ratio=0.1, seed=0)
    made = bundle_problem(scene.truth, asker.SmoothTruncated(2.0))
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=0, engine="xla")
    of = result.uncertainty(datum=made.cameras)
    assert isinstance(of.model, DeviceModel)
    leverage, own = result.leverage[0].used, group_supports(result)
    monkeypatch.setattr(DeviceModel, "suits", lambda problem: False)  # too large for a dense matrix
    other = replace(result)
    expected = other.uncertainty(datum=made.cameras)
    assert not isinstance(expected.model, DeviceModel)
    for v in (made.cameras, made.points):
        blocks, known = of.covariance(v).blocks, expected.covariance(v).blocks
        assert np.allclose(blocks, known, rtol=1e-7, atol=1e-14, equal_nan=True)
        assert np.isfinite(known).any()
    assert of.gauge == expected.gauge
    assert np.allclose(leverage, other.leverage[0].used, atol=1e-9)
    for v, hold in group_supports(other).items():
        assert np.array_equal(own[v].n_inliers, hold.n_inliers)
        assert np.allclose(own[v].uncertainty, hold.uncertainty, rtol=1e-9)
