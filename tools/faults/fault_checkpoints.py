"""Trials of checkpoints: a resumed run ends bit for bit like an uninterrupted one, or its file is rejected."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import asker
from fault_trials import Trial
from file_damage import spoiled

LIMITS: dict[str, Any] = {"max_iterations": 12, "tol": 0, "engine": "cpu"}
STRATEGIES = {"IRLS": asker.IRLS(), "GNC": asker.GNC(), "ASKER": asker.ASKER(), "search for the noise": None}


class Killed(BaseException):
    """Exception that ends a solve and that no handler catches."""


def curve(x: Any, t: Any, y: Any) -> Any:
    return x[0] * t + x[1] * t**2 - y


def other_curve(x: Any, t: Any, y: Any) -> Any:
    return x[0] * t + 1.0000001 * x[1] * t**2 - y


def in_front(x: Any, t: Any, y: Any) -> Any:
    return x[0] + 10.0


@dataclass(frozen=True)
class Setting:
    """Problem and settings that determine a run."""

    strategy: Any
    kernel: Any = asker.SmoothTruncated(0.5)
    residual: Any = curve
    valid: Any = None
    data: int = -1
    """Index of the observation whose last digit is changed; negative for none."""
    weight: float = 1.0
    start: float = 2.0

    def problem(self) -> asker.Problem:
        rng = np.random.default_rng(1)
        t, index = rng.uniform(-2, 2, 80), np.arange(80) % 2
        y = 0.7 * t - 0.3 * t**2 + 0.1 * rng.normal(size=80)
        y[::4] += rng.normal(size=20) * 4
        if self.data >= 0:
            y[self.data] = np.nextafter(y[self.data], np.inf)
        weight = np.ones(80)
        weight[0] = self.weight
        x = asker.Variables(np.full((2, 2), self.start), name="x")
        more = {} if self.strategy is None else {"kernel": self.kernel}
        more |= {} if self.valid is None else {"valid": self.valid}
        columns = (t[:, None], y[:, None])
        return asker.Problem(asker.Factors(self.residual, x[index], data=columns, weight=weight, name="f", **more))

    def solved(self, **more: Any) -> Any:
        return asker.solve(self.problem(), self.strategy, **LIMITS | more)


@cache
def whole(setting: Setting) -> Any:
    """Return the result of an uninterrupted run."""
    return setting.solved()


def numbers(result: Any) -> list[Any]:
    """Return all numbers of a result except the seconds."""
    history = [(h.iteration, h.cost, h.best_cost, h.damping, h.accepted, repr(h.details)) for h in result.history]
    arrays = [result.values, result.residuals, result.weights, result.inliers]
    return [history, result.cost, result.initial_cost, result.status, *([a.tobytes() for a in x] for x in arrays)]


def attack_checkpoints(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Interrupt and resume about `n` runs; in three of four the file or the problem is changed in between."""
    kinds = {"killed": unchanged, "changed file": spoil, "changed cost": change_cost, "other problem": change_problem}
    for what, change in kinds.items():
        for k in range(-(-n // len(kinds))):
            name, strategy = list(STRATEGIES.items())[k % len(STRATEGIES)]
            trial = _attacked(folder / f"{what}{k}.npz", Setting(strategy), change, rng)
            yield Trial(f"checkpoint, {what}", trial.fault and f"{name}: {trial.fault}", trial.refused)


Change = Callable[[Path, Setting, np.random.Generator], "tuple[Setting, bool]"]
"""Function that changes a file and returns the setting of the resumed run and whether it must be rejected."""


def _attacked(path: Path, setting: Setting, change: Change, rng: np.random.Generator) -> Trial:
    expected = numbers(whole(setting))
    for _ in range(rng.integers(1, 3)):
        every = int(rng.integers(1, 4))
        stop_at = int(rng.integers(every + 1, max(every + 2, len(expected[0]))))  # the file exists by then

        def kill(line: Any, stop_at: int = stop_at) -> None:
            if line.iteration >= stop_at:
                raise Killed

        with suppress(Killed):
            setting.solved(checkpoint=path, every=every, on_iteration=kill)
    if not path.exists():
        return Trial("")
    later, must_refuse = change(path, setting, rng)
    try:
        resumed = numbers(later.solved(checkpoint=path))
    except asker.FileError as error:
        return Trial("", None if change is not unchanged else f"a good file is rejected: {error}", refused=True)
    except Exception as error:
        return Trial("", f"{type(error).__name__}: {error}")
    if must_refuse:
        return Trial("", f"{later} is accepted although the file was changed")
    return Trial("", None if resumed == expected else "the resumed run has another result")


def unchanged(path: Path, setting: Setting, rng: np.random.Generator) -> tuple[Setting, bool]:
    return setting, False


def spoil(path: Path, setting: Setting, rng: np.random.Generator) -> tuple[Setting, bool]:
    """Damage the bytes, or change numbers without the digest."""
    if rng.random() < 0.3:
        path.write_bytes(spoiled(rng, path.read_bytes()))
        return setting, False
    tree, arrays = _parts(path)
    floats = [name for name in sorted(arrays) if arrays[name].size and arrays[name].dtype.kind == "f"]
    if floats and rng.random() < 0.5:
        array = arrays[floats[rng.integers(len(floats))]]
        array.flat[rng.integers(array.size)] += 1e-3
    else:
        line = tree["history"][rng.integers(len(tree["history"]))]
        line["dict"]["cost"] *= 1 + 1e-3
    _write(path, tree, arrays)
    return setting, True


def change_cost(path: Path, setting: Setting, rng: np.random.Generator) -> tuple[Setting, bool]:
    """Change the initial cost and update the digest."""
    tree, arrays = _parts(path)
    tree["history"][0]["dict"]["cost"] *= 1 + 1e-4
    tree.pop("digest")
    _write(path, tree | {"digest": _digest_of(tree, arrays)}, arrays)
    return setting, True


def change_problem(path: Path, setting: Setting, rng: np.random.Generator) -> tuple[Setting, bool]:
    """Resume with another problem or with other settings."""
    others = [
        replace(setting, data=int(rng.integers(80))),
        replace(setting, weight=1.0 + 1e-9),
        replace(setting, start=2.0 + 1e-3),
        replace(setting, residual=other_curve),
        replace(setting, valid=in_front),
    ]
    if setting.strategy is not None:
        others += [
            replace(setting, kernel=asker.SmoothTruncated(0.5 + 1e-9)),
            replace(setting, kernel=asker.Cauchy(0.5)),
            replace(setting, strategy=asker.IRLS(damping=0.02)),
            replace(setting, strategy=asker.ASKER(s0=2.5)),
        ]
    return others[rng.integers(len(others))], True


def _parts(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays.pop("tree").tobytes()), arrays


def _digest_of(tree: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Return the digest of a checkpoint, computed without the package."""
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def _write(path: Path, tree: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    text = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, tree=text, **arrays)
