"""A plan names what is run: instances, methods with settings, iterations, repeats.

A plan is a TOML file:

    title = "Two methods on my file"

    [instances.mine]                 what a group names; BAL and Middlebury names need no entry
    kind = "bal"                     bal, scene, colmap, g2o, stereo, mean, ...: see `sources` for the keys of each
    file = "problem.txt.bz2"

    [[groups]]
    title = "Methods"
    instances = ["mine", "trafalgar-21"]
    methods = ["irls", { name = "asker", s0 = 3.0, label = "asker, s0 = 3" }]
    iterations = 100
    holdout = 0.1                    held-out observations judge the results

A method may also have a kernel and a tau of its own: { name = "irls", kernel = "cauchy", tau = 2.0, label = "Cauchy" }.
A plan is checked as a whole before anything runs; an error names the line and the nearest name that would do.
"""

import difflib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from asker.applications import application_of
from asker.applications.application import Application, Source
from asker.applications.datasets import DATA_SETS, locate
from asker.experiments import SHIPPED
from asker.experiments.instances import sources
from asker.io.files import FileError, FilePath, open_regular
from asker.io.toml import parse_toml, read_toml_text
from asker.kernels.registry import kernel_named
from asker.strategies import METHODS
from asker.version import __version__

GROUP = {"title", "text", "kind", "instances", "methods", "iterations", "repeats", "holdout"}
MOST_REPEATS = 1000
MAY_LACK = ("kernel", "tau", "holdout", "holdout_seed", "holdout_unit")
"""Of a run: what enters its name only where it is given."""
LONGEST = 100  # letters of an instance's name in the name of a folder


@dataclass(frozen=True)
class Run:
    """All that determines the numbers of one run."""

    instance: str
    kind: str
    options: dict[str, Any]
    method: str
    settings: dict[str, Any]
    iterations: int
    repeat: int = 0
    content: str = ""
    """What tells the data from other data at the same place."""
    kernel: str | None = None
    """As in `asker.kernel_named`; smooth truncated when not given."""
    tau: float | None = None
    """That of the options when not given."""
    holdout: float | None = None
    """The share of the observations that is held out, and judges the result."""
    holdout_seed: int | None = None
    holdout_unit: float | None = None

    @property
    def keys(self) -> dict[str, Any]:
        """What the application is told: the options, with the kernel and τ of this run."""
        return self.options | {k: v for k, v in (("kernel", self.kernel), ("tau", self.tau)) if v is not None}

    @property
    def folder(self) -> str:
        """A name of its own; equal runs of two plans have the same, and no other version of asker."""
        given = {k: v for k, v in asdict(self).items() if v is not None or k not in MAY_LACK}
        told = json.dumps(given | {"instance": "", "version": __version__}, sort_keys=True)
        digest = hashlib.sha256(told.encode()).hexdigest()[:10]
        return f"{re.sub(r'[^A-Za-z0-9.-]+', '_', self.instance)[:LONGEST]}-{self.method}-{digest}"


@dataclass(frozen=True)
class Group:
    """One comparison: every method on every instance."""

    title: str
    kind: str
    """comparison: who wins; study: what a setting does."""
    instances: tuple[str, ...]
    labels: tuple[str, ...]
    runs: dict[tuple[str, str], tuple[Run, ...]]
    """Of each instance and label: one run for each repeat."""
    text: str = ""


@dataclass(frozen=True)
class Plan:
    title: str
    groups: tuple[Group, ...]
    missing: tuple[str, ...] = ()
    """Data sets that are not at hand, and are left out."""

    def runs(self) -> list[Run]:
        """Each once."""
        every = [run for g in self.groups for runs in g.runs.values() for run in runs]
        return list({run.folder: run for run in every}.values())


def read_plan(name: FilePath, data: Path | None = None) -> Plan:
    """A shipped plan by its name, or the user's own file.  A shipped one leaves out data that is not at hand."""
    if str(name) in SHIPPED:
        text = resources.files("asker.experiments").joinpath(f"plans/{name}.toml").read_text(encoding="utf-8")
        return _Reader(f"{name}.toml", text, Path(), data, may_lack=True).plan()
    if not os.path.exists(name) and Path(name).suffix != ".toml":
        raise FileError(name, f"there is no such plan; shipped ones are {', '.join(SHIPPED)}")
    return _Reader(str(name), read_toml_text(name), Path(name).parent, data, may_lack=False).plan()


@dataclass(frozen=True)
class Asked:
    """What `asker compare` is asked: each method under each kernel and each τ."""

    methods: list[str]
    kernels: list[str | None] = field(default_factory=lambda: [None])
    taus: list[float | None] = field(default_factory=lambda: [None])
    iterations: int | None = None
    """Of each run; the application's own when not given."""
    holdout: float | None = None
    holdout_seed: int | None = None
    holdout_unit: float | None = None

    def labelled(self) -> dict[str, tuple[str, str | None, float | None]]:
        """By a name that says what differs: method, kernel and τ."""
        made = {}
        for method, kernel, tau in itertools.product(self.methods, self.kernels, self.taus):
            words = [
                method,
                kernel or "" if len(self.kernels) > 1 else "",
                f"tau {tau:g}" if len(self.taus) > 1 else "",
            ]
            made[" ".join(word for word in words if word)] = (method, kernel, tau)
        return made


def plan_of_files(files: list[Path], asked: Asked, options: dict[str, Any]) -> Plan:
    """A comparison of methods on files and folders, a group for each application.

    options  keys of instances; each goes to the applications that have it, others are as in `asker solve`
    """
    names = [f.name.split(".")[0] for f in files]
    names = [n if names.count(n) == 1 else f"{n} ({k + 1})" for k, n in enumerate(names)]
    found: dict[Application, dict[str, Path]] = {}
    for name, file in zip(names, files, strict=True):
        found.setdefault(application_of(file), {})[name] = file
    labelled = asked.labelled()
    more = {name: getattr(asked, name) for name in ("holdout", "holdout_seed", "holdout_unit")}
    groups = []
    for application, of in found.items():
        source = application.sources[0]
        defaults = {f.name: f.default for f in fields(application.options_class)}
        keys = source.keys | {k: v for k, v in (defaults | options).items() if k in source.keys}
        n = application.iterations if asked.iterations is None else asked.iterations
        runs: dict[tuple[str, str], tuple[Run, ...]] = {}
        for name, file in of.items():
            place, content = _at(source, file), content_of(file)
            for label, (method, kernel, tau) in labelled.items():
                run = Run(name, source.kind, place | keys, method, {}, n, 0, content, kernel, tau, **more)  # type: ignore[arg-type]
                runs[name, label] = (run,)
        groups.append(Group(application.experiment_title, "comparison", tuple(of), tuple(labelled), runs))
    return Plan("Comparison", tuple(groups))


def _at(source: Source, path: Path) -> dict[str, str]:
    assert source.place is not None
    return {source.place: str(path)}


def content_of(path: Path) -> str:
    """Size and a digest of both ends of every file: enough to see that data has changed."""
    digest = hashlib.sha256()
    try:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.is_file():
                with open_regular(file) as bytes_of:
                    size = bytes_of.seek(0, 2)
                    bytes_of.seek(0)
                    digest.update(os.fsencode(file.name) + f" {size} ".encode() + bytes_of.read(1 << 16))
                    bytes_of.seek(max(0, size - (1 << 16)))
                    digest.update(bytes_of.read(1 << 16))
    except OSError as error:
        raise FileError(error.filename or path, f"cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _content(kind: str, options: dict[str, Any]) -> str:
    place = sources()[kind][1].place
    return content_of(Path(options[place])) if place else ""


class _Reader:
    def __init__(self, path: str, text: str, base: Path, data: Path | None, may_lack: bool):
        self.path, self.text, self.base, self.data, self.may_lack = path, text, base, data, may_lack
        self.missing: list[str] = []

    def plan(self) -> Plan:
        whole = parse_toml(self.path, self.text)
        self._known("key", whole, {"title", "instances", "groups"})
        self.instances = {n: self._instance(n, given) for n, given in self._table(whole, "instances").items()}
        groups = whole.get("groups", [])
        if not isinstance(groups, list) or not groups:
            raise FileError(self.path, "a plan needs at least one [[groups]]")
        made = tuple(g for given in groups if (g := self._group(given)) is not None)
        if not made:
            raise FileError(self.path, f"no data for this plan is at hand; missing: {', '.join(self.missing)}")
        return Plan(str(whole.get("title", "Comparison")), made, tuple(dict.fromkeys(self.missing)))

    def _table(self, where: dict[str, Any], key: str) -> dict[str, Any]:
        given = where.get(key, {})
        if not isinstance(given, dict):
            self._refuse(f"{key} must be a table", key)
        return given

    def _instance(self, name: str, given: Any) -> tuple[str, dict[str, Any]]:
        if not isinstance(given, dict):
            self._refuse(f"instances.{name} must be a table", name)
        kind = self._one_of("kind", given.get("kind", "bal"), sources())
        source = sources()[kind][1]
        place = source.place
        self._known("key", given, {"kind", *source.keys, *([place] if place else [])})
        first = {place: None} if place else {}
        options = first | source.keys | {k: v for k, v in given.items() if k != "kind"}
        for key, default in source.keys.items():
            self._check_type(key, options[key], default)
        for key, allowed in source.choices.items():
            self._one_of(key, options[key], allowed)
        if place:
            if not isinstance(options.get(place), str):
                self._refuse(f'instances.{name} needs {place} = "..."', name)
            path = self.base / options[place]
            if not os.path.exists(path):
                self._refuse(f"there is no {place} {options[place]!r}", options[place])
            options[place] = str(path)
        return kind, options

    def _check_type(self, key: str, value: Any, default: Any) -> None:
        """A value is of the type of its default; a number where that follows from the data."""
        wanted: Any = type(default)
        if default is None:
            wanted = float if value is not None else type(None)
        if isinstance(value, wanted) or (wanted is float and isinstance(value, int)):
            return
        self._refuse(f"{key} is {value!r}, expected {wanted.__name__}", key)

    def _named(self, name: Any) -> tuple[str, dict[str, Any]] | None:
        """An instance by name; None where its data is not at hand and may be left out."""
        self._one_of("instance", name, [*self.instances, *DATA_SETS])
        if name in self.instances:
            return self.instances[name]
        path = locate(name, self.data)
        if path is None:
            self.missing.append(name)
            if not self.may_lack:
                self._refuse(f"{name} is not at hand; `asker fetch {name}` gets it", name)
            return None
        source = sources()[DATA_SETS[name].kind][1]
        return source.kind, _at(source, path) | source.keys

    def _group(self, given: Any) -> Group | None:
        if not isinstance(given, dict):
            self._refuse("groups must be written as [[groups]]", "groups")
        self._known("key", given, GROUP)
        for key in ("instances", "methods"):
            if not isinstance(given.get(key), list) or not given[key]:
                self._refuse(f"a group needs {key} = [...]", given.get("title", "groups"))
        numbers = {}
        for key, default in (("iterations", 100), ("repeats", 1)):
            numbers[key] = given.get(key, default)
            if not isinstance(numbers[key], int) or numbers[key] < 1:
                self._refuse(f"{key} is {numbers[key]!r}, expected a whole number of at least 1", key)
        if numbers["repeats"] > MOST_REPEATS:
            self._refuse(f"repeats is {numbers['repeats']}, expected at most {MOST_REPEATS}", "repeats")
        kind = self._one_of("kind", given.get("kind", "comparison"), ("comparison", "study"))
        holdout = given.get("holdout")
        if holdout is not None and not (isinstance(holdout, float) and 0 < holdout < 1):
            self._refuse(f"holdout is {holdout!r}, expected a number between 0 and 1", "holdout")
        methods: dict[str, tuple[str, dict[str, Any], str | None, float | None]] = {}
        for label, method in map(self._method, given["methods"]):
            if label in methods:
                self._refuse(f"two methods of a group are called {label!r}: give one a label", label)
            methods[label] = method
        found = {n: made for n in given["instances"] if (made := self._named(n)) is not None}
        if not found:
            return None
        runs = {
            (n, label): tuple(
                Run(
                    n,
                    k,
                    options,
                    m,
                    settings,
                    numbers["iterations"],
                    r,
                    _content(k, options),
                    kernel,
                    tau,
                    holdout,
                    None if holdout is None else 0,
                )
                for r in range(numbers["repeats"])
            )
            for n, (k, options) in found.items()
            for label, (m, settings, kernel, tau) in methods.items()
        }
        title = str(given.get("title", "Comparison"))
        return Group(title, kind, tuple(found), tuple(methods), runs, str(given.get("text", "")))

    def _method(self, given: Any) -> tuple[str, tuple[str, dict[str, Any], str | None, float | None]]:
        """Its label; its name, its settings, its kernel and τ."""
        if not isinstance(given, str | dict):
            self._refuse(f"a method is {given!r}, expected a name or a table", given)
        given = {"name": given} if isinstance(given, str) else dict(given)
        name = self._one_of("method", given.pop("name", None), METHODS)
        label = str(given.pop("label", name))
        kernel, tau = given.pop("kernel", None), given.pop("tau", None)
        if kernel is not None:
            try:
                kernel_named(kernel if isinstance(kernel, str) else "", option="kernel")
            except ValueError as error:
                self._refuse(str(error), kernel)
        if tau is not None and (not isinstance(tau, int | float) or not 0 < tau < float("inf")):
            self._refuse(f"tau is {tau!r}, expected a positive number", "tau")
        known = {f.name for f in fields(METHODS[name]()) if isinstance(getattr(METHODS[name](), f.name), int | float)}
        self._known("setting", given, known)
        for key, value in given.items():
            if isinstance(value, bool) != isinstance(getattr(METHODS[name](), key), bool) or not isinstance(
                value, int | float
            ):
                self._refuse(f"{key} is {value!r}, expected a number", key)
        return label, (name, given, kernel, None if tau is None else float(tau))

    def _known(self, what: str, given: dict[str, Any], known: Collection[str]) -> None:
        for key in given:
            self._one_of(what, key, known)

    def _one_of(self, what: str, given: Any, known: Collection[Any]) -> Any:
        if isinstance(given, str | int) and given in known:
            return given
        near = difflib.get_close_matches(str(given).lower(), list(map(str, known)), n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        self._refuse(f"unknown {what} {given!r}{hint}", given)
        raise AssertionError

    def _refuse(self, what: str, token: Any) -> None:
        raise FileError(self.path, what, next(self._lines_with(token), None))

    def _lines_with(self, token: Any) -> Iterator[int]:
        """Lines in which a key or a string stands as a whole."""
        word = re.compile(rf"(?<![\w.-]){re.escape(str(token))}(?![\w-])")
        for number, line in enumerate(self.text.splitlines(), 1):
            if word.search(line.split(" #")[0]):
                yield number
