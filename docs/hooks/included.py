"""Site pages that are files of the repository: benchmarks with their results, changelog, notes for developers.

Their paths on the site are those in the repository, and those of the pages in docs/ without `docs/`; links between them
are rewritten.  A link to a source file that generates a page becomes a link to that page.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

INCLUDED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "DEV_NOTES.md",
    "benchmarks/*.md",
    "benchmarks/results/*.md",
    "benchmarks/notes/*.md",
)
PAGES = "docs/"
GENERATED = {
    "src/asker/solver/result.py": "reference/solving.md",
    "src/asker/cli/app.py": "reference/command-line.md",
    "src/asker/applications/application.py": "reference/applications.md",
    "examples/README.md": "gallery.md",
}
"""Pages of the site that the other hooks generate, by the source file."""
LINK = re.compile(r"\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for path in sorted(path for pattern in INCLUDED for path in root.glob(pattern)):
        name = path.relative_to(root).as_posix()
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    return rewrite_links(markdown, page.file.src_uri)


def rewrite_links(markdown: str, page: str) -> str:
    """Return the text of a page with links between files of the repository replaced by links between pages."""
    here = posixpath.dirname(page if _is_included(page) else PAGES + page)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match["path"]))
        target = PAGES + GENERATED[target] if target in GENERATED else target
        if not (_is_included(target) or target.startswith(PAGES)):
            return match[0]
        path = posixpath.relpath(target.removeprefix(PAGES), posixpath.dirname(page) or ".")
        return f"]({path}{match['anchor'] or ''})"

    return LINK.sub(link, markdown)


def _is_included(name: str) -> bool:
    """Return whether a path relative to the root of the repository is one of the included files."""
    return any(Path(name).match(pattern) and name.count("/") == pattern.count("/") for pattern in INCLUDED)
