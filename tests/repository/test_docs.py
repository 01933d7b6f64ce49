"""Code of the README and of docs/ runs and prints the output on the page; commands and links on the pages exist.

The blocks are described in tools/printouts.py, which runs them and rewrites their printouts.
"""

import re
from functools import cache

import pytest
from conftest import in_this_process

import printouts
from asker.cli.app import COMMANDS, command_named
from printouts import PAGES, ROOT, Block, PageRun, agree, blocks, commands, is_near, numbers, without_numbers
from real_data import DATA

pytestmark = pytest.mark.slow

TEXTS = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "DEV_NOTES.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "benchmarks").rglob("[!.]*.md")),
]
ALL = [block for page in PAGES for block in blocks(page)]
SHELL = [block for page in [*PAGES, *TEXTS] for block in blocks(page) if block.kind == "sh"]


@pytest.fixture(scope="module")
def page_run(tmp_path_factory):
    """Return a function from the name of a page to its `PageRun`, one for each page."""

    @cache
    def run_of(page: str) -> PageRun:
        return PageRun([block for block in ALL if block.page == page], tmp_path_factory.mktemp("page"), DATA)

    return run_of


def marked(block: Block):
    return pytest.param(block, id=str(block), marks=[pytest.mark.data] if block.needs else [])


@pytest.mark.parametrize("block", [marked(block) for block in ALL if block.is_run])
def test_code_prints_what_the_page_shows(block, page_run, monkeypatch):
    run = page_run(block.page)
    if missing := run.missing(block):
        pytest.skip(f"real data does not exist: {missing[0]} (set ASKER_DATA to its folder)")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    with in_this_process():
        printed = run.run(block)
    assert block.printout is None or agree(printed, block.printout), printed


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_exist(block):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for words in commands(block):
        program, *rest = words
        if program == "asker" and rest[0] in COMMANDS:
            command_named(rest[0]).make_context(rest[0], rest[1:])  # raises if an option is unknown or a value invalid
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
def test_links_and_figures_resolve(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_readmes_have_at_most_60_lines_and_figures_100_kb():
    for readme in (ROOT / "README.md", ROOT / "benchmarks" / "README.md"):
        assert len(readme.read_text(encoding="utf-8").splitlines()) <= 60
    for figure in (ROOT / "docs" / "images").glob("*.png"):
        assert figure.stat().st_size < 100_000


def test_developer_notes_are_one_page():
    assert len((ROOT / "DEV_NOTES.md").read_text(encoding="utf-8").splitlines()) <= 80


def test_the_site_lists_every_page():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f" {page.relative_to(ROOT / 'docs')}\n" in nav, page


def test_checks_can_fail():
    assert is_near("735.9", "736.8")
    assert not is_near("700", "736.8")
    assert is_near("0.802", "0.8")
    assert not is_near("0.9", "0.80")
    assert without_numbers(["cost 3.1 in 0.2 s"]) == without_numbers(["cost 4 in 12 s"])
    assert without_numbers(["cost 3.1"]) != without_numbers(["loss 3.1"])
    assert numbers(["cost 3.1 in 0.2 s, -1e-3"]) == ["3.1", "-1e-3"]
    assert agree(["cost 3.1"], ["cost 3.11"])
    assert not agree(["cost 3.1"], ["cost 3.5"])
    assert not agree(["loss 3.1"], ["cost 3.1"])
    assert agree(["a 1", "b", "c 2", "d"], ["…", "b", "…", "d"])
    assert not agree(["a 1", "b", "c 2", "d"], ["…", "d", "…", "b"])
    assert not agree(["a 1"], ["…", "a 2.5"])


PAGE = """
```python
print(1 + 1)  # 9
```

```python
for k in range(2):
    print(k)
```

```text
0
7
```

<!-- run -->
```sh
python examples/no_such_file.py
```
"""


def test_printouts_are_rewritten(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE.partition("<!-- run")[0], encoding="utf-8")
    monkeypatch.setattr(printouts, "ROOT", tmp_path)
    assert printouts.update(page, tmp_path, is_check=True) == 2
    assert "# 9" in page.read_text(encoding="utf-8")
    assert printouts.update(page, tmp_path, is_check=False) == 2
    text = page.read_text(encoding="utf-8")
    assert "print(1 + 1)  # 2\n" in text
    assert "```text\n0\n1\n```" in text
    assert printouts.update(page, tmp_path, is_check=True) == 0
    page.write_text(PAGE, encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="no_such_file"):
        printouts.update(page, tmp_path, is_check=True)
