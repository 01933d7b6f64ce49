"""Hooks of the site: pages of all public names, of all options of the commands, and of all examples."""

import ast
import importlib.util
from pathlib import Path

import pytest

import asker
from asker.cli.app import COMMANDS, command_named

ROOT = Path(__file__).resolve().parents[2]
NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
SOURCE = (ROOT / "src" / "asker" / "_api.py").read_text(encoding="utf-8")


def hook(name):
    spec = importlib.util.spec_from_file_location(f"hook_{name}", ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name():
    modules = hook("reference").public_names(SOURCE)
    assert set(modules) == set(asker.__all__) - {"__version__"}
    pages = hook("reference").pages(SOURCE)
    for name, module in modules.items():
        where = [page for page, text in pages.items() if f"::: {module}\n" in text and f'"{name}"' in text]
        assert len(where) == 1, name
    for page in pages:
        assert f" reference/{page}.md\n" in NAV, page


def test_the_reference_begins_with_solve():
    page = hook("reference").pages(SOURCE)["solving"]
    assert [line for line in page.splitlines() if line.startswith("## ")][:2] == [
        "## asker._solve",
        "## asker.solver.result",
    ]


def test_the_site_uses_every_hook():
    for path in (ROOT / "docs" / "hooks").glob("*.py"):
        assert f"docs/hooks/{path.name}" in NAV, path
    for key in ("theme", "hooks", "plugins", "markdown_extensions", "validation", "nav"):
        assert f"\n{key}:\n" in NAV, key


def test_a_public_name_that_is_not_imported_is_rejected():
    with pytest.raises(ValueError, match="Nothing"):
        hook("reference").public_names('from asker.kernels.kernels import Huber\n__all__ = ["Huber", "Nothing"]')


def test_modules_of_the_reference_exist():
    for _, modules in hook("reference").MODULES.values():
        for module in modules:
            assert importlib.util.find_spec(module), module


def test_the_command_line_page_has_every_option():
    for name in COMMANDS:
        command = command_named(name)
        text = hook("command_line").section(name, command)
        assert command.help in text
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert f"| `{parameter.opts[0]}" in text, (name, parameter.opts)
                assert parameter.help in text.replace("\\", ""), parameter.opts


@pytest.mark.parametrize(
    ("page", "link", "on_the_site"),
    [
        ("explanation/limitations.md", "../../benchmarks/README.md", "../benchmarks/README.md"),
        ("how-to/large-problems.md", "../../benchmarks/results/scaling.md", "../benchmarks/results/scaling.md"),
        ("how-to/large-problems.md", "../index.md#x", "../index.md#x"),
        ("benchmarks/README.md", "results/scaling.md", "results/scaling.md"),
        ("benchmarks/README.md", "../docs/how-to/stereo.md#methods-compared", "../how-to/stereo.md#methods-compared"),
        ("benchmarks/results/scaling.md", "../../docs/how-to/large-problems.md", "../../how-to/large-problems.md"),
        ("CONTRIBUTING.md", "docs/how-to/kernel.md", "how-to/kernel.md"),
        ("index.md", "https://example.org/docs/x.md", "https://example.org/docs/x.md"),
        ("index.md", "#here", "#here"),
        ("how-to/method.md", "../../examples/README.md", "../gallery.md"),
        ("how-to/migration.md", "../../src/asker/solver/result.py", "../reference/solving.md"),
    ],
)
def test_links_between_files_of_the_repository_become_links_between_pages(page, link, on_the_site):
    assert hook("included").rewrite_links(f"see [it]({link}).", page) == f"see [it]({on_the_site})."


EXAMPLE = '''"""A dot.

It is red.
"""

def main(picture):
    picture.write_bytes(b"dot")
'''


def test_the_gallery_draws_an_example_once(tmp_path):
    gallery = hook("gallery")
    path = tmp_path / "dot.py"
    path.write_text(EXAMPLE, encoding="utf-8")
    picture = gallery.draw(path, tmp_path / "dot.png")
    assert picture.read_bytes() == b"dot"
    path.write_text("fails", encoding="utf-8")
    assert gallery.draw(path, tmp_path / "dot.png") == picture
    with pytest.raises(RuntimeError, match="NameError"):
        gallery.draw(path, tmp_path / "other.png")
    text = gallery.entry("dot.py", EXAMPLE, "gallery/dot.png")
    assert text.startswith("## A dot\n\nIt is red.\n\n![A dot.](gallery/dot.png)")
    assert "    def main(picture):\n" in text


@pytest.mark.parametrize(
    ("code", "draws"), [("def main(picture): ...", True), ("def main(): ...", False), ("picture = 1", False)]
)
def test_the_gallery_detects_examples_with_a_figure(code, draws):
    assert hook("gallery").takes_a_picture(code) == draws


def test_every_example_has_a_title():
    for path in (ROOT / "examples").glob("[!_]*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
