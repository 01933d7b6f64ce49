"""Laws of the families with a known truth, and of the tables that are made of them."""

import json
import sys
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

import numpy as np
import pytest

import asker

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import truth  # benchmarks/truth.py
from families import FAMILIES, curve_fits, essential, graphs, tables

EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
CONDITION = {"noise": 1.0, "outliers": 0.5, "start": "near", "clutter": "uniform"}


def at_the_start(instance):
    return asker.solve(instance.problem(None), max_iterations=0)


def case_of(family):
    cases = family.cases(quick=True)
    if not cases:
        pytest.skip("its data is not there")
    return cases[0]


@cache
def first_of(name):
    """The instance of the first case, and its result at the start."""
    instance = FAMILIES[name].make(*case_of(FAMILIES[name]))
    return instance, at_the_start(instance)


@EVERY
def test_a_case_gives_the_same_instance_twice(family):
    first, result = first_of(family.name)
    again = family.make(*case_of(family))
    assert first.oracle == again.oracle
    assert result.initial_cost == at_the_start(again).initial_cost
    assert set(first.peers) == set(again.peers)


@EVERY
def test_another_seed_gives_another_instance(family):
    condition, seed = case_of(family)
    if family.n_oracles == 0 and family.name != "held-out":
        pytest.skip("its quick case is real data with nothing drawn")
    first, other = first_of(family.name)[1].residuals[-1], at_the_start(family.make(condition, seed + 1)).residuals[-1]
    assert first.shape != other.shape or not np.allclose(first, other)


@EVERY
def test_the_oracle_is_better_than_the_start(family):
    instance, result = first_of(family.name)
    if instance.oracle is None:
        pytest.skip("it has no oracle")
    assert 0 < instance.oracle < instance.error(result) < inf


@EVERY
def test_the_oracle_grows_with_the_noise(family):
    condition, seed = case_of(family)
    noises = sorted({c["noise"] for c, _ in family.cases(quick=False) if "noise" in c})
    if not noises:
        pytest.skip("real data: its noise is what it is")
    oracles = [family.make({**condition, "noise": noise}, seed).oracle for noise in (noises[0], noises[-1])]
    assert oracles[0] < oracles[1]


@pytest.mark.parametrize("name", ["rig", "gps"])
def test_reconstructions_are_solved_with_nothing_given(name):
    instance, _ = first_of(name)
    assert truth.nothing_given(instance) < 1.5 * instance.oracle


@EVERY
def test_cases_are_named_once_and_can_be_written(family):
    for quick in (True, False):
        named = [json.dumps(case, sort_keys=True) for case in family.cases(quick)]
        assert len(set(named)) == len(named)
    assert 1.0 in family.sweep
    assert set(family.methods or ()) <= set(truth.METHODS)


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (curve_fits.simulate_line, lambda x: x * (1, -1) + (np.pi, 0)),
        (curve_fits.simulate_sinusoid, lambda x: x * (-1, 1, 1, 1) + (0, 0, 3 * np.pi, 0)),
        (
            lambda *a: curve_fits.simulate_closed("ellipse", *a),
            lambda x: x[:, [0, 1, 3, 2, 4]] + (0, 0, 0, 0, np.pi / 2),
        ),
        (lambda *a: essential.simulate(*a[:1], {**CONDITION, "start": 5.0}, a[2]), lambda x: (x[0], -x[1])),
    ],
    ids=["line", "sinusoid", "ellipse", "essential"],
)
def test_another_name_of_the_truth_is_no_error(made, same):
    data = made(np.random.default_rng(0), CONDITION, 0.1)
    error_of_start = data.error(data.start)
    assert data.error(data.truth) < 1e-4 * error_of_start
    assert data.error(same(data.truth)) < 1e-4 * error_of_start


def test_scipy_ends_where_asker_does():
    instance = FAMILIES["circle"].make({**CONDITION, "outliers": 0.1}, 0)
    ours = asker.solve(instance.problem(asker.Cauchy(instance.number)), asker.IRLS(), tol=1e-14)
    assert instance.peers["SciPy cauchy"](instance.number) == pytest.approx(instance.error(ours), rel=1e-2)


@pytest.mark.parametrize(
    ("error", "oracle", "deviation", "solved"),
    [
        (1.5, 1.0, 0.1, True),
        (1.6, 1.0, 0.1, False),
        (1.6, 0.1, 0.6, True),
        (1.9, 0.1, 0.6, False),
        (inf, 1.0, 1.0, False),
    ],
)
def test_solved(error, oracle, deviation, solved):
    assert tables.is_solved(error, oracle, deviation) is solved


def made_rows():
    """Two conditions, two seeds.  `a` solves everything, but each condition with another setting; a peer fails."""
    good = {0.5: {"low": 1.0, "high": 9.0}, 1.0: {"low": 8.0, "high": 1.2}}

    def runs(name):
        yield {"method": tables.DEFAULT, "factor": None, "error": 2.0, "seconds": 0.3}
        for factor in (0.5, 1.0):
            yield {"method": "a", "factor": factor, "error": good[factor][name], "seconds": 0.1}
        yield {"method": "peer", "factor": tables.OWN_DEFAULT, "error": 1.0, "seconds": 0.1}
        yield {"method": "peer", "factor": 1.0, "error": None, "seconds": 0.1, "failed": "ValueError: no"}

    return [
        {
            "family": "f",
            "condition": {"noise": name},
            "seed": seed,
            "oracle": 1.0 - 0.9 * seed,
            "oracles": [1.0, 0.0],
            "runs": [*runs(name)],
        }
        for name in ("low", "high")
        for seed in (0, 1)
    ]


def test_the_best_setting_is_that_of_each_condition():
    plain, best = tables.lines_of(tables.by_method(made_rows()))
    assert plain["a"].solved == 0.5
    assert best["a"].solved == 1.0
    assert tables.DEFAULT not in best
    assert plain[tables.DEFAULT].solved == 1.0  # 2.0 is within three deviations, √(1.01/2) each
    assert (plain["peer"].solved, plain["peer"].ratio) == (0.0, inf)
    assert plain["peer, its default"].solved == best["peer"].solved == 1.0


def test_of_equal_shares_the_lower_ratio_is_the_best():
    outcomes = {factor: [tables.Outcome(True, ratio, 0.1)] for factor, ratio in ((0.5, 1.3), (1.0, 1.1), (2.0, 1.2))}
    assert [run.ratio for run in tables.with_best_setting({"c": outcomes})] == [1.1]


def test_the_tables_are_printed(capsys):
    tables.print_tables(made_rows(), every_condition=True)
    out = capsys.readouterr().out
    assert (
        "| f | 4 | 100%, 2.00 |  | peer, its default: 100%, 1.00 | peer, default: 100%, 1.00 | peer: 100%, 1.00 |"
        in out
    )
    assert "| f | peer | 4 | ValueError: no |" in out
    for table in out.split("\n\n"):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1


def test_a_case_is_solvable_that_is_solved_from_the_start_or_from_the_truth(capsys):
    def runs(start, end):
        errors = {tables.DEFAULT: start, tables.AT_TRUTH: end}
        return [{"method": method, "factor": None, "error": e, "seconds": 0.1} for method, e in errors.items()]

    ends = [(1.0, 1.0), (1.0, 9.0), (9.0, 1.0), (9.0, 9.0)]
    same = {"family": "f", "condition": {}, "oracle": 1.0, "oracles": []}
    rows = [same | {"seed": seed, "runs": runs(*of)} for seed, of in enumerate(ends)]
    tables.print_tables(rows, every_condition=True)
    assert "| f | 4 | 50%, 1.00 | 75% |  |  |  |" in capsys.readouterr().out


def test_any_other_is_one_method_with_one_setting_in_each_case(capsys):
    def runs(*errors):
        each = [(tables.DEFAULT, None, 1.0), (f"{tables.START}, as it is", 1.0, 1.0), *errors]
        return [{"method": m, "factor": f, "error": e, "seconds": 0.1} for m, f, e in each]

    ends = [(1.0, 9.0, 9.0), (9.0, 9.0, 1.0), (9.0, 9.0, 9.0), (9.0, 1.0, 9.0)]
    same = {"family": "f", "condition": {}, "oracle": 1.0, "oracles": []}
    rows = [
        same | {"seed": seed, "runs": runs(("a", 1.0, x), ("a", 2.0, y), ("b", 1.0, z))}
        for seed, (x, y, z) in enumerate(ends)
    ]
    tables.print_tables(rows, every_condition=True)
    assert (
        "| f | 4 | 100%, 1.00 |  | a: 25%, 9.00 | a, 1 ×: 25%, 9.00 | a: 25%, 9.00 | 75% |" in capsys.readouterr().out
    )


@pytest.mark.parametrize("name", ["bundle", "rotations", "plane"])
def test_a_start_at_the_truth_is_at_the_truth(name):
    instance, start = first_of(name)
    there = asker.solve(instance.at_truth(), max_iterations=0)
    assert instance.error(there) < 1e-6 * instance.error(start)
    assert there.residuals[0].shape == start.residuals[0].shape


def test_who_is_told_all_but_the_outliers_is_no_other_method(capsys):
    errors = {tables.DEFAULT: 9.0, tables.TOLD_ALL: 1.0}
    runs = [{"method": method, "factor": None, "error": e, "seconds": 0.1} for method, e in errors.items()]
    rows = [{"family": "f", "condition": {}, "oracle": 1.0, "oracles": [], "seed": 0, "runs": runs}]
    tables.print_tables(rows, every_condition=True)
    out = capsys.readouterr().out
    assert "| f | 1 | 0%, 9.00 |  |  |  |  |" in out
    assert f"| {tables.LABELS[tables.TOLD_ALL]} | 100% | 1.00 |" in out


def test_the_likeliest_places_are_right_where_few_ranges_are_wrong():
    instance = FAMILIES["ranges"].make({**CONDITION, "outliers": 0.1}, 1)
    assert instance.told_all() < 1.5 * instance.oracle


def test_an_exception_is_a_run_that_solved_nothing():
    run = truth.run("m", 1.0, lambda: 1 / 0)
    assert (run["error"], run["failed"]) == (None, "ZeroDivisionError: division by zero")
    assert truth.run("m", 1.0, lambda: float("nan"))["error"] is None
    with pytest.raises(KeyboardInterrupt):
        truth.run("m", 1.0, interrupted)


def test_a_peer_that_fails_says_why_and_not_where(tmp_path, monkeypatch):
    (tmp_path / "gtsam_graph.py").write_text("raise ImportError('no such library')")
    monkeypatch.setattr(graphs, "PEERS", tmp_path)
    monkeypatch.setattr(graphs, "write_g2o", lambda file, graph: None)
    said = truth.run("GTSAM", None, lambda: graphs._gtsam(None, None, 20.0, "Huber", None))
    assert said["failed"] == "RuntimeError: ImportError: no such library"


def test_a_run_that_meets_the_time_limit_solved_nothing():
    instance = replace(FAMILIES["circle"].make(CONDITION, 0), time_limit=0.0)
    for solve in (truth.nothing_given, lambda of: truth.with_number(of, "irls-cauchy", 1.0)):
        with pytest.raises(TimeoutError, match="not finished in 0 s"):
            solve(instance)


def interrupted():
    raise KeyboardInterrupt


def test_a_case_that_was_done_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(truth, "computed", lambda tasks, work, processes: map(work, tasks))
    ran = []

    def work(task):
        ran.append(task)
        return {"family": task[0], "condition": task[1], "seed": task[2], "oracle": 1.0, "runs": []}

    file, tasks = tmp_path / "runs" / "t.jsonl", [("f", {"noise": 1.0}, seed) for seed in range(3)]
    truth.run_all(tasks[:2], file, "all", work, 1)
    file.write_text(file.read_text() + '{"family": "f", "cond')  # it was stopped here
    rows = truth.run_all(tasks, file, "all", work, 1)
    assert ran == tasks
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert len(list(truth.done_before(file))) == 3
    truth.run_all(tasks[:1], file, "quick", work, 1)
    assert ran == [*tasks, tasks[0]]
