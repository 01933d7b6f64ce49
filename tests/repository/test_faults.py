"""Small sample of the fault injection campaign, `make faults`."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import campaign
from fault_trials import Part, Trial
from mutation import MIN_DETECTED, MUTATIONS, ambiguous_edits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memory limits and process lookup are Linux-specific"),
    pytest.mark.filterwarnings("ignore::UserWarning:PIL.*"),
]

ROOT = Path(__file__).resolve().parents[2]
WAIT = 300  # seconds: a busy machine is no fault
SAMPLE = {"readers": 300, "results": 6, "checkpoints": 12, "entries of the cache": 60, "locks": 2, "writers": 12}
SLOW = {"code in the cache": 4, "signals to a solve": 4, "two at a time": 1}


def rows(table):
    """Return the numbers of each line of a table, by kind of trial."""
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


def test_the_table_has_the_counts_and_the_faults(tmp_path):
    out = io.StringIO()
    table = campaign.Table(out)
    campaign.campaign([(Part("all", some_trials, 1, 1), 1)], 0, float("inf"), True, table)
    table_rows = rows(out.getvalue())
    assert table_rows["a reader"][:4] == ["2", "1", "1", "0"]
    assert table_rows["a solve"][:4] == ["2", "1", "0", "1"]
    assert table_rows["all"][:4] == ["4", "2", "1", "1"]
    assert "FAULT a solve: other costs" in out.getvalue()


def test_a_part_whose_set_up_fails_is_a_fault():
    def broken(folder: Path, n: int, rng: np.random.Generator):
        yield from ()
        raise AssertionError("no data")

    table = campaign.Table()
    campaign.campaign([(Part("broken", broken, 1, 1), 1)], 0, float("inf"), False, table)
    assert table.n_faults == 1


def test_the_text_of_every_mutation_occurs_once_in_the_source():
    assert len(MUTATIONS) >= MIN_DETECTED
    assert ambiguous_edits(MUTATIONS) == []


def test_the_campaign_starts_as_a_program():
    command = [sys.executable, ROOT / "tools" / "faults", "--parts", "nothing"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert (run.returncode, run.stderr.count("Traceback")) == (2, 0), run.stderr
    assert "readers, results" in run.stderr


def test_unknown_parts_are_refused(capsys):
    with pytest.raises(SystemExit):
        campaign.main(["--parts", "nothing"])
    assert "readers, results" in capsys.readouterr().err
