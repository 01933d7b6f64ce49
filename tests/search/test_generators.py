"""Generators of candidates: minimal subsets and their scores, user-defined ones, and the settings of the search."""

from dataclasses import dataclass
from math import comb, inf, log

import numpy as np
import pytest

import asker
from asker.engines.cpu.engine import CpuEngine
from asker.search.context import SearchContext
from asker.search.generators import GENERATORS, FromStart, MinimalSubsets, least_squares
from asker.search.minimal_subsets import Subsets, a_contrario_score, trimmed_score
from asker.statistics.scale_mixture import Outliers
from asker.strategies.strategy import Strategy
from search_problems import circle_problem


def context_of(problem, settings=None):
    """Return the context of a search without limits or history."""
    engine = CpuEngine(problem, "auto", True, True)

    def run(engine, strategy: Strategy, point, n, name):
        state = strategy.init(engine, point, n)
        for _ in range(n):
            state = strategy.step(engine, state)
        return state.point

    context = SearchContext(engine, engine.start(), settings or asker.SearchSettings(), run, lambda: True)
    context.use_background(least_squares(context))
    return context


@pytest.mark.parametrize(("p", "d"), [(1, 3), (2, 3), (3, 6)])
def test_the_a_contrario_score_is_the_largest_over_all_numbers_of_inliers(p, d):
    rng, n, Q = np.random.default_rng(0), 30, 4.0
    u = np.where(rng.random((5, n)) < 0.5, 0.01, 4.0) * rng.chisquare(p, (5, n))
    scores, counts = a_contrario_score(u, p, d, Q)
    for row, score, count in zip(np.sort(u, axis=1), scores, counts, strict=True):
        each = {
            k: (k * p - d) / 2 * log(Q * (k * p - d) / row[:k].sum()) - log(comb(n, k)) - log(n)
            for k in range(1, n + 1)
            if k * p - d >= 1
        }
        assert score == pytest.approx(max(each.values()), rel=1e-9)
        assert each[count] == pytest.approx(score, rel=1e-9)


def test_the_a_contrario_score_counts_what_agrees():
    u = np.concatenate([np.full(40, 0.01), np.full(60, 100.0)])[None]
    score, count = a_contrario_score(u, 1, 3, 100.0)
    assert count[0] == 40
    assert score[0] > 90
    none, _ = a_contrario_score(np.full((1, 100), 100.0), 1, 3, 100.0)
    assert none[0] < 1


def test_the_trimmed_score_prefers_the_majority_with_the_smallest_sum():
    rng = np.random.default_rng(0)
    u = rng.chisquare(1, (50, 41))
    h = (41 + 3) // 2 + 1
    scores, counts = trimmed_score(u, 1, 3, 1.0)
    assert (counts == h).all()
    np.testing.assert_array_equal(np.argsort(-scores), np.argsort(np.sort(u, axis=1)[:, :h].sum(axis=1)))


@pytest.mark.parametrize("score", [a_contrario_score, trimmed_score])
@pytest.mark.parametrize("outliers", [0.2, 0.4])
def test_a_circle_from_far_is_found_in_subsets(outliers, score):
    context = context_of(circle_problem(0.1, outliers, 2, start=(0.0, 0.0, 1.0)))
    rows = Subsets(context, score).best()[0]
    np.testing.assert_allclose(rows[0], [[30, 20, 10]], atol=0.2)


def test_subsets_are_drawn_from_few_unknowns_only():
    problem = circle_problem(0.1, 0.2, 2)
    assert Subsets.suit(context_of(problem))
    assert not Subsets.suit(context_of(problem, asker.SearchSettings(max_subset_unknowns=2)))
    assert not Subsets.suit(context_of(circle_problem(0.1, 0.0, 2, n=6)))


@dataclass(frozen=True)
class Given:
    """A user-defined generator: points that are known."""

    values: tuple
    name: str = "given"
    hypotheses: tuple = (Outliers.CLUTTER,)

    def suits(self, context):
        return True

    def starts(self, context, state):
        for value in self.values:
            yield context.engine.evaluate((np.array([value], dtype=float),))


def test_a_user_defined_generator_finds_what_others_do_not():
    """Two thirds of the points are clutter, and the start is far: a descent from it ends elsewhere."""
    problem = circle_problem(0.1, 0.65, 2, start=(5.0, 38.0, 1.0))
    without = asker.solve(problem, asker.Search((FromStart(),)))
    result = asker.solve(problem, asker.Search((FromStart(), Given(((5.0, 5.0, 3.0), (29.0, 21.0, 9.5))))))
    assert np.abs(without.x - [30, 20, 10]).max() > 1
    assert result.x == pytest.approx([30, 20, 10], abs=0.2)
    assert {line.details["stage"] for line in result.history} >= {"given", "final"}


def test_an_alternative_names_its_generator():
    one = circle_problem(0.1, 0.0, 1, n=60).factors[0].data[0]
    circle = asker.Variables(np.array([[30.0, 20.0, 9.0]]), name="circle")
    residual = circle_problem(0.1, 0.0, 1).factors[0].residual
    both = asker.Factors(residual, circle[np.zeros(120, int)], data=np.concatenate([one, one + np.array([25.0, 0.0])]))
    points = (30.0, 20.0, 9.0), (55.0, 20.0, 9.0)
    method = asker.Search((Given(points[:1], "one"), Given(points[1:], "other")))
    result = asker.solve(asker.Problem(both), method)
    (alternative,) = result.alternatives
    assert alternative.source == ("one" if result.x[0] > 40 else "other")
    assert abs(alternative.evidence_difference) < asker.SearchSettings().alternative_nats
    assert repr(alternative).endswith(f"observations decide, {alternative.source})")


def test_generators_that_do_not_suit_are_not_asked():
    class Unsuited(Given):
        def suits(self, context):
            return False

        def starts(self, context, state):
            raise AssertionError

    problem = circle_problem(0.1, 0.2, 2)
    one, other = asker.solve(problem), asker.solve(problem, asker.Search((*GENERATORS, Unsuited(()))))
    np.testing.assert_array_equal(one.x, other.x)


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda g: g.name)
def test_every_generator_that_suits_finds_an_easy_solution(generator):
    problem = circle_problem(0.1, 0.1, 2, start=(28.0, 19.0, 9.0))
    if generator.suits(context_of(problem)):
        assert asker.solve(problem, asker.Search((generator,))).x == pytest.approx([30, 20, 10], abs=0.2)
    else:
        assert generator.name in ("one group leads", "graduated")


def test_the_settings_are_used():
    """Tails, iterations, subsets and alternatives follow the settings."""
    rng = np.random.default_rng(0)
    mean = asker.Variables([[0.0]], name="mean")
    data = rng.standard_t(3, 2000)
    problem = asker.Problem(asker.Factors(lambda m, y: m[0] - y, mean[np.zeros(2000, int)], data=data))

    def tail_of(**settings):
        return asker.solve(problem, asker.Search(settings=asker.SearchSettings(**settings))).noise[0].tail_dof

    assert tail_of() == tail_of(tail_dofs=(inf, 4.0)) == 4.0
    assert tail_of(tail_dofs=(inf,)) == inf

    circle = circle_problem(0.1, 0.4, 2, start=(0.0, 0.0, 1.0))
    few = asker.solve(circle, asker.Search(settings=asker.SearchSettings(max_subset_unknowns=0)))
    assert MinimalSubsets().name not in {line.details["stage"] for line in few.history}
    short = asker.SearchSettings(max_first_iterations=1, max_descent_iterations=1, max_refinement_rounds=1)
    assert asker.solve(circle, asker.Search(settings=short)).iterations < asker.solve(circle).iterations


def test_settings_are_checked():
    for name in ("alternative_nats", "gain_nats", "narrow_width"):
        with pytest.raises(ValueError, match=name):
            asker.SearchSettings(**{name: float("nan")})
    for name in ("tail_dofs", "background_dofs", "initial_quantiles"):
        with pytest.raises(ValueError, match=f"{name} is empty"):
            asker.SearchSettings(**{name: ()})
