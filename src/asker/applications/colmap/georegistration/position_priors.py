"""Files of known positions: of images (GPS), and of control points with their pixels.

Positions are lines `name,x,y,z`, optionally followed by one standard deviation or three.  A header line may name the
columns; with `latitude`, `longitude` and `height`, positions are converted to metres east, north and up of their median
position.  COLMAP stores positions of images in its database only (`.db`), which is accepted, too.

A file of control points has such lines, and lines `image,name,u,v` with the pixel of a control point in an image.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asker.geometry.geodesy import east_north_up
from asker.io.files import FileError, FilePath, opened, read_text_bytes
from asker.io.numbers import parse_number

TITLES = {"lat": "latitude", "lon": "longitude", "lng": "longitude", "alt": "height", "altitude": "height"}
"""Alternative names of columns."""
GEODETIC_COLUMNS = ["latitude", "longitude", "height"]
WGS84 = 0
"""COLMAP's number of the coordinate system latitude, longitude and height."""
Row = tuple[int, list[str]]
"""The number of a line, and its words."""


@dataclass(frozen=True, eq=False)
class Positions:
    """Known positions with names."""

    names: tuple[str, ...]
    """The names of images or control points."""
    xyz: np.ndarray
    """(n, 3): positions."""
    sds: np.ndarray
    """(n, 3): standard deviations; NaN if unknown."""
    origin: tuple[float, float, float] | None = None
    """Latitude, longitude and height of the point (0, 0, 0); None for positions in another frame."""

    def __len__(self) -> int:
        return len(self.names)

    def taken(self, index: np.ndarray) -> "Positions":
        """Return the positions with the given indices."""
        names = tuple(self.names[k] for k in index)
        return Positions(names, self.xyz[index], self.sds[index], self.origin)


@dataclass(frozen=True, eq=False)
class Control:
    """Control points and their observations."""

    points: Positions
    """The positions of the control points."""
    images: tuple[str, ...]
    """(n_observations,): the name of the image of each observation."""
    index: np.ndarray
    """(n_observations,): the index of the control point."""
    uv: np.ndarray
    """(n_observations, 2): the pixel."""


def read_positions(path: FilePath) -> Positions:
    """Read positions of images from a table or from COLMAP's database.

    Parameters
    ----------
    path
        A table as described above, or a COLMAP database (`.db`).

    Returns
    -------
    Positions
        The positions with the names of the images.

    Raises
    ------
    FileError
        If the file is invalid; the message has the line.
    """
    if Path(path).suffix.lower() == ".db":
        return _read_database(path)
    return _positions(path, list(_rows(path)))


def read_control(path: FilePath, images: Sequence[str]) -> Control:
    """Read control points and their observations.

    Parameters
    ----------
    path
        A file as described above.
    images
        The names of the images; a line that begins with one is an observation.

    Returns
    -------
    Control
        The control points and their observations.

    Raises
    ------
    FileError
        If the file is invalid; the message has the line.
    """
    known = set(images)
    rows = list(_rows(path))
    points = _positions(
        path, [row for row in rows if row[1][0] not in known], "not an image name, hence a control point: "
    )
    index = {name: k for k, name in enumerate(points.names)}
    observations = [row for row in rows if row[1][0] in known]
    for line, words in observations:
        if len(words) != 4:
            raise FileError(path, f"an observation is image,name,u,v: four words, got {len(words)}", line)
        if words[1] not in index:
            raise FileError(path, f"there is no position of control point {words[1]!r}", line)
    if not observations:
        raise FileError(
            path, "no line begins with the name of an image: control points need observations, image,name,u,v"
        )
    return Control(
        points,
        tuple(words[0] for _, words in observations),
        np.array([index[words[1]] for _, words in observations]),
        np.array([_numbers(path, line, words[2:], words[1]) for line, words in observations]),
    )


def _rows(path: FilePath) -> Iterator[Row]:
    """Yield the comma-separated words of lines that are neither empty nor comments."""
    text = os.fsdecode(read_text_bytes(path))
    for line, content in enumerate(text.split("\n"), 1):
        if content.strip() and not content.lstrip().startswith("#"):
            yield line, [word.strip() for word in content.split(",")]


def _positions(path: FilePath, rows: list[Row], prefix: str = "") -> Positions:
    titles = _titles(rows)
    rows = rows[1:] if titles else rows
    names: dict[str, int] = {}
    numbers = []
    for line, words in rows:
        if len(words) not in (4, 5, 7):
            raise FileError(
                path,
                f"a position is name,x,y,z and optionally one or three standard deviations; got {len(words)} words",
                line,
            )
        if words[0] in names:
            raise FileError(path, f"{words[0]!r} was already in line {names[words[0]]}", line)
        names[words[0]] = line
        each = _numbers(path, line, words[1:], prefix + words[0])
        if any(not x > 0 for x in each[3:]):
            raise FileError(path, "a standard deviation must be positive", line)
        numbers.append(each[:3] + {4: [np.nan] * 3, 5: each[3:] * 3, 7: each[3:]}[len(words)])
    if not numbers:
        raise FileError(path, "there are no positions")
    table = np.array(numbers)
    if titles[1:4] != GEODETIC_COLUMNS:
        return Positions(tuple(names), table[:, :3], table[:, 3:])
    for k, line in enumerate(names.values()):
        if abs(table[k, 0]) > 90 or abs(table[k, 1]) > 360:
            raise FileError(path, "a latitude must be between -90 and 90, a longitude between -360 and 360", line)
    return _geodetic(tuple(names), table[:, :3], table[:, 3:])


def _titles(rows: list[Row]) -> list[str]:
    """Return the names of the columns; none if the first line is not a header."""
    titles = [TITLES.get(word.lower(), word.lower()) for word in rows[0][1]] if rows else []
    return titles if titles[1:4] in (["x", "y", "z"], GEODETIC_COLUMNS) else []


def _geodetic(names: tuple[str, ...], places: np.ndarray, sds: np.ndarray) -> Positions:
    origin = np.median(places, axis=0)
    return Positions(names, east_north_up(places, origin), sds, tuple(origin.tolist()))


def _numbers(path: FilePath, line: int, words: list[str], of: str) -> list[float]:
    """Return words as finite numbers; `of` is the name of the position in an error."""
    values = []
    for word in words:
        try:
            value = parse_number(word)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            raise FileError(path, f"{of[:80]}: expected a finite number, got {word[:40]!r}", line)
        values.append(value)
    return values


def _read_database(path: FilePath) -> Positions:
    """Read the pose priors of a COLMAP database (4.0 and later)."""
    query = (
        "SELECT images.name, position, position_covariance, coordinate_system FROM pose_priors "
        "JOIN images ON images.image_id = corr_data_id WHERE corr_sensor_type = 0 ORDER BY images.image_id"
    )
    with opened(path):  # rejects pipes, which SQLite would block on
        pass
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(query).fetchall()
    except sqlite3.Error as error:
        raise FileError(path, f"no pose priors can be read from this database: {error}") from None
    try:
        table = [
            (np.frombuffer(place, "<f8"), np.frombuffer(covariance or bytes(72), "<f8"))
            for _, place, covariance, _ in rows
        ]
        places = np.array([place for place, _ in table]).reshape(-1, 3)
        variances = np.array([covariance.reshape(3, 3).diagonal() for _, covariance in table]).reshape(-1, 3)
    except (TypeError, ValueError):
        raise FileError(path, "a pose prior has no position of three numbers, or no 3×3 covariance") from None
    is_known = np.isfinite(places).all(axis=1)
    if not is_known.any():
        raise FileError(path, "the database has no pose priors with a position")
    names = tuple(name for (name, *_), kept in zip(rows, is_known, strict=True) if kept)
    sds = np.where(variances > 0, np.sqrt(np.where(variances > 0, variances, 1.0)), np.nan)[is_known]
    kinds = {kind for (*_, kind), kept in zip(rows, is_known, strict=True) if kept}
    if len(kinds) > 1:
        raise FileError(path, "the pose priors are in different coordinate systems")
    return _geodetic(names, places[is_known], sds) if kinds == {WGS84} else Positions(names, places[is_known], sds)
