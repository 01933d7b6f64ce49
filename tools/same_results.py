"""What two checkouts of asker do, compared bit for bit: a restructuring is to change nothing.

    python tools/same_results.py OLD NEW --only "bal solve 16"

The cases are in same_results.txt.  Each runs in OLD and then in NEW, in a folder of the same name.  Compared are the
exit codes, stdout, stderr and every file that was written.  Left out are times, versions, how much was compiled, the
digests in the names of recorded runs, spaces at line ends, and figures over seconds.  JSON, pages and .npz files are
compared by what they hold; a key or file that only NEW has is told and is no difference.  Of bad input the exit codes
must agree; messages are told, for a person to judge.  The exit code is 1 if anything differs.

OLD compiles kernels that NEW may find compiled: mind that where the seconds are compared.
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
ALWAYS = {
    "--quiet --threads {threads} --json {step}.json": ("solve", "stereo"),
    "--quiet --threads {threads}": ("stereo-compare",),
    "--quiet --processes 1": ("compare", "reproduce"),
}  # what a command is given beside the options of the case
LEFT_OUT = re.compile(r"seconds|^(versions?|date|commit|compiled|digest)$")  # keys
OVER_SECONDS = ("energy.png",)
DIGEST = re.compile(r"-[0-9a-f]{10}\b")
PAGE = re.compile(rb'(.*<script id="data" type="application/json">)(.*?)(</script>.*)', re.DOTALL)


class Case(NamedTuple):
    """A few commands, one after the other in one folder."""

    name: str
    steps: list[list[str]]

    @property
    def is_bad(self) -> bool:
        return self.name.startswith("bad ")

    def lacks(self) -> str:
        words = [w.removeprefix("data/") for step in self.steps for w in step if w.startswith("data/")]
        return ", ".join(w for w in words if not (DATA / w).exists())


class Difference(NamedTuple):
    """What is not as it was, or `is_new`."""

    where: str
    what: str
    is_new: bool = False


def all_cases(threads: int) -> Iterator[Case]:
    lines = CASES.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    for line in [line for line in lines if line and not line.startswith("#")]:
        name, commands = line.split(":", 1)
        parts = re.split(r"\{([^{}]*)\}", commands)  # every second one is a list
        lists = list(dict.fromkeys(parts[1::2]))  # the same list twice is one choice
        for chosen in itertools.product(*(map(str.strip, of.split(",")) for of in lists)):
            choice = dict(zip(lists, chosen, strict=True))
            whole = "".join(choice[part] if k % 2 else part for k, part in enumerate(parts))
            steps = [shlex.split(command) for command in whole.split("&&")]
            for k, step in enumerate(steps):
                added = " ".join(options for options, commands in ALWAYS.items() if step[0] in commands)
                step += added.format(threads=threads, step=k + 1).split()
            yield Case(" ".join(filter(None, (name, *chosen))), steps)


class Checkout:
    """The command line of one checkout."""

    def __init__(self, root: Path, cache: Path):
        self.root = root.resolve()
        scripts = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
        self.program = "import sys; from {} import {} as main; sys.exit(main())".format(*scripts["asker"].split(":"))
        own = {"PYTHONPATH": str(self.root / "src"), "ASKER_CACHE": str(cache), "COLUMNS": "120", "TERM": "dumb"}
        self.environment = os.environ | own
        found = self.python("import asker; print(asker.__file__)", [], self.root).stdout.strip()
        if self.root not in Path(found).parents:
            sys.exit(f"{self.root}: `import asker` finds {found or 'nothing'}")

    def python(self, program: str, arguments: list[str], folder: Path) -> Any:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, encoding="utf-8")

    def run(self, case: Case, folder: Path) -> tuple[dict[str, Any], float]:
        """What each step says, with all files after the last; and the seconds."""
        (folder / "empty").mkdir(parents=True)
        (folder / "data").symlink_to(DATA)
        for name in ("words.txt", "words.g2o"):
            (folder / name).write_text("words, not numbers\n")
        write_rotations(folder / "rotations.txt")
        said, start = {}, time.perf_counter()
        for k, step in enumerate(case.steps):
            done = self.python(self.program, step, folder)
            texts = {"stdout": self.masked(done.stdout), "stderr": self.masked(done.stderr)}
            said[f"{k + 1}"] = {"exit code": done.returncode, **texts}
        seconds = time.perf_counter() - start
        paths = sorted(p for at, _, names in os.walk(folder) for name in names if (p := Path(at) / name).is_file())
        paths = [p for p in paths if p.name not in (".lock", "SHA256SUMS")]  # a process, and times
        files = {DIGEST.sub("-#", str(p.relative_to(folder))): p.read_bytes() for p in paths}
        return {"step": said, "file": files}, seconds

    def masked(self, text: str) -> list[str]:
        """The lines without times: "in 1.23 s", and the last column of a table if its title is "seconds"."""
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
    """Of two values of JSON; bytes are a file, with whose name `where` ends."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new:
                yield Difference(f"{where} {key}".strip(), "is missing")
            elif not LEFT_OUT.search(key):
                yield from differences(value, new[key], f"{where} {key}".strip())
        yield from (Difference(f"{where} {key}".strip(), "is new", True) for key in new if key not in old)
    elif isinstance(old, list) and isinstance(new, list):
        for k, pair in enumerate(zip(old, new, strict=False)):
            yield from differences(*pair, f"{where} [{k}]")
        if len(old) != len(new):
            yield Difference(where, f"{len(old)} entries, now {len(new)}")
    elif isinstance(old, bytes) and isinstance(new, bytes):
        if old != new and not where.endswith(OVER_SECONDS):
            yield from differences(content(where, old), content(where, new), where)
    elif DIGEST.sub("-#", repr(old)) != DIGEST.sub("-#", repr(new)):  # repr tells 1 from 1.0, and every bit
        yield Difference(where, f"{old!r:.200}, now {new!r:.200}")


def content(name: str, data: bytes) -> Any:
    """What a file holds, as JSON."""
    ending = Path(name).suffix
    if ending in (".json", ".jsonl"):
        return json.loads(data) if ending == ".json" else [json.loads(line) for line in data.splitlines()]
    if ending == ".npz":  # of a checkpoint, `tree` is JSON
        with np.load(io.BytesIO(data)) as file:
            of = {key: (file[key], file[key].tobytes()) for key in file}
        return {k: json.loads(b) if k == "tree" else f"{a.dtype} {a.shape}, {digest(b)}" for k, (a, b) in of.items()}
    if ending == ".html" and (page := PAGE.fullmatch(data)):
        return {"data": json.loads(page[2]), "before the data": digest(page[1]), "after the data": digest(page[3])}
    return data.decode().splitlines() if ending in (".txt", ".g2o") else digest(data)


def digest(data: bytes) -> str:
    return f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()[:12]}"


def compare(case: Case, checkouts: list[Checkout], place: Path) -> tuple[list[Difference], list[float]]:
    """The differences, and the seconds of both; nothing where the data is not at hand."""
    if case.lacks():
        return [], []
    folder, ran = place / re.sub(r"[^A-Za-z0-9.-]+", "_", case.name), []
    for checkout, name in zip(checkouts, ("old", "new"), strict=True):
        ran.append(checkout.run(case, folder / "work"))
        (folder / "work").rename(folder / name)
    (old, old_seconds), (new, new_seconds) = ran
    found = list(differences(old, new))
    for k, step in old["step"].items():  # where both fail alike, nothing was compared
        if bool(step["exit code"]) != case.is_bad:
            found.append(Difference(f"step {k}", f"ends with {step['exit code']}: {step['stderr'][-1:]}"))
    return found, [old_seconds, new_seconds]


def print_table(cases: list[Case], outcomes: Iterator[tuple[list[Difference], list[float]]], messages: bool) -> int:
    """A line for each case as it ends, then what is new or to be judged.  Returns the exit code."""
    width = max((len(case.name) for case in cases), default=4)
    counted, told = Counter[str](), Counter[str]()
    print(f"{'case':{width}}               old, s  new, s", flush=True)
    for case, (found, seconds) in zip(cases, outcomes, strict=True):
        first = case.lacks()
        for d in found:
            if d.is_new:
                told[f"{d.where} is new"] += 1
            elif case.is_bad and not messages and re.search(" std(out|err)", d.where):
                told[f"{case.name}: {d.what}"] += 1
            else:
                first = first or f"{d.where}: {d.what}"
        word = ("different" if first else "same") if seconds else "no data"
        counted[word] += 1
        print(f"{case.name:{width}}  {word:9}", *(f"{s:7.1f}" for s in seconds), f" {first}".rstrip(), flush=True)
    for text, n in told.items():
        print(f"to be judged: {text}" + (f" ({n} times)" if n > 1 else ""))
    print(", ".join(f"{n} {word}" for word, n in counted.items()) or "no such case")
    return 1 if counted["different"] or not cases else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("old", "new"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="a checkout")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose name contains this")
    parser.add_argument("--threads", type=int, default=2, help="of each solve")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--cache", type=Path, help="the folder of compiled kernels; a temporary one when not given")
    parser.add_argument("--messages", action="store_true", help="messages about bad input must be the same too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave what was written below this folder")
    asked = parser.parse_args()
    cases = [case for case in all_cases(asked.threads) if asked.only in case.name]
    place = Path(tempfile.mkdtemp(prefix="same-results-", dir=asked.keep))
    try:
        checkouts = [Checkout(root, (asked.cache or place / "kernels").resolve()) for root in (asked.old, asked.new)]
        with ThreadPoolExecutor(asked.jobs) as pool:
            outcomes = pool.map(partial(compare, checkouts=checkouts, place=place), cases)
            return print_table(cases, outcomes, asked.messages)
    finally:
        if asked.keep is None:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
