"""Time of each documentation page and example in a new process with an empty compilation cache.

    python benchmarks/cold_start.py [NAME ...] [--repeat 1] [--blocks]

A name is a part of a path, such as `coming-from` or `examples/`; without names all pages run.  The code blocks of a
page run in one process, in order; blocks whose data are not available are skipped (ASKER_DATA, or ../shared/data).  The
table shows wall time and processor time over all threads, each the minimum over the repetitions; `--blocks` adds the
wall time of each block.
"""

import argparse
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from record import add_record_option, recorded

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("ASKER_DATA") or ROOT.parent / "shared" / "data")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
BLOCK = re.compile(r"((?:<!-- [^>]* -->\n)*)```(python|sh)\n(.*?)```", re.S)
PROGRAM = """
import json, sys, time

namespace, times = {"__name__": "__main__"}, []
for line, kind, code in json.load(open(sys.argv.pop(1))):
    begin = time.perf_counter()
    if kind == "python":
        exec(compile("\\n" * line + code, sys.argv[0], "exec"), namespace)
    else:
        from asker.cli import main
        for words in code:
            main(words)
    times.append((line, time.perf_counter() - begin))
print("\\n" + json.dumps(times))
"""


class PageTime(NamedTuple):
    """Seconds that a page takes."""

    wall: float
    processor: float
    blocks: list[tuple[int, float]]
    """Line number and wall time of each block."""


def blocks(path: Path, folder: Path) -> list[tuple[int, str, object]]:
    """Return line, kind and code of each runnable block, and link its data into the folder."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [(0, "python", text)]
    runnable: list[tuple[int, str, object]] = []
    for match in BLOCK.finditer(text):
        marks, kind, code = match.groups()
        needs = [DATA / name for name in re.findall(r"needs: (\S+)", marks)]
        if not all(file.exists() for file in needs) or (kind == "sh" and "<!-- run -->" not in marks):
            continue
        for file in needs:
            (folder / file.name).symlink_to(file)
        lines = code.replace("\\\n", " ").splitlines()
        commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("asker ")]
        runnable.append((text.count("\n", 0, match.start(2)) + 1, kind, code if kind == "python" else commands))
    return runnable


def run_page(path: Path) -> PageTime | None:
    """Time one run of a page with an empty cache; None if no block can run or the run fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "page").mkdir()
        runnable = blocks(path, folder / "page")
        if not runnable:
            return None
        (folder / "blocks.json").write_text(json.dumps(runnable))
        settings = os.environ | {"ASKER_CACHE": str(folder / "cache"), "MPLBACKEND": "agg"}
        command = [sys.executable, "-c", PROGRAM, str(folder / "blocks.json")]
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        run = subprocess.run(command, env=settings, cwd=folder / "page", capture_output=True, text=True)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        if run.returncode:
            print(f"{path.name} failed and is omitted: {run.stderr.splitlines()[-1]}", file=sys.stderr)
            return None
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return PageTime(wall, processor, json.loads(run.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--blocks", action="store_true")
    add_record_option(parser)
    args = parser.parse_args()
    pages = [page for page in PAGES if not args.names or any(name in str(page) for name in args.names)]
    runs = [[run_page(page) for page in pages] for _ in range(args.repeat)]
    with recorded(args.record):
        print("| page | wall, s | processor, s |" + " blocks: line and wall, s |" * args.blocks)
        print("|---|---|---|" + "---|" * args.blocks)
        for page, *repetitions in zip(pages, *runs, strict=True):
            times = [one for one in repetitions if one is not None]
            if times:
                best = min(times)
                cells = [str(page.relative_to(ROOT)), f"{best.wall:.1f}", f"{min(one.processor for one in times):.1f}"]
                cells += [", ".join(f"{line}: {wall:.1f}" for line, wall in best.blocks)] * args.blocks
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
