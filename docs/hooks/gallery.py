"""Gallery page: the examples whose `main` has an argument `picture`, with their figures.

Figures are drawn when the site is built and cached in .cache/gallery until the example or asker changes.
"""

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

INTRODUCTION = """# Gallery

Each figure is drawn by the code below it when this site is built.  `python examples/NAME.py` runs it.

"""
DRAW = "import runpy, sys, pathlib; runpy.run_path(sys.argv[1])['main'](picture=pathlib.Path(sys.argv[2]))"


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    cache = root / ".cache" / "gallery"
    cache.mkdir(parents=True, exist_ok=True)
    shared = [*sorted((root / "src").rglob("*.py")), *sorted((root / "examples").glob("_*.py"))]
    text = [INTRODUCTION]
    for path in sorted((root / "examples").glob("[!_]*.py")):
        code = path.read_text(encoding="utf-8")
        if takes_a_picture(code):
            picture = draw(path, cache / f"{path.stem}-{_digest(path, *shared)}.png")
            uri = f"gallery/{path.stem}.png"
            files.append(File.generated(config, uri, abs_src_path=str(picture)))
            text.append(entry(path.name, code, uri))
    files.append(File.generated(config, "gallery.md", content="\n".join(text)))
    return files


def takes_a_picture(code: str) -> bool:
    """Return whether the code has a function `main` with an argument `picture`."""
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            return any(a.arg == "picture" for a in [*node.args.args, *node.args.kwonlyargs])
    return False


def draw(path: Path, picture: Path) -> Path:
    """Return the path of the figure; draw it if it does not exist."""
    if not picture.exists():
        unfinished = picture.with_name("unfinished.png")
        folders = [str(path.parent), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(filter(None, folders))}
        command = [sys.executable, "-c", DRAW, str(path), str(unfinished)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not unfinished.exists():
            raise RuntimeError(f"{path} draws no figure:\n{done.stderr[-2000:]}")
        unfinished.rename(picture)
    return picture


def entry(name: str, code: str, picture: str) -> str:
    """Return title and text of the docstring, the figure, and the code, as Markdown."""
    title, _, text = (ast.get_docstring(ast.parse(code)) or name).partition("\n")
    source = f'??? example "examples/{name}"\n\n' + "\n".join(
        "    " + line if line else "" for line in ["```python", *code.splitlines(), "```"]
    )
    return f"## {title.rstrip('.')}\n\n{text.strip()}\n\n![{title}]({picture})\n\n{source}\n"


def _digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
