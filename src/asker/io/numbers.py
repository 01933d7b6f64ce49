"""Numbers in text files, in the notation of C.

`float` alone also reads digits with underscores between them and the digits of other scripts; no other program that
writes or reads these files does.
"""


def parse_number(word: str) -> float:
    """The number that a word of ASCII digits stands for; a `ValueError` for anything else."""
    if "_" in word or not word.isascii():
        raise ValueError(f"could not convert to a number: {word!r}")
    return float(word)
