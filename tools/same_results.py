"""Compare the behaviour of two checkouts of asker bit for bit, as a test of a refactoring.

    python tools/same_results.py OLD NEW --only "bal solve 16"

The cases are listed in same_results.txt.  Each runs with OLD and then with NEW, in a folder of the same name.  Exit
codes, stdout, stderr and all written files are compared, except times, versions, the amount of compilation, the digests
in the names of recorded runs, spaces at line ends, and plots over seconds.  JSON, HTML and .npz files are compared by
content; a key or file that only NEW has is printed and is not a difference.  For bad input the exit codes must agree;
differing messages are printed for review.  The exit code is 1 if anything differs.

With --numbers, printed lines may differ in their words: the numbers that a step prints must agree, in their order.

NEW may reuse kernels that OLD compiled, so its times are not comparable unless the cache is warm.
"""

import argparse
import hashlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")

CASES = Path(__file__).with_suffix(".txt")
COMMON_OPTIONS = {
    "--quiet --threads {threads} --json {step}.json": ("solve", "stereo"),
    "--quiet --threads {threads}": ("stereo-compare",),
    "--quiet --processes 1": ("compare", "reproduce"),
}  # options that are added to those of a case, by command
IGNORED_KEYS = re.compile(r"seconds|^(versions?|date|commit|compiled|digest)$")
PLOTS_OVER_TIME = ("energy.png",)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
DIGEST = re.compile(r"-[0-9a-f]{10}\b")
PAGE = re.compile(rb'(.*<script id="data" type="application/json">)(.*?)(</script>.*)', re.DOTALL)


class Case(NamedTuple):
    """Commands that run one after the other in one folder."""

    name: str
    steps: list[list[str]]

    @property
    def is_bad(self) -> bool:
        """Return whether the case must be rejected."""
        return self.name.startswith("bad ")

    def missing_data(self) -> str:
        """Return the names of the data that do not exist."""
        words = [w.removeprefix("data/") for step in self.steps for w in step if w.startswith("data/")]
        return ", ".join(w for w in words if not (DATA / w).exists())


class Difference(NamedTuple):
    """One difference between the checkouts, or a key or file that only NEW has (`is_new`)."""

    where: str
    what: str
    is_new: bool = False


def all_cases(threads: int) -> Iterator[Case]:
    """Yield the cases of same_results.txt."""
    lines = CASES.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    for line in [line for line in lines if line and not line.startswith("#")]:
        name, commands = line.split(":", 1)
        parts = re.split(r"\{([^{}]*)\}", commands)  # every second part is a list of choices
        lists = list(dict.fromkeys(parts[1::2]))  # a list that occurs twice is one choice
        for chosen in itertools.product(*(map(str.strip, of.split(",")) for of in lists)):
            choice = dict(zip(lists, chosen, strict=True))
            whole = "".join(choice[part] if k % 2 else part for k, part in enumerate(parts))
            steps = [shlex.split(command) for command in whole.split("&&")]
            for k, step in enumerate(steps):
                added = " ".join(options for options, commands in COMMON_OPTIONS.items() if step[0] in commands)
                step += added.format(threads=threads, step=k + 1).split()
            yield Case(" ".join(filter(None, (name, *chosen))), steps)


class Checkout:
    """Command line of one checkout."""

    def __init__(self, root: Path, cache: Path):
        self.root = root.resolve()
        scripts = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
        self.program = "import sys; from {} import {} as main; sys.exit(main())".format(*scripts["asker"].split(":"))
        variables = {"PYTHONPATH": str(self.root / "src"), "ASKER_CACHE": str(cache), "COLUMNS": "120", "TERM": "dumb"}
        self.environment = os.environ | variables
        imported = self.python("import asker; print(asker.__file__)", [], self.root).stdout.strip()
        if self.root not in Path(imported).parents:
            sys.exit(f"{self.root}: `import asker` imports {imported or 'nothing'} instead of this checkout")

    def python(self, program: str, arguments: list[str], folder: Path) -> Any:
        """Run a Python program with this checkout."""
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, encoding="utf-8")

    def run(self, case: Case, folder: Path) -> tuple[dict[str, Any], float]:
        """Run a case; return the outputs of each step with all files after the last, and the seconds."""
        (folder / "empty").mkdir(parents=True)
        (folder / "data").symlink_to(DATA)
        for name in ("words.txt", "words.g2o"):
            (folder / name).write_text("words, not numbers\n")
        write_rotations(folder / "rotations.txt")
        outputs, start = {}, time.perf_counter()
        for k, step in enumerate(case.steps):
            done = self.python(self.program, step, folder)
            texts = {"stdout": self.masked(done.stdout), "stderr": self.masked(done.stderr)}
            outputs[f"{k + 1}"] = {"exit code": done.returncode, **texts}
        seconds = time.perf_counter() - start
        paths = sorted(p for at, _, names in os.walk(folder) for name in names if (p := Path(at) / name).is_file())
        paths = [p for p in paths if p.name not in (".lock", "SHA256SUMS")]  # they depend on processes and times
        files = {DIGEST.sub("-#", str(p.relative_to(folder))): p.read_bytes() for p in paths}
        return {"step": outputs, "file": files}, seconds

    def masked(self, text: str) -> list[str]:
        """Return the lines without times such as "in 1.23 s" and without the last column of a table of "seconds"."""
        lines, timed = [], False
        for line in text.replace(str(self.root), "CHECKOUT").splitlines():
            words = line.split()
            timed = bool(words) and (timed or words[-1] == "seconds")
            if not line.startswith("The time includes compiling"):
                kept = " ".join(words[:-1]) if timed else line.rstrip()
                lines.append(re.sub(r"\b\d[\d.e+-]*(?= s\b)", "#", kept))
        return lines


def write_rotations(path: Path) -> None:
    """Write relative rotations between 20 frames, a fifth of them outliers."""
    rng = np.random.default_rng(0)
    frames = [rotation.as_matrix() for rotation in Rotation.random(20, rng)]
    lines = []
    for i, j in itertools.combinations(range(20), 2):
        relative = Rotation.random(None, rng).as_matrix() if rng.random() < 0.2 else frames[j] @ frames[i].T
        noise = Rotation.from_rotvec(0.02 * rng.normal(size=3)).as_matrix()
        lines.append(" ".join(map(repr, [i, j, *map(float, (noise @ relative).ravel())])))
    path.write_text("\n".join(lines) + "\n")


def differences(old: Any, new: Any, where: str = "") -> Iterator[Difference]:
    """Yield the differences of two JSON values; bytes are the content of a file, whose name is the end of `where`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new:
                yield Difference(f"{where} {key}".strip(), "is missing")
            elif not IGNORED_KEYS.search(key):
                yield from differences(value, new[key], f"{where} {key}".strip())
        yield from (Difference(f"{where} {key}".strip(), "is new", True) for key in new if key not in old)
    elif isinstance(old, list) and isinstance(new, list):
        for k, pair in enumerate(zip(old, new, strict=False)):
            yield from differences(*pair, f"{where} [{k}]")
        if len(old) != len(new):
            yield Difference(where, f"{len(old)} entries, now {len(new)}")
    elif isinstance(old, bytes) and isinstance(new, bytes):
        if old != new and not where.endswith(PLOTS_OVER_TIME):
            yield from differences(content(where, old), content(where, new), where)
    elif DIGEST.sub("-#", repr(old)) != DIGEST.sub("-#", repr(new)):  # repr distinguishes 1 from 1.0, and all bits
        yield Difference(where, f"{old!r:.200}, now {new!r:.200}")


def content(name: str, data: bytes) -> Any:
    """Return the content of a file as a JSON value."""
    ending = Path(name).suffix
    if ending in (".json", ".jsonl"):
        return json.loads(data) if ending == ".json" else [json.loads(line) for line in data.splitlines()]
    if ending == ".npz":  # the entry `tree` of a checkpoint is JSON
        with np.load(io.BytesIO(data)) as file:
            of = {key: (file[key], file[key].tobytes()) for key in file}
        return {k: json.loads(b) if k == "tree" else f"{a.dtype} {a.shape}, {digest(b)}" for k, (a, b) in of.items()}
    if ending == ".html" and (page := PAGE.fullmatch(data)):
        return {"data": json.loads(page[2]), "before the data": digest(page[1]), "after the data": digest(page[3])}
    return data.decode().splitlines() if ending in (".txt", ".g2o") else digest(data)


def digest(data: bytes) -> str:
    return f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()[:12]}"


def printed_numbers(steps: dict[str, Any]) -> dict[str, Any]:
    """Return the output of each step with the numbers in the place of the printed lines."""
    found = {}
    for name, step in steps.items():
        lines = [line for line in step["stdout"] if not line.startswith("asker ")]
        found[name] = step | {
            "stdout": NUMBER.findall("\n".join(lines)),
            "stderr": NUMBER.findall("\n".join(step["stderr"])),
        }
    return found


def compare(
    case: Case, checkouts: list[Checkout], place: Path, numbers: bool = False
) -> tuple[list[Difference], list[float]]:
    """Return the differences and the seconds of both checkouts; empty lists if the data are missing."""
    if case.missing_data():
        return [], []
    folder, outcomes = place / re.sub(r"[^A-Za-z0-9.-]+", "_", case.name), []
    for checkout, name in zip(checkouts, ("old", "new"), strict=True):
        outcomes.append(checkout.run(case, folder / "work"))
        (folder / "work").rename(folder / name)
    (old, old_seconds), (new, new_seconds) = outcomes
    if numbers:
        old, new = (whole | {"step": printed_numbers(whole["step"])} for whole in (old, new))
    listed = list(differences(old, new))
    for k, step in old["step"].items():  # if both fail in the same way, nothing was compared
        if bool(step["exit code"]) != case.is_bad:
            listed.append(Difference(f"step {k}", f"ends with {step['exit code']}: {step['stderr'][-1:]}"))
    return listed, [old_seconds, new_seconds]


def print_table(cases: list[Case], outcomes: Iterator[tuple[list[Difference], list[float]]], messages: bool) -> int:
    """Print a line for each case as it ends, then new items and changed messages; return the exit code."""
    width = max((len(case.name) for case in cases), default=4)
    counted, remarks = Counter[str](), Counter[str]()
    print(f"{'case':{width}}               old, s  new, s", flush=True)
    for case, (listed, seconds) in zip(cases, outcomes, strict=True):
        first = case.missing_data()
        for d in listed:
            if d.is_new:
                remarks[f"{d.where} is new"] += 1
            elif case.is_bad and not messages and re.search(" std(out|err)", d.where):
                remarks[f"{case.name}: {d.what}"] += 1
            else:
                first = first or f"{d.where}: {d.what}"
        word = ("different" if first else "same") if seconds else "no data"
        counted[word] += 1
        print(f"{case.name:{width}}  {word:9}", *(f"{s:7.1f}" for s in seconds), f" {first}".rstrip(), flush=True)
    for text, n in remarks.items():
        print(f"to be reviewed: {text}" + (f" ({n} times)" if n > 1 else ""))
    print(", ".join(f"{n} {word}" for word, n in counted.items()) or "no such case")
    return 1 if counted["different"] or not cases else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("old", "new"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="a checkout")
    parser.add_argument("--only", default="", metavar="TEXT", help="run the cases whose name contains TEXT")
    parser.add_argument("--threads", type=int, default=2, help="threads of each solve")
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent cases")
    parser.add_argument("--cache", type=Path, help="folder of compiled kernels; default: a temporary folder")
    parser.add_argument("--messages", action="store_true", help="require equal messages about bad input")
    parser.add_argument("--numbers", action="store_true", help="compare the numbers of printed lines, not the words")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the written files in this folder")
    args = parser.parse_args()
    cases = [case for case in all_cases(args.threads) if args.only in case.name]
    place = Path(tempfile.mkdtemp(prefix="same-results-", dir=args.keep))
    try:
        checkouts = [Checkout(root, (args.cache or place / "kernels").resolve()) for root in (args.old, args.new)]
        with ThreadPoolExecutor(args.jobs) as pool:
            outcomes = pool.map(partial(compare, checkouts=checkouts, place=place, numbers=args.numbers), cases)
            return print_table(cases, outcomes, args.messages)
    finally:
        if args.keep is None:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
