"""Known positions: of images (GPS), and of control points with their pixels.  Their files.

Positions are lines `name,x,y,z`, with a standard deviation for all three or one for each after that.  A first line of
titles may name the columns; with `latitude`, `longitude` and `height` the positions become metres east, north and up of
their median place.  COLMAP keeps positions of images in its database alone, which is read too (`.db`).

Control points are such lines, and lines `image,name,u,v` for the pixel at which an image shows one.
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
"""Other names of columns."""
ON_EARTH = ["latitude", "longitude", "height"]
WGS84 = 0
"""COLMAP's number for latitude, longitude and height."""
Row = tuple[int, list[str]]
"""A line's number and its words."""


@dataclass(frozen=True, eq=False)
class Positions:
    """Known positions, by name."""

    names: tuple[str, ...]
    xyz: np.ndarray
    """(n, 3)"""
    sds: np.ndarray
    """(n, 3): standard deviations; NaN where they are not known."""
    origin: tuple[float, float, float] | None = None
    """Latitude, longitude and height of 0 0 0, where positions are on the earth."""

    def __len__(self) -> int:
        return len(self.names)

    def taken(self, chosen: np.ndarray) -> "Positions":
        """Some of them."""
        names = tuple(self.names[k] for k in chosen)
        return Positions(names, self.xyz[chosen], self.sds[chosen], self.origin)


@dataclass(frozen=True, eq=False)
class Control:
    """Control points, and where images show them."""

    points: Positions
    images: tuple[str, ...]
    """(n_observations): the name of the image,"""
    index: np.ndarray
    """which of the points it shows,"""
    uv: np.ndarray
    """(n_observations, 2): and at which pixel."""


def read_positions(path: FilePath) -> Positions:
    """Positions of images, of a table or of COLMAP's database.  Anything wrong is a `FileError` with its line."""
    if Path(path).suffix.lower() == ".db":
        return _read_database(path)
    return _positions(path, list(_rows(path)))


def read_control(path: FilePath, images: Sequence[str]) -> Control:
    """Control points; a line that begins with the name of an image is an observation."""
    known = set(images)
    rows = list(_rows(path))
    points = _positions(path, [row for row in rows if row[1][0] not in known], "no image, so a control point: ")
    index = {name: k for k, name in enumerate(points.names)}
    seen = [row for row in rows if row[1][0] in known]
    for line, words in seen:
        if len(words) != 4:
            raise FileError(path, f"an observation is image,name,u,v: four words, found {len(words)}", line)
        if words[1] not in index:
            raise FileError(path, f"there is no position of control point {words[1]!r}", line)
    if not seen:
        raise FileError(path, "no line begins with the name of an image: control points need pixels, as image,name,u,v")
    return Control(
        points,
        tuple(words[0] for _, words in seen),
        np.array([index[words[1]] for _, words in seen]),
        np.array([_numbers(path, line, words[2:], words[1]) for line, words in seen]),
    )


def _rows(path: FilePath) -> Iterator[Row]:
    """Words between commas of lines that are neither empty nor comments."""
    text = os.fsdecode(read_text_bytes(path))
    for line, content in enumerate(text.split("\n"), 1):
        if content.strip() and not content.lstrip().startswith("#"):
            yield line, [word.strip() for word in content.split(",")]


def _positions(path: FilePath, rows: list[Row], taken_for: str = "") -> Positions:
    titles = _titles(rows)
    rows = rows[1:] if titles else rows
    names: dict[str, int] = {}
    numbers = []
    for line, words in rows:
        if len(words) not in (4, 5, 7):
            raise FileError(
                path, f"a position is name,x,y,z and one deviation, or three; found {len(words)} words", line
            )
        if words[0] in names:
            raise FileError(path, f"{words[0]!r} stands in line {names[words[0]]} already", line)
        names[words[0]] = line
        each = _numbers(path, line, words[1:], taken_for + words[0])
        if any(not x > 0 for x in each[3:]):
            raise FileError(path, "a standard deviation must be positive", line)
        numbers.append(each[:3] + {4: [np.nan] * 3, 5: each[3:] * 3, 7: each[3:]}[len(words)])
    if not numbers:
        raise FileError(path, "there are no positions")
    table = np.array(numbers)
    if titles[1:4] != ON_EARTH:
        return Positions(tuple(names), table[:, :3], table[:, 3:])
    for k, line in enumerate(names.values()):
        if abs(table[k, 0]) > 90 or abs(table[k, 1]) > 360:
            raise FileError(path, "a latitude lies between -90 and 90, a longitude between -360 and 360", line)
    return _on_earth(tuple(names), table[:, :3], table[:, 3:])


def _titles(rows: list[Row]) -> list[str]:
    """Of the columns, where the first line has some."""
    titles = [TITLES.get(word.lower(), word.lower()) for word in rows[0][1]] if rows else []
    return titles if titles[1:4] in (["x", "y", "z"], ON_EARTH) else []


def _on_earth(names: tuple[str, ...], places: np.ndarray, sds: np.ndarray) -> Positions:
    origin = np.median(places, axis=0)
    return Positions(names, east_north_up(places, origin), sds, tuple(origin.tolist()))


def _numbers(path: FilePath, line: int, words: list[str], of: str) -> list[float]:
    """Numbers of something that has a name."""
    found = []
    for word in words:
        try:
            value = parse_number(word)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            raise FileError(path, f"{of[:80]}: expected a finite number, found {word[:40]!r}", line)
        found.append(value)
    return found


def _read_database(path: FilePath) -> Positions:
    """The pose priors of COLMAP's database (4.0 and later)."""
    asked = (
        "SELECT images.name, position, position_covariance, coordinate_system FROM pose_priors "
        "JOIN images ON images.image_id = corr_data_id WHERE corr_sensor_type = 0 ORDER BY images.image_id"
    )
    with opened(path):  # SQLite would wait for the other end of a pipe
        pass
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(asked).fetchall()
    except sqlite3.Error as error:
        raise FileError(path, f"no pose priors can be read from this database: {error}") from None
    try:
        table = [
            (np.frombuffer(place, "<f8"), np.frombuffer(around or bytes(72), "<f8")) for _, place, around, _ in rows
        ]
        places = np.array([place for place, _ in table]).reshape(-1, 3)
        variances = np.array([around.reshape(3, 3).diagonal() for _, around in table]).reshape(-1, 3)
    except (TypeError, ValueError):
        raise FileError(path, "a pose prior has no position of three numbers, or no 3×3 covariance") from None
    good = np.isfinite(places).all(axis=1)
    if not good.any():
        raise FileError(path, "the database has no pose priors with a position")
    names = tuple(name for (name, *_), kept in zip(rows, good, strict=True) if kept)
    sds = np.where(variances > 0, np.sqrt(np.where(variances > 0, variances, 1.0)), np.nan)[good]
    kinds = {kind for (*_, kind), kept in zip(rows, good, strict=True) if kept}
    if len(kinds) > 1:
        raise FileError(path, "the pose priors are in different coordinate systems")
    return _on_earth(names, places[good], sds) if kinds == {WGS84} else Positions(names, places[good], sds)
