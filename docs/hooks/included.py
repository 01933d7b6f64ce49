"""Pages that are files of the repository: the benchmarks' tables and the changelog."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

INCLUDED = {"benchmarks.md": "benchmarks/README.md", "changelog.md": "CHANGELOG.md"}
NO_CHANGELOG = "# Changes\n\nNo version has been released yet.\n"


def on_files(files: Files, *, config: Any) -> Files:
    root = Path(config.config_file_path).parent
    for page, source in INCLUDED.items():
        path = root / source
        content = path.read_text(encoding="utf-8") if path.exists() else NO_CHANGELOG
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links to those files lead to their pages."""
    for name, source in INCLUDED.items():
        markdown = re.sub(rf"\((\.\./)*{re.escape(source)}(#[\w-]+)?\)", _link(name, page), markdown)
    return markdown


def _link(name: str, page: Any) -> Any:
    up = "../" * page.file.src_uri.count("/")
    return lambda found: f"({up}{name}{found[2] or ''})"
