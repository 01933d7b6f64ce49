"""The interface of an application: all that the shell and the study know of one.

An application is one kind of data that asker refines.  It lives in a folder of its own, a room, and is listed once, in
`asker.applications`.  See `asker.applications.rotation_averaging` for a small one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from asker.applications.holdout import HoldoutSplit
from asker.applications.outcome import Outcome, Say
from asker.applications.text_report import ReportItems
from asker.io.files import open_regular
from asker.problem.problem import Problem
from asker.solver.result import Result

Arrays = dict[str, np.ndarray]
Write = tuple[Path | None, Callable[[Path], None]]
"""A file that may have been asked for, and what writes it."""


def option(default: Any, help: str, **more: Any) -> Any:
    """A field of `Application.options_class`: its default, its help text, and more for the command line.

    names    such as "--refit/--no-refit", where the name of the field does not do
    choices  the values that are allowed
    least    the smallest number that is allowed
    above    a number that it must be larger than
    check    called with the option's name and its value; raises a ValueError
    writes   True for the path of a file that is written
    reads    True for the path of a file that is read
    other keywords go to `typer.Option`
    """
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True)
class NoOptions:
    """Of an application that has none of its own."""


class DataProblem(Protocol):
    """A problem that was made from data, and the way back."""

    @property
    def problem(self) -> Problem: ...

    def refined(self, values: Any) -> Any:
        """The data with the solved variables."""


@dataclass(frozen=True)
class Source:
    """Where the data of a plan's instance comes from."""

    kind: str
    """Its name in a plan."""
    keys: dict[str, Any]
    """What a plan may say of an instance, with defaults; None stands for a number that follows from the data."""
    place: str | None = None
    """The key that holds a path, if there is one: "file" or "folder"."""
    load: Callable[[dict[str, Any]], Any] | None = None
    """Makes the data from the keys; when not given, the application loads what is at the `place`."""
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Of keys: the values that are allowed."""
    needed_mb: Callable[[dict[str, Any]], float] | None = None
    """About how much memory a run takes; generous.  When not given: by the size of the file at the `place`."""

    def memory(self, keys: dict[str, Any]) -> float:
        """About how much memory a run takes, in MB."""
        if self.needed_mb is not None:
            return self.needed_mb(keys)
        return 400.0 if self.place is None else 400.0 + 25 * text_mb(Path(keys[self.place]))


def text_mb(path: Path) -> float:
    """The size of a text file once it is unpacked, about."""
    if not path.is_file():
        return 0.0
    return path.stat().st_size * (6 if path.suffix in (".bz2", ".gz") else 1.5) / 1e6


class RecordedRun(Protocol):
    """A finished run of a study, as far as drawings look at it."""

    @property
    def method(self) -> str: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def options(self) -> dict[str, Any]: ...
    @property
    def result(self) -> dict[str, Any]: ...
    def arrays(self) -> Arrays: ...


Runs = dict[str, dict[str, RecordedRun]]
"""Of each instance: its runs by label."""


class Application:
    """What a room offers.  A subclass says what its own data needs."""

    name: str
    """Of the room."""
    title: str
    """What its data is called, in the plural; its options stand under it in the help."""
    expects: str
    """What it looks for in a path, in one line."""
    endings: tuple[str, ...] = ()
    """Names that are its own even where the content is not what it should be."""
    options_class: type = NoOptions
    """A frozen dataclass; each field is made by `option`."""
    tau: str = "found with the noise, else 1"
    """The default of τ, in words."""
    iterations: int = 100
    holds_out: bool = True
    """Whether observations can be held out."""
    has_covariances: bool = False
    """Whether its outcomes say how sure they are."""
    several_processes: bool = False
    """Whether several processes can solve one problem of it together."""
    writes_parts: bool = False
    """Whether each of several processes can write what it has."""
    reads_folder: bool = False
    """Whether its data is a folder."""
    writes_folder: bool = False
    """Whether `write` makes a folder."""
    cost_name: str = "cost"
    sources: tuple[Source, ...] = ()
    """For plans; the first one is that of a path."""
    experiment_title: str = ""
    """Of a group of runs in a comparison."""
    symbol: str = "Ψ"
    """The cost, on the axis of a curve."""
    columns: tuple[tuple[str, str], ...] = ()
    """Facts that `judge` finds, and the titles of their columns; one that ends with % is for a ratio."""
    truth: str = ""
    """The fact of `columns` that is the error against a truth: where it is known, methods are ranked by it."""
    plots_filter: bool = True
    """Whether a page shows the inside of ASKER."""
    plots_parameter_studies: bool = False
    """Whether there are drawings of groups that study a setting too, and not of comparisons alone."""

    def owns(self, path: Path) -> bool:
        """Whether what is in the file or folder belongs to this application."""
        raise NotImplementedError

    def reads(self, path: Path) -> list[Path]:
        """The files that `load` reads, or would read if they were there."""
        return [path]

    def written(self, output: Path) -> list[Path]:
        """All that `write` makes."""
        return [output]

    def load(self, path: Path) -> Any:
        """Read the data.  Anything wrong in it is a `FileError`."""
        raise NotImplementedError

    def load_as(self, path: Path, options: Any) -> Any:
        """The same as the options ask for, where they say something of reading."""
        return self.load(path)

    def load_portion(self, path: Path, options: Any, process: int, n_processes: int) -> Any:
        """Read the part of the data that one of several processes holds: all of it; their devices share the work."""
        from asker.engines.xla import distributed

        found = sha256()
        for file in (file for file in self.reads(path) if file.is_file()):
            with open_regular(file) as raw:
                found.update(sha256(raw.read()).digest())
        distributed.check_same(found.digest(), "were given different files")
        return self.load_as(path, options)

    def in_parts(self, data: Any) -> Any:
        """What `load_portion` has read, so that each process keeps what it finds; where it `writes_parts`."""
        raise NotImplementedError

    def write_part(self, output: Path, data: Any, process: int, n_processes: int) -> Path:
        """Write what one of several processes has found; returns the file."""
        raise NotImplementedError

    def write(self, path: Path, data: Any) -> None:
        """Write what was found."""
        raise NotImplementedError

    def counts(self, data: Any) -> str:
        """The size of the data, in words."""
        raise NotImplementedError

    def info(self, data: Any, tau: float | None) -> ReportItems:
        """What the data is like, and how good its start is."""
        raise NotImplementedError

    def check(self, path: Path, output: Path | None, options: Any) -> None:
        """Refuse options that do not go together, before the work."""

    def refine(self, data: Any, options: Any, say: Say, **common: Any) -> Outcome:
        """The room's `refine` with what the options ask for; `say` may be told what is being done."""
        raise NotImplementedError

    def iteration_limit(self, options: Any) -> int | None:
        """Of a solve, where none are given; None: as many as it takes."""
        return self.iterations

    def report(self, data: Any, outcome: Any, options: Any) -> ReportItems:
        """What became of it."""
        raise NotImplementedError

    def outputs(self, outcome: Any, options: Any, output: Path | None) -> list[Write]:
        """The files to write beside `--json`."""
        return [(output, lambda path: self.write(path, outcome.refined))]

    def hold_out(self, data: Any, keys: dict[str, Any], share: float, seed: int) -> HoldoutSplit:
        """The data without a share of its observations; `keys` are options, or those of a `Source`."""
        raise ValueError(f"of {self.title} nothing can be held out")

    def sizes(self, data: Any) -> dict[str, Any]:
        """The size of the data, for records."""
        raise NotImplementedError

    def problem(self, data: Any, keys: dict[str, Any]) -> DataProblem:
        """The problem of an instance, for any method; `keys` are those of its `Source`."""
        raise NotImplementedError

    def relative_damping(self, made: Any) -> bool | None:
        """How a run of a study is damped, as in `asker.solve`; None lets that decide."""
        return None

    def evaluate(self, data: Any, made: Any, result: Result, keys: dict[str, Any]) -> dict[str, Any]:
        """Facts about a result: inliers, and errors where the truth is known."""
        raise NotImplementedError

    def plot_arrays(self, data: Any, made: Any, result: Result, keys: dict[str, Any]) -> Arrays:
        """The arrays that drawings need."""
        return {}

    def page(self, runs: Runs) -> dict[str, Any]:
        """Drawings for a page: what `experiments/page.html` knows as clouds, space, paths, maps, bars or mean."""
        return {}

    def figures(self, runs: Runs) -> dict[str, Callable[[Path], None]]:
        """Figures for a paper, by name."""
        return {}
