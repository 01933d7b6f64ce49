"""Lines of a text that begin with a tag, and the numbers in them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from asker.io.file_issues import Dirt
from asker.io.files import FileError, FilePath

CHUNK_ROWS = 1 << 12
LARGEST_ID = 2**53  # a double holds every integer up to here


@dataclass
class Lines:
    """The lines of one tag: their numbers in the file, and what stands after the tag."""

    line: list[int] = field(default_factory=list)
    text: list[bytes] = field(default_factory=list)
    numbers: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Those of a mask alone."""
        self.line = np.array(self.line)[chosen].tolist()
        self.numbers = self.numbers[chosen]


def sorted_lines(text: bytes) -> dict[str, Lines]:
    """The lines of a text by tag; empty ones and comments are left out."""
    found: dict[bytes, Lines] = {}
    for number, line in enumerate(text.split(b"\n"), 1):
        parts = line.split(None, 1)
        if parts and not parts[0].startswith(b"#"):
            lines = found.get(parts[0]) or found.setdefault(parts[0], Lines())
            lines.line.append(number)
            lines.text.append(parts[1] if len(parts) > 1 else b"")
    return {tag.decode("latin-1"): lines for tag, lines in found.items()}


def leave_out_strangers(found: dict[str, Lines], known: Iterable[str], dirt: Dirt) -> dict[str, Lines]:
    """The lines whose tags are known."""
    known = list(known)
    strange = sorted((tag for tag in found if tag not in known), key=lambda tag: found[tag].line[0])
    if strange:
        n, first = sum(len(found[tag].line) for tag in strange), strange[0]
        names = ", ".join(shown(tag.encode("latin-1")) for tag in strange[:3]) + (", …" if len(strange) > 3 else "")
        error = f"unknown tag {shown(first.encode('latin-1'))}; known are {', '.join(known)}"
        dirt.found(
            np.ones(n, dtype=np.bool_), f"line{{s}} with unknown tags left out: {names}", error, found[first].line[0]
        )
    return {tag: lines for tag, lines in found.items() if tag in known}


def parse(path: FilePath, wanted: Iterable[tuple[str, Lines, int]]) -> None:
    """Read the numbers of lines; wanted: what a line is called, the lines, and how many numbers each has."""
    problems = []
    for name, lines, n in wanted:
        try:
            lines.numbers = table(lines.text, n)
        except ValueError:
            problems.append(_first_problem(name, lines, n))
    if problems:
        line, what = min(problems)
        raise FileError(path, what, line)


def table(lines: list[bytes], n: int) -> NDArray[np.float64]:
    """`n` finite numbers of each line; a `ValueError` when there is a line without them."""
    text = b" ; ".join(lines).decode("ascii")  # the sign is no number: it must stand after every n of them
    tokens = text.split()
    stride = n + 1
    if len(tokens) != max(0, stride * len(lines) - 1) or tokens[n::stride] != [";"] * (len(lines) - 1):
        raise ValueError
    del tokens[n::stride]
    values = np.fromiter(map(float, tokens), np.float64, len(tokens))
    if "_" in text or not np.isfinite(values).all():  # Python alone reads 1_000 as a number
        raise ValueError
    return values.reshape(-1, n)


def _first_problem(name: str, lines: Lines, n: int) -> tuple[int, str]:
    for number, text in zip(lines.line, lines.text, strict=True):
        tokens = text.split()
        for token in tokens:
            try:
                table([token], 1)
            except ValueError:
                return number, f"expected a finite number, found {shown(token)}"
        if len(tokens) != n:
            return number, f"this {name} needs {n} numbers, found {len(tokens)}"
    raise AssertionError("every line is right, but the whole is not")


def shown(token: bytes) -> str:
    """A piece of a file, as a message shows it."""
    return repr(token[:40])[1:]


def whole(path: FilePath, numbers: NDArray[np.float64], lines: list[int]) -> NDArray[np.int64]:
    """Ids from numbers, (n, columns)."""
    bad = (numbers < 0) | (numbers >= LARGEST_ID) | (numbers != np.floor(numbers))
    if bad.any():
        row, column = (int(k) for k in np.argwhere(bad)[0])
        raise FileError(path, f"an id must be an integer, 0 or more, found {numbers[row, column]:g}", lines[row])
    return numbers.astype(np.int64)


def listed(path: FilePath, name: str, lines: Lines) -> tuple[NDArray[np.int64], list[int]]:
    """The ids of lines with one or more each, and the line that each stands in."""
    tokens = [text.split() for text in lines.text]
    for number, of_line in zip(lines.line, tokens, strict=True):
        if not of_line:
            raise FileError(path, f"{name} needs the id of a vertex", number)
    every = Lines(
        [number for number, of_line in zip(lines.line, tokens, strict=True) for _ in of_line],
        list(chain.from_iterable(tokens)),
    )
    parse(path, [(name, every, 1)])
    return whole(path, every.numbers, every.line)[:, 0], every.line


def printed(tag: str, names: NDArray[np.int64], numbers: NDArray[np.float64]) -> Iterator[bytes]:
    """Lines of a tag, many at a time; numbers are written exactly."""
    one = tag + " %d" * names.shape[1] + " %r" * numbers.shape[1] + "\n"
    for start in range(0, len(names), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        rows = [[*a, *b] for a, b in zip(names[part].tolist(), numbers[part].tolist(), strict=True)]
        yield (one * len(rows) % tuple(chain.from_iterable(rows))).encode()
