"""Applications: a room for each kind of data that asker refines.

What `asker solve` does with a file, one call does: `from asker.applications import pose_graph`, then
`pose_graph.refine(pose_graph.read_g2o(path))`.  A new application is one folder here, whose `room.py` has a
                                                 `APPLICATION`
(see `asker.applications.application`), and its name in `APPLICATIONS`.
"""

import stat
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from asker.io.files import NOT_REGULAR, FileError

if TYPE_CHECKING:
    from asker.applications.application import Application

APPLICATIONS = (
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
    return tuple(import_module(f"{__name__}.{name}.application").APPLICATION for name in APPLICATIONS)


def application_of(path: Path) -> "Application":
    """The application that a file or folder belongs to, as its content says."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as e:
        raise FileError(path, "there is no such file") from e
    except OSError as e:
        raise FileError(path, f"cannot be read: {e.strerror}") from e
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise FileError(path, NOT_REGULAR)
    for application in applications():
        if application.owns(path):
            return application
    for application in applications():
        if application.endings and path.name.lower().endswith(application.endings):
            return application
    what = "folder" if path.is_dir() else "empty file" if path.stat().st_size == 0 else "file"
    known = "; ".join(a.expects for a in applications() if a.reads_folder == path.is_dir())
    near = f"; is it {folder} that you mean?" if (folder := _known_near(path)) else ""
    raise FileError(path, f"no application knows this {what}; it is none of: {known}{near}")


def _known_near(path: Path) -> Path | None:
    """A folder that an application knows: that of a file, or one up to two levels down, as sparse/0 of a project."""
    inner = [sorted(found for found in path.glob(pattern) if found.is_dir()) for pattern in ("*", "*/*")]
    near = [path.parent] if path.is_file() else chain(*inner)
    return next((folder for folder in near if any(a.reads_folder and a.owns(folder) for a in applications())), None)
