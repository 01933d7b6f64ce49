"""Progress lines of a solve, and the names of methods and kernels that are printed."""

import re

import numpy as np
import pytest

import asker
from asker.kernels.registry import KERNELS
from asker.solver.progress import ProgressText
from asker.solver.result import Iteration

N = 60


def deviation(line, x, y):
    return line[0] * x + line[1] - y


def line_problem(**options):
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    y = 2 * x + 1 + rng.normal(scale=0.05, size=N)
    y[:20] += rng.uniform(-10, 10, 20)
    line = asker.Variables([[0.0, 0.0]], name="line")
    return asker.Problem(asker.Factors(deviation, line[np.zeros(N, int)], data=(x, y), **options))


def names_in(text):
    """Names of kernels and strategies that a text contains."""
    methods = {type(method()).__name__ for method in asker.METHODS.values()}
    names = methods | {kernel.__name__ for kernel in KERNELS.values()}
    return {name for name in names if re.search(rf"\b{name}\b", text)}


def best_costs(text):
    return [float(cost) for cost in re.findall(r"  best (\S+)", text)]


def test_without_a_kernel_no_kernel_and_no_method_is_named(capsys):
    problem = line_problem()
    assert names_in(str(problem)) == set()
    result = asker.solve(problem, verbose=True)
    assert names_in(capsys.readouterr().out) == set()
    assert names_in(str(result)) == set()


def test_with_a_kernel_it_is_named_with_the_method(capsys):
    problem = line_problem(kernel=asker.Cauchy(0.1))
    assert names_in(str(problem)) == {"Cauchy"}
    result = asker.solve(problem, asker.IRLS(), verbose=True)
    assert names_in(capsys.readouterr().out) == {"Cauchy", "IRLS"}
    assert names_in(str(result)) == {"IRLS"}


@pytest.mark.parametrize("options", [{}, {"kernel": asker.SmoothTruncated(0.2)}], ids=["estimated", "specified"])
def test_the_best_cost_of_progress_lines_never_rises(options, capsys):
    costs = []
    asker.solve(line_problem(**options), verbose=True, on_iteration=lambda line: costs.append(line.best_cost))
    best = best_costs(capsys.readouterr().out)
    assert len(best) == len(costs) > 5
    assert best == sorted(best, reverse=True)
    if not options:
        assert costs != sorted(costs, reverse=True)  # each stage has a cost function of its own


def test_the_best_cost_is_the_lowest_of_all_stages():
    text = ProgressText()
    costs = [3.0, 1.0, float("nan"), 240.0, 0.5]
    lines = [text(Iteration(k, cost, cost, 0.0, 1e-3, k != 3)) for k, cost in enumerate(costs)]
    assert best_costs(" ".join(lines)) == [3.0, 1.0, 1.0, 1.0, 0.5]
    assert [k for k, line in enumerate(lines) if line.endswith("  rejected")] == [3]
