"""Applications: a room for each kind of data that asker refines.

What `asker solve` does with a file, one call does: `from asker.applications import pose_graph`, then
`pose_graph.refine(pose_graph.read_g2o(path))`.  A new application is one folder here, whose `room.py` has a `ROOM`
(see `asker.applications.application`), and its name in `ROOMS`.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from asker.io.files import FileError

if TYPE_CHECKING:
    from asker.applications.application import Application

ROOMS = (
    "rotation_averaging",
    "bundle",
    "colmap",
    "pose_graph",
    "stereo",
)
"""The first that owns a path has it."""


@cache
def applications() -> "tuple[Application, ...]":
    """All that are listed."""
    return tuple(import_module(f"{__name__}.{name}.room").ROOM for name in ROOMS)


def application_of(path: Path) -> "Application":
    """The application that a file or folder belongs to, as its content says."""
    if not path.exists():
        raise FileError(path, "there is no such file")
    for application in applications():
        if application.owns(path):
            return application
    for application in applications():
        if application.endings and path.name.lower().endswith(application.endings):
            return application
    what = "folder" if path.is_dir() else "empty file" if path.stat().st_size == 0 else "file"
    known = "; ".join(application.expects for application in applications())
    raise FileError(path, f"no application knows this {what}; it is none of: {known}")
