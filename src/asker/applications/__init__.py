"""Applications: one package for each kind of data that asker refines.

Each has a function `refine` that does the same as `asker solve` does with a file, as in
`pose_graph.refine(pose_graph.read_g2o(path))` after `from asker.applications import pose_graph`.

A new application is a package in this folder whose `application.py` defines `APPLICATION` (see
`asker.applications.application`), and whose name is listed in `APPLICATIONS`.
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
"""Names of the packages; a path belongs to the first application that accepts it."""
POSES = "transforms.json"


@cache
def applications() -> "tuple[Application, ...]":
    """Return the applications in the order of `APPLICATIONS`."""
    return tuple(import_module(f"{__name__}.{name}.application").APPLICATION for name in APPLICATIONS)


def application_of(path: Path) -> "Application":
    """Return the application of a file or folder, detected from its content."""
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
    hint = f"; did you mean {folder}?" if (folder := _nearby_data(path)) else ""
    if (path if path.is_file() else path / POSES).name == POSES and (path.is_file() or (path / POSES).is_file()):
        hint = "; approximate poses of images are refined by `asker refine-poses IMAGES POSES --output DIR`"
    raise FileError(path, f"no application can read this {what}; expected one of: {known}{hint}")


def _nearby_data(path: Path) -> Path | None:
    """Return a folder that an application can read: the parent of a file, or one up to two levels below a folder."""
    inner = [sorted(entry for entry in path.glob(pattern) if entry.is_dir()) for pattern in ("*", "*/*")]
    candidates = [path.parent] if path.is_file() else chain(*inner)
    return next((c for c in candidates if any(a.reads_folder and a.owns(c) for a in applications())), None)
