"""Trials of the cache of compiled code: a modified entry is never executed.

The entries contain code of a residual with a unique constant.  An attack replaces the constant in them, so that the
execution of modified code changes the solution.
"""

import hashlib
import importlib
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from asker.io.cache import Kept
from asker.tracing.jax_compat import load_jax
from fault_trials import Trial, in_child
from file_damage import spoiled

TRUE, FALSE = 1234.5678, 4321.8765


def damage_entries(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Damage or rename `n` entries, or make them writable by others: they must be read as written or not at all."""
    store = Kept(folder / "store")
    kinds = {"damaged": _damaged, "under another name": _renamed, "others can write": _open_to_others}
    for what, change in kinds.items():
        for k in range(-(-n // len(kinds))):
            name, content = f"entry-{k}", rng.bytes(int(rng.integers(0, 300)))
            store.write(name, content)
            good = store.read(name) == content
            name, may_be_read = change(store, name, rng)
            content_read = store.read(name)
            wrong = content_read is not None and (content_read != content or not may_be_read)
            fault = "an entry is not read as written" if not good else "a changed entry is read" if wrong else None
            yield Trial(f"cache entry, {what}", fault, refused=content_read is None)


def _path(store: Kept, name: str) -> Path:
    assert store.folder is not None
    return store.folder / name


def _damaged(store: Kept, name: str, rng: np.random.Generator) -> tuple[str, bool]:
    content = _path(store, name).read_bytes()
    _path(store, name).write_bytes(spoiled(rng, content))
    return name, _path(store, name).read_bytes() == content


def _renamed(store: Kept, name: str, rng: np.random.Generator) -> tuple[str, bool]:
    _path(store, name).rename(_path(store, f"other-{name}"))
    return f"other-{name}", False


def _open_to_others(store: Kept, name: str, rng: np.random.Generator) -> tuple[str, bool]:
    _path(store, name).chmod(0o666 if rng.random() < 0.5 else 0o620)
    return name, False


# ---- entries with machine code


def residual(x: Any, d: Any) -> Any:
    return x - TRUE * d


def solution(cache: Path) -> str:
    """Return the solution of a solve with this cache folder, as text; to be called in a separate process."""
    os.environ["ASKER_CACHE"] = str(cache)
    import asker

    x = asker.Variables(np.zeros((3, 1)), name="x")
    data = np.arange(1.0, 31.0)[:, None]
    factors = asker.Factors(residual, x[np.arange(30) % 3], data=data, kernel=asker.Cauchy(1e4), name="f")
    result = asker.solve(asker.Problem(factors), asker.IRLS(), max_iterations=5, engine="cpu", threads=1)
    return repr(result.values[0].tolist())


def change_caches(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Solve about `n` times with a cache whose entries, written by an earlier solve, were modified."""
    importlib.import_module("asker._solve")  # once instead of in each process
    importlib.import_module("asker.engines.cpu.engine")
    load_jax()
    code, right = in_child(lambda: solution(folder / "genuine"))
    assert code == 0, right
    entries = _attacked_entries(folder / "genuine")
    trusted = _solved(folder, rng, {path: _forged(path) for path in entries}, 0o600)
    is_effective = trusted not in ((0, right), (1, "")) and bool(entries)
    fault = None if is_effective else "forged entries with a valid digest change no number"
    yield Trial("cached code, attack shows", fault)
    for k in range(n):
        what, changes, mode = _attack(k * 4 // n, folder / "genuine", entries, rng)
        code, text = _solved(folder, rng, changes, mode)
        fault = None if (code, text) == (0, right) else f"exit code {code}: {text[:300]}, not {right}"
        yield Trial(f"cached code, {what}", fault)


def _attack(
    kind: int, genuine: Path, entries: list[Path], rng: np.random.Generator
) -> tuple[str, dict[Path, bytes | None], int]:
    """Return the kind of attack, the new contents of entries, and their new permissions."""
    if kind == 0:
        return "other constant", {path: _patched(path.read_bytes()) for path in entries}, 0o600
    if kind == 1:
        return "others can write", {path: _forged(path) for path in entries}, 0o666
    every = sorted(path for path in genuine.rglob("*") if path.is_file())
    if kind == 2:
        one, other = (every[k] for k in rng.choice(len(every), 2, replace=False))
        return "two entries change places", {one: other.read_bytes(), other: one.read_bytes()}, 0o600
    some = [every[k] for k in rng.integers(len(every), size=3)]
    return "damaged", {path: spoiled(rng, path.read_bytes()) for path in some}, 0o600


def _solved(folder: Path, rng: np.random.Generator, changes: dict[Path, Any], mode: int) -> tuple[int, str]:
    """Return the exit code and the solution with a copy of the genuine cache in which files were changed."""
    copy = folder / f"changed{rng.integers(10**9)}"
    shutil.copytree(folder / "genuine", copy)
    for path, content in changes.items():
        target = copy / path.relative_to(folder / "genuine")
        target.write_bytes(content)
        target.chmod(mode)
    outcome = in_child(lambda: solution(copy))
    shutil.rmtree(copy)
    return outcome


def _attacked_entries(cache: Path) -> list[Path]:
    """Return the entries that contain the constant."""
    contents = {path: path.read_bytes() for path in sorted(cache.rglob("*")) if path.is_file()}
    return [path for path, content in contents.items() if _patched(content) != content]


def _patched(content: bytes) -> bytes:
    """Return the code with the other constant, replaced as a number of 8 bytes and as text."""
    for form in (lambda x: struct.pack("<d", x), lambda x: struct.pack(">d", x).hex().upper().encode(), _decimal):
        content = content.replace(form(TRUE), form(FALSE))
    return content


def _decimal(x: float) -> bytes:
    return repr(x).encode()


def _forged(path: Path) -> bytes:
    """Return the patched content with a valid digest, as only the owner of the cache could write it."""
    content = _patched(path.read_bytes()[32:])
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest() + content
