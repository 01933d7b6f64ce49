"""What two checkouts of asker do, compared bit for bit: a restructuring is to change nothing.

    python tests/same_results.py OLD NEW --only "bal solve 16"

Each case runs in OLD and then in NEW, in a folder of the same name.  Compared are the exit codes, stdout, stderr and
every file that was written.  Left out are times, versions, how much was compiled, the digests in the names of recorded
runs, spaces at line ends, and figures over seconds.  JSON, pages and .npz files are compared by what they hold; a key
or file that only NEW has is told and is no difference.  Of bad input the exit codes must agree; messages are told, for
a person to judge.  The exit code is 1 if anything differs.

Both use one folder of compiled kernels, so that the seconds of OLD include compiling and those of NEW may not.
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

DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")

# `name: command && command`; {a,b} makes a case of each, named after it.  The folder of a case holds `data` (the real
# data), a folder `empty`, and `words.txt` and `words.g2o`, which are neither bundle nor graph.
CASES = """
bal info: info data/bal/problem-{16-22106,21-11315,49-7776}-pre.txt.bz2
bal solve: solve data/bal/problem-{16-22106,21-11315,49-7776}-pre.txt.bz2 --method {irls,mhq,gnc,moo,asker} \
    --camera {pixel,bal} --iterations 15 --output out.txt --ply out.ply
bal option: solve data/bal/problem-21-11315-pre.txt.bz2 --iterations 15 --output out.txt.gz \
    {--dof 9,--dof 7,--gauge fixed,--kernel huber,--kernel cauchy,--tau 3}
made: generate scene.txt.bz2 --kind {ring,path} --cameras 6 --observations 2000 --truth truth.txt \
    && info scene.txt.bz2 && solve scene.txt.bz2 --output out.txt --iterations 30
made: generate scene.txt --cameras 6 --observations 2000 && solve scene.txt --iterations 20 \
    {--engine xla,--linear-solver cg,--linear-solver sparse-cholesky,--linear-solver dense-cholesky}
made checkpoint: generate scene.txt --cameras 6 --observations 2000 \
    && solve scene.txt --iterations 20 --method {gnc,asker} --checkpoint run.npz --every 7 \
    && solve scene.txt --iterations 40 --method {gnc,asker} --checkpoint run.npz
colmap info: info data/colmap/{small-15,video-177,rig-3}
colmap solve: solve data/colmap/small-15 --output out --report report.json --ply out.ply --iterations 30 \
    {--refine poses,--refine focal,--refine all,--refine all --drop-outliers,--gauge fixed,--method gnc,--kernel huber}
colmap solve: solve data/colmap/{video-177,rig-3} --output out --report report.json --ply out.ply --drop-outliers \
    --refine all --iterations 15
graph info: info data/g2o/{intel,M3500,MIT,sphere2500}.g2o.bz2
graph solve: solve data/g2o/{intel,M3500,MIT,sphere2500}.g2o.bz2 --output out.g2o --figure out.png --iterations 30 \
    {,--noise announced,--no-refit,--robust all,--robust none,--method gnc}
graph corrupt: corrupt data/g2o/{intel,M3500,MIT,sphere2500}.g2o.bz2 false.g2o --outliers 0.3 --json false.json \
    && solve false.g2o --false-loops false.json --output out.g2o.gz --iterations 30
graph corrupt: corrupt data/g2o/intel.g2o.bz2 false.g2o.gz --kind {grouped,local} --seed 3 --json false.json
graph truth: solve data/g2o/bicocca25b-all-loops.g2o.bz2 --truth data/g2o/bicocca25b-truth.g2o.bz2 --truth-by length
stereo: stereo-generate pair --width 96 --height 64 --max-disparity 12 && stereo pair/im2.png pair/im6.png \
    --max-disparity 12 --method {irls,gnc,asker} --iterations 15 --truth pair/disp2.png --truth-right pair/disp6.png \
    --output out.png --pfm out.pfm --picture seen.png
stereo compare: stereo-generate pair --width 96 --height 64 --max-disparity 12 \
    && stereo-compare pair --max-disparity 12 --iterations 15 --output compared
study compare: generate a.txt --cameras 6 --observations 2000 && generate b.txt --cameras 5 --seed 1 \
    && compare a.txt b.txt --iterations 20 && report compared
study best: generate a.txt --cameras 6 --observations 2000 \
    && compare a.txt --methods irls,asker --iterations 20 --camera bal --best best.txt
study quick: reproduce --plan quick
bad file: {info,solve} {missing.txt,missing.g2o,missing,empty,words.txt,words.g2o}
bad option for bal: solve data/bal/problem-21-11315-pre.txt.bz2 {--noise announced,--refine all,--truth t.g2o}
bad option for colmap: solve data/colmap/small-15 {--dof 9,--camera bal,--robust all,--refine al,--drop-outliers}
bad option for graph: solve data/g2o/intel.g2o.bz2 {--camera bal,--gauge fixed,--ply a.ply,--noise few,--output a.txt}
bad value: solve data/bal/problem-21-11315-pre.txt.bz2 {--method aske,--kernel hubr,--tau 0,--camera pin,--dof 8,\
--engine gpu,--iterations -1,--output no/out.txt,--gauge fix,--nonsense}
bad command: {solv,solve,corrupt words.txt a.g2o,stereo a.png b.png,stereo-compare empty,report empty,\
reproduce --plan slow,compare missing.txt,compare words.txt --methods best,generate a.txt --kind cube}
"""
ALWAYS = {
    "solve": "--quiet --threads {threads} --json {step}.json",
    "stereo": "--quiet --threads {threads} --json {step}.json",
    "stereo-compare": "--quiet --threads {threads}",
    "compare": "--quiet --processes 1",
    "reproduce": "--quiet --processes 1",
}  # what a command is given beside the options of the case
LEFT_OUT = re.compile(r"seconds|^(versions?|date|commit|compiled)$")  # keys
OVER_SECONDS = ("energy.png",)
DIGEST = re.compile(r"-[0-9a-f]{10}\b")
PAGE = re.compile(rb'(.*<script id="data" type="application/json">)(.*?)(</script>.*)', re.DOTALL)


class Case(NamedTuple):
    """A few commands, one after the other in one folder."""

    name: str
    steps: list[list[str]]

    def lacks(self) -> str:
        words = [w.removeprefix("data/") for step in self.steps for w in step if w.startswith("data/")]
        return ", ".join(w for w in words if not (DATA / w).exists())


class Difference(NamedTuple):
    where: str
    what: str
    counts: bool = True
    """False for what is only told."""


def all_cases(threads: int) -> Iterator[Case]:
    for line in filter(None, CASES.splitlines()):
        name, commands = line.split(":", 1)
        parts = re.split(r"\{([^{}]*)\}", commands)  # every second one is a list
        lists = list(dict.fromkeys(parts[1::2]))  # the same list twice is one choice
        for chosen in itertools.product(*(of.split(",") for of in lists)):
            choice = dict(zip(lists, chosen, strict=True))
            whole = "".join(choice[part] if k % 2 else part for k, part in enumerate(parts))
            steps = [shlex.split(command) for command in whole.split("&&")]
            for k, step in enumerate(steps):
                step += ALWAYS.get(step[0], "").format(threads=threads, step=k + 1).split()
            yield Case(" ".join(filter(None, (name, *chosen))), steps)


class Checkout:
    """The command line of one checkout."""

    def __init__(self, root: Path, cache: Path):
        self.root = root.resolve()
        scripts = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
        module, function = scripts["asker"].split(":")
        self.program = f"import sys; from {module} import {function}; sys.exit({function}())"
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
        said, start = {}, time.perf_counter()
        for k, step in enumerate(case.steps):
            done = self.python(self.program, step, folder)
            texts = {"stdout": self.masked(done.stdout), "stderr": self.masked(done.stderr)}
            said[f"{k + 1}"] = {"exit code": done.returncode, **texts}
        seconds = time.perf_counter() - start
        paths = sorted(p for at, _, names in os.walk(folder) for name in names if (p := Path(at) / name).is_file())
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


def differences(old: Any, new: Any, where: str = "") -> Iterator[Difference]:
    """Of two values of JSON; bytes are a file, with whose name `where` ends."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new:
                yield Difference(f"{where} {key}".strip(), "is missing")
            elif not LEFT_OUT.search(key):
                yield from differences(value, new[key], f"{where} {key}".strip())
        yield from (Difference(f"{where} {key}".strip(), "is new", False) for key in new if key not in old)
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
    folder = place / re.sub(r"[^A-Za-z0-9.-]+", "_", case.name)
    ran, seconds = [], []
    for checkout, name in zip([] if case.lacks() else checkouts, ("old", "new"), strict=False):
        for result, of in zip(checkout.run(case, folder / "work"), (ran, seconds), strict=True):
            of.append(result)
        (folder / "work").rename(folder / name)
    return list(differences(*ran)) if ran else [], seconds


def print_table(cases: list[Case], outcomes: Iterator[tuple[list[Difference], list[float]]], messages: bool) -> int:
    """A line for each case as it ends, then what is new or to be judged.  Returns the exit code."""
    width = max((len(c.name) for c in cases), default=4)
    counted, told = Counter[str](), Counter[str]()
    print(f"{'case':{width}}               old, s  new, s", flush=True)
    for case, (found, seconds) in zip(cases, outcomes, strict=True):
        judged = case.name.startswith("bad") and not messages
        first = case.lacks()
        for d in found:
            if not d.counts:
                told[f"{d.where} {d.what}"] += 1
            elif judged and re.search(" std(out|err)", d.where):
                told[f"{case.name}: {d.what}"] += 1
            else:
                first = first or f"{d.where}: {d.what}"
        word = ("different" if first else "same") if seconds else "no data"
        counted[word] += 1
        print(f"{case.name:{width}}  {word:9}", *(f"{s:7.1f}" for s in seconds), f" {first}", flush=True)
    for text, n in told.items():
        print(f"to be judged: {text}" + (f" ({n} times)" if n > 1 else ""))
    print(", ".join(f"{n} {word}" for word, n in counted.items()) or "no such case")
    return 1 if counted["different"] or not cases else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path, metavar=("OLD", "NEW"))
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
        checkouts = [Checkout(root, (asked.cache or place / "kernels").resolve()) for root in asked.checkouts]
        with ThreadPoolExecutor(asked.jobs) as pool:
            outcomes = pool.map(partial(compare, checkouts=checkouts, place=place), cases)
            return print_table(cases, outcomes, asked.messages)
    finally:
        if asked.keep is None:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
