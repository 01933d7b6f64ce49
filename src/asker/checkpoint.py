"""A run on disk, written now and then, from which it continues after it was killed.

The file is an .npz: the arrays of the strategy's state in the user's order, and beside them one JSON text that says
where they belong.  Nothing in it depends on the engine: a run may continue on another one, or on more devices.
"""

import hashlib
import io
import json
import os
import zipfile
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from asker.engines.point import Point
from asker.io.files import FileError, FilePath, read_text_bytes, write_whole
from asker.result import Iteration
from asker.strategies.strategy import State

FORMAT = 2


@dataclass
class Progress:
    """Where a run stands."""

    state: State
    best: State
    history: list[Iteration]
    seconds: float


class Checkpoint:
    def __init__(self, path: FilePath, every: int, engine: Any, strategy: Any):
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.path, self.every, self.engine = path, every, engine
        self.of = {
            "format": FORMAT,
            "problem": engine.fingerprint().hex(),
            "strategy": repr(strategy) if is_dataclass(strategy) else type(strategy).__name__,
            "relative_damping": bool(engine.relative_damping),
        }

    def write(self, progress: Progress) -> None:
        """Whole or not at all; of several processes the first one writes."""
        writer = _Writer(self.engine)
        tree = {
            **self.of,
            "last_gradient": float(self.engine.last_gradient),
            "seconds": progress.seconds,
            "state": writer.encode(progress.state),
            "best": writer.encode(progress.best),
            "history": [writer.encode(asdict(line)) for line in progress.history],
        }
        if self.engine.is_first:
            text = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
            with write_whole(self.path) as file:
                np.savez(file, **{"tree": text, **writer.arrays})  # type: ignore[arg-type]

    def read(self, template: State) -> Progress | None:
        """None when there is no file yet; `template` is a state of the same strategy."""
        content = read_text_bytes(self.path) if os.path.exists(self.path) else b""
        self.engine.check_same(hashlib.sha256(content).digest(), f"hold different checkpoints {self.path}")
        if not content:
            return None
        broken = (zipfile.BadZipFile, KeyError, IndexError, TypeError, EOFError, ValueError)
        try:
            arrays = dict(np.load(io.BytesIO(content), allow_pickle=False))
            tree = json.loads(arrays.pop("tree").tobytes())
            self._check(tree)
            reader = _Reader(self.engine, arrays)
            state = reader.decode(tree["state"], template)
            best = reader.decode(tree["best"], template)
            history = [Iteration(**reader.decode(line)) for line in tree["history"]]
            self.engine.last_gradient = tree["last_gradient"]
            return Progress(state, best, history, tree["seconds"])
        except broken as error:
            if isinstance(error, FileError):
                raise
            raise FileError(self.path, f"this is no checkpoint of asker, or a broken one ({error})") from error

    def _check(self, tree: dict[str, Any]) -> None:
        if tree["format"] != FORMAT:
            raise FileError(self.path, f"this checkpoint has format {tree['format']}, expected {FORMAT}")
        for what, name in (
            ("problem", "problem (other data)"),
            ("strategy", "strategy or other settings of it"),
            ("relative_damping", "kind of damping"),
        ):
            if tree[what] != self.of[what]:
                told = "" if what == "problem" else f": {tree[what]}, not {self.of[what]}"
                raise FileError(
                    self.path, f"this checkpoint is of another {name}{told}; name another file to start anew"
                )


class _Writer:
    """A state as plain JSON and named arrays; what two places share is written once."""

    def __init__(self, engine: Any):
        self.engine = engine
        self.arrays: dict[str, np.ndarray] = {}
        self.known: dict[int, tuple[Any, str]] = {}

    def encode(self, x: Any) -> Any:
        if isinstance(x, Point):
            return {"point": self._add(x, lambda: self.engine.rows(x.theta))}
        if is_dataclass(x) and not isinstance(x, type):
            return {"of": type(x).__name__, "fields": {f.name: self.encode(getattr(x, f.name)) for f in fields(x)}}
        if isinstance(x, tuple) and x and all(getattr(a, "ndim", 0) for a in x):
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

    def _add(self, x: Any, arrays) -> str:
        if id(x) not in self.known:
            name = f"a{len(self.known)}"
            self.known[id(x)] = (x, name)
            for k, array in enumerate(arrays()):
                self.arrays[f"{name}_{k}"] = array
        return self.known[id(x)][1]


class _Reader:
    def __init__(self, engine: Any, arrays: dict[str, np.ndarray]):
        self.engine, self.arrays = engine, arrays
        self.known: dict[str, Any] = {}

    def decode(self, x: Any, template: Any = None) -> Any:
        """`template` has the dataclasses that a state is made of."""
        if not isinstance(x, dict):
            return x
        ((kind, inner),) = [(key, x[key]) for key in x if key != "fields"]
        if kind == "of":
            if type(template).__name__ != inner:
                raise TypeError(f"{inner} in place of {type(template).__name__}")
            values = {name: self.decode(v, getattr(template, name)) for name, v in x["fields"].items()}
            return replace(template, **values)
        if kind in ("point", "per_factor"):
            if inner not in self.known:
                make = self.engine.evaluate if kind == "point" else self.engine.in_own_order
                self.known[inner] = make(self._arrays(inner))
            return self.known[inner]
        if kind == "dict":
            return {key: self.decode(item) for key, item in inner.items()}
        return {"tuple": tuple, "list": list}[kind](self.decode(item) for item in inner)

    def _arrays(self, name: str) -> tuple[np.ndarray, ...]:
        n = sum(key.startswith(f"{name}_") for key in self.arrays)
        return tuple(self.arrays[f"{name}_{k}"] for k in range(n))
