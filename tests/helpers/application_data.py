"""Small input files for every application."""

from pathlib import Path

from asker.applications import bundle, colmap, pose_graph, rotation_averaging
from asker.cli import main
from colmap_models import disturbed, some_model
from synthetic_graphs import circle


def write_data(root: Path) -> dict[str, Path]:
    """Write a file or folder for each application; return the paths by application."""
    bundle.write_bal(root / "bundle.txt", bundle.make_scene(6, 300, start_error=5.0).start)
    colmap.write_model(root / "colmap", disturbed(some_model(("SIMPLE_RADIAL",), n_images=5, noise=0.3)))
    graph, _ = pose_graph.add_false_loops(circle(drift=0.02)[1], 0.3, "random", seed=1)
    pose_graph.write_g2o(root / "pose_graph.g2o", graph)
    pairs = rotation_averaging.make_rotations(12, 50)
    entries = [" ".join(map(repr, R)) for R in pairs.matrices.reshape(-1, 9).tolist()]
    lines = [f"{i} {j} {text}" for i, j, text in zip(pairs.i, pairs.j, entries, strict=True)]
    (root / "rotation_averaging.txt").write_text("\n".join(lines))
    sizes = ["--width", "72", "--height", "48", "--max-disparity", "12"]
    assert main(["stereo-generate", str(root / "stereo"), *sizes]) == 0
    return {path.stem: path for path in root.iterdir()}
