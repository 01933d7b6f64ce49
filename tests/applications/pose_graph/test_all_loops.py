"""Where all loops are right, least squares is all that is done; one false loop, and it is not."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.pose_graph.false_loops import add_false_loops
from asker.applications.pose_graph.g2o import read_g2o
from asker.applications.pose_graph.policy import refine
from asker.applications.pose_graph.problem import pose_graph_problem, residual_norms
from asker.applications.pose_graph.spanning import odometry_poses
from graphs import announcing, circle


def with_long_tails(graph):
    """Every fifth loop has three times the noise of the others."""
    loops = np.flatnonzero(~graph.is_odometry)[::5]
    graph.measurements[loops] += 3 * 0.01 * np.random.default_rng(3).normal(size=graph.measurements[loops].shape)
    return graph


CLEAN = {
    "as announced": lambda: circle(n=200)[1],
    "less noise than announced": lambda: announcing(circle(n=200)[1], 10.0),
    "long tails": lambda: announcing(with_long_tails(circle(n=200)[1]), 10.0),
}


@pytest.mark.parametrize("make", CLEAN.values(), ids=CLEAN)
def test_a_graph_without_false_loops_costs_least_squares(make):
    graph = make()
    made = pose_graph_problem(graph, robust="none")
    fit = asker.solve(made.problem, asker.IRLS(), tol=1e-12)
    found = refine(graph)
    assert not found.refused.any()
    assert [r.noise_share == np.inf for r in found.found.rounds] == [True, False]
    assert found.record["iterations"] <= fit.iterations
    assert found.record["status"] == "converged"
    assert found.record["refit"]["iterations"] <= 2
    np.testing.assert_allclose(found.refined.poses, made.refined(fit.values).poses, atol=1e-7)


@pytest.mark.parametrize("make", CLEAN.values(), ids=CLEAN)
@pytest.mark.parametrize("kind", ["random", "grouped", "local"])
def test_false_loops_are_no_part_of_it(make, kind):
    graph = make()
    bad, is_false = add_false_loops(graph, 2.01 / graph.n_loops, kind, seed=7)
    assert is_false.sum() == 2
    np.testing.assert_array_equal(refine(bad).refused, is_false)


def test_the_cost_before_is_that_of_the_start():
    graph, _ = add_false_loops(circle(n=60)[1], 0.3, "random", seed=1)
    found = refine(graph)
    chosen = found.found.chosen.made
    u, kernels = residual_norms(graph) ** 2, chosen.problem.factors
    expected = sum(f.kernel.psi(u[of]).sum() for f, of in zip(kernels, chosen.edges.values(), strict=True))
    assert found.record["initial_cost"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.data
@pytest.mark.long
def test_no_right_loop_of_csail_is_lost_to_an_exchange(data_file):
    """Without the loop that is furthest off, Ψ of a narrow kernel is lower."""
    graph = read_g2o(data_file("g2o/CSAIL.g2o.bz2"))
    bad, is_false = add_false_loops(replace(graph, poses=odometry_poses(graph)), 0.1, "local", seed=1)
    np.testing.assert_array_equal(refine(bad).refused, is_false)
