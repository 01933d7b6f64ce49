"""Runs with several processes, on one or several hosts."""

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
    """The processes of a run, as specified on the command line."""

    coordinator: str | None
    num_processes: int | None
    process_id: int | None

    @property
    def given(self) -> bool:
        return any(x is not None for x in (self.coordinator, self.num_processes, self.process_id))

    def engine(self, name: str) -> str:
        """Return the name of the engine, which is xla for several processes; raise a ValueError for cpu."""
        if self.given and name == "cpu":
            raise ValueError("--coordinator, --num-processes and --process-id are for --engine xla")
        if name == "auto" and not self.given and os.environ.keys() & {"SLURM_PROCID", "JOB_COMPLETION_INDEX"}:
            from asker.engines.xla import distributed

            return "xla" if distributed.in_a_job() else name
        return "xla" if self.given else name

    @contextmanager
    def together(self, quiet: bool, engine: str, several: bool) -> Iterator["Place"]:
        """Connect the processes and yield the index of this one; it is alone unless `several` processes are supported.

        After an error in one process all processes exit.
        """
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
        """Disconnect from the other processes, so that this one can continue after their end."""
        if not self.alone:
            from asker.engines.xla import distributed

            distributed.shut_down()


class OnStderr(logging.Handler):
    """Log handler that prints to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        print("asker:", record.getMessage(), file=sys.stderr)


def show_log() -> None:
    """Print the engine's messages on devices, solver and memory."""
    if not devices.handlers:
        devices.addHandler(OnStderr())
    devices.setLevel(logging.INFO)
