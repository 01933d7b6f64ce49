"""The README and the pages of docs/: their code runs and prints what they say, their commands and links exist.

```python                      blocks of one page share one namespace and run in order
```text                        after a python block: what it prints
print(x)  # [1.0]              the same in a comment, for every print of the block
```sh                          lines that begin with `asker` are parsed, `make` targets and `python` files looked up
<!-- needs: bal/FILE -->       before a block: real data, put into the folder in which the page runs
<!-- run -->                   before a shell block: its commands are run
"""

import contextlib
import io
import re
import shlex
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from conftest import DATA, in_this_process

from asker.cli import main
from asker.cli.app import COMMANDS, command_named

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").rglob("[!.]*.md"))]
BLOCK = re.compile(r"((?:<!-- [^>]* -->\n)*)```(python|text|sh)\n(.*?)```", re.S)
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?!\w)")
SECONDS = re.compile(r"[\d.e+-]+ (m?s)\b")


@dataclass
class Block:
    page: str
    kind: str
    code: str
    line: int
    needs: list[str] = field(default_factory=list)
    is_run: bool = False
    said: list[str] | None = None
    """The lines that it prints, where the page shows them."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    text, found, end = path.read_text(encoding="utf-8"), [], -1
    for match in BLOCK.finditer(text):
        marks, kind, code = match.groups()
        if kind == "text":
            if found and not text[end : match.start()].strip():
                found[-1].said = code.splitlines()
        else:
            line = text.count("\n", 0, match.start(2)) + 1
            block = Block(str(path.relative_to(ROOT)), kind, code, line, re.findall(r"needs: (\S+)", marks))
            block.is_run = "<!-- run -->" in marks
            comments = re.findall(r"^print\(.*\)  # (.*)$", code, re.M)
            block.said = comments if kind == "python" and comments else None
            found.append(block)
        end = match.end()
    return found


ALL = [block for page in PAGES for block in blocks(page)]
SHELL = [b for page in [*PAGES, *TEXTS] for b in blocks(page) if b.kind == "sh"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """For each page its folder, its namespace, and what its blocks have printed."""

    @cache
    def of(page):
        return tmp_path_factory.mktemp("page"), {"__name__": "page"}, {}

    return of


def printed_by(block, pages):
    """Run the page up to the block, as far as it has not run and its data is there."""
    folder, namespace, done = pages(block.page)
    for earlier in [b for b in ALL if b.page == block.page and (b.kind == "python" or b.is_run)]:
        at_hand = all((DATA / name).exists() for name in earlier.needs)
        if earlier.line not in done and at_hand:
            for name in earlier.needs:
                if not (folder / Path(name).name).exists():
                    (folder / Path(name).name).symlink_to(DATA / name)
            out = io.StringIO()
            with contextlib.chdir(folder), contextlib.redirect_stdout(out):
                run = run_python if earlier.kind == "python" else run_shell
                run(earlier, namespace)
            done[earlier.line] = out.getvalue().splitlines()
        if earlier is block:
            return done[earlier.line]
    raise AssertionError(block)


def run_python(block, namespace):
    source = "\n" * block.line + block.code  # so that a traceback names the page's line
    exec(compile(source, str(ROOT / block.page), "exec"), namespace)


def run_shell(block, _):
    for words in commands(block):
        assert words[0] == "asker", words
        with in_this_process():
            assert main([w for w in words[1:] if w != "--quiet"] + ["--quiet"] * has_quiet(words)) == 0, words


def has_quiet(words):
    return any(p.name == "quiet" for p in command_named(words[1]).params)


def commands(block):
    for line in block.code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def skip_without(block):
    for name in block.needs:
        if not (DATA / name).exists():
            pytest.skip(f"real data not found: {DATA / name} (set ASKER_DATA to its folder)")


def without_numbers(lines):
    joined = SECONDS.sub(r"# \1", " ".join(" ".join(lines).split()))
    return NUMBER.sub("#", joined).replace(" ]", "]").replace("[ ", "[")


def numbers(lines):
    return NUMBER.findall(SECONDS.sub(r"\1", " ".join(lines)))


def near(found, said):
    """Within one percent, or two units of the last digit that the page shows."""
    digits = len(said.partition("e")[0].partition(".")[2])
    a, b = float(found.replace("−", "-")), float(said.replace("−", "-"))
    return abs(a - b) <= max(0.01 * abs(b), 2 * 10.0**-digits if "e" not in said else 0.0)


def marked(block):
    return pytest.param(block, id=str(block), marks=[pytest.mark.data] if block.needs else [])


@pytest.mark.parametrize("block", [marked(b) for b in ALL if b.kind == "python" or b.is_run])
def test_code_prints_what_the_page_says(block, pages):
    skip_without(block)
    printed = printed_by(block, pages)
    if block.said is not None:
        assert without_numbers(printed) == without_numbers(block.said)
        for found, said in zip(numbers(printed), numbers(block.said), strict=True):
            assert near(found, said), (found, said, printed)


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_exist(block):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for words in commands(block):
        program, *rest = words
        if program == "asker" and rest[0] in COMMANDS:
            command_named(rest[0]).make_context(rest[0], rest[1:])  # raises where an option is unknown or a value bad
        elif program == "asker":
            assert rest == ["--version"], words
        elif program == "make":
            assert set(rest) <= set(targets), words
        elif program == "python":
            assert rest[0] == "-m" or (ROOT / rest[0]).is_file(), words
        else:
            assert program in ("pip", "cd", "srun"), words


def test_every_page_has_its_commands_in_shell_blocks():
    """An indented `asker` command would escape the tests above."""
    for page in PAGES:
        plain = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        assert not re.findall(r"^    (?:asker|make|python) .*", plain, re.M), page


def anchors(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    return {re.sub(r"[^\w\- ]", "", t.lower()).strip().replace(" ", "-") for t in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("page", [*PAGES, *TEXTS], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_pictures_resolve(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_the_readmes_are_one_screen_and_pictures_small():
    for readme in (ROOT / "README.md", ROOT / "benchmarks" / "README.md"):
        assert len(readme.read_text(encoding="utf-8").splitlines()) <= 60
    for picture in (ROOT / "docs" / "images").glob("*.png"):
        assert picture.stat().st_size < 100_000


def test_the_site_lists_every_page():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f" {page.relative_to(ROOT / 'docs')}\n" in nav, page


def test_checks_can_fail():
    assert near("735.9", "736.8")
    assert not near("700", "736.8")
    assert near("0.802", "0.8")
    assert not near("0.9", "0.80")
    assert without_numbers(["cost 3.1 in 0.2 s"]) == without_numbers(["cost 4 in 12 s"])
    assert without_numbers(["cost 3.1"]) != without_numbers(["loss 3.1"])
    assert numbers(["cost 3.1 in 0.2 s, -1e-3"]) == ["3.1", "-1e-3"]
