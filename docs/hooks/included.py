"""Pages that are files of the repository: the benchmarks with their results, the changelog, how to contribute.

They lie on the site as in the repository, and so do the pages of docs/, without `docs/`; links between them follow.  A
link to what a page of the site is made from leads to that page.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

INCLUDED = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/*.md", "benchmarks/results/*.md", "benchmarks/notes/*.md")
PAGES = "docs/"
MADE_FROM = {
    "src/asker/solver/result.py": "reference/solving.md",
    "src/asker/cli/app.py": "reference/command-line.md",
    "src/asker/applications/application.py": "reference/applications.md",
    "examples/README.md": "gallery.md",
}
"""Files of the repository, and the page of the site that is made from each by the other hooks."""
LINK = re.compile(r"\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for path in sorted(path for pattern in INCLUDED for path in root.glob(pattern)):
        name = path.relative_to(root).as_posix()
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    return followed(markdown, page.file.src_uri)


def followed(markdown: str, page: str) -> str:
    """The text of a page with links between files of the repository turned into links between pages."""
    here = posixpath.dirname(page if _is_included(page) else PAGES + page)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, found["path"]))
        target = PAGES + MADE_FROM[target] if target in MADE_FROM else target
        if not (_is_included(target) or target.startswith(PAGES)):
            return found[0]
        path = posixpath.relpath(target.removeprefix(PAGES), posixpath.dirname(page) or ".")
        return f"]({path}{found['anchor'] or ''})"

    return LINK.sub(link, markdown)


def _is_included(name: str) -> bool:
    """Whether a path from the repository's root is one of these files."""
    return any(Path(name).match(pattern) and name.count("/") == pattern.count("/") for pattern in INCLUDED)
