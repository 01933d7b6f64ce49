"""Trials of commands that receive a signal at a random time or run concurrently; repeated, they end correctly."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.bundle.bal import write_bal
from asker.applications.bundle.synthetic import make_scene
from asker.experiments.records import read_record
from fault_trials import MAX_SECONDS, Trial, all_gone, temporary_files, usual_signals

PROGRAM = """
import sys
try:
    print("begun", file=sys.stderr, flush=True)
    from asker.cli import main
except KeyboardInterrupt:  # before the program has installed its handlers
    sys.exit(130)
sys.exit(main())
"""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals that a running command handles: it saves the present result, or reports that there is none."""
INTERRUPTED = 130
Process = subprocess.Popen[str]


class Command:
    """One command in a separate folder; each start is a new process in a new session."""

    def __init__(self, folder: Path, *arguments: Any):
        folder.mkdir(parents=True)
        self.folder, self.errors = folder, folder / "err.txt"
        self.command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]

    def start(self, **how: Any) -> Process:
        how = {"preexec_fn": usual_signals, "start_new_session": True, "text": True} | how
        with open(self.errors, "w", encoding="utf-8") as err:
            return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=err, **how)

    def error_text(self) -> str:
        """Return the text on standard error without the first line, which marks the start."""
        return self.errors.read_text(encoding="utf-8", errors="replace").removeprefix("begun\n")

    def has_begun(self) -> bool:
        return self.errors.stat().st_size > 0

    def wrong_end(self, process: Process) -> str | None:
        """Return the fault of a command that should end with a result, or None."""
        code = ended(process)
        if code is None:
            return "hangs"
        return f"exit code {code}: {self.error_text()}" if code else None


def ended(process: Process) -> int | None:
    """Return the exit code; kill a process that hangs and return None."""
    try:
        return process.wait(MAX_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None


def until(condition: Callable[[], bool], process: Process) -> None:
    """Wait until the condition is true or the process has ended."""
    while not condition() and process.poll() is None:
        time.sleep(0.002)


@contextmanager
def killed_at_the_end(process: Process) -> Iterator[None]:
    """Context manager that kills the session of a process at the end."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def scene_in(folder: Path) -> Path:
    """Write a small bundle and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bal(folder / "data.txt", make_scene(6, 300, start_error=5.0).start)
    return folder / "data.txt"


# ---- one solve with a checkpoint


def costs_in(record: Path) -> list[float]:
    return [line["cost"] for line in json.loads(record.read_text())["history"]]


def solve_command(folder: Path, data: Path, *more: Any) -> Command:
    options = ["--tau", "1", "--iterations", "40", "--quiet", "--json", folder / "run.json", *more]
    return Command(folder, "solve", data, *options)


def solve_with_checkpoint(folder: Path, data: Path) -> Command:
    return solve_command(folder, data, "--checkpoint", folder / "run.npz", "--every", "1")


def signal_solves(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Send a signal to `n` solves, all kinds equally often: half at a random time, half during the iterations."""
    data = scene_in(folder)
    alone = solve_with_checkpoint(folder / "alone", data)
    for _ in range(2):  # the first one compiles
        (alone.folder / "run.npz").unlink(missing_ok=True)
        begin = time.monotonic()
        assert not (wrong := alone.wrong_end(alone.start())), wrong
    seconds, right = time.monotonic() - begin, costs_in(alone.folder / "run.json")
    for kind in SIGNALS:
        for k in range(-(-n // len(SIGNALS))):
            command = solve_with_checkpoint(folder / f"{kind.name}{k}", data)
            fault = _signalled(command, kind, k % 2 == 0, rng.uniform(0, seconds))
            yield Trial(f"solve, {kind.name}", fault or _resumed(command, right))


def _signalled(command: Command, kind: signal.Signals, at_work: bool, delay: float) -> str | None:
    """Send a signal, at the first checkpoint or after some time; return the fault of the end, or None."""
    process = command.start()
    checkpoint, record = command.folder / "run.npz", command.folder / "run.json"
    with killed_at_the_end(process):
        until(checkpoint.exists if at_work else command.has_begun, process)
        if not at_work:
            time.sleep(delay)
        works, is_done = checkpoint.exists(), record.exists()
        process.send_signal(kind)
        code = ended(process)
        if code is None:
            return "hangs after the signal"
        if fault := wrong_code(code, kind, works and not is_done, command.error_text()):
            return fault
        if works and code == 0 and not record.exists():
            return "exit code 0 without a result"
        return None if all_gone(process.pid) else "a child process still runs"


def wrong_code(code: int, kind: signal.Signals, at_work: bool, error_text: str) -> str | None:
    """Return the fault in the exit code of a command that received a signal, or None."""
    if kind not in HANDLED_SIGNALS:
        return None if code in (0, -kind) else f"exit code {code}: {error_text}"
    if "Traceback" in error_text:
        return error_text
    return None if code in (0, INTERRUPTED) or (code == -kind and not at_work) else f"exit code {code}: {error_text}"


def _resumed(command: Command, right: list[float]) -> str | None:
    """Repeat the command; return the fault of its result, or None."""
    process = command.start()
    with killed_at_the_end(process):
        if wrong := command.wrong_end(process):
            return wrong
    remaining = temporary_files(command.folder)
    if remaining:
        return f"temporary files remain: {remaining}"
    return (
        None
        if costs_in(command.folder / "run.json") == right
        else "the costs differ from those of an uninterrupted run"
    )


# ---- comparisons, which have worker processes


def numbers(out: Path) -> dict[str, Any]:
    """Return the numbers of the runs of a folder, without the seconds."""
    runs = {}
    for folder in sorted(path for path in (out / "runs").iterdir() if path.is_dir()):
        record = read_record(folder)
        runs[folder.name] = record.cost, [(h["iteration"], h["cost"], h["best_cost"]) for h in record.history]
    return runs


def compare_command(folder: Path, data: Path) -> Command:
    options = ["--methods", "irls,gnc,asker", "--iterations", "15", "--processes", "2", "--quiet"]
    return Command(folder, "compare", data, *options, "--output", folder / "out")


def _compared_alone(folder: Path) -> tuple[Path, float, dict[str, Any]]:
    """Run an undisturbed comparison; return the data, its seconds and its numbers."""
    data = scene_in(folder)
    for name in ("first", "alone"):  # the first one compiles
        command, begin = compare_command(folder / name, data), time.monotonic()
        assert not (wrong := command.wrong_end(command.start())), wrong
    return data, time.monotonic() - begin, numbers(folder / "alone" / "out")


def signal_comparisons(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Send a signal to `n` comparisons at a random time, all kinds equally often, and repeat them."""
    data, seconds, right = _compared_alone(folder)
    for kind in SIGNALS[: max(1, min(n, len(SIGNALS)))]:
        for k in range(-(-n // len(SIGNALS))):
            command = compare_command(folder / f"{kind.name}{k}", data)
            process = command.start()
            with killed_at_the_end(process):
                until(command.has_begun, process)
                time.sleep(rng.uniform(0, 0.8 * seconds))
                is_interactive = kind == signal.SIGINT  # Ctrl-C is for the workers too
                with suppress(ProcessLookupError):  # it may end at this moment
                    (os.killpg if is_interactive and process.poll() is None else os.kill)(process.pid, kind)
                code = ended(process)
                fault = (
                    "hangs after the signal" if code is None else wrong_code(code, kind, False, command.error_text())
                )
                fault = fault or (None if all_gone(process.pid) else "a child process still runs")
            yield Trial(f"compare, {kind.name}", fault or _ends_right(command, right))


def _ends_right(command: Command, right: dict[str, Any]) -> str | None:
    """Repeat a comparison; return the fault of its result, or None."""
    process = command.start()
    with killed_at_the_end(process):
        if wrong := command.wrong_end(process):
            return wrong
        if not all_gone(process.pid):
            return "a child process still runs"
    if remaining := temporary_files(command.folder):
        return f"temporary files remain: {remaining}"
    try:
        return None if numbers(command.folder / "out") == right else "the numbers differ from an undisturbed comparison"
    except ValueError as error:
        return str(error)


def two_at_a_time(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Run two comparisons in one folder `n` times: one must succeed, the other succeed or be rejected."""
    data, seconds, right = _compared_alone(folder)
    for k in range(n):
        command = compare_command(folder / f"two{k}", data)
        first = command.start()
        with killed_at_the_end(first):
            until(lambda command=command: (command.folder / "out").exists(), first)  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.5 * seconds))
            second = command.start()
            with killed_at_the_end(second):
                codes = [ended(process) for process in (first, second)]
        refused = codes.count(2) == 1 and "process" in command.error_text()
        fault = None if codes == [0, 0] or (refused and 0 in codes) else f"exit codes {codes}: {command.error_text()}"
        yield Trial("two at a time", fault or _ends_right(command, right), refused)
