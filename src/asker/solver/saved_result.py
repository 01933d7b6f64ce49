"""File format of results: packing, unpacking, and validation of every field.

A digest detects damaged files.  Files of earlier versions have none, and a digest can be recomputed; therefore the
types, shapes, lengths and ranges that the properties of a result rely on are all checked.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from asker.io.npz import Arrays, Tree, digest, signed
from asker.problem.by_group import Groups
from asker.solver.doubts import Doubt, DoubtKind
from asker.statistics.inliers import Classified
from asker.statistics.noise import Noise
from asker.tracing.trees import is_tree, items_of
from asker.version import __version__

KIND, FORMAT = "result", 1
MAX_DEGREES_OF_FREEDOM = 1e18
TEXTS = ("version", "status", "strategy", "engine", "linear_solver")
COSTS = ("cost", "initial_cost")
PER_FACTOR = {"residuals": ("f", 2), "weights": ("f", 1), "inliers": ("b", 1), "informative": ("b", 1)}
"""Data type and number of dimensions of the arrays of a factor group."""
PLAIN = {"cost": float, "initial_cost": float, "engine": str, "linear_solver": str, "relative_damping": bool}
"""Fields that are written as they are, with their types."""


def packed(result: Any) -> tuple[Tree, Arrays]:
    """Return an `asker.Result` as a JSON tree and named arrays, for `asker.io.npz`."""
    arrays: Arrays = {}
    classified = result.classified

    def add(item: Any) -> Any:
        """Store an array and return its name; for a tuple, a list of the names of its parts; for fields, a table."""
        if is_tree(item):
            return {str(key): add(part) for key, part in items_of(item)}
        if isinstance(item, tuple):
            return [add(part) for part in item]
        name = f"a{len(arrays)}"
        arrays[name] = np.asarray(item)
        return name

    tree: Tree = {
        "kind": KIND, "format": FORMAT, "version": __version__,
        "variables": [[name, add(item)] for name, item in result.values.items()],
        "factors": [
            [name, *map(add, items)]
            for name, *items in zip(result.inliers.names, *(getattr(result, key) for key in PER_FACTOR), strict=True)
        ],
        "noise": [_jsonable(asdict(noise)) for noise in classified.noises] or None,
        "finds_noise": result.estimated_noise is not None,
        "inliers": _jsonable([classified.n_inliers, classified.n_informative]),
        "doubts": [str(doubt) for doubt in result.doubts],
        "doubt_kinds": [[doubt.kind.name, _jsonable(dict(doubt.numbers))] for doubt in result.doubts],
        "status": result.status.name,
        "kernels": _jsonable(list(result.fitted_kernels) or _kernels(result)),
        "history": [_jsonable(asdict(line)) for line in result.history],
        "seconds": _jsonable(result.seconds),
        "strategy": result.strategy if isinstance(result.strategy, str) else repr(result.strategy),
    }  # fmt: skip
    for name, kind in PLAIN.items():
        tree[name] = kind(getattr(result, name))
    return signed(tree, arrays), arrays


def unpacked(tree: Tree, arrays: Arrays) -> dict[str, Any]:
    """Return the validated fields of an `asker.Result`; the status is a name, a record of the history a dictionary."""
    _check(tree, arrays)

    def item_of(key: Any) -> Any:
        if isinstance(key, dict):  # named tuples and dataclasses become dictionaries
            return {name: item_of(part) for name, part in key.items()}
        return tuple(item_of(part) for part in key) if isinstance(key, list) else arrays[key]

    rows = [[arrays[key] for key in row[1:]] for row in tree["factors"]]
    rows = [row if len(row) == len(PER_FACTOR) else [*row, np.ones(row[2].shape, dtype=bool)] for row in rows]  # 0.2
    factors = dict(zip(PER_FACTOR, zip(*rows, strict=True), strict=True))
    names = [name for name, *_ in tree["factors"]]
    known = _classified(tree, factors.pop("inliers"))
    return {
        **{name: tree[name] for name in PLAIN},
        "estimated_noise": known.noises if tree.get("finds_noise", True) and known.noises else None,
        "known_inliers": known,
        "found_doubts": _doubts(tree),
        **{key: Groups(items, names) for key, items in factors.items()},
        "problem": None,
        "fitted_kernels": tuple(_kernel_record(*record) for record in tree.get("kernels") or ()),
        "values": Groups([item_of(key) for _, key in tree["variables"]], [name for name, _ in tree["variables"]]),
        "status": tree["status"],
        "history": [{key: _with_tuples(x) for key, x in line.items()} for line in tree["history"]],
        "seconds": tree["seconds"],
        "strategy": tree["strategy"],
    }


def _doubts(tree: Tree) -> tuple[Doubt, ...]:
    """Return the doubts; files of 0.6 and earlier have sentences without a kind."""
    texts = tree.get("doubts", [])
    kinds = tree.get("doubt_kinds", [[DoubtKind.OTHER.name, {}]] * len(texts))
    each = zip(texts, kinds, strict=True)
    return tuple(Doubt(text, DoubtKind[kind], **_with_tuples(numbers)) for text, (kind, numbers) in each)


def _kernels(result: Any) -> list[Any]:
    """Return records of the kernels if they were estimated, so that a problem can be attached to the loaded result."""
    if result.problem is None or result.estimated_noise is None:
        return []
    from asker.solver.attached import kernel_records

    return kernel_records(result.problem)


def _kernel_record(name: str, numbers: dict[str, Any], balance: float) -> tuple[str, dict[str, float], float]:
    return str(name), {str(key): float(x) for key, x in numbers.items()}, float(balance)


def _jsonable(x: Any) -> Any:
    """Return x with NumPy numbers and arrays, tuples and keys replaced by their JSON equivalents."""
    if isinstance(x, dict):
        return {str(key): _jsonable(item) for key, item in x.items()}
    if isinstance(x, list | tuple):
        return [_jsonable(item) for item in x]
    if isinstance(x, np.generic | np.ndarray):
        return x.tolist()
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeError(f"a history with a {type(x).__name__} in its details cannot be saved")


def _classified(tree: Tree, masks: Sequence[np.ndarray]) -> Classified:
    """Return the inliers; early versions saved no counts, and the noise only if it was estimated."""
    noises = tuple(Noise(**{key: float(x) for key, x in one.items()}) for one in tree.get("noise") or ())
    counts: Any = tree.get("inliers") or ([np.count_nonzero(mask) for mask in masks], list(map(len, masks)))
    return Classified(noises, tuple(masks), *map(tuple, counts))


def _with_tuples(x: Any) -> Any:
    """Return x with tuples in place of lists, as a history has them."""
    if isinstance(x, dict):
        return {key: _with_tuples(item) for key, item in x.items()}
    return tuple(map(_with_tuples, x)) if isinstance(x, list) else x


def _check(tree: Tree, arrays: Arrays) -> None:
    """Raise a `ValueError` unless tree and arrays are those of a result; a missing field raises a `KeyError`.

    Unknown fields are rejected by the constructors that receive them.
    """
    if "digest" in tree and tree["digest"] != digest(tree, arrays):
        raise ValueError("its digest does not match its content")
    for name in TEXTS:
        _text(name, tree[name])
    for name in COSTS:
        if not isinstance(tree[name], float) or not math.isfinite(tree[name]):
            raise ValueError(f"{name} is {tree[name]!r}")
    if not isinstance(tree["relative_damping"], bool):
        raise ValueError(f"relative_damping is {tree['relative_damping']!r}")
    for doubt in _list("doubts", tree.get("doubts", [])):  # format 1 began without
        _text("a doubt", doubt)
    _check_doubt_kinds(tree)
    for name, seconds in _table("seconds", tree["seconds"]).items():
        _number(f"the time of {name}", seconds, least=0.0)
    _number("the total time", tree["seconds"]["total"])
    _check_variables(tree, arrays)
    _check_factors(tree, arrays)
    _check_noise(tree)
    _check_inliers(tree)
    _check_history(tree)


def _check_doubt_kinds(tree: Tree) -> None:
    if "doubt_kinds" not in tree:  # 0.6
        return
    rows = [_list("the kind of a doubt", row) for row in _list("doubt_kinds", tree["doubt_kinds"])]
    if len(rows) != len(tree.get("doubts", [])) or any(len(row) != 2 for row in rows):
        raise ValueError("the kinds of its doubts do not match its doubts")
    for kind, numbers in rows:
        _text("the kind of a doubt", kind)
        _table("the numbers of a doubt", numbers)
        if kind not in DoubtKind.__members__:
            raise ValueError(f"{kind!r} is no kind of a doubt; it may be of a later version of asker")


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
    """Return the names of the arrays of a variable: one, or those of all parts of a product manifold."""
    if isinstance(item, dict):
        item = list(item.values())
    return [name for part in item for name in _parts(part)] if isinstance(item, list) else [item]


def _values(name: str, values: np.ndarray) -> np.ndarray:
    """Return saved values, or raise a ValueError if they are not finite floats."""
    if values.dtype.kind != "f" or not values.ndim or not np.isfinite(values).all():
        raise ValueError(f"the values of {name!r} are {values.dtype} {values.shape}, or not finite")
    return values


def _check_factors(tree: Tree, arrays: Arrays) -> None:
    n = 0
    for row in _list("factors", tree["factors"]):
        name, *items = _list("a row of factors", row)
        _text("the name of factors", name)
        columns = [arrays[item] for item in items]
        kinds, expected = [(x.dtype.kind, x.ndim) for x in columns], [*PER_FACTOR.values()]
        if kinds not in (expected, expected[:-1]) or len(set(map(len, columns))) != 1:  # 0.2 had no `informative`
            raise ValueError(f"the arrays of {name!r} do not fit together")
        n += int(np.count_nonzero(columns[3])) if len(columns) > 3 else len(columns[0])
    if not n:
        raise ValueError("it has no observations")


def _check_noise(tree: Tree) -> None:
    noises = tree.get("noise")
    if noises is None:
        return
    if len(_list("noise", noises)) != len(tree["factors"]):
        raise ValueError(f"it has {len(noises)} noise estimates for {len(tree['factors'])} factor groups")
    for noise in noises:
        for name, value in _table("a noise", noise).items():
            if not isinstance(value, float | int) or isinstance(value, bool) or value < 0:  # NaN is fine
                raise ValueError(f"the {name} of a noise estimate is {value!r}")
        if noise["n_spare"] > MAX_DEGREES_OF_FREEDOM:
            raise ValueError(f"a noise estimate has {noise['n_spare']!r} degrees of freedom")
        if noise["n_spare"] == 0 and noise.get("chance", 1.0) < 1:
            raise ValueError("a noise estimate has no degrees of freedom")


def _check_inliers(tree: Tree) -> None:
    if "inliers" not in tree:  # 0.2
        return
    counts = [_list("a row of inliers", row) for row in _list("inliers", tree["inliers"])]
    if [len(row) for row in counts] != 2 * [len(tree["factors"])]:
        raise ValueError("its inlier counts do not match its factor groups")
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
        number = _table(f"record {k} of its history", line)["iteration"]
        if type(number) is not int or number != k or not isinstance(line["accepted"], bool):
            raise ValueError(f"record {k} of its history is not of iteration {k}")
        _table("the details of an iteration", line["details"])
        for name in ("cost", "best_cost", "damping"):
            _number(f"the {name} of iteration {k}", line[name])
        _number(f"the time of iteration {k}", line["seconds"], least=0.0)


def _text(what: str, x: Any) -> None:
    """Raise a ValueError if x is no text."""
    if not isinstance(x, str):
        raise ValueError(f"{what} is {x!r}, expected text")


def _list(what: str, x: Any) -> list[Any]:
    """Return x, or raise a ValueError if it is no list."""
    if not isinstance(x, list):
        raise ValueError(f"{what} is {x!r}, expected a list")
    return x


def _table(what: str, x: Any) -> dict[str, Any]:
    """Return x, or raise a ValueError if it is no table."""
    if not isinstance(x, dict):
        raise ValueError(f"{what} is {x!r}, expected a table")
    return x


def _number(what: str, x: Any, least: float | None = None) -> None:
    """Raise a `ValueError` unless x is a number; NaN and infinity are allowed if `least` is None.

    An integer too large for a float raises an `OverflowError`.
    """
    if not isinstance(x, float | int) or isinstance(x, bool):
        raise ValueError(f"{what} is {x!r}, expected a number")
    if least is not None and not least <= float(x) < math.inf:
        raise ValueError(f"{what} is {x!r}, expected a finite number of at least {least:g}")
    float(x)
