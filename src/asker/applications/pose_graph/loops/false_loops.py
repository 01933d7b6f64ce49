"""Synthetic false loop closures, to test robustness against them.

A false loop closure repeats the measurement and information of a true one between two other poses.

    random    between any poses
    local     between poses that are 2 to MAX_LOCAL_GAP ids apart
    grouped   in runs of up to MAX_GROUP_SIZE consecutive pairs (i + k, j + k) that agree with each other
"""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from asker.applications.pose_graph.graph import PoseGraph
from asker.io.files import FileError, FilePath
from asker.io.json import read_json

FalseLoops = Literal["random", "grouped", "local"]
MAX_LOCAL_GAP, MAX_GROUP_SIZE = 20, 10


def add_false_loops(
    graph: PoseGraph, ratio: float, kind: FalseLoops = "random", seed: int = 0
) -> tuple[PoseGraph, np.ndarray]:
    """Add synthetic false loop closures to a pose graph.

    Parameters
    ----------
    graph
        Graph with at least one loop closure.
    ratio
        Number of false loop closures divided by the number of loop closures of the graph, 0 to 100.
    kind
        "random", "local" or "grouped", see above.
    seed
        Seed of the random number generator.

    Returns
    -------
    graph : PoseGraph
        Graph with the false loop closures after its own edges.
    is_false : ndarray, (n_edges,)
        Mask of the false loop closures.

    Raises
    ------
    ValueError
        If the graph has no loop closures, or too few pairs of poses without an edge.
    """
    if kind not in get_args(FalseLoops):
        raise ValueError(f"kind must be one of {', '.join(get_args(FalseLoops))}, not {kind!r}")
    if not 0 <= ratio <= 100:
        raise ValueError(f"the ratio of false loops must be from 0 to 100, got {ratio}")
    loops = np.flatnonzero(~graph.is_odometry)
    if not loops.size:
        raise ValueError("the graph has no loop closures, so there are none to repeat between other poses")
    rng = np.random.default_rng(seed)
    n = round(ratio * len(loops))
    pairs, run = _draw(graph, n, kind, rng)
    like = rng.choice(loops, run.max(initial=0) + 1)[run]
    order = np.argsort(graph.ids).astype(np.int32)
    made = replace(
        graph,
        i=np.concatenate([graph.i, order[pairs[:, 0]]]),
        j=np.concatenate([graph.j, order[pairs[:, 1]]]),
        measurements=np.concatenate([graph.measurements, graph.measurements[like]]),
        information=np.concatenate([graph.information, graph.information[like]]),
    )
    return made, np.arange(made.n_edges) >= graph.n_edges


def _draw(graph: PoseGraph, n: int, kind: FalseLoops, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw `n` pairs of poses without an edge, as ranks of their ids, and the run to which each pair belongs."""
    ids = np.sort(graph.ids)
    ends = np.searchsorted(ids, np.stack([graph.ids[graph.i], graph.ids[graph.j]], axis=1))
    taken = {(min(e), max(e)) for e in ends.tolist()}
    pairs: list[tuple[int, int]] = []
    runs: list[int] = []
    tries = 0
    while len(pairs) < n:
        tries += 1
        if tries > 100 * (n + 1):
            raise ValueError(f"the graph has too few pairs of poses for {n} more loops of this kind")
        a, b = (int(k) for k in rng.integers(0, len(ids), 2))
        if kind == "local":
            b = a + int(rng.integers(-MAX_LOCAL_GAP, MAX_LOCAL_GAP + 1))
        for k in range(int(rng.integers(2, MAX_GROUP_SIZE + 1)) if kind == "grouped" else 1):
            pair = (min(a + k, b + k), max(a + k, b + k))
            if _fits(pair, ids) and pair not in taken and len(pairs) < n:
                taken.add(pair)
                pairs.append((a + k, b + k))
                runs.append(tries)
    return np.array(pairs, int).reshape(-1, 2), np.array(runs, int)


def _fits(pair: tuple[int, int], ids: np.ndarray) -> bool:
    """Return whether both poses exist and are not consecutive."""
    return pair[0] >= 0 and pair[1] < len(ids) and bool(ids[pair[1]] - ids[pair[0]] > 1)


def false_loops_record(graph: PoseGraph, is_false: np.ndarray) -> dict[str, Any]:
    """Return a record of the false edges, for `read_false_loops`."""
    return {"false_edges": np.flatnonzero(is_false), "false_loops": graph.named(is_false)}


def read_false_loops(path: FilePath, graph: PoseGraph) -> np.ndarray:
    """Read the mask of false edges from a file written by `asker corrupt --json`."""
    what = "a file of `asker corrupt --json`"
    record = read_json(path, what)
    try:
        index = _integers(record["false_edges"])
        pairs = _integers(record["false_loops"]).reshape(-1, 2)
    except (ValueError, KeyError, TypeError, OverflowError) as e:
        raise FileError(path, f"this is not {what}") from e
    mask = np.zeros(graph.n_edges, bool)
    fits = index.ndim == 1 and np.all((index >= 0) & (index < graph.n_edges))
    if fits:
        mask[index] = True
    if not fits or not np.array_equal(graph.named(mask), pairs):
        raise FileError(path, "these false loops are not in this graph")
    return mask


def _integers(value: list[Any]) -> np.ndarray:
    """Convert a list of integers, or of lists of them, to an array; raise a `ValueError` for any other content."""
    array = np.array(value)
    if array.size and array.dtype.kind != "i":  # text and fractions would be converted silently
        raise ValueError("not integers")
    return array.astype(int)
