"""What a search has found so far, in memory and on disk: after it was killed it goes on from there.

A search asks for one finding after the other, in an order that follows from the findings alone (`Journal.remember`).
So a search that begins anew is handed what was found before, and comes to where it stood.  A finding may be made of
others; once it is there, those are forgotten.  What is under way is a descent: its state is stored as that of any run.

The file is written when a descent begins, every so many of its iterations, and at the end.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from asker.engines.interface import Engine
from asker.io.files import FileError
from asker.io.npz import Tree
from asker.solver.checkpoint import Checkpoint, CostAt, Reader, Snapshot, Writer, encoded
from asker.solver.result import Iteration
from asker.strategies.strategy import State

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Finding:
    """A finding of a search."""

    name: str
    depth: int
    """How many findings it is a part of that are not there yet."""
    value: Any


@dataclass(frozen=True, eq=False)
class Untold:
    """The value of a finding as the file has it."""

    tree: Any


@dataclass(frozen=True, eq=False)
class UnderWay:
    """The descent that is under way."""

    name: str
    engine: Engine
    n_before: int
    """Lines of the whole history before it."""
    snapshot: Snapshot


class Journal:
    """The findings of a search, one after the other."""

    def __init__(self, file: Checkpoint | None = None, classes: tuple[type, ...] = ()):
        """`classes`: the dataclasses that findings are made of."""
        self.file, self.classes = file, {of.__name__: of for of in classes}
        self.findings: list[Finding] = []
        self.reader: Reader | None = None
        """What reads the findings of an earlier run, each when it is asked for."""
        self.engine: Engine | None = None
        """The engine that the search is on; None where it is always that of the file."""
        self.n_told, self.depth = 0, 0
        self.earlier = 0.0
        """Seconds of the run that this one continues."""
        self.begun: tuple[Tree, Reader] | None = None
        """The descent that was under way when the file was written, until the search comes to it again."""
        self.descent: UnderWay | None = None
        self.history: list[Iteration] = []
        """Of all descents."""
        self.seconds: Callable[[], float] = lambda: 0.0
        """Since this process has begun."""
        self.is_new = False
        """Whether something was found that the file lacks."""

    @property
    def goes_over_what_was_found(self) -> bool:
        """Whether the search has not come to where it stood."""
        return self.n_told < len(self.findings) or self.begun is not None

    def remember(self, name: str, find: Callable[[], T], counts: Callable[[], bool]) -> T:
        """What was found before under this name, or is found now; it is kept if it `counts` when it is there."""
        first = self.n_told
        if first < len(self.findings) and self.findings[first].depth == self.depth:
            known = self.findings[first]
            self._check_name(known.name, name)
            if isinstance(known.value, Untold):
                known = self.findings[first] = replace(known, value=self._told(known.value))
            self.n_told += 1
            return known.value
        self.depth += 1
        try:
            value = find()
        finally:
            self.depth -= 1
        if self.file and counts():
            self.findings[first:] = [Finding(name, self.depth, value)]
            self.n_told, self.descent, self.is_new = first + 1, None, True
        return value

    def read(self, start: State) -> None:
        """What the file holds, if there is one; `start` has the cost at the start."""
        found = self.file.read_tree(start) if self.file else None
        if found is None or self.file is None:
            return
        tree, reader = found
        reader.classes = self.classes
        with self.file.faults_told():
            self.history = [Iteration(**reader.decode(line)) for line in tree["history"]]
            self.file.check_cost("start", self.history[0].cost, start.cost, start)
            self.findings = [Finding(x["name"], x["depth"], Untold(x["value"])) for x in tree["findings"]]
            self.reader = reader
            self.earlier = tree["seconds"]
            self.begun = None if tree["descent"] is None else (tree["descent"], reader)
        self.file.continues(self.history)

    def _told(self, value: "Untold") -> Any:
        """A finding of an earlier run, whose points are evaluated on the engine that the search is on now."""
        assert self.file is not None
        assert self.reader is not None
        with self.file.faults_told():
            return (self.reader.on(self.engine) if self.engine else self.reader).decode(value.tree)

    def save(self, at_the_end: bool = False) -> None:
        if self.file and not self.goes_over_what_was_found:
            self.file.save(self, at_the_end)
            self.is_new = False

    def tree(self, writer: Writer) -> Tree:
        """All of it, as plain JSON."""
        history = self.history
        if self.descent:  # an interrupt may have come between two lines
            own = self.descent.snapshot.history[1:]
            history = self.history[: self.descent.n_before]
            history = [*history, *(in_stage(line, len(history) + k, self.descent.name) for k, line in enumerate(own))]
        return {
            "seconds": self.earlier + self.seconds(),
            "history": [writer.encode(asdict(line)) for line in history],
            "findings": [{"name": x.name, "depth": x.depth, "value": writer.encode(x.value)} for x in self.findings],
            "descent": self.descent and self._under_way(self.descent, writer),
        }

    def _under_way(self, descent: UnderWay, writer: Writer) -> Tree:
        known = {"name": descent.name, "n_before": descent.n_before}
        return known | encoded(writer.on(descent.engine), descent.snapshot, descent.engine)

    def _check_name(self, known: str, name: str) -> None:
        if known != name:
            assert self.file is not None
            what = f"this checkpoint is of another search: its next stage is {known!r}, expected {name!r}"
            raise FileError(self.file.path, f"{what}; choose another file for a new run")


class SearchFile(Checkpoint):
    """The file of a journal."""

    def write(self, journal: Any) -> None:
        writer = Writer(self.engine)
        self.write_tree(journal.tree(writer), writer)


class DescentFile:
    """For a loop: its part of the file of a journal."""

    def __init__(self, journal: Journal, name: str, engine: Engine):
        assert journal.file is not None
        self.journal, self.name, self.engine = journal, name, engine
        self.every, self.n_before = journal.file.every, len(journal.history)

    def read(self, template: State, cost_at: CostAt) -> Snapshot | None:
        """Where this descent stood, if it was under way; `template` is the state at its start."""
        journal = self.journal
        if journal.begun is None:
            if journal.is_new:
                journal.save()
            return None
        (tree, reader), journal.begun = journal.begun, None
        assert journal.file is not None
        with journal.file.faults_told():
            journal._check_name(tree["name"], self.name)
            self.n_before = tree["n_before"]
            snapshot = journal.file.decoded(tree, reader.on(self.engine), template, self.engine, cost_at)
        return replace(snapshot, seconds=journal.earlier)

    def save(self, snapshot: Snapshot, at_the_end: bool) -> None:
        """The end of a descent need not be written: it is a finding, or the end of all."""
        self.journal.descent = UnderWay(self.name, self.engine, self.n_before, snapshot)
        if not at_the_end:
            self.journal.save()


def in_stage(line: Iteration, number: int, stage: str) -> Iteration:
    """A line of a descent, in the whole history."""
    return replace(line, iteration=number, details={"stage": stage} | line.details)
