"""Text lines that begin with a tag, and the numbers in them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from asker.io.file_issues import FileIssues
from asker.io.files import FileError, FilePath

CHUNK_ROWS = 1 << 12
LARGEST_ID = 2**53  # every integer up to here is exactly representable as a double


@dataclass
class Lines:
    """Lines of one tag: line numbers, the text after the tag, and its numbers."""

    line: list[int] = field(default_factory=list)
    text: list[bytes] = field(default_factory=list)
    numbers: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Drop the lines that are not in a mask."""
        self.line = np.array(self.line)[chosen].tolist()
        self.numbers = self.numbers[chosen]


def lines_by_tag(text: bytes) -> dict[str, Lines]:
    """Return the lines of a text by tag, without empty lines and comments."""
    by_tag: dict[bytes, Lines] = {}
    for number, line in enumerate(text.split(b"\n"), 1):
        parts = line.split(None, 1)
        if parts and not parts[0].startswith(b"#"):
            lines = by_tag.get(parts[0]) or by_tag.setdefault(parts[0], Lines())
            lines.line.append(number)
            lines.text.append(parts[1] if len(parts) > 1 else b"")
    return {tag.decode("latin-1"): lines for tag, lines in by_tag.items()}


def drop_unknown_tags(by_tag: dict[str, Lines], known: Iterable[str], issues: FileIssues) -> dict[str, Lines]:
    """Return the lines with known tags; the others are reported as an issue."""
    known = list(known)
    unknown = sorted((tag for tag in by_tag if tag not in known), key=lambda tag: by_tag[tag].line[0])
    if unknown:
        n, first = sum(len(by_tag[tag].line) for tag in unknown), unknown[0]
        names = ", ".join(printable(tag.encode("latin-1")) for tag in unknown[:3]) + (", …" if len(unknown) > 3 else "")
        error = f"unknown tag {printable(first.encode('latin-1'))}; known tags are {', '.join(known)}"
        every = np.ones(n, dtype=np.bool_)
        issues.add(every, f"line{{s}} with unknown tags dropped: {names}", error, by_tag[first].line[0])
    return {tag: lines for tag, lines in by_tag.items() if tag in known}


def parse(path: FilePath, wanted: Iterable[tuple[str, Lines, int]]) -> None:
    """Convert the text of lines to numbers.

    Parameters
    ----------
    path
        File that an error names.
    wanted
        For each tag: the name of a line ("vertex", "edge", …), its lines, and the required count of numbers per line.

    Raises
    ------
    FileError
        With the first line that has other content.
    """
    problems = []
    for name, lines, n in wanted:
        try:
            lines.numbers = number_table(lines.text, n)
        except ValueError:
            problems.append(_first_problem(name, lines, n))
    if problems:
        line, what = min(problems)
        raise FileError(path, what, line)


def number_table(lines: list[bytes], n: int) -> NDArray[np.float64]:
    """Return `n` finite numbers per line; raise a `ValueError` if any line has other content."""
    text = b" ; ".join(lines).decode("ascii")  # the semicolon must occur after every n numbers
    tokens = text.split()
    stride = n + 1
    if len(tokens) != max(0, stride * len(lines) - 1) or tokens[n::stride] != [";"] * (len(lines) - 1):
        raise ValueError
    del tokens[n::stride]
    values = np.fromiter(map(float, tokens), np.float64, len(tokens))
    if "_" in text or not np.isfinite(values).all():  # Python accepts 1_000 as a number, files must not
        raise ValueError
    return values.reshape(-1, n)


def _first_problem(name: str, lines: Lines, n: int) -> tuple[int, str]:
    for number, text in zip(lines.line, lines.text, strict=True):
        tokens = text.split()
        for token in tokens:
            try:
                number_table([token], 1)
            except ValueError:
                return number, f"expected a finite number, got {printable(token)}"
        if len(tokens) != n:
            return number, f"this {name} needs {n} numbers, got {len(tokens)}"
    raise AssertionError("every line is valid, but all of them together are not")


def printable(token: bytes) -> str:
    """Return a token of a file as a message prints it."""
    return repr(token[:40])[1:]


def integer_ids(path: FilePath, numbers: NDArray[np.float64], lines: list[int]) -> NDArray[np.int64]:
    """Return ids from floating-point numbers, (n, columns)."""
    bad = (numbers < 0) | (numbers >= LARGEST_ID) | (numbers != np.floor(numbers))
    if bad.any():
        row, column = (int(k) for k in np.argwhere(bad)[0])
        message = f"an id must be a non-negative integer, got {numbers[row, column]:g}"
        raise FileError(path, message, lines[row])
    return numbers.astype(np.int64)


def id_list(path: FilePath, name: str, lines: Lines) -> tuple[NDArray[np.int64], list[int]]:
    """Return the ids of lines with one or more ids each, and the line number of each id."""
    tokens = [text.split() for text in lines.text]
    for number, of_line in zip(lines.line, tokens, strict=True):
        if not of_line:
            raise FileError(path, f"{name} needs the id of a vertex", number)
    every = Lines(
        [number for number, of_line in zip(lines.line, tokens, strict=True) for _ in of_line],
        list(chain.from_iterable(tokens)),
    )
    parse(path, [(name, every, 1)])
    return integer_ids(path, every.numbers, every.line)[:, 0], every.line


def formatted_lines(tag: str, names: NDArray[np.int64], numbers: NDArray[np.float64]) -> Iterator[bytes]:
    """Yield chunks of formatted lines of a tag; numbers are written exactly."""
    one = tag + " %d" * names.shape[1] + " %r" * numbers.shape[1] + "\n"
    for start in range(0, len(names), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        rows = [[*a, *b] for a, b in zip(names[part].tolist(), numbers[part].tolist(), strict=True)]
        yield (one * len(rows) % tuple(chain.from_iterable(rows))).encode()
