"""A campaign of faults: `make faults`, or `python tests/faults.py --short`.

Files of every reader are damaged, also real ones where they are at hand; commands are killed, terminated, run two at a
time, without room on the disk and with a broken cache; solves are forked and run in threads.  Every trial must end with
the right result, or with a refusal of one line and nothing changed.  One table tells how many did, and the campaign
fails if one did not.
"""

import argparse
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fault_processes import Comparison, kill_comparisons, kill_writers, two_at_a_time
from fault_readers import damage_readers, real_cases
from fault_solves import fork_and_thread, solve_anyway

GOOD = ("right", "refused")
"""refused: by one line that names the file, or ended by the signal."""
BAD = ("traceback", "hang", "wrong", "left over")
"""left over: processes or partial folders that nobody cleans up."""


class Table:
    """How trials ended, by what was tried; the first fault of each kind is told."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.seconds: Counter[str] = Counter()
        self.first: dict[tuple[str, str], str] = {}

    def add(self, trials: Iterator[tuple[str, str, str]]) -> None:
        """Trials, each as what was tried, how it ended, and a word on it."""
        begin = time.monotonic()
        for what, end, told in trials:
            self.counts.setdefault(what, Counter())[end] += 1
            if end in BAD and (what, end) not in self.first:
                self.first[what, end] = told
            now = time.monotonic()
            self.seconds[what] += now - begin  # type: ignore[assignment]
            begin = now

    @property
    def n_faults(self) -> int:
        return sum(count[end] for count in self.counts.values() for end in BAD)

    def lines(self) -> Iterator[str]:
        titles = ("tried", *GOOD, *BAD)
        yield f"{'':28}" + "".join(f"{title:>11}" for title in titles) + f"{'seconds':>9}"
        for what, count in [*self.counts.items(), ("all", sum(self.counts.values(), Counter()))]:
            numbers = [sum(count.values()), *(count[end] for end in (*GOOD, *BAD))]
            seconds = self.seconds[what] if what in self.counts else sum(self.seconds.values())
            yield f"{what:28}" + "".join(f"{n:11}" for n in numbers) + f"{seconds:9.0f}"
        for (what, end), told in self.first.items():
            yield f"{what}, {end}: {told}"


def campaign(mutations: int, kills: int, seed: int, folder: Path) -> Table:
    """`mutations` of files, `kills` of comparisons and about as many of writers, a tenth as many pairs of processes."""
    table = Table()
    rng = np.random.default_rng(seed)
    table.add(damage_readers(folder / "readers", mutations, rng))
    table.add(real_cases(folder / "real", mutations // 500, rng))
    table.add(kill_writers(folder / "writers", 20 + 2 * kills, seed))
    comparison = Comparison(folder / "compared", processes=2 if kills > 1 else 1)
    table.add(kill_comparisons(comparison, kills, rng))
    table.add(two_at_a_time(comparison, max(1, kills // 10), rng))
    if kills >= 30:  # each compiles anew
        table.add(solve_anyway(folder / "solves", kills // 30, rng))
        table.add(fork_and_thread(kills // 10))
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a minute in place of ten")
    parser.add_argument("--mutations", type=int, help="of files")
    parser.add_argument("--kills", type=int, help="of processes")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # of the commands too, where this runs with `&`
    mutations, kills = (500, 1) if asked.short else (50_000, 100)
    mutations = mutations if asked.mutations is None else asked.mutations
    kills = kills if asked.kills is None else asked.kills
    with tempfile.TemporaryDirectory(prefix="asker-faults-") as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # it tells of damage, as it should
        table = campaign(mutations, kills, asked.seed, Path(folder))
    print(*table.lines(), sep="\n")
    return 1 if table.n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
