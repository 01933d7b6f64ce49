"""What the file of a result must hold.  Every field is checked before a result is made of it.

A digest tells a file that has been damaged.  Files of earlier versions have none, and anybody can write one; so each
field is checked for what the properties of a result rely on: types, shapes, lengths and ranges.
"""

import math
from typing import Any

import numpy as np

from asker.io.npz import Arrays, Tree, digest

TEXTS = ("version", "status", "strategy", "engine", "linear_solver")
COSTS = ("cost", "initial_cost")
PER_FACTOR = {"residuals": ("f", 2), "weights": ("f", 1), "inliers": ("b", 1), "informative": ("b", 1)}
"""The kind and the number of dimensions of the arrays of a factor group."""


def check(tree: Tree, arrays: Arrays) -> None:
    """Raise a `ValueError` unless these are the table and the arrays of a result; a missing field is a `KeyError`.

    Fields that no result has are refused by what is made of them.
    """
    if "digest" in tree and tree["digest"] != digest(tree, arrays):
        raise ValueError("its digest is that of another content")
    for name in TEXTS:
        _text(name, tree[name])
    for name in COSTS:
        if not isinstance(tree[name], float) or not math.isfinite(tree[name]):
            raise ValueError(f"{name} is {tree[name]!r}")
    if not isinstance(tree["relative_damping"], bool):
        raise ValueError(f"relative_damping is {tree['relative_damping']!r}")
    for doubt in _list("doubts", tree.get("doubts", [])):  # format 1 began without
        _text("a doubt", doubt)
    for name, seconds in _table("seconds", tree["seconds"]).items():
        _number(f"the time of {name}", seconds, least=0.0)
    _number("the total time", tree["seconds"]["total"])
    _check_variables(tree, arrays)
    _check_factors(tree, arrays)
    _check_noise(tree)
    _check_inliers(tree)
    _check_history(tree)


def _check_variables(tree: Tree, arrays: Arrays) -> None:
    rows = _list("variables", tree["variables"])
    if not rows:
        raise ValueError("it has no variables")
    for row in rows:
        name, item = _list("a row of variables", row)
        _text("the name of variables", name)
        lengths = {len(_values(name, arrays[part])) for part in _parts(item)}
        if len(lengths) != 1:
            raise ValueError(f"the parts of {name!r} have {sorted(lengths)} rows")


def _parts(item: Any) -> list[str]:
    """The names of the arrays of a variable: one, or those of the parts of a product, and of their parts."""
    return [name for part in item for name in _parts(part)] if isinstance(item, list) else [item]


def _values(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "f" or not values.ndim or not np.isfinite(values).all():
        raise ValueError(f"the values of {name!r} are {values.dtype} {values.shape}, or not finite")
    return values


def _check_factors(tree: Tree, arrays: Arrays) -> None:
    n = 0
    for row in _list("factors", tree["factors"]):
        name, *items = _list("a row of factors", row)
        _text("the name of factors", name)
        found = [arrays[item] for item in items]
        kinds, expected = [(x.dtype.kind, x.ndim) for x in found], [*PER_FACTOR.values()]
        if kinds not in (expected, expected[:-1]) or len(set(map(len, found))) != 1:  # 0.2 had no `informative`
            raise ValueError(f"the arrays of {name!r} do not fit together")
        n += int(np.count_nonzero(found[3])) if len(found) > 3 else len(found[0])
    if not n:
        raise ValueError("it has no observations")


def _check_noise(tree: Tree) -> None:
    noises = tree.get("noise")
    if noises is None:
        return
    if len(_list("noise", noises)) != len(tree["factors"]):
        raise ValueError(f"it has {len(noises)} noises for {len(tree['factors'])} groups of factors")
    for noise in noises:
        for name, value in _table("a noise", noise).items():
            if not isinstance(value, float | int) or isinstance(value, bool) or value < 0:  # NaN is fine
                raise ValueError(f"the {name} of a noise is {value!r}")
        if noise["n_spare"] == 0 and noise.get("chance", 1.0) < 1:
            raise ValueError("a noise is known, and rests on no number")


def _check_inliers(tree: Tree) -> None:
    if "inliers" not in tree:  # 0.2
        return
    counts = [_list("a row of inliers", row) for row in _list("inliers", tree["inliers"])]
    if [len(row) for row in counts] != 2 * [len(tree["factors"])]:
        raise ValueError("its inliers do not fit to its factors")
    for k, n in zip(*counts, strict=True):
        if type(k) is not int or type(n) is not int or not 0 <= k <= n:
            raise ValueError(f"{k!r} of {n!r} observations are inliers")
    if not isinstance(tree["finds_noise"], bool):
        raise ValueError(f"finds_noise is {tree['finds_noise']!r}")


def _check_history(tree: Tree) -> None:
    history = _list("history", tree["history"])
    if not history:
        raise ValueError("it has no history")
    for k, line in enumerate(history):
        number = _table(f"line {k} of its history", line)["iteration"]
        if type(number) is not int or number != k or not isinstance(line["accepted"], bool):
            raise ValueError(f"line {k} of its history is none of iteration {k}")
        _table("the details of an iteration", line["details"])
        for name in ("cost", "best_cost", "damping"):
            _number(f"the {name} of iteration {k}", line[name])
        _number(f"the time of iteration {k}", line["seconds"], least=0.0)


def _text(what: str, x: Any) -> None:
    if not isinstance(x, str):
        raise ValueError(f"{what} is {x!r}, expected text")


def _list(what: str, x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise ValueError(f"{what} is {x!r}, expected a list")
    return x


def _table(what: str, x: Any) -> dict[str, Any]:
    if not isinstance(x, dict):
        raise ValueError(f"{what} is {x!r}, expected a table")
    return x


def _number(what: str, x: Any, least: float | None = None) -> None:
    """Also NaN and infinity, unless there is a least one; an integer that no float holds is an `OverflowError`."""
    if not isinstance(x, float | int) or isinstance(x, bool):
        raise ValueError(f"{what} is {x!r}, expected a number")
    if least is not None and not least <= float(x) < math.inf:
        raise ValueError(f"{what} is {x!r}, expected a finite number of at least {least:g}")
    float(x)
