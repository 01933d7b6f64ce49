"""Numbers in text files, in the notation of C.

`float` also accepts underscores between digits, and digits of other scripts; other programs that write or read these
files do not.
"""


def parse_number(word: str) -> float:
    """Return the number of a word of ASCII characters; raise a ValueError for anything else."""
    if "_" in word or not word.isascii():
        raise ValueError(f"could not convert to a number: {word!r}")
    return float(word)
