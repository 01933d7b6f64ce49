"""The short form of `make faults`."""

import sys

import pytest

import faults

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits memory and looks for processes as Linux does"),
    pytest.mark.filterwarnings("ignore::UserWarning:PIL.*"),
]


def test_nothing_is_lost(capsys):
    code = faults.main(["--short"])
    table = capsys.readouterr().out
    assert code == 0, table
    assert all(what in table for what in ("COLMAP binary", "model, killed", "compare, begun again", "two at a time"))


def test_a_fault_is_told():
    table = faults.Table()
    table.add(iter([("a reader", "right", ""), ("a reader", "traceback", "KeyError"), ("another", "refused", "")]))
    assert table.n_faults == 1
    *rows, told = table.lines()
    assert [row.split()[:3] for row in rows if row.startswith("all")] == [["all", "3", "1"]]
    assert told == "a reader, traceback: KeyError"
