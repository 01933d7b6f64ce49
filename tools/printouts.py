"""Code blocks of the README and of docs/: they are run, and the printouts on the pages are compared or rewritten.

    python tools/printouts.py [PAGE ...]            rewrite printouts that differ from the output of the code
    python tools/printouts.py --check [PAGE ...]    only list them; exit code 1 if there are any
    python tools/printouts.py --figures             draw the figures of docs/images again

```python                      blocks of one page share one namespace and run in order
```text                        after a block that is run: its printout; a line … stands for any lines
print(x)  # [1.0]              the printout as a comment, for every top-level print of the block
<!-- needs: bal/FILE -->       before a block: real data in the folder ASKER_DATA, linked into the working folder
<!-- run -->                   before a shell block: its `asker` and `python FILE` commands are run
"""

import argparse
import contextlib
import io
import itertools
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"((?:<!-- [^>]* -->\n)*)```(python|text|sh)\n(.*?)```", re.S)
COMMENT = re.compile(r"^(print\(.*\)  # )(.*)$", re.M)
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?!\w)")
ELLIPSIS = "…"
SECONDS = re.compile(r"[\d.e+-]+ (m?s)\b")


@dataclass
class Block:
    """A Python or shell block of a page."""

    page: str
    kind: str
    code: str
    line: int
    span: tuple[int, int]
    """Position of the code in the text of the page."""
    needs: list[str] = field(default_factory=list)
    is_run: bool = False
    printout: list[str] | None = None
    """Lines of the printout that the page shows; None if it shows none."""
    printout_span: tuple[int, int] | None = None
    """Position of a ```text block with the printout; None if the printout is in comments."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """Return the Python and shell blocks of a page."""
    text, result, end = path.read_text(encoding="utf-8"), [], -1
    for match in BLOCK.finditer(text):
        marks, kind, code = match.groups()
        if kind == "text":
            if result and not text[end : match.start()].strip():
                result[-1].printout, result[-1].printout_span = code.splitlines(), match.span(3)
        else:
            line = text.count("\n", 0, match.start(2)) + 1
            needs = re.findall(r"needs: (\S+)", marks)
            block = Block(str(path.relative_to(ROOT)), kind, code, line, match.span(3), needs)
            comments = [comment for _, comment in COMMENT.findall(code)]
            block.is_run = kind == "python" or "<!-- run -->" in marks
            block.printout = comments if kind == "python" and comments else None
            result.append(block)
        end = match.end()
    return result


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command of a shell block."""
    for line in block.code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


class PageRun:
    """Execution of the blocks of one page, in order, in one folder and one namespace."""

    def __init__(self, page: list[Block], folder: Path, data: Path):
        self.page, self.folder, self.data = [block for block in page if block.is_run], folder, data
        self.namespace: dict[str, Any] = {"__name__": "page"}
        self.printed: dict[int, list[str]] = {}

    def missing(self, block: Block) -> list[Path]:
        """Return the data files of a block that do not exist."""
        return [self.data / name for name in block.needs if not (self.data / name).exists()]

    def run(self, block: Block) -> list[str]:
        """Run a block after all blocks before it, each once, and return the lines that it prints."""
        for earlier in self.page[: self.page.index(block) + 1]:
            if earlier.line not in self.printed and not self.missing(earlier):
                self.printed[earlier.line] = self._execute(earlier)
        return self.printed[block.line]

    def _execute(self, block: Block) -> list[str]:
        for name in block.needs:
            if not (self.folder / Path(name).name).exists():
                (self.folder / Path(name).name).symlink_to(self.data / name)
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            if block.kind == "python":
                source = "\n" * block.line + block.code  # so that a traceback has the line of the page
                exec(compile(source, str(ROOT / block.page), "exec"), self.namespace)
            else:
                for words in commands(block):
                    _run_command(words)
        return out.getvalue().splitlines()


def _run_command(words: list[str]) -> None:
    from asker.cli import main
    from asker.cli.app import command_named

    if words[0] == "python":
        with _arguments(words[1:]):
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        return
    if words[0] != "asker":
        raise ValueError(f"only `asker` and `python FILE` are run, not {shlex.join(words)}")
    arguments = [word for word in words[1:] if word != "--quiet"]
    if any(parameter.name == "quiet" for parameter in command_named(words[1]).params):
        arguments.append("--quiet")
    if main(arguments) != 0:
        raise RuntimeError(f"failed: {shlex.join(words)}")


@contextlib.contextmanager
def _arguments(words: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = before


def without_numbers(lines: list[str]) -> str:
    joined = SECONDS.sub(r"# \1", " ".join(" ".join(lines).split()))
    return NUMBER.sub("#", joined).replace(" ]", "]").replace("[ ", "[")


def numbers(lines: list[str]) -> list[str]:
    """Return all numbers but times."""
    return NUMBER.findall(SECONDS.sub(r"\1", " ".join(lines)))


def is_near(printed: str, shown: str) -> bool:
    """Return whether a number is within one percent, or two units of the last digit that the page shows."""
    digits = len(shown.partition("e")[0].partition(".")[2])
    a, b = float(printed.replace("−", "-")), float(shown.replace("−", "-"))
    return abs(a - b) <= max(0.01 * abs(b), 2 * 10.0**-digits if "e" not in shown else 0.0)


def agree(printed: list[str], shown: list[str]) -> bool:
    """Return whether two printouts have the same text, and numbers that are near each other."""
    if ELLIPSIS in shown:
        return _has_excerpts(printed, shown)
    if without_numbers(printed) != without_numbers(shown):
        return False
    return all(is_near(a, b) for a, b in zip(numbers(printed), numbers(shown), strict=True))


def _has_excerpts(printed: list[str], shown: list[str]) -> bool:
    """Return whether the parts of `shown` between ellipses are printed, in this order."""
    begin = 0
    for is_ellipsis, group in itertools.groupby(shown, ELLIPSIS.__eq__):
        excerpt = list(group)
        if not is_ellipsis:
            positions = range(begin, len(printed) - len(excerpt) + 1)
            if (at := next((k for k in positions if agree(printed[k : k + len(excerpt)], excerpt)), None)) is None:
                return False
            begin = at + len(excerpt)
    return True


def _replacement(block: Block, printed: list[str]) -> tuple[tuple[int, int], str]:
    """Return the position and the text of a new printout."""
    if ELLIPSIS in (block.printout or []):
        raise ValueError(f"{block}: select the lines of a printout with … by hand")
    if block.printout_span:
        return block.printout_span, "".join(line.rstrip() + "\n" for line in printed)
    if len(printed) != len(block.printout or []):
        raise ValueError(f"{block}: {len(printed)} lines are printed, but {len(block.printout or [])} prints have one")
    lines = iter(printed)
    return block.span, COMMENT.sub(lambda match: match[1] + next(lines), block.code)


def update(path: Path, data: Path, is_check: bool) -> int:
    """Run a page, rewrite the printouts that differ, and return their number."""
    page, replacements = blocks(path), []
    with tempfile.TemporaryDirectory() as folder:
        run = PageRun(page, Path(folder), data)
        for block in run.page:
            if missing := run.missing(block):
                print(f"{block} is skipped: {missing[0]} does not exist; ASKER_DATA names the folder of the data")
                continue
            printed = run.run(block)
            if block.printout is not None and not agree(printed, block.printout):
                print(f"{block} prints:", *printed, sep="\n    ")
                replacements.append(_replacement(block, printed))
    text = path.read_text(encoding="utf-8")
    for (begin, end), new in sorted(replacements, reverse=True):
        text = text[:begin] + new + text[end:]
    if replacements and not is_check:
        path.write_text(text, encoding="utf-8")
    return len(replacements)


def main() -> int:
    parser = argparse.ArgumentParser(description="Printouts and figures of the documentation")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="all pages by default")
    parser.add_argument("--check", action="store_true", help="list printouts that differ, change nothing")
    parser.add_argument("--figures", action="store_true", help="draw the figures of docs/images")
    given = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    if given.figures:
        for script in sorted((ROOT / "docs" / "images").glob("*.py")):
            subprocess.run([sys.executable, str(script)], check=True)
        return 0
    data = Path(os.environ.get("ASKER_DATA", "")).resolve()
    n_changed = sum(update(page.resolve(), data, given.check) for page in given.pages or PAGES)
    print(f"{n_changed} printouts differ" if given.check else f"{n_changed} printouts were rewritten")
    return int(given.check and n_changed > 0)


if __name__ == "__main__":
    sys.exit(main())
