"""Fault injection campaign: `make faults`, or `python tools/faults --short`.

The campaign damages the input files of every reader, verifies results, checkpoints and caches, kills and terminates
commands, runs two at a time or with a full disk, and solves in forked processes and threads.  Every trial must end with
the right result, or with an error message of one line and all files unchanged.

`PARTS` lists the parts of the campaign.  The table is written to standard output and to a file: a line for each kind of
trial at the end of a part and every minute, and a line for each fault at once.  The exit code is 1 if there was a
fault.
"""

import argparse
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from fault_caches import change_caches, damage_entries
from fault_checkpoints import attack_checkpoints
from fault_processes import signal_comparisons, signal_solves, two_at_a_time
from fault_readers import damage_readers, damage_real_files
from fault_results import verify_results
from fault_solves import fork_and_thread, solve_anyway
from fault_trials import Part, Trial
from fault_writers import hold_locks, kill_writers
from problem_laws import trials as law_trials


def obey_laws(folder: Path, n: int, rng: np.random.Generator) -> Iterator[tuple[str, str | None]]:
    """Solve `n` random problems and test the laws of their results."""
    yield from law_trials(int(rng.integers(2**31)), n)


PARTS = (
    Part("readers", damage_readers, 1500, 50_000),
    Part("results", verify_results, 40, 2000),
    Part("checkpoints", attack_checkpoints, 48, 2000),
    Part("entries of the cache", damage_entries, 200, 20_000),
    Part("code in the cache", change_caches, 10, 400),
    Part("locks", hold_locks, 4, 100),
    Part("writers", kill_writers, 100, 2000),
    Part("signals to a solve", signal_solves, 4, 80),
    Part("signals to a comparison", signal_comparisons, 1, 80),
    Part("two at a time", two_at_a_time, 1, 10),
    Part("solves on a full disk", solve_anyway, 0, 6),
    Part("forks and threads", fork_and_thread, 0, 10),
    Part("laws of results", obey_laws, 3, 2000),
    Part("real files", damage_real_files, 0, 800),
)
"""Parts of the campaign, the fastest first.

A part is a generator function of an empty folder, a number of trials and a random generator.  It yields a `Trial` for
each, or a pair: the kind of trial, and the fault or None.
"""

TABLE_INTERVAL_SECONDS = 60.0
MAX_REPORTED_FAULTS = 5
"""Number of faults of one kind that are printed; all are counted."""


class Table:
    """Counts of the outcomes of trials by kind, printed while the campaign runs."""

    def __init__(self, *files: TextIO):
        self.files = files
        self.right: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.changed: dict[str, None] = {}
        """Kinds of trials whose counts have changed since their last line."""
        self.written = time.monotonic()
        """Time of the last lines."""
        self._write(f"{'':36}{'trials':>9}{'right':>9}{'refused':>9}{'faults':>9}{'seconds':>9}")

    def add(self, trial: Trial, seconds: float) -> None:
        """Count a trial.  Faults are printed at once, the lines of changed kinds every minute."""
        self.seconds[trial.what] = self.seconds.get(trial.what, 0.0) + seconds
        counts = self.faults if trial.fault is not None else self.refused if trial.refused else self.right
        counts[trial.what] += 1
        self.changed[trial.what] = None
        if trial.fault is not None and self.faults[trial.what] <= MAX_REPORTED_FAULTS:
            self._write(f"FAULT {trial.what}: {trial.fault}")
        if time.monotonic() > self.written + TABLE_INTERVAL_SECONDS:
            self.write_changed()

    def write_changed(self) -> None:
        """Print a line for each kind of trial whose counts have changed since its last line."""
        for what in self.changed:
            self._write_line(what, *(count[what] for count in self._counts), self.seconds[what])
        self.changed, self.written = {}, time.monotonic()

    def end(self) -> None:
        """Print the remaining lines and the sums."""
        self.write_changed()
        self._write_line("all", *(sum(count.values()) for count in self._counts), sum(self.seconds.values()))

    @property
    def n_faults(self) -> int:
        return sum(self.faults.values())

    @property
    def _counts(self) -> tuple[Counter[str], ...]:
        return self.right, self.refused, self.faults

    def _write_line(self, what: str, right: int, refused: int, faults: int, seconds: float) -> None:
        self._write(f"{what:36}{right + refused + faults:9}{right:9}{refused:9}{faults:9}{seconds:9.0f}")

    def _write(self, line: str) -> None:
        for file in self.files:
            print(line, file=file, flush=True)


def run_part(
    part: Part, n: int, folder: Path, rng: np.random.Generator, table: Table, until: float, stop: bool
) -> None:
    """Run a part until it ends, the time limit is reached, or, with `stop`, there is a fault."""
    trials, begin = part.run(folder, n, rng), time.monotonic()
    folder.mkdir()
    try:
        for trial in trials:
            now = time.monotonic()
            table.add(Trial(*trial), now - begin)
            begin = now
            if now > until or (stop and table.n_faults):
                break
    except Exception:  # the set-up of the part failed
        table.add(Trial(part.name, traceback.format_exc()), time.monotonic() - begin)
    finally:
        trials.close()  # type: ignore[attr-defined]
        table.write_changed()


def campaign(parts: Sequence[tuple[Part, int]], seed: int, seconds: float, stop: bool, table: Table) -> None:
    """Run parts, each with a number of trials, within about `seconds`."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="asker-faults-") as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # it warns of damaged images
        try:
            for k, (part, n) in enumerate(parts):
                now = time.monotonic()
                until = now + (end - now) / (len(parts) - k)
                rng = np.random.default_rng([seed, *part.name.encode()])
                run_part(part, n, Path(folder) / part.name.replace(" ", "-"), rng, table, until, stop)
                if stop and table.n_faults:
                    break
        finally:
            table.end()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="use the numbers of trials of the short campaign")
    parser.add_argument("--trials", type=float, default=1.0, help="factor of the numbers of trials")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time limit, shared by the parts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", help="comma-separated names of parts; default: all")
    parser.add_argument("--stop", action="store_true", help="stop at the first fault")
    parser.add_argument(
        "--table", type=Path, default=Path("runs/faults/table.txt"), help="file to which the table is appended"
    )
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where this runs with `&`
    names = args.parts.split(",") if args.parts else [part.name for part in PARTS]
    if unknown := set(names) - {part.name for part in PARTS}:
        parser.error(f"unknown parts {', '.join(unknown)}; the parts are {', '.join(part.name for part in PARTS)}")
    sizes = {part: (part.short if args.short else part.full) for part in PARTS if part.name in names}
    parts = [(part, max(1, round(args.trials * n))) for part, n in sizes.items() if n]
    args.table.parent.mkdir(parents=True, exist_ok=True)
    with open(args.table, "a", encoding="utf-8") as file:
        table = Table(sys.stdout, file)
        campaign(parts, args.seed, args.seconds, args.stop, table)
    return 1 if table.n_faults else 0
