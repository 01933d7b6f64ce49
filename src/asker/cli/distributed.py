"""Runs on accelerators and on several hosts."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from asker.cli.checks import complain
from asker.io.log import devices


@dataclass(frozen=True)
class Hosts:
    """Who takes part in the run."""

    coordinator: str | None
    num_processes: int | None
    process_id: int | None

    @property
    def given(self) -> bool:
        return any(x is not None for x in (self.coordinator, self.num_processes, self.process_id))

    def engine(self, name: str) -> str:
        """Several processes are for xla only."""
        if self.given and name == "cpu":
            raise ValueError("--coordinator, --num-processes and --process-id are for --engine xla")
        if name == "auto" and not self.given and os.environ.keys() & {"SLURM_PROCID", "JOB_COMPLETION_INDEX"}:
            from asker.engines.xla import distributed

            return "xla" if distributed.in_a_job() else name
        return "xla" if self.given else name

    @contextmanager
    def together(self, quiet: bool, engine: str, several: bool) -> Iterator["Place"]:
        """Which process this is; alone where no `several` can solve the data.  After an error of one process none waits
        for it."""
        if engine == "auto" and several and not quiet:
            show_log()
        if engine != "xla" or not several:
            yield Place()
            return
        from asker.engines.xla import distributed

        distributed.join(self.coordinator, self.num_processes, self.process_id)
        if not quiet and distributed.is_first():
            show_log()
        try:
            yield Place(*distributed.rank_and_size())
        except (ValueError, MemoryError) as error:
            if distributed.is_distributed():
                prefix = "out of memory: " if isinstance(error, MemoryError) else ""
                distributed.exit_at_once(complain(prefix + str(error), 1 if prefix else 2))
            raise


@dataclass(frozen=True)
class Place:
    """One of the processes of a run; the first one prints and writes."""

    process: int = 0
    n_processes: int = 1

    @property
    def alone(self) -> bool:
        return self.n_processes == 1

    def part_ways(self) -> None:
        """The others end; this one may go on for as long as it likes."""
        if not self.alone:
            from asker.engines.xla import distributed

            distributed.shut_down()


class OnStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print("asker:", record.getMessage(), file=sys.stderr)


def show_log() -> None:
    """What the engine says before it runs: devices, solver, memory."""
    if not devices.handlers:
        devices.addHandler(OnStderr())
    devices.setLevel(logging.INFO)
