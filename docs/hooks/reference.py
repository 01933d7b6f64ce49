"""The reference: a page for each kind of public name, from `asker.__all__` and from the modules below.

A new public name appears by being listed in `asker/__init__.py`.
"""

import ast
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PUBLIC = {
    "problems": ("Problems", ("asker.problem",)),
    "kernels": ("Kernels", ("asker.kernels",)),
    "manifolds": ("Manifolds", ("asker.manifolds",)),
    "strategies": ("Strategies", ("asker.strategies",)),
    "solving": ("Solving and results", ("asker",)),  # all that the others leave
}
"""Page, title, and the modules whose public names it holds."""

MODULES = {
    "bundle": (
        "Bundle adjustment",
        ("asker.problems.bundle", "asker.io.bal", "asker.io.ply", "asker.datasets", "asker.alignment", "asker.fetch"),
    ),
    "colmap": ("COLMAP models", ("asker.problems.colmap", "asker.io.colmap", "asker.io.colmap_model")),
    "pose-graphs": (
        "Pose graphs",
        (
            "asker.problems.pose_graph",
            "asker.io.g2o",
            "asker.problems.false_loops",
            "asker.problems.trajectory",
        ),
    ),
    "stereo": ("Stereo", ("asker.problems.stereo", "asker.problems.disparity", "asker.io.images")),
}
"""Page, title, and the modules that it shows whole."""


def on_files(files: Files, *, config: Any) -> Files:
    source = Path(config.config_file_path).parent / "src" / "asker" / "__init__.py"
    for page, content in pages(source.read_text(encoding="utf-8")).items():
        files.append(File.generated(config, f"reference/{page}.md", content=content))
    return files


def pages(source: str) -> dict[str, str]:
    """The pages' text, given that of `asker/__init__.py`."""
    shown: dict[str, list[str]] = {page: [] for page in PUBLIC}
    for name, module in public_names(source).items():
        page = next(page for page, (_, modules) in PUBLIC.items() if module.startswith(modules))
        shown[page].append(f"{module}.{name}")
    made = {}
    for page, (title, _) in PUBLIC.items():
        made[page] = f"# {title}\n\nAll of these are names of `asker`.\n\n" + "\n".join(map(_directive, shown[page]))
    for page, (title, modules) in MODULES.items():
        made[page] = f"# {title}\n\n" + "\n".join(map(_module, modules))
    return made


def public_names(source: str) -> dict[str, str]:
    """Names of `__all__`, in the order of the imports, and the module that each comes from."""
    tree = ast.parse(source)
    listed: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = set(ast.literal_eval(node.value))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    found = {alias.name: str(node.module) for node in imports for alias in node.names if alias.name in listed}
    if missing := listed - set(found) - {"__version__"}:
        raise ValueError(f"asker.__all__ names {sorted(missing)}, which asker/__init__.py does not import")
    return found


def _directive(name: str) -> str:
    return f"::: {name}\n"


def _module(name: str) -> str:
    return f"## {name}\n\n::: {name}\n    options:\n      show_root_heading: false\n      heading_level: 3\n"
