"""Reader of TOML files, whose size is limited to that of handwritten files.

The memory of Python's parser grows with the square of the number of parts of a dotted key (`a.b.c`: three), and with
the size of the text otherwise.  Hence both are bounded before a text is parsed.
"""

import re
import tomllib
from typing import Any

from asker.io.files import BOM, FileError, FilePath, opened

MOST_BYTES = 1 << 18
MOST_PARTS = 16
"""Parts of a dotted key."""

_QUOTED_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""' r"|'''.*?'''" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'" r"|#[^\n]*", re.DOTALL
)
_BETWEEN_KEYS = re.compile(r"[\[\]{},=]")


def read_toml_text(path: FilePath) -> str:
    """Read a TOML file without parsing it."""
    with opened(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise FileError(path, f"the file is larger than {MOST_BYTES >> 10} kB, the limit for TOML files")
    try:
        return content.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(path, "this is not a text file") from error


def parse_toml(path: FilePath, text: str) -> dict[str, Any]:
    """Parse the text of a TOML file; raise a `FileError`, with the line if it is known, for invalid content."""
    _check_keys(path, text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise FileError(path, str(error), int(line[1]) if line else None) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting without end
        raise FileError(path, str(error)) from error


def _check_keys(path: FilePath, text: str) -> None:
    bare = _QUOTED_OR_COMMENT.sub(lambda match: '""' + "\n" * match[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), 1):
        n_parts = 1 + max(key.count(".") for key in _BETWEEN_KEYS.split(line))
        if n_parts > MOST_PARTS:
            raise FileError(path, f"a dotted key has {n_parts} parts; the limit is {MOST_PARTS}", number)
