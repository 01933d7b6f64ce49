"""The interface between an application and the command line and experiments.

An application is one kind of data that asker refines.  It is a package of its own, listed in `asker.applications`.
`asker.applications.rotation_averaging` is a small example.
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
"""The path of an output file, None if it was not requested, and the function that writes it."""


def option(default: Any, help: str, **more: Any) -> Any:
    """Return a field of `Application.options_class`.

    Parameters
    ----------
    default
        The value if the option is not given.
    help
        The help text of the command line.
    **more
        `names`: the flags, such as "--refit/--no-refit", if they do not follow from the name of the field.
        `choices`: the allowed values.
        `least`: the smallest allowed number.
        `above`: a number that the value must exceed.
        `check`: a function of the option's name and value that raises a ValueError for a bad value.
        `writes`, `reads`: True for the path of an output file or of an input file.
        All other keywords are passed to `typer.Option`.
    """
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True)
class NoOptions:
    """Options of an application without any."""


class DataProblem(Protocol):
    """A problem built from data, with the conversion of its solution back into data."""

    @property
    def problem(self) -> Problem: ...

    def refined(self, values: Any) -> Any:
        """Return the data with the solved variables."""


@dataclass(frozen=True)
class Source:
    """A kind of data that an experiment plan can name."""

    kind: str
    """The value of `kind` in a plan."""
    keys: dict[str, Any]
    """The keys of an instance in a plan, with their defaults; None stands for a number derived from the data."""
    place: str | None = None
    """The key whose value is a path, "file" or "folder"; None if the data are synthetic."""
    load: Callable[[dict[str, Any]], Any] | None = None
    """Generates the data from the keys; None if the application loads the path under `place`."""
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Allowed values, by key."""
    needed_mb: Callable[[dict[str, Any]], float] | None = None
    """An upper estimate of the memory of a run in MB; None if it follows from the size of the file under `place`."""

    def memory(self, keys: dict[str, Any]) -> float:
        """Return an upper estimate of the memory of a run in MB."""
        if self.needed_mb is not None:
            return self.needed_mb(keys)
        return 400.0 if self.place is None else 400.0 + 25 * text_mb(Path(keys[self.place]))


def text_mb(path: Path) -> float:
    """Return the approximate size of a text file in MB after decompression."""
    if not path.is_file():
        return 0.0
    return path.stat().st_size * (6 if path.suffix in (".bz2", ".gz") else 1.5) / 1e6


class RecordedRun(Protocol):
    """A finished run of an experiment, as far as plots need it."""

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
"""The runs of each instance by label."""


class Application:
    """One kind of data: how to read it, build its problem, refine it, report the result and write it.

    A subclass implements the methods that its data need.
    """

    name: str
    """The name of the package."""
    title: str
    """The name of the data in the plural; the heading of the options in the help."""
    expects: str
    """A description of the accepted files in one line."""
    endings: tuple[str, ...] = ()
    """File name endings that select this application even if the content is damaged."""
    options_class: type = NoOptions
    """A frozen dataclass whose fields are created by `option`."""
    tau: str = "estimated with the noise, else 1"
    """The default of τ, in words."""
    iterations: int = 100
    holds_out: bool = True
    """True if observations can be held out for validation."""
    estimates_noise: bool = True
    """True if an experiment can estimate the noise scale: `problem` then receives `kernel` None in its keys."""
    has_covariances: bool = False
    """True if outcomes have covariances."""
    several_processes: bool = False
    """True if several processes can solve one problem together."""
    writes_parts: bool = False
    """True if each of several processes can write its part of the result."""
    reads_folder: bool = False
    """True if the data are a folder."""
    writes_folder: bool = False
    """True if `write` creates a folder."""
    cost_name: str = "cost"
    sources: tuple[Source, ...] = ()
    """Kinds of data for experiment plans; the first one reads a path."""
    experiment_title: str = ""
    """The title of a group of runs in a comparison."""
    symbol: str = "Ψ"
    """The symbol of the cost on the axis of a plot."""
    columns: tuple[tuple[str, str], ...] = ()
    """Keys that `evaluate` returns, with the titles of their columns; a title ending with % marks a ratio."""
    truth: str = ""
    """The key of `columns` that is the error with respect to ground truth; methods are ranked by it if it is known."""
    plots_filter: bool = True
    """True if the HTML page plots the filter of ASKER."""
    plots_parameter_studies: bool = False
    """True if plots are also drawn for parameter studies, not only for comparisons of methods."""

    def owns(self, path: Path) -> bool:
        """Return True if the content of the file or folder belongs to this application."""
        raise NotImplementedError

    def reads(self, path: Path) -> list[Path]:
        """Return the files that `load` reads if they exist."""
        return [path]

    def written(self, output: Path) -> list[Path]:
        """Return the paths of all files and folders that `write` creates."""
        return [output]

    def load(self, path: Path) -> Any:
        """Return the data read from a path; raise a `FileError` if they are invalid."""
        raise NotImplementedError

    def load_as(self, path: Path, options: Any) -> Any:
        """Return the data read with the options that affect reading."""
        return self.load(path)

    def load_portion(self, path: Path, options: Any, process: int, n_processes: int) -> Any:
        """Return the portion of the data for one of several processes.

        By default every process reads all data, and their devices share the work.
        """
        from asker.engines.xla import distributed

        digest = sha256()
        for file in (file for file in self.reads(path) if file.is_file()):
            with open_regular(file) as raw:
                digest.update(sha256(raw.read()).digest())
        distributed.check_same(digest.digest(), "were given different files")
        return self.load_as(path, options)

    def in_parts(self, data: Any) -> Any:
        """Return the portion marked so that each process keeps its part of the result (if `writes_parts`)."""
        raise NotImplementedError

    def write_part(self, output: Path, data: Any, process: int, n_processes: int) -> Path:
        """Write the part of the result of one of several processes and return the path of the file."""
        raise NotImplementedError

    def write(self, path: Path, data: Any) -> None:
        """Write refined data."""
        raise NotImplementedError

    def counts(self, data: Any) -> str:
        """Return the size of the data in words."""
        raise NotImplementedError

    def info(self, data: Any, tau: float | None) -> ReportItems:
        """Return statistics of the data and of the residuals at the initial values."""
        raise NotImplementedError

    def check(self, path: Path, output: Path | None, options: Any) -> None:
        """Raise a ValueError or FileError if options contradict each other, before any computation."""

    def refine(self, data: Any, options: Any, say: Say, **common: Any) -> Outcome:
        """Call the application's `refine` with the options; `say` receives progress messages."""
        raise NotImplementedError

    def iteration_limit(self, options: Any) -> int | None:
        """Return the default of `max_iterations`; None leaves it to the solver."""
        return self.iterations

    def report(self, data: Any, outcome: Any, options: Any) -> ReportItems:
        """Return the text and tables that describe an outcome."""
        raise NotImplementedError

    def outputs(self, outcome: Any, options: Any, output: Path | None) -> list[Write]:
        """Return the files to write in addition to `--json`."""
        return [(output, lambda path: self.write(path, outcome.refined))]

    def hold_out(self, data: Any, keys: dict[str, Any], share: float, seed: int) -> HoldoutSplit:
        """Return the data split into training and held-out observations.

        Parameters
        ----------
        data
            The data of the application.
        keys
            Options of the command line, or the keys of a `Source`.
        share
            The fraction of the observations to hold out.
        seed
            The seed of the random choice.
        """
        raise ValueError(f"{self.title} have no observations that can be held out")

    def sizes(self, data: Any) -> dict[str, Any]:
        """Return the size of the data for a record."""
        raise NotImplementedError

    def problem(self, data: Any, keys: dict[str, Any]) -> DataProblem:
        """Return the problem of an instance; `keys` are those of its `Source`."""
        raise NotImplementedError

    def relative_damping(self, made: Any) -> bool | None:
        """Return `relative_damping` of `asker.solve` for a run of an experiment; None selects its default."""
        return None

    def evaluate(self, data: Any, made: Any, result: Result, keys: dict[str, Any]) -> dict[str, Any]:
        """Return metrics of a result: inlier ratios, and errors if the ground truth is known."""
        raise NotImplementedError

    def plot_arrays(self, data: Any, made: Any, result: Result, keys: dict[str, Any]) -> Arrays:
        """Return the arrays that plots need."""
        return {}

    def page(self, runs: Runs) -> dict[str, Any]:
        """Return the plots of an HTML page by kind: clouds, space, paths, maps, bars or mean."""
        return {}

    def figures(self, runs: Runs) -> dict[str, Callable[[Path], None]]:
        """Return functions that write figures for a paper, by name."""
        return {}
