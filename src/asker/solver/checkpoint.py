"""A run on disk, written now and then, from which it continues after it was killed.

The file is an .npz: the arrays of the strategy's state in the user's order, and beside them one JSON text that says
where they belong.  Nothing in it depends on the engine: a run may continue on another one, or on more devices.

What is stored is not believed: a digest tells a file that was changed, and every cost is evaluated anew.
"""

import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from asker._arguments import check_number
from asker.engines.interface import Engine, PerFactor, Point
from asker.io.files import FileError, FilePath, read_bytes
from asker.io.log import log
from asker.io.npz import Arrays, Tree, digest, parse_npz, signed, write_npz
from asker.solver.result import Iteration
from asker.strategies.strategy import State, Strategy
from asker.tracing.jaxpr_digest import ADDRESS

CostAt = Callable[[Point], float]
"""The cost that a strategy gives a point."""
FORMAT = 4
SAME = 1e-6
"""How far a cost may be from the stored one, relative to it: another engine rounds differently,"""
SAME_AT_START = 1e-9
"""and relative to the cost at the start: where residuals vanish, rounding is all that is left of them."""


class ProgressFile(Protocol):
    """A file, or part of one, from which a run continues."""

    every: int

    def read(self, template: State, cost_at: CostAt) -> "Snapshot | None":
        """Return where the run stood, or None if it begins; `template` is the state at its start."""
        ...

    def save(self, snapshot: "Snapshot", at_the_end: bool) -> None:
        """Write where the run stands."""
        ...


@dataclass
class Snapshot:
    """Where a run stands."""

    state: State
    best: State
    history: list[Iteration]
    seconds: float


class Checkpoint:
    """The file of one run on one engine."""

    def __init__(self, path: FilePath, every: int, engine: Engine, strategy: Strategy):
        check_number("every", every, 1, whole=True)
        if not os.path.isdir(folder := os.path.dirname(os.path.abspath(path))):
            raise FileError(path, f"there is no folder {folder!r} to write into")
        self.path, self.every, self.engine = path, every, engine
        self.unwritten = ""
        """Why the last one could not be written."""
        self.continued_from = 0
        """The iteration that the file was at when it was read."""
        self.of: Tree = {
            "format": FORMAT,
            "kernels": [f"{f.name} {f.kernel}" for f in engine.problem.factors],
            "problem": engine.fingerprint().hex(),
            "strategy": _text_of(strategy),
            "relative_damping": bool(engine.relative_damping),
            "jax": version("jax"),
        }

    def save(self, snapshot: Any, at_the_end: bool) -> None:
        """Write; where that fails, warn and let the run go on, since it is worth more than its file."""
        try:
            self.write(snapshot)
            self.unwritten = ""
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not at_the_end:
                raise
            why = str(error) or f"{self.path}: {type(error).__name__}"
            if not self.unwritten:
                warnings.warn(f"the checkpoint cannot be written, the solve goes on: {why}", stacklevel=2)
            self.unwritten = why

    def write(self, snapshot: Snapshot) -> None:
        """Whole or not at all; of several processes the first one writes."""
        writer = Writer(self.engine)
        self.write_tree(encoded(writer, snapshot, self.engine), writer)

    def write_tree(self, tree: Tree, writer: "Writer") -> None:
        """Write plain JSON and its arrays, beside what the file is of."""
        tree = self.of | tree
        if self.engine.is_first:
            write_npz(self.path, signed(tree, writer.arrays), writer.arrays)

    def read(self, template: State, cost_at: CostAt) -> Snapshot | None:
        """None when there is no file yet; `template` is the state at the start, of the same strategy."""
        found = self.read_tree(template)
        if found is None:
            return None
        with self.faults_told():
            tree, reader = found
            self.check_cost("start", reader.decode(tree["history"][0])["cost"], template.cost, template)
            snapshot = self.decoded(tree, reader, template, self.engine, cost_at)
        self.continues(snapshot.history)
        return snapshot

    def continues(self, history: Sequence[Iteration]) -> None:
        """Say that a run goes on with this history."""
        self.continued_from = history[-1].iteration
        log.info("continued from iteration %d of %s", self.continued_from, self.path)

    def read_tree(self, start: State) -> "tuple[Tree, Reader] | None":
        """Return what a file of the same run, from the same start, holds."""
        self.of["start"] = _digest_of_rows(self.engine.rows(start.point))
        self.of["jacobians"] = _projections(self.engine, start.point)
        content = read_bytes(self.path) if os.path.exists(self.path) else b""
        self.engine.check_same(hashlib.sha256(content).digest(), f"hold different checkpoints {self.path}")
        if not content:
            return None
        tree, arrays = parse_npz(self.path, content, "checkpoint")
        with self.faults_told():
            self._check(tree, arrays)
        return tree, Reader(self.engine, arrays)

    @contextmanager
    def faults_told(self) -> Iterator[None]:
        """What goes wrong with the content of a file is a `FileError`."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, ValueError) and type(error) is not ValueError:  # it says what is wrong by itself
                raise
            raise FileError(self.path, f"this is no checkpoint of asker, or a broken one ({error})") from error

    def decoded(self, tree: Tree, reader: "Reader", template: State, engine: Engine, cost_at: CostAt) -> Snapshot:
        """Where a loop on this engine stood, with costs that are evaluated here and now."""
        state, best = (reader.decode(tree[name], template) for name in ("state", "best"))
        history = [Iteration(**reader.decode(line)) for line in tree["history"]]
        state = self._evaluated("last point", state, template, cost_at)
        best = self._evaluated("best point", best, template, cost_at)
        engine.last_gradient = tree["last_gradient"]
        return Snapshot(state, best, history, tree["seconds"])

    def _evaluated(self, where: str, state: State, start: State, cost_at: CostAt) -> State:
        found = cost_at(state.point)
        self.check_cost(where, state.cost, found, start)
        best = state.best and (cost_at(state.best[1]), state.best[1])
        return replace(state, cost=found, best=best)

    def check_cost(self, where: str, stored: float, found: float, start: State) -> None:
        """A `FileError` unless a stored cost is what is found; `start` says how large costs are."""
        if not math.isclose(stored, found, rel_tol=SAME, abs_tol=SAME_AT_START * start.cost):
            what = f"this checkpoint tells a cost of {stored:.7g} at its {where}, where it is {found:.7g}"
            raise FileError(self.path, f"{what}: it is of another problem, or was changed; name another file")

    def _check(self, tree: Tree, arrays: Arrays) -> None:
        if tree["format"] != FORMAT:
            raise FileError(self.path, f"this checkpoint has format {tree['format']}, expected {FORMAT}")
        if tree["digest"] != digest(tree, arrays):
            raise ValueError("its digest does not match its content")
        for what, name in (
            ("strategy", "strategy or other settings of it"),
            ("kernels", "kernel or τ"),
            ("problem", "problem (other data, or another residual function)"),
            ("relative_damping", "kind of damping"),
        ):
            if tree[what] != self.of[what]:
                there, here = (", ".join(x) if isinstance(x, list) else x for x in (tree[what], self.of[what]))
                told = f": {there}, not {here}"
                if what == "problem":
                    other = f"; JAX {tree['jax']} traced that, and not {self.of['jax']}"
                    told = "" if tree["jax"] == self.of["jax"] else other
                self._refuse(f"{name}{told}")
        if tree["start"] != self.of["start"]:
            self._refuse("start (its variables begin with other values)")
        if not _are_near(tree["jacobians"], self.of["jacobians"]):
            self._refuse("problem (another NumPy function `jacobian`)")

    def _refuse(self, what: str) -> None:
        raise FileError(self.path, f"this checkpoint is of another {what}; name another file to start anew")


def _text_of(strategy: Strategy) -> str:
    """The class of a strategy and its settings, which are the fields of a dataclass."""
    return ADDRESS.sub("", repr(strategy)) if is_dataclass(strategy) else type(strategy).__name__


def _digest_of_rows(rows: tuple[np.ndarray, ...]) -> str:
    found = hashlib.sha256()
    for x in rows:
        found.update((x + 0.0).tobytes())  # −0 is 0
    return found.hexdigest()


def _projections(engine: Engine, start: Point) -> list[list[float]]:
    """Σ Jₖ cos k and Σ |Jₖ| over the entries of every array that a NumPy function `jacobian` returns at the start.

    Such a function cannot be traced; these numbers differ for functions that differ there.
    """
    rows = dict(zip(engine.problem.variables, engine.rows(start), strict=True))
    found = []
    for f in engine.problem.factors:
        if f.jacobian is None:
            continue
        given = f.jacobian(*f.gather([rows[slot.variables] for slot in f.slots]), *f.data)
        for slot, J in zip(f.slots, given if isinstance(given, tuple) else (given,), strict=True):
            entries = np.ravel(J) if slot.variables.is_free else np.zeros(0)
            found.append([float(entries @ np.cos(np.arange(entries.size))), float(np.abs(entries).sum())])
    return found


def _are_near(there: list[list[float]], here: list[list[float]]) -> bool:
    """Whether projections are the same but for rounding."""
    a, b = np.reshape(there, (-1, 2)), np.reshape(here, (-1, 2))
    return a.shape == b.shape and bool((np.abs(a - b) <= SAME * b[:, 1:]).all())


def encoded(writer: "Writer", snapshot: Snapshot, engine: Engine) -> Tree:
    """A snapshot of a loop on an engine, as plain JSON."""
    return {
        "last_gradient": float(engine.last_gradient),
        "seconds": snapshot.seconds,
        "state": writer.encode(snapshot.state),
        "best": writer.encode(snapshot.best),
        "history": [writer.encode(asdict(line)) for line in snapshot.history],
    }


class Writer:
    """A state as plain JSON and named arrays; what two places share is written once."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.arrays: Arrays = {}
        self.known: dict[int, tuple[Any, str]] = {}

    def on(self, engine: Engine) -> "Writer":
        """The same, for what belongs to another engine."""
        other = copy(self)
        other.engine = engine
        return other

    def encode(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return {"array": self._add(x, lambda: (x,))}
        if isinstance(x, Point):
            return {"point": self._add(x, lambda: self.engine.rows(x))}
        if is_dataclass(x) and not isinstance(x, type):
            return {"of": type(x).__name__, "fields": {f.name: self.encode(getattr(x, f.name)) for f in fields(x)}}
        if isinstance(x, tuple) and x and all(getattr(a, "ndim", 0) and a.dtype.kind != "i" for a in x):
            return {"per_factor": self._add(x, lambda: self.engine.in_user_order(x))}
        if isinstance(x, tuple | list):
            return {type(x).__name__: [self.encode(item) for item in x]}
        if isinstance(x, dict):
            return {"dict": {str(key): self.encode(item) for key, item in x.items()}}
        if isinstance(x, np.generic):
            return x.item()
        if x is None or isinstance(x, bool | int | float | str):
            return x
        raise TypeError(f"a state with a {type(x).__name__} cannot be written to a checkpoint")

    def _add(self, x: Any, arrays: Callable[[], tuple[np.ndarray, ...]]) -> str:
        if id(x) not in self.known:
            name = f"a{len(self.known)}"
            self.known[id(x)] = (x, name)
            for k, array in enumerate(arrays()):
                self.arrays[f"{name}_{k}"] = array
        return self.known[id(x)][1]


class Reader:
    """The way back: from JSON and named arrays to a state."""

    def __init__(self, engine: Engine, arrays: Arrays):
        self.engine, self.arrays = engine, arrays
        self.known: dict[str, Any] = {}
        self.classes: dict[str, Any] = {}
        """Dataclasses by name, where there is no template."""

    def on(self, engine: Engine) -> "Reader":
        """The same, for what belongs to another engine."""
        other = copy(self)
        other.engine = engine
        return other

    def decode(self, x: Any, template: Any = None) -> Any:
        """`template` has the dataclasses that a state is made of."""
        if not isinstance(x, dict):
            return x
        ((kind, inner),) = [(key, x[key]) for key in x if key != "fields"]
        if kind == "of" and template is None:
            return self.classes[inner](**{name: self.decode(v) for name, v in x["fields"].items()})
        if kind == "of":
            if type(template).__name__ != inner:
                raise TypeError(f"{inner} in place of {type(template).__name__}")
            values = {name: self.decode(v, getattr(template, name)) for name, v in x["fields"].items()}
            for name, value in values.items():
                known = getattr(template, name)
                if known is not None and isinstance(value, str) != isinstance(known, str):
                    raise TypeError(f"{name} is {value!r}")
            return replace(template, **values)
        if kind in ("point", "per_factor"):
            if inner not in self.known:
                make = self._point if kind == "point" else self._per_factor
                self.known[inner] = make(self._arrays(inner))
            return self.known[inner]
        if kind == "array":
            return self._arrays(inner)[0]
        if kind == "dict":
            return {key: self.decode(item) for key, item in inner.items()}
        return {"tuple": tuple, "list": list}[kind](self.decode(item) for item in inner)

    def _point(self, rows: tuple[np.ndarray, ...]) -> Point:
        problem = self.engine.problem
        self._check([x.shape for x in rows], [(problem.count(v), v.rows.shape[1]) for v in problem.variables])
        return self.engine.evaluate(rows)

    def _per_factor(self, arrays: tuple[np.ndarray, ...]) -> PerFactor:
        self._check([len(x) for x in arrays], list(self.engine.problem.n_observations))
        return self.engine.in_own_order(arrays)

    def _check(self, found: list[Any], expected: list[Any]) -> None:
        if found != expected:
            raise ValueError(f"arrays of {found}, expected {expected}")

    def _arrays(self, name: str) -> tuple[np.ndarray, ...]:
        n = sum(key.startswith(f"{name}_") for key in self.arrays)
        return tuple(self.arrays[f"{name}_{k}"] for k in range(n))
