"""Dirt in files: what a reader repairs or leaves as it is, and tells."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from asker.io.files import FileError, FilePath

STRICT_HELP = "Refuse a file with dirt in it; else it is repaired, and told."


@dataclass
class Dirt:
    """What was found in a file; with `strict` the first piece of it is an error."""

    path: FilePath
    strict: bool
    counts: dict[str, int] = field(default_factory=dict)

    def found(self, bad: NDArray[np.bool_], what: str, error: str, line: int | None = None) -> None:
        """Pieces of a kind; {s} in `what` makes a plural, `error` and `line` are of the first."""
        n = int(np.count_nonzero(bad))
        if n and self.strict:
            raise FileError(self.path, error, line)
        if n:
            self.counts[what] = self.counts.get(what, 0) + n

    @property
    def told(self) -> tuple[str, ...]:
        """A few words for each kind."""
        return tuple(f"{n} {what.replace('{s}', '' if n == 1 else 's')}" for what, n in self.counts.items())
