"""Every part of the default can be left out, and is; what goes wrong then is no case that was not solved."""

import sys
from pathlib import Path

import numpy as np
import pytest

import asker

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import parts  # benchmarks/parts.py
from families import FAMILIES, tables


def condition(outliers, clutter="uniform", noise=1.0):
    return {"noise": noise, "outliers": outliers, "start": "near", "clutter": clutter}


EASY = "ranges", condition(0.1), 0
SECOND = "ranges", condition(0.45, "second"), 0
HARD = "ranges", condition(0.5), 0
NOISY = "ranges", condition(0.0, noise=3.0), 0
CIRCLE = "circle", condition(0.1), 0
SCENE = {"kind": "ring", "outlier_kind": "gross", "noise": 0.4, "start_error": 12.0, "outlier_ratio": 0.1}
ASKS = {
    "least squares": SECOND,
    "from least squares": SECOND,
    "graduated": SECOND,
    "one noise": NOISY,
    "proofs": ("bundle", SCENE, 0),
    "moves from the start": HARD,
    "subsets": CIRCLE,
    "kernel of the likelihood": CIRCLE,
    "sets of inliers": NOISY,
    "few observations": CIRCLE,
}
"""A case that asks for a part; EASY asks for the others but rounding."""


@pytest.mark.parametrize("part", [part for part in parts.PARTS if part not in (parts.ALL, "rounding")])
def test_a_part_is_left_out(part):
    family, condition, seed = ASKS.get(part, EASY)
    instance = FAMILIES[family].make(condition, seed)
    with parts.without(part) as met:
        assert parts.nothing_given(instance) < np.inf
    assert set(met) == {name for _, name, _ in parts.PARTS[part]}


def test_parts_are_left_out_together():
    together = "cycles", "from least squares", "graduated"
    with parts.without("+".join(together)) as met:
        parts.nothing_given(FAMILIES[SECOND[0]].make(*SECOND[1:]))
    assert set(met) == {name for part in together for _, name, _ in parts.PARTS[part]}
    assert met.count("_compare") == 2


def test_rounding_is_left_out():
    """The test has its own rounded data, since no family has any."""
    mean = asker.Variables([[0.0]], name="mean")
    counts = np.repeat([3.0, 4.0, -9.0], [50, 20, 10])
    problem = asker.Problem(asker.Factors(lambda m, y: m[0] - y, mean[np.zeros(80, int)], data=counts))
    assert asker.solve(problem).noise[0].rounding == pytest.approx(1.0)
    with parts.without("rounding") as met:
        assert asker.solve(problem).noise[0].rounding == 0
    assert met


def test_every_part_is_back_afterwards():
    own = [getattr(where, name) for part in parts.PARTS.values() for where, name, _ in part]
    for part in parts.PARTS:
        with parts.without(part):
            pass
    assert own == [getattr(where, name) for part in parts.PARTS.values() for where, name, _ in part]


@pytest.mark.parametrize(
    ("name", "other", "error"),
    [
        ("_gone", lambda self: None, AttributeError),
        ("_moved", lambda self, kernels: None, TypeError),
        ("_moved", lambda self, kernels, point, noises=(): 1 / 0, ZeroDivisionError),
    ],
    ids=["gone", "called otherwise", "fails"],
)
def test_what_goes_wrong_without_a_part_ends_the_run(monkeypatch, name, other, error):
    monkeypatch.setitem(parts.PARTS, "wrong", [(parts.Search, name, other)])
    with pytest.raises(error):
        parts.run_parts(EASY, ["wrong"])


def test_a_case_is_run_without_each_part(monkeypatch):
    monkeypatch.setattr(parts, "oracles_of", lambda family, condition: [1.0, 2.0])
    row = parts.run_parts(EASY, [parts.ALL, "subsets", "cycles"])
    assert row["runs"][0]["error"] == row["runs"][1]["error"]
    assert [run["met"] for run in row["runs"]] == [False, False, True]
    assert min(run["seconds"] for run in row["runs"]) > 0
    assert tables.by_method([row]).keys() == {parts.ALL, "subsets", "cycles"}


def test_the_tables_tell_what_is_won_and_lost(capsys):
    errors = {parts.ALL: (1.0, 1.0, 9.0), "a": (1.001, 1.0, 9.0), "b": (1.2, 9.0, 1.0), "c": (1.0, 1.0, 9.0)}

    def runs(k):
        for part, each in errors.items():
            met = part in ("a", "b")
            yield {"method": part, "factor": None, "error": each[k], "seconds": 0.5, "met": met}

    same = {"family": "f", "condition": {}, "oracle": 1.0, "oracles": []}
    parts.Table([same | {"seed": k, "runs": [*runs(k)]} for k in range(3)]).print([*errors])
    out = capsys.readouterr().out
    assert f"| {parts.ALL} | 67%, 1.00 | 2 | 0 | 0 | 1.000 |" in out
    assert "| a | = | 2 | 0 | 0 | 1.000 |" in out
    assert "| b | 67%, 1.20 | 2 | 1 | 1 | 1.200 |" in out
    assert "| c |  | 2 | 0 | 0 | 1.000 |" in out
    assert "| b | 1.5 | 1.5 |" in out
    for table in out.split("\n\n"):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1
