"""Reference pages: one for each kind of public name, from `asker.__all__` and from the modules below.

A name that is added to `asker/_api.py` appears automatically.
"""

import ast
import json
from pathlib import Path
from typing import Any

PUBLIC = {
    "problems": ("Problems", ("asker.problem.variables", "asker.problem.factors", "asker.problem.problem")),
    "kernels": ("Kernels", ("asker.kernels.kernel", "asker.kernels.kernels", "asker.kernels.registry")),
    "manifolds": ("Manifolds", ("asker.geometry.manifolds",)),
    "strategies": ("Strategies", ("asker.strategies",)),
    "solving": ("Solving and results", ("asker",)),  # all other names
}
"""Title of each page, and the modules whose public names it lists."""
LEADING_MODULES = (
    "asker._solve",
    "asker.solver.result",
    "asker.solver.doubts",
    "asker.solver.status",
    "asker.derivatives.gradients",
    "asker.solver.iteration",
    "asker.search.driver",
    "asker.search.settings",
    "asker.scipy_compat.least_squares",
    "asker.scipy_compat.curve_fit",
)
"""Modules at the top of their page; all others follow in the order of the imports."""

MODULES = {
    "search": (
        "Search for unknown noise",
        (
            "asker.search.search",
            "asker.search.generators",
            "asker.search.state",
            "asker.search.context",
            "asker.search.refinement",
            "asker.statistics.scale_mixture",
        ),
    ),
    "bundle": (
        "Bundle adjustment",
        (
            "asker.applications.bundle.refine",
            "asker.applications.bundle.problem",
            "asker.applications.bundle.bal",
            "asker.io.ply",
            "asker.applications.bundle.synthetic",
            "asker.applications.bundle.truth_errors",
            "asker.applications.datasets",
        ),
    ),
    "colmap": (
        "COLMAP models",
        (
            "asker.applications.colmap.refine",
            "asker.applications.colmap.problem",
            "asker.applications.colmap.georegistration.position_priors",
            "asker.applications.colmap.georegistration.alignment",
            "asker.applications.colmap.formats.from_pycolmap",
            "asker.applications.colmap.triangulation",
            "asker.applications.colmap.constant_parameters",
            "asker.applications.colmap.rigs",
            "asker.applications.colmap.cameras",
            "asker.applications.colmap.reprojection_error",
            "asker.applications.colmap.inliers",
            "asker.applications.colmap.formats.folder",
            "asker.applications.colmap.formats.nerfstudio",
            "asker.applications.colmap.model",
        ),
    ),
    "posed-images": (
        "Posed images",
        (
            "asker.applications.posed.refine",
            "asker.applications.posed.posed_images",
            "asker.applications.posed.image_table",
            "asker.applications.posed.formats.detection",
            "asker.applications.posed.formats.arrays",
            "asker.applications.posed.formats.trajectories",
            "asker.applications.posed.formats.folder",
            "asker.applications.posed.correspondences.features",
            "asker.applications.posed.correspondences.matches",
            "asker.applications.posed.correspondences.pairs",
            "asker.applications.posed.correspondences.tracks",
            "asker.applications.posed.settle",
            "asker.applications.posed.prior",
            "asker.applications.posed.second_start",
            "asker.applications.posed.determined",
            "asker.applications.posed.validation",
            "asker.applications.posed.triangulation",
            "asker.applications.posed.reports.outputs",
            "asker.applications.posed.synthetic",
        ),
    ),
    "pose-graphs": (
        "Pose graphs",
        (
            "asker.applications.pose_graph.refine",
            "asker.applications.pose_graph.problem",
            "asker.applications.pose_graph.loops.noise_scale",
            "asker.applications.pose_graph.loops.loop_search",
            "asker.applications.pose_graph.loops.inlier_refit",
            "asker.applications.pose_graph.graph",
            "asker.applications.pose_graph.formats.g2o_tags",
            "asker.applications.pose_graph.formats.g2o",
            "asker.applications.pose_graph.formats.detection",
            "asker.applications.pose_graph.formats.toro",
            "asker.applications.pose_graph.formats.open3d",
            "asker.applications.pose_graph.formats.trajectories",
            "asker.applications.pose_graph.loops.false_loops",
            "asker.applications.pose_graph.true_trajectory",
            "asker.geometry.alignment",
        ),
    ),
    "stereo": (
        "Stereo",
        (
            "asker.applications.stereo.refine",
            "asker.applications.stereo.matching",
            "asker.applications.stereo.problem",
            "asker.applications.stereo.pairs",
            "asker.applications.stereo.errors",
            "asker.io.images",
        ),
    ),
    "rotation-averaging": (
        "Rotation averaging",
        ("asker.applications.rotation_averaging.problem", "asker.applications.rotation_averaging.files"),
    ),
    "curves": (
        "Curves and estimators",
        (
            "asker.estimators.estimate",
            "asker.estimators.robust_fit",
            "asker.regression.fit",
            "asker.regression.inference",
            "asker.regression.profile",
            "asker.models.curve_model",
            "asker.models.curves",
            "asker.models.errors_in_both",
            "asker.models.starting_values",
            "asker.plot.figures",
        ),
    ),
    "applications": ("Applications", ("asker.applications.application", "asker.applications.outcome")),
}
"""Title of each page, and the modules that it documents completely."""


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    source = Path(config.config_file_path).parent / "src" / "asker" / "_api.py"
    for page, content in pages(source.read_text(encoding="utf-8")).items():
        files.append(File.generated(config, f"reference/{page}.md", content=content))
    return files


def pages(source: str) -> dict[str, str]:
    """Return the text of each page, given that of `asker/_api.py`."""
    names: dict[str, dict[str, list[str]]] = {page: {} for page in PUBLIC}
    for name, module in public_names(source).items():
        page = next(page for page, (_, modules) in PUBLIC.items() if module.startswith(modules))
        names[page].setdefault(module, []).append(name)
    texts = {}
    for page, (title, _) in PUBLIC.items():
        order = sorted(names[page], key=_position)
        parts = [_module(module, names[page][module]) for module in order]
        texts[page] = f"# {title}\n\nNames of the package `asker`, by the module that defines them.\n\n" + "\n".join(
            parts
        )
    for page, (title, modules) in MODULES.items():
        texts[page] = f"# {title}\n\n" + "\n".join(map(_module, modules))
    return texts


def public_names(source: str) -> dict[str, str]:
    """Return the module of each name in `__all__`, in the order of the imports."""
    tree = ast.parse(source)
    listed: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = {name for name in ast.literal_eval(node.value) if not name.startswith("__")}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: str(node.module) for node in imports for alias in node.names if alias.name in listed}
    if missing := listed - set(modules):
        raise ValueError(f"asker.__all__ names {sorted(missing)}, which asker/_api.py does not import")
    return modules


def _position(module: str) -> int:
    """Return the position of a module on its page."""
    return LEADING_MODULES.index(module) if module in LEADING_MODULES else len(LEADING_MODULES)


def _module(module: str, names: list[str] | None = None) -> str:
    """Return the directive for a module with its docstring and the given members, by default all with a docstring."""
    options = {"show_root_heading": False, "heading_level": 3} | ({"members": names} if names else {})
    lines = "".join(f"      {key}: {json.dumps(value)}\n" for key, value in options.items())
    return f"## {module}\n\n::: {module}\n    options:\n{lines}"
