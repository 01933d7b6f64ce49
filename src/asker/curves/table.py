"""Tables from CSV and TSV files, and from Parquet and Excel files where pandas is installed.

Text files may have a comment sign (#) before lines, units in the header, as in `time (s)`, `time [s]` and `T/K`, or in
a second line, decimal commas, quoted fields, and missing values.
"""

import csv
import difflib
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.io.files import BOM, FileError, FilePath, read_bytes

Floats = NDArray[np.float64]
DELIMITERS = ("\t", ";", ",", "|")
MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "--", "?", "nil", "#n/a"}
"""Texts of missing values, in lower case."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eEdD][+-]?\d+)?$|[+-]?inf(inity)?$", re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?$")
UNITS = (
    re.compile(r"^(.*?)\s*[\[({]([^\])}]*)[\])}]$"),
    re.compile(r"^(\w+)\s*/\s*(\S+)$"),
    re.compile(r"^(.+?)\s+in\s+(\S+)$"),
)
"""Headers with a unit."""
WITH_PANDAS = {
    ".parquet": "read_parquet",
    ".pq": "read_parquet",
    ".xlsx": "read_excel",
    ".xls": "read_excel",
    ".ods": "read_excel",
}
"""Functions of pandas by the suffix of a file."""
MAX_LEVELS = 50
"""Largest number of values of a column of categories."""
SAMPLE_LINES = 50
"""Number of lines from which the delimiter is detected."""


@dataclass(frozen=True)
class Column:
    """A column of a table as text."""

    header: str
    name: str
    """Header without its unit."""
    unit: str
    cells: tuple[str, ...]
    """Text of each row; "" if missing."""


@dataclass(frozen=True)
class DataTable:
    """A table as text, which is converted on access."""

    path: str
    columns: tuple[Column, ...]
    lines: tuple[int, ...]
    """Line of each row in the file."""
    has_decimal_commas: bool = False

    def column(self, name: str) -> Column | None:
        """Return the column of a name: its header, its header without the unit, or as an identifier."""
        for key in (lambda c: c.header, lambda c: c.name, lambda c: identifier(c.name)):
            found = [c for c in self.columns if key(c) == name]
            if len(found) > 1:
                headers = ", ".join(repr(c.header) for c in found)
                raise FileError(self.path, f"{name!r} is the name of {len(found)} columns ({headers}): use backticks")
            if found:
                return found[0]
        return None

    def known(self, name: str) -> Column:
        """Return the column of a name; raise a `FileError` that lists the columns if there is none."""
        column = self.column(name)
        if column is None:
            names = [identifier(c.name) for c in self.columns]
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise FileError(self.path, f"there is no column {name!r}{hint}; the columns are {', '.join(names)}")
        return column

    def numbers(self, name: str) -> Floats:
        """Return the numbers of a column, NaN if missing; raise a `FileError` that names the line of another text."""
        column = self.known(name)
        values = np.full(len(column.cells), np.nan)
        for k, cell in enumerate(column.cells):
            number = number_of(cell, self.has_decimal_commas)
            if number is None:
                texts = sum(number_of(c, self.has_decimal_commas) is None for c in column.cells)
                advice = (
                    f"use C({identifier(column.name)}) for categories" if texts > 1 else "correct it or leave it empty"
                )
                what = f"column {column.header!r} has {cell!r}, which is not a number ({texts} such values): {advice}"
                raise FileError(self.path, what, self.lines[k])
            values[k] = number
        return values

    def labels(self, name: str) -> list[str]:
        """Return the texts of a column of categories."""
        column = self.known(name)
        levels = {cell for cell in column.cells if not is_missing(cell)}
        if len(levels) > MAX_LEVELS:
            what = (
                f"column {column.header!r} has {len(levels)} different values, expected at most {MAX_LEVELS} categories"
            )
            raise FileError(self.path, what)
        return ["" if is_missing(cell) else cell for cell in column.cells]


def identifier(name: str) -> str:
    """Return a name as it is written in an expression."""
    word = re.sub(r"\W+", "_", name.strip()).strip("_")
    return f"_{word}" if word[:1].isdigit() else word


def is_missing(cell: str) -> bool:
    """Return whether a text stands for a missing value."""
    return cell.strip().lower() in MISSING


def number_of(cell: str, decimal_commas: bool = False) -> float | None:
    """Return the number of a text, NaN if it is missing, None if it is another text."""
    text = cell.strip().replace("\N{MINUS SIGN}", "-")
    if is_missing(text):
        return np.nan
    if decimal_commas and DECIMAL_COMMA.match(text):
        text = text.replace(",", ".")
    if not NUMBER.match(text) or not text.isascii():
        return None
    return float(text.lower().replace("d", "e"))


def read_table(path: FilePath, sheet: str | None = None) -> DataTable:
    """Return the table of a file.

    Parameters
    ----------
    path
        File; the suffix decides between text, Parquet and Excel.
    sheet
        Name of a sheet of an Excel file; by default the first.

    Raises
    ------
    FileError
        If the file is not a table.
    """
    if Path(path).suffix.lower() in WITH_PANDAS:
        return _by_pandas(path, sheet)
    content = read_bytes(path).removeprefix(BOM)
    if b"\0" in content[:4096]:
        raise FileError(path, "this is not a text file: expected CSV, TSV, Parquet or Excel")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    return _of_text(path, text)


def _of_text(path: FilePath, text: str) -> DataTable:
    """Return the table of a text."""
    numbered = [
        (k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")
    ]
    if not numbered:
        raise FileError(path, "the file has no rows")
    delimiter = _delimiter([line for _, line in numbered[:SAMPLE_LINES]])
    rows = [(k, _fields(line, delimiter)) for k, line in numbered]
    width = Counter(len(cells) for _, cells in rows).most_common(1)[0][0]
    for k, cells in rows:
        if len(cells) != width:
            raise FileError(path, f"this line has {len(cells)} fields, and most have {width}", k)
    commas = delimiter != "," and any(DECIMAL_COMMA.match(cell.strip()) for _, cells in rows for cell in cells)

    def is_text(cells: Sequence[str]) -> bool:
        return all(number_of(cell, commas) is None or is_missing(cell) for cell in cells) and any(map(str.strip, cells))

    headers = rows.pop(0)[1] if is_text(rows[0][1]) else [f"column{k + 1}" for k in range(width)]
    units = [""] * width
    has_numbers = len(rows) > 1 and any(number_of(c, commas) is not None and not is_missing(c) for c in rows[1][1])
    if rows and has_numbers and is_text(rows[0][1]):
        units = rows.pop(0)[1]
    if not rows:
        raise FileError(path, "the file has a header but no rows")
    columns = [
        _column(header, unit, [cells[k].strip() for _, cells in rows])
        for k, (header, unit) in enumerate(zip(headers, units, strict=True))
    ]
    return DataTable(str(path), tuple(columns), tuple(k for k, _ in rows), commas)


def _fields(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line; those of one without delimiters are separated by white space."""
    if delimiter == " ":
        return line.split()
    return next(csv.reader(io.StringIO(line), delimiter=delimiter, skipinitialspace=True))


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter with the same count in most lines; white space if there is none."""
    best, agreement = " ", 0.0
    for delimiter in DELIMITERS:
        counts = [len(_fields(line, delimiter)) for line in lines]
        count, n = Counter(counts).most_common(1)[0]
        if count > 1 and n / len(lines) > agreement:
            best, agreement = delimiter, n / len(lines)
    return best


def _column(header: str, unit: str, cells: Sequence[str]) -> Column:
    header = header.strip()
    for pattern in UNITS:
        match = pattern.match(header)
        if match and match[1].strip():
            return Column(header, match[1].strip(), unit.strip(" []()") or match[2], tuple(cells))
    return Column(header, header, unit.strip(" []()"), tuple(cells))


def _by_pandas(path: FilePath, sheet: str | None) -> DataTable:
    """Return the table of a Parquet or Excel file."""
    try:
        import pandas
    except ImportError:
        raise FileError(path, "Parquet and Excel files need pandas: pip install pandas pyarrow openpyxl") from None
    read_bytes(path)  # errors of missing files are those of all readers
    options: dict[str, Any] = {"sheet_name": sheet or 0} if "excel" in WITH_PANDAS[Path(path).suffix.lower()] else {}
    try:
        frame = getattr(pandas, WITH_PANDAS[Path(path).suffix.lower()])(path, **options)
    except ImportError as error:
        raise FileError(path, f"this file needs another package: {error}") from error
    except (ValueError, OSError, KeyError) as error:
        raise FileError(path, f"pandas cannot read it: {' '.join(str(error).split())[:200]}") from error
    columns = []
    for header in frame.columns:
        missing = frame[header].isna()
        cells = ["" if gone else _text_of(x) for x, gone in zip(frame[header], missing, strict=True)]
        columns.append(_column(str(header), "", cells))
    if not len(frame):
        raise FileError(path, "the file has no rows")
    return DataTable(str(path), tuple(columns), tuple(range(2, len(frame) + 2)))


def _text_of(x: Any) -> str:
    return repr(float(x)) if isinstance(x, int | float | np.integer | np.floating) else str(x)
