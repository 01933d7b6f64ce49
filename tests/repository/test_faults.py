"""A small sample of `make faults`."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest

import campaign
from fault_trials import Part, Trial
from mutation import ENOUGH, SABOTAGES, misplaced

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits memory and looks for processes as Linux does"),
    pytest.mark.filterwarnings("ignore::UserWarning:PIL.*"),
]

SAMPLE = {"readers": 300, "results": 6, "checkpoints": 12, "entries of the cache": 60, "locks": 2, "writers": 12}
SLOW = {"code in the cache": 4, "signals to a solve": 4, "two at a time": 1}


def rows(table):
    """The numbers of each line of a table."""
    return {line[:36].strip(): line[36:].split() for line in table.splitlines()[1:]}


@pytest.mark.parametrize(
    ("name", "n"),
    [*SAMPLE.items(), *(pytest.param(name, n, marks=pytest.mark.slow) for name, n in SLOW.items())],
)
def test_no_fault_is_found(name, n):
    (part,) = [part for part in campaign.PARTS if part.name == name]
    out = io.StringIO()
    table = campaign.Table(out)
    campaign.campaign([(part, n)], seed=0, seconds=float("inf"), stop=False, table=table)
    assert table.n_faults == 0, out.getvalue()
    assert int(rows(out.getvalue())["all"][0]) >= n // 2


def some_trials(folder, n, rng):
    yield Trial("a reader")
    yield Trial("a reader", refused=True)
    yield "a solve", None
    yield "a solve", "other costs"
    yield Trial("never tried")


def test_the_table_is_written_as_the_campaign_goes(tmp_path):
    out = io.StringIO()
    table = campaign.Table(out)
    campaign.campaign([(Part("all", some_trials, 1, 1), 1)], 0, float("inf"), True, table)
    found = rows(out.getvalue())
    assert found["a reader"][:4] == ["2", "1", "1", "0"]
    assert found["a solve"][:4] == ["2", "1", "0", "1"]
    assert found["all"][:4] == ["4", "2", "1", "1"]
    assert "FAULT a solve: other costs" in out.getvalue()


def test_a_part_that_does_not_begin_is_a_fault():
    def broken(folder: Path, n: int, rng: np.random.Generator):
        yield from ()
        raise AssertionError("no data")

    table = campaign.Table()
    campaign.campaign([(Part("broken", broken, 1, 1), 1)], 0, float("inf"), False, table)
    assert table.n_faults == 1


def test_every_sabotage_finds_its_place():
    assert len(SABOTAGES) >= ENOUGH
    assert misplaced(SABOTAGES) == []


def test_unknown_parts_are_refused(capsys):
    with pytest.raises(SystemExit):
        campaign.main(["--parts", "nothing"])
    assert "known are readers, results" in capsys.readouterr().err
