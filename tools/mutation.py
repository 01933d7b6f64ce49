"""Mutation test of the fault injection campaign: `make sabotage`.

Each mutation introduces a bug in a copy of the source.  The short campaign runs on every copy, with all its parts,
until the first fault.  The table lists which mutations were detected, and by which kind of trial.  The exit code is 0
if the copy without mutation has no fault and enough mutations are detected.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIN_DETECTED = 15
MAX_SECONDS = 900
"""Time limit of the campaign on one copy; it allows for a busy machine."""


@dataclass(frozen=True)
class Mutation:
    """Replacements in the source; each text to be replaced must occur exactly once."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    """File, text, and replacement of each edit."""


def _one(name: str, file: str, old: str, new: str) -> Mutation:
    return Mutation(name, ((file, old, new),))


BAL, FILES, FOLDERS = "applications/bundle/bal.py", "io/files.py", "io/folders.py"
MUTATIONS = (
    _one("no lock on a folder", FOLDERS, "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
    _one(
        "a COLMAP model is written in place, file by file",
        FOLDERS,
        "yield temporary\n            _swap(temporary, target) if swapped else _move_in(temporary, target)\n",
        "target.mkdir(exist_ok=True)\n            yield target\n",
    ),
    _one(
        "no handler of SIGTERM",
        "cli/__init__.py",
        "SignalsInterrupt(signal.SIGINT, signal.SIGTERM)",
        "SignalsInterrupt(signal.SIGINT)",
    ),
    _one(
        "the cache is read without verification of its digest",
        "io/cache.py",
        "return content if digest == _digest(name, content) else None",
        "return content",
    ),
    Mutation(
        "a checkpoint is read without verification of its digest and costs",
        (
            ("solver/checkpoint.py", 'if tree["digest"] != digest(tree, arrays):', "if False:"),
            ("solver/checkpoint.py", "if not math.isclose(", "if False and not math.isclose("),
        ),
    ),
    _one(
        "BAL: every observation is read twice",
        BAL,
        "values[:whole].reshape(-1, 4), values[whole:]",
        "values[:whole].reshape(-1, 4).repeat(2, axis=0), values[whole:]",
    ),
    _one(
        "BAL: the last observation is dropped",
        BAL,
        "np.flatnonzero(point % self.n_parts == self.part)",
        "np.flatnonzero(point % self.n_parts == self.part)[:-1]",
    ),
    _one(
        "g2o: the wrong triangle of an information matrix is used",
        "applications/pose_graph/formats/graph_builder.py",
        "        upper = np.triu_indices(d)\n",
        "        upper = np.tril_indices(d)\n",
    ),
    _one(
        "COLMAP: positions are assigned to the next point",
        "applications/colmap/formats/binary.py",
        'head["xyz"].copy(), head["rgb"]',
        'np.roll(head["xyz"], 1, axis=0), head["rgb"]',
    ),
    _one(
        "weights are ignored",
        "engines/cpu/factor_loops.py",
        "np.sqrt(structure.sorted(f.weight))",
        "np.ones(structure.sorted(f.weight).shape)",
    ),
    _one(
        "the weight of Cauchy's kernel has the wrong sign",
        "kernels/kernels.py",
        "        return 1 / (1 + v)\n",
        "        return -1 / (1 + v)\n",
    ),
    _one(
        "a resumed run lacks the last iteration of its history",
        "solver/loop.py",
        "self.history = earlier.state, earlier.best, earlier.history\n",
        "self.history = earlier.state, earlier.best, earlier.history[:-1]\n",
    ),
    _one(
        "a result is saved without one array",
        "solver/saved_result.py",
        "for name, item in result.values.items()],",
        "for name, item in list(result.values.items())[1:]],",
    ),
    _one(
        "a file is written in place, a little at a time",
        FILES,
        "os.replace(temporary, target)",
        '__import__("shutil").copyfileobj(open(temporary, "rb"), open(target, "wb", 0), 64)',
    ),
    _one(
        "relative rotations are transposed",
        "applications/rotation_averaging/files.py",
        "numbers[:, :9].reshape(-1, 3, 3), numbers[:, 9]",
        "numbers[:, :9].reshape(-1, 3, 3).transpose(0, 2, 1), numbers[:, 9]",
    ),
    _one("PFM: rows in the wrong order", "io/images.py", "reshape(height, width)[::-1]", "reshape(height, width)"),
    _one(
        "recorded runs are read without verification of their checksums",
        "experiments/records.py",
        "            _check_sums(folder)\n",
        "            pass\n",
    ),
)


def ambiguous_edits(mutations: Sequence[Mutation]) -> list[str]:
    """Return a message for each edit whose text does not occur exactly once in the source."""
    messages = []
    for mutation in mutations:
        for file, old, _ in mutation.edits:
            n = (ROOT / "src" / "asker" / file).read_text(encoding="utf-8").count(old)
            if n != 1:
                messages.append(f"{mutation.name}: {file} has {n} times, expected once: {old!r}")
    return messages


def mutated_source(mutation: Mutation | None, folder: Path) -> Path:
    """Copy the source to a folder, apply a mutation, and return the copy."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy)
    for file, old, new in mutation.edits if mutation else ():
        path = copy / "asker" / file
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    return copy


def first_fault(source: Path, folder: Path, warm: Path | None, seed: int) -> tuple[str, float]:
    """Return the first fault of the short campaign, empty if there is none, and the seconds until then."""
    if warm:
        shutil.copytree(warm, folder / "cache")
    command = [sys.executable, str(ROOT / "tools" / "faults"), "--short", "--stop", "--seed", str(seed)]
    command += ["--table", str(folder / "table.txt")]
    settings = os.environ | {"PYTHONPATH": str(source), "ASKER_CACHE": str(folder / "cache")}
    begin = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=settings, cwd=folder, timeout=MAX_SECONDS)
        faults = [line for line in done.stdout.splitlines() if line.startswith("FAULT ")]
        fault = faults[0].removeprefix("FAULT ") if faults else ""
        if done.returncode not in (0, 1) or (done.returncode == 1 and not faults):
            fault = f"the campaign ends with exit code {done.returncode}: {done.stderr[-300:]}"
    except subprocess.TimeoutExpired:
        fault = f"the campaign has not ended in {MAX_SECONDS} seconds"
    return fault, time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run the mutations whose names contain this text")
    parser.add_argument("--table", type=Path, default=ROOT / "benchmarks" / "results" / "mutation.md")
    args = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if args.only in mutation.name]
    if wrong := ambiguous_edits(chosen):
        sys.exit("\n".join(wrong))
    n_detected = 0
    with (
        tempfile.TemporaryDirectory(prefix="asker-mutation-") as temporary,
        open(args.table, "w", encoding="utf-8") as out,
    ):

        def write(line: str) -> None:
            print(line, flush=True)
            print(line, file=out, flush=True)

        write("# Mutations that the short fault injection campaign detects\n")
        write(f"`tools/mutation.py --seed {args.seed}`: the first fault on each copy of the source.\n")
        write("| mutation | detected by | first fault | seconds |\n|---|---|---|--:|")
        home = Path(temporary) / "none"
        home.mkdir()
        clean, seconds = first_fault(mutated_source(None, home), home, None, args.seed)
        write(_row("none", clean, seconds))
        for k, mutation in enumerate(chosen):
            folder = Path(temporary) / str(k)
            folder.mkdir()
            fault, seconds = first_fault(mutated_source(mutation, folder), folder, home / "cache", args.seed)
            n_detected += bool(fault)
            write(_row(mutation.name, fault, seconds))
            shutil.rmtree(folder, ignore_errors=True)
        outcome = "a fault" if clean else "no fault"
        write(f"\n{n_detected} of {len(chosen)} mutations are detected; {outcome} without mutation.")
    return 0 if not clean and n_detected >= min(MIN_DETECTED, len(chosen)) else 1


def _row(name: str, found: str, seconds: float) -> str:
    kind, _, fault = re.sub(r"\S*asker-faults-\w+/|, kept as [^:]*", "", found).partition(": ")
    return f"| {name} | {kind or 'nothing'} | {fault[:100].replace('|', '/')} | {seconds:.0f} |"


if __name__ == "__main__":
    sys.exit(main())
