"""The default method without each of its parts."""

import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import asker

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import parts  # benchmarks/parts.py
from families import FAMILIES, tables
from truth import nothing_given

EASY = "circle", {"noise": 1.0, "outliers": 0.1, "start": "near", "clutter": "uniform"}, 0


@pytest.mark.parametrize("part", [part for part in parts.PARTS if part != parts.ALL])
def test_every_part_is_left_out_of_the_method(part):
    """A generator is missing, or a setting differs from its default."""
    whole, without = parts.search_without(parts.ALL), parts.search_without(part)
    names = [g.name for g in without.generators]
    differ = [
        f.name for f in fields(without.settings) if getattr(whole.settings, f.name) != getattr(without.settings, f.name)
    ]
    assert names == [g.name for g in whole.generators if g.name != part]
    assert set(differ) == set(parts.SETTINGS.get(part, {}))
    assert (len(names) < len(whole.generators)) != bool(differ)


def test_with_all_parts_it_is_the_default():
    assert parts.search_without(parts.ALL) == asker.Search()


def test_parts_are_left_out_together():
    both = parts.search_without("minimal subsets+Student tails")
    assert "minimal subsets" not in [g.name for g in both.generators]
    assert both.settings.tail_dofs == (np.inf,)


def test_an_unknown_part_is_an_error():
    with pytest.raises(ValueError, match="no part is called 'gone'; there are nothing, from the start"):
        parts.search_without("gone")


def test_a_case_is_run_without_each_part(monkeypatch):
    monkeypatch.setattr(parts, "oracles_of", lambda family, condition: [1.0, 2.0])
    names = [parts.ALL, *parts.SETTINGS]
    row = parts.run_parts(EASY, names)
    errors = [run["error"] for run in row["runs"]]
    assert all(error is not None for error in errors)
    assert errors[0] == pytest.approx(nothing_given(FAMILIES["circle"].make(*EASY[1:])))
    assert min(run["seconds"] for run in row["runs"]) > 0
    assert tables.by_method([row]).keys() == set(names)


def test_the_tables_tell_what_is_won_and_lost(capsys):
    errors = {parts.ALL: (1.0, 1.0, 9.0), "a": (1.001, 1.0, 9.0), "b": (1.2, 9.0, 1.0), "c": (1.0, 1.0, 9.0)}

    def runs(k):
        for part, each in errors.items():
            yield {"method": part, "factor": None, "error": each[k], "seconds": 0.5}

    same = {"family": "f", "condition": {}, "oracle": 1.0, "oracles": []}
    parts.Table([same | {"seed": k, "runs": [*runs(k)]} for k in range(3)]).print([*errors])
    out = capsys.readouterr().out
    assert f"| {parts.ALL} | 67%, 1.00 | 2 | 0 | 0 | 1.000 |" in out
    assert "| a | = | 2 | 0 | 0 | 1.000 |" in out
    assert "| b | 67%, 1.20 | 2 | 1 | 1 | 1.200 |" in out
    assert "| c | = | 2 | 0 | 0 | 1.000 |" in out
    assert "| b | 1.5 | 1.5 |" in out
    for table in out.split("\n\n"):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1
