"""Checkpoints: periodic snapshots of a run on disk, from which it can be resumed.

The file is an .npz with the arrays of the strategy's state, in the user's order, and a JSON text with their structure.
It is independent of the engine: a run may be resumed on another engine or on more devices.

The content is verified: a digest detects modified files, and every cost is evaluated again.
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
"""Function that evaluates the cost of a point for a strategy."""
FORMAT = 4
COST_RTOL = 1e-6
"""Tolerance of a stored cost, relative to it: engines round differently."""
COST_TOL_OF_START = 1e-9
"""Tolerance of a stored cost, relative to the cost at the start: costs near 0 consist of rounding errors."""


class ProgressFile(Protocol):
    """File, or part of a file, from which a run can be resumed."""

    every: int

    def read(self, template: State, cost_at: CostAt) -> "Snapshot | None":
        """Return the last snapshot, or None for a new run; `template` is the state at the start."""
        ...

    def save(self, snapshot: "Snapshot", at_the_end: bool) -> None:
        """Write a snapshot."""
        ...


@dataclass
class Snapshot:
    """State, best state and history of a run."""

    state: State
    best: State
    history: list[Iteration]
    seconds: float


class Checkpoint:
    """Checkpoint file of one run on one engine."""

    def __init__(self, path: FilePath, every: int, engine: Engine, strategy: Strategy):
        check_number("every", every, 1, whole=True)
        if not os.path.isdir(folder := os.path.dirname(os.path.abspath(path))):
            raise FileError(path, f"there is no folder {folder!r} to write into")
        self.path, self.every, self.engine = path, every, engine
        self.unwritten = ""
        """Error of the last attempt to write, "" if it succeeded."""
        self.continued_from = 0
        """Iteration of the snapshot that was read; 0 for a new run."""
        self.of: Tree = {
            "format": FORMAT,
            "kernels": [f"{f.name} {f.kernel}" for f in engine.problem.factors],
            "problem": engine.fingerprint().hex(),
            "strategy": _text_of(strategy),
            "relative_damping": bool(engine.relative_damping),
            "jax": version("jax"),
        }

    def save(self, snapshot: Any, at_the_end: bool) -> None:
        """Write a snapshot; if this fails, warn and continue, since the run is worth more than its checkpoint."""
        try:
            self.write(snapshot)
            self.unwritten = ""
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not at_the_end:
                raise
            why = str(error) or f"{self.path}: {type(error).__name__}"
            if not self.unwritten:
                warnings.warn(f"the checkpoint cannot be written, the solve continues: {why}", stacklevel=2)
            self.unwritten = why

    def write(self, snapshot: Snapshot) -> None:
        """Write a snapshot atomically; of several processes only the first one writes."""
        writer = Writer(self.engine)
        self.write_tree(encoded(writer, snapshot, self.engine), writer)

    def write_tree(self, tree: Tree, writer: "Writer") -> None:
        """Write a JSON tree and its arrays, together with the identity of the run."""
        tree = self.of | tree
        if self.engine.is_first:
            write_npz(self.path, signed(tree, writer.arrays), writer.arrays)

    def read(self, template: State, cost_at: CostAt) -> Snapshot | None:
        """Return the snapshot of the file, None if there is no file; `template` is the state at the start."""
        content = self.read_tree(template)
        if content is None:
            return None
        with self.faults_told():
            tree, reader = content
            self.check_cost("start", reader.decode(tree["history"][0])["cost"], template.cost, template)
            snapshot = self.decoded(tree, reader, template, self.engine, cost_at)
        self.continues(snapshot.history)
        return snapshot

    def continues(self, history: Sequence[Iteration]) -> None:
        """Record and log that a run is resumed with this history."""
        self.continued_from = history[-1].iteration
        log.info("continued from iteration %d of %s", self.continued_from, self.path)

    def read_tree(self, start: State) -> "tuple[Tree, Reader] | None":
        """Return the content of the file after checking that it is of the same run and the same start."""
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
        """Convert errors that invalid content causes to a `FileError`."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, ValueError) and type(error) is not ValueError:  # it has its own message
                raise
            raise FileError(self.path, f"this is no checkpoint of asker, or a broken one ({error})") from error

    def decoded(self, tree: Tree, reader: "Reader", template: State, engine: Engine, cost_at: CostAt) -> Snapshot:
        """Return the snapshot of a loop on this engine, with costs that are evaluated again."""
        state, best = (reader.decode(tree[name], template) for name in ("state", "best"))
        history = [Iteration(**reader.decode(line)) for line in tree["history"]]
        state = self._evaluated("last point", state, template, cost_at)
        best = self._evaluated("best point", best, template, cost_at)
        engine.last_gradient = tree["last_gradient"]
        return Snapshot(state, best, history, tree["seconds"])

    def _evaluated(self, where: str, state: State, start: State, cost_at: CostAt) -> State:
        cost = cost_at(state.point)
        self.check_cost(where, state.cost, cost, start)
        best = state.best and (cost_at(state.best[1]), state.best[1])
        return replace(state, cost=cost, best=best)

    def check_cost(self, where: str, stored: float, evaluated: float, start: State) -> None:
        """Raise a `FileError` unless a stored cost agrees with the evaluated one, relative to the cost at the start."""
        if not math.isclose(stored, evaluated, rel_tol=COST_RTOL, abs_tol=COST_TOL_OF_START * start.cost):
            what = f"this checkpoint states a cost of {stored:.7g} at its {where}, where it is {evaluated:.7g}"
            raise FileError(self.path, f"{what}: it is of another problem or was modified; choose another file")

    def _check(self, tree: Tree, arrays: Arrays) -> None:
        if tree["format"] != FORMAT:
            raise FileError(self.path, f"this checkpoint has format {tree['format']}, expected {FORMAT}")
        if tree["digest"] != digest(tree, arrays):
            raise ValueError("its digest does not match its content")
        for what, name in (
            ("strategy", "strategy or has other settings"),
            ("kernels", "kernel or τ"),
            ("problem", "problem (other data, or another residual function)"),
            ("relative_damping", "kind of damping"),
        ):
            if tree[what] != self.of[what]:
                there, here = (", ".join(x) if isinstance(x, list) else x for x in (tree[what], self.of[what]))
                difference = f": {there}, not {here}"
                if what == "problem":
                    versions = f"; it was traced by JAX {tree['jax']}, not {self.of['jax']}"
                    difference = "" if tree["jax"] == self.of["jax"] else versions
                self._reject(f"{name}{difference}")
        if tree["start"] != self.of["start"]:
            self._reject("start (other initial values)")
        if not _are_near(tree["jacobians"], self.of["jacobians"]):
            self._reject("problem (another NumPy function `jacobian`)")

    def _reject(self, what: str) -> None:
        raise FileError(self.path, f"this checkpoint is of another {what}; choose another file for a new run")


def _text_of(strategy: Strategy) -> str:
    """Return text with the class of a strategy and its settings, the fields of a dataclass."""
    return ADDRESS.sub("", repr(strategy)) if is_dataclass(strategy) else type(strategy).__name__


def _digest_of_rows(rows: tuple[np.ndarray, ...]) -> str:
    sha = hashlib.sha256()
    for x in rows:
        sha.update((x + 0.0).tobytes())  # −0 is 0
    return sha.hexdigest()


def _projections(engine: Engine, start: Point) -> list[list[float]]:
    """Return Σ Jₖ cos k and Σ |Jₖ| over the entries of every array that a batched `jacobian` returns at the start.

    NumPy functions cannot be traced; functions with other values at the start have other sums.
    """
    rows = dict(zip(engine.problem.variables, engine.rows(start), strict=True))
    sums = []
    for f in engine.problem.factors:
        if f.jacobian is None:
            continue
        arrays = f.jacobian(*f.all_arguments([rows[slot.variables] for slot in f.slots]))
        for slot, J in zip(f.slots, arrays if isinstance(arrays, tuple) else (arrays,), strict=True):
            entries = np.ravel(J) if slot.variables.is_free else np.zeros(0)
            sums.append([float(entries @ np.cos(np.arange(entries.size))), float(np.abs(entries).sum())])
    return sums


def _are_near(there: list[list[float]], here: list[list[float]]) -> bool:
    """Return whether projections agree to rounding."""
    a, b = np.reshape(there, (-1, 2)), np.reshape(here, (-1, 2))
    return a.shape == b.shape and bool((np.abs(a - b) <= COST_RTOL * b[:, 1:]).all())


def encoded(writer: "Writer", snapshot: Snapshot, engine: Engine) -> Tree:
    """Return a snapshot of a loop on an engine as a JSON tree."""
    return {
        "last_gradient": float(engine.last_gradient),
        "seconds": snapshot.seconds,
        "state": writer.encode(snapshot.state),
        "best": writer.encode(snapshot.best),
        "history": [writer.encode(asdict(line)) for line in snapshot.history],
    }


class Writer:
    """Encoder of states as JSON trees and named arrays; shared arrays are written once."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.arrays: Arrays = {}
        self.known: dict[int, tuple[Any, str]] = {}

    def on(self, engine: Engine) -> "Writer":
        """Return the same object for points and arrays of another engine."""
        other = copy(self)
        other.engine = engine
        return other

    def encode(self, x: Any) -> Any:
        """Return x as a JSON tree, with its arrays stored in `arrays`."""
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
    """Decoder of states from JSON trees and named arrays."""

    def __init__(self, engine: Engine, arrays: Arrays):
        self.engine, self.arrays = engine, arrays
        self.known: dict[str, Any] = {}
        self.classes: dict[str, Any] = {}
        """Dataclasses by name, for values without a template."""

    def on(self, engine: Engine) -> "Reader":
        """Return the same object for points and arrays of another engine."""
        other = copy(self)
        other.engine = engine
        return other

    def decode(self, x: Any, template: Any = None) -> Any:
        """Return the value of a JSON tree; `template` is a state with the same nested dataclasses."""
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
        """Check the lengths of the arrays of each factor group, and return them in the engine's order."""
        self._check([len(x) for x in arrays], list(self.engine.problem.n_observations))
        return self.engine.in_own_order(arrays)

    def _check(self, actual: list[Any], expected: list[Any]) -> None:
        if actual != expected:
            raise ValueError(f"arrays of {actual}, expected {expected}")

    def _arrays(self, name: str) -> tuple[np.ndarray, ...]:
        n = sum(key.startswith(f"{name}_") for key in self.arrays)
        return tuple(self.arrays[f"{name}_{k}"] for k in range(n))
