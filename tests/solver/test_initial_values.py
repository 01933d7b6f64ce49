"""Warm starts, modified problems without recompilation, callbacks and logs."""

import logging
import sys

import numpy as np
import pytest

import asker
from asker.engines.cpu import factor_loops as cpu_factors

N = 20


def near(x, y, d):
    return y - x - d


def at(x, p):
    return x - p


@pytest.fixture(scope="module")
def chain():
    rng = np.random.default_rng(0)
    x = asker.Variables(rng.normal(size=(N, 2)), name="x")
    d = rng.normal(size=(N - 1, 2))
    links = asker.Factors(near, x[np.arange(N - 1)], x[np.arange(1, N)], data=d, kernel=asker.Quadratic())
    ends = asker.Factors(at, x[[0, N - 1]], data=np.array([[0.0, 0.0], [5.0, 5.0]]), kernel=asker.Quadratic())
    return x, asker.Problem(links, ends)


@pytest.fixture
def compiled(monkeypatch):
    """Return the names of the functions that are traced and compiled during a test."""
    names = []

    def make_loop(name, *rest, plain=cpu_factors.make_loop, **named):
        names.append(name)
        return plain(name, *rest, **named)

    monkeypatch.setattr(cpu_factors, "make_loop", make_loop)
    return names


def test_a_solve_can_start_from_the_result_of_another(chain):
    x, problem = chain
    result = asker.solve(problem)
    for start in (result, result.values, {"x": result["x"]}, {x: result[x]}):
        again = asker.solve(problem, start=start)
        assert again.initial_cost == pytest.approx(result.cost, rel=1e-12)
        assert again.iterations <= 1
    np.testing.assert_array_equal(x.rows, chain[0].rows)  # the problem is unchanged


def test_variables_that_are_missing_in_a_start_keep_their_values(chain):
    _, problem = chain
    y = asker.Variables(np.full((1, 2), 3.0), name="y")
    more = asker.Problem(*problem.factors, asker.Factors(at, y[[0]], data=np.zeros((1, 2)), kernel=asker.Quadratic()))
    result = asker.solve(more, start=asker.solve(problem), max_iterations=0)
    np.testing.assert_array_equal(result["y"], [[3.0, 3.0]])


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"x": np.zeros((3, 2))}, r"x: start has shape \(3, 2\), expected \(20, 2\)"),
        ({"z": np.zeros((3, 2))}, "start has none of the variables x"),
        ({"x": np.full((N, 2), np.nan)}, "x: values hold NaN or infinity at index 0"),
        (np.zeros((N, 2)), "start is ndarray, expected a result"),
    ],
)
def test_an_invalid_start_is_rejected(chain, start, message):
    with pytest.raises(asker.ProblemError, match=message):
        asker.solve(chain[1], start=start)


def test_a_start_stays_between_the_bounds():
    x = asker.Variables(np.zeros((1, 2)), lower=-1.0, upper=1.0, name="x")
    problem = asker.Problem(asker.Factors(at, x[[0]], data=np.full((1, 2), 9.0), kernel=asker.Quadratic()))
    np.testing.assert_allclose(asker.solve(problem, start={"x": [[0.5, 0.5]]})["x"], 1.0)
    with pytest.raises(asker.ProblemError, match="beyond its bounds"):
        asker.solve(problem, start={"x": [[2.0, 0.0]]})


def test_modified_problems_agree_with_newly_built_ones(chain, compiled):
    x, problem = chain
    first = asker.solve(problem)
    compiled.clear()
    links, ends = problem.factors
    kernel, data = asker.Huber(0.1), np.array([[1.0, 0.0], [0.0, 2.0]])
    fixed = np.arange(N) == 7

    def built(x, kernel=asker.Quadratic(), data=ends.data[0]):
        others = [asker.Factors(near, x[links.slots[0].index], x[links.slots[1].index], data=links.data, kernel=kernel)]
        return asker.Problem(*others, asker.Factors(at, x[[0, N - 1]], data=data, kernel=asker.Quadratic()))

    pairs = [
        (problem.with_kernel(kernel, "near"), built(x, kernel)),
        (problem.with_data(data, ends), built(x, data=data)),
    ]
    for changed, whole in pairs:
        ours, theirs = asker.solve(changed, start=first), asker.solve(whole)
        assert ours.cost == pytest.approx(theirs.cost, rel=1e-6)
        assert ours[x].shape == theirs["x"].shape
    assert set(compiled) <= {
        "psi",
        "omega",
    }  # of another kernel; also for new factors with the same functions
    partly_fixed = asker.solve(problem.with_fixed(x, fixed), start=first)
    np.testing.assert_array_equal(partly_fixed[x][7], first[x][7])
    again = asker.solve(problem.with_fixed("x", fixed).with_fixed("x", False), start=partly_fixed)
    assert again.cost == pytest.approx(first.cost, rel=1e-9)


def test_a_function_that_changes_is_compiled_again(compiled):
    offset = [0.0]

    def moved(x, p):
        return x - p - offset[0]

    x = asker.Variables(np.zeros((1, 2)), name="x")
    problem = asker.Problem(asker.Factors(moved, x[[0]], data=np.ones((1, 2)), kernel=asker.Quadratic()))
    for value in (0.0, 5.0, 0.0):
        offset[0] = value
        np.testing.assert_allclose(asker.solve(problem).x, 1.0 + value, atol=1e-5)
    assert len(compiled) == 2 * len(set(compiled))  # once for each of its two states


def test_invalid_modifications_of_a_problem_are_rejected(chain):
    _, problem = chain
    with pytest.raises(asker.ProblemError, match="name one of the factors near, at"):
        problem.with_data(np.zeros((2, 2)))
    with pytest.raises(asker.ProblemError, match=r"at: data have shapes \[\(2, 3\)\], expected \[\(2, 2\)\]"):
        problem.with_data(np.zeros((2, 3)), "at")
    with pytest.raises(asker.ProblemError, match="0 groups of factors are 'loops'"):
        problem.with_kernel(asker.Huber(), "loops")
    with pytest.raises(asker.ProblemError, match="0 groups of variables are 'y'"):
        problem.with_fixed("y")


def test_an_iteration_has_values_residuals_and_weights(chain):
    x, problem = chain
    lines = []

    def look(line):
        lines.append((line.cost, line.values[x], line.residuals["near"], line.weights[1]))

    result = asker.solve(problem, on_iteration=look)
    for cost, values, residuals, weights in lines:
        d = problem.factors[0].data[0]
        np.testing.assert_allclose(residuals, values[1:] - values[:-1] - d, atol=1e-12)
        assert weights.tolist() == [1.0, 1.0]
        ends = values[[0, -1]] - problem.factors[1].data[0]
        assert cost == pytest.approx(0.5 * (np.sum(residuals**2) + np.sum(ends**2)))
    np.testing.assert_array_equal(lines[-1][1], result[x])
    assert not hasattr(result.history[-1], "values")


def test_solves_are_logged_and_printed_if_verbose(chain, caplog, capsys):
    _, problem = chain
    with caplog.at_level(logging.DEBUG, "asker"):
        result = asker.solve(problem)
    lines = [record for record in caplog.records if record.levelno == logging.DEBUG]
    assert len(lines) == result.iterations + 1
    assert all(record.name == "asker" for record in caplog.records)
    assert capsys.readouterr().out == ""
    asker.solve(problem, verbose=True)
    assert capsys.readouterr().out.count("iteration ") >= len(lines)
    asker.solve(problem)
    assert capsys.readouterr().out == ""


def test_in_a_notebook_iterations_take_one_line(chain, capsys, monkeypatch):
    _, problem = chain
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    result = asker.solve(problem, verbose=True)
    *_, iterations, ending = capsys.readouterr().out.rstrip("\n").split("\n")
    assert iterations.count("\riteration ") > 1
    assert "\r" not in ending
    assert str(result.iterations) in ending
