"""Reader of plans.  A plan is a TOML file:

    title = "Two methods on my file"

    [instances.mine]                 a name for groups to use; BAL and Middlebury names need no entry
    kind = "bal"                     bal, scene, colmap, g2o, stereo, mean, ...: see `sources` for the keys of each
    file = "problem.txt.bz2"

    [[groups]]
    title = "Methods"
    instances = ["mine", "trafalgar-21"]
    methods = ["irls", { name = "asker", s0 = 3.0, label = "asker, s0 = 3" }]
    iterations = 100
    holdout = 0.1                    rank the methods by held-out observations

A method may also have a kernel and a tau of its own: { name = "irls", kernel = "cauchy", tau = 2.0, label = "Cauchy" }.
The method "default" estimates the noise scale, as `asker solve` does without --method, --kernel and --tau.
A plan is checked as a whole before anything runs; an error names the line and the most similar valid name.
"""

import difflib
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

from asker.applications.datasets import DATA_SETS, locate
from asker.experiments import SHIPPED
from asker.experiments.instances import sources
from asker.experiments.plan import (
    DEFAULT_METHOD,
    METHOD_NAMES,
    Group,
    Plan,
    Run,
    check_default,
    content_of,
    path_option,
)
from asker.io.files import FileError, FilePath
from asker.io.toml import parse_toml, read_toml_text
from asker.kernels.registry import kernel_named
from asker.strategies import METHODS

GROUP_KEYS = {"title", "text", "kind", "instances", "methods", "iterations", "repeats", "holdout"}
MAX_REPEATS = 1000


def read_plan(name: FilePath, data: Path | None = None) -> Plan:
    """Return a shipped plan by name, or the plan of a file.  A shipped plan omits data sets that are not available."""
    if str(name) in SHIPPED:
        text = resources.files("asker.experiments").joinpath(f"plans/{name}.toml").read_text(encoding="utf-8")
        return PlanReader(f"{name}.toml", text, Path(), data, may_lack=True).plan()
    if not os.path.exists(name) and Path(name).suffix != ".toml":
        raise FileError(name, f"there is no such plan; the shipped plans are {', '.join(SHIPPED)}")
    return PlanReader(str(name), read_toml_text(name), Path(name).parent, data, may_lack=False).plan()


def _content(kind: str, options: dict[str, Any]) -> str:
    """Return the digest of the data of an instance, or "" if it has no file."""
    place = sources()[kind][1].place
    return content_of(Path(options[place])) if place else ""


class PlanReader:
    """Parser of a plan, with checks of all its entries."""

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
            raise FileError(self.path, f"none of the data of this plan is available: {', '.join(self.missing)}")
        return Plan(str(whole.get("title", "Comparison")), made, tuple(dict.fromkeys(self.missing)))

    def _table(self, where: dict[str, Any], key: str) -> dict[str, Any]:
        """Return a table of the plan, empty if it is missing."""
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
        """Raise an error unless the value has the type of its default, or is a number if the default is None."""
        wanted: Any = type(default)
        if default is None:
            wanted = float if value is not None else type(None)
        if isinstance(value, wanted) or (wanted is float and isinstance(value, int)):
            return
        self._refuse(f"{key} is {value!r}, expected {wanted.__name__}", key)

    def _named(self, name: Any) -> tuple[str, dict[str, Any]] | None:
        """Return the kind and options of an instance; None if its data is not available and may be omitted."""
        self._one_of("instance", name, [*self.instances, *DATA_SETS])
        if name in self.instances:
            return self.instances[name]
        path = locate(name, self.data)
        if path is None:
            self.missing.append(name)
            if not self.may_lack:
                self._refuse(f"{name} is not available; `asker fetch {name}` downloads it", name)
            return None
        source = sources()[DATA_SETS[name].kind][1]
        return source.kind, path_option(source, path) | source.keys

    def _group(self, given: Any) -> Group | None:
        if not isinstance(given, dict):
            self._refuse("groups must be written as [[groups]]", "groups")
        self._known("key", given, GROUP_KEYS)
        for key in ("instances", "methods"):
            if not isinstance(given.get(key), list) or not given[key]:
                self._refuse(f"a group needs {key} = [...]", given.get("title", "groups"))
        numbers = {}
        for key, default in (("iterations", 100), ("repeats", 1)):
            numbers[key] = given.get(key, default)
            if not isinstance(numbers[key], int) or numbers[key] < 1:
                self._refuse(f"{key} is {numbers[key]!r}, expected a whole number of at least 1", key)
        if numbers["repeats"] > MAX_REPEATS:
            self._refuse(f"repeats is {numbers['repeats']}, expected at most {MAX_REPEATS}", "repeats")
        kind = self._one_of("kind", given.get("kind", "comparison"), ("comparison", "study"))
        holdout = given.get("holdout")
        if holdout is not None and not (isinstance(holdout, float) and 0 < holdout < 1):
            self._refuse(f"holdout is {holdout!r}, expected a number between 0 and 1", "holdout")
        methods: dict[str, tuple[str, dict[str, Any], str | None, float | None]] = {}
        for label, method in map(self._method, given["methods"]):
            if label in methods:
                self._refuse(f"two methods of a group are called {label!r}: give one a label", label)
            methods[label] = method
        instances = {n: made for n in given["instances"] if (made := self._named(n)) is not None}
        if not instances:
            return None
        self._check_default([m for m, *_ in methods.values()], [k for k, _ in instances.values()], holdout)
        seed = None if holdout is None else 0

        def run(name: str, label: str, repeat: int) -> Run:
            kind, options = instances[name]
            m, settings, kernel, tau = methods[label]
            limit, content = given.get("iterations", None if m == DEFAULT_METHOD else 100), _content(kind, options)
            return Run(name, kind, options, m, settings, limit, repeat, content, kernel, tau, holdout, seed)

        runs = {
            (name, label): tuple(run(name, label, repeat) for repeat in range(numbers["repeats"]))
            for name in instances
            for label in methods
        }
        title = str(given.get("title", "Comparison"))
        return Group(title, kind, tuple(instances), tuple(methods), runs, str(given.get("text", "")))

    def _check_default(self, methods: list[str], kinds: list[str], holdout: float | None) -> None:
        """Raise an error if the default method cannot be compared on data of one of the kinds."""
        try:
            for kind in kinds:
                application, source = sources()[kind]
                knows_truth = bool(application.truth) and source.place is None
                check_default(methods, application, knows_truth or holdout is not None)
        except ValueError as error:
            self._refuse(str(error), DEFAULT_METHOD)

    def _method(self, given: Any) -> tuple[str, tuple[str, dict[str, Any], str | None, float | None]]:
        """Return the label of a method, and its name, settings, kernel and τ."""
        if not isinstance(given, str | dict):
            self._refuse(f"a method is {given!r}, expected a name or a table", given)
        given = {"name": given} if isinstance(given, str) else dict(given)
        name = self._one_of("method", given.pop("name", None), METHOD_NAMES)
        label = str(given.pop("label", name))
        if name == DEFAULT_METHOD:
            self._known("setting", given, ())
            return label, (name, {}, None, None)
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
        """Raise a `FileError` with the line of the token."""
        raise FileError(self.path, what, next(self._lines_with(token), None))

    def _lines_with(self, token: Any) -> Iterator[int]:
        """Yield the numbers of the lines that contain a key or a string as a whole word."""
        word = re.compile(rf"(?<![\w.-]){re.escape(str(token))}(?![\w-])")
        for number, line in enumerate(self.text.splitlines(), 1):
            if word.search(line.split(" #")[0]):
                yield number
