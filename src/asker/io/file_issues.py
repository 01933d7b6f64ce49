"""Issues in files, such as duplicate lines: counts for the user, or an error in strict mode."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from asker.io.files import FileError, FilePath

STRICT_HELP = "Reject a file with issues, instead of repairing and reporting them."


@dataclass
class FileIssues:
    """Issues of a file by description, with their counts; in `strict` mode, the first one raises a `FileError`."""

    path: FilePath
    strict: bool
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, bad: NDArray[np.bool_], what: str, error: str, line: int | None = None) -> None:
        """Count the issues of a mask.

        Parameters
        ----------
        bad
            Mask of the records with this issue.
        what
            Description of the issue, in which {s} is the ending of a plural.
        error, line
            Error message and line number of the first one.

        Raises
        ------
        FileError
            In strict mode, if there is any.
        """
        n = int(np.count_nonzero(bad))
        if n and self.strict:
            raise FileError(self.path, error, line)
        if n:
            self.counts[what] = self.counts.get(what, 0) + n

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Count and description of each kind of issue."""
        return tuple(f"{n} {what.replace('{s}', '' if n == 1 else 's')}" for what, n in self.counts.items())
