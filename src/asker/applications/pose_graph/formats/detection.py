"""Detection of the file format of a pose graph from its content."""

from asker.applications.pose_graph.formats import toro
from asker.applications.pose_graph.formats.file_issues import Information
from asker.applications.pose_graph.formats.g2o import read_g2o
from asker.applications.pose_graph.formats.open3d import read_open3d
from asker.applications.pose_graph.formats.trajectories import KITTI, TUM
from asker.applications.pose_graph.graph import PoseGraph
from asker.io.files import FileError, FilePath, beginning


def read_graph(path: FilePath, information: Information = "nearest", strict: bool = False) -> PoseGraph:
    """Read a pose graph in g2o, TORO or Open3D JSON format.

    Parameters
    ----------
    path, information, strict
        As for `read_g2o`.
    """
    if str(path).lower().endswith((TUM, KITTI)):
        raise FileError(path, "a trajectory has no edges to solve; it can be used as --truth of a graph")
    if _is_open3d(beginning(path)):
        return read_open3d(path, information, strict)
    if _first_tag(beginning(path)) in toro.TAGS:
        return toro.read_toro(path, information, strict)
    return read_g2o(path, information=information, strict=strict)


def is_graph(path: FilePath) -> bool:
    """Return whether the content of a file looks like a pose graph."""
    begin = beginning(path)
    return _first_tag(begin).startswith(("VERTEX", "EDGE", "PARAMS_SE", "FIX")) or _is_open3d(begin)


def _is_open3d(begin: bytes) -> bool:
    return begin.lstrip().startswith(b"{") and b'"PoseGraph"' in begin


def _first_tag(begin: bytes) -> str:
    """Return the first word of the first line that is not a comment."""
    lines = (line.split(None, 1) for line in begin.split(b"\n"))
    first = next((words[0] for words in lines if words and not words[0].startswith(b"#")), b"")
    return first.decode("latin-1")
