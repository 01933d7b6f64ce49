"""Candidates of the search and its state: frozen data, which a checkpoint stores as they are.

A search that was killed continues from its last state: finished starts are omitted, and the candidate under way is
refined further.  Every step is a pure function of the state, so that the result is the same.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.engines.interface import Point
from asker.io.npz import Tree
from asker.solver.checkpoint import Checkpoint, Reader, Writer
from asker.solver.result import Iteration
from asker.statistics.scale_mixture import Outliers, ScaleMixture
from asker.strategies.strategy import State

Floats = NDArray[np.float64]
NUMBERS = ("evidence", "mixture_evidence", "support", "is_marginal")
"""Fields of a candidate that a checkpoint stores as they are."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A solution, with the noise of every factor group that agrees with it."""

    name: str
    """Generator that proposed it."""
    hypothesis: Outliers
    """Hypothesis on the outliers under which it was refined."""
    point: Point
    models: tuple[ScaleMixture | None, ...]
    """Mixture of each factor group; None if its noise is specified."""
    leverage: tuple[Floats, ...]
    """Degrees of freedom that the fit uses up in each observation."""
    evidence: float
    """L in nats (`asker.statistics.scale_mixture`), or from enumerated inlier sets, for all candidates alike."""
    mixture_evidence: float = 0.0
    """L of the mixtures by leverage, which is 0 if all observations are noise."""
    support: float = 1.0
    """Inlier ratio by which the evidence explains the data."""
    is_marginal: bool = False
    """True if the point is that of EM over inlier sets, which a descent under kernels would leave."""

    @property
    def inlier_ratio(self) -> float:
        """Lowest inlier ratio of the groups whose scale is unknown."""
        return min((model.inlier_ratio for model in self.models if model), default=1.0)


@dataclass(frozen=True, eq=False)
class Background:
    """The explanation of all observations as noise, which defines the density of outliers."""

    first: Point
    """End of the Cauchy descent from the initial values, where least squares begin if there are many unknowns."""
    point: Point
    """Least-squares solution."""
    leverage: tuple[Floats, ...]
    """Degrees of freedom that it uses up in each observation."""
    variances: tuple[float, ...]
    """Variance of each factor group."""
    least_variance: tuple[float, ...] = ()
    """Lower bounds of the variances; empty for those of rounding in double precision."""


@dataclass(frozen=True, eq=False)
class SearchState:
    """State of the search: its background, its candidates, and the starts that are finished."""

    background: Background | None = None
    """Background of the evidence; None before it is computed."""
    candidates: tuple[Candidate, ...] = ()
    """Distinct refined candidates, in the order of their starts."""
    finished: tuple[str, ...] = field(default=())
    """Names of the starts that were refined, so that a resumed search omits them."""
    under_way: tuple[str, Candidate, tuple[float, ...]] | None = None
    """Start whose refinement has begun, its candidate so far, and the lower bounds of the variances there."""

    def has_begun(self, start: str) -> bool:
        """Return whether the refinement of a start has begun under one of its hypotheses."""
        names = self.finished if self.under_way is None else (*self.finished, self.under_way[0])
        return any(name.startswith(f"{start}, ") for name in names)

    def with_candidate(self, start: str, candidate: Candidate, is_new: bool) -> "SearchState":
        """Return the state after the refinement of a start, with the candidate if it is new."""
        candidates = (*self.candidates, candidate) if is_new else self.candidates
        return replace(self, candidates=candidates, finished=(*self.finished, start), under_way=None)


@dataclass
class SearchSnapshot:
    """State and history of a search."""

    state: SearchState
    history: list[Iteration]
    seconds: float


class SearchCheckpoint(Checkpoint):
    """Checkpoint file of a search."""

    def write(self, snapshot: Any) -> None:
        """Write a `SearchSnapshot` atomically."""
        writer = Writer(self.engine)
        state = snapshot.state
        under_way = state.under_way
        tree = {
            "seconds": snapshot.seconds,
            "history": [writer.encode(asdict(line)) for line in snapshot.history],
            "background": state.background and _encoded_background(state.background, writer),
            "candidates": [_encoded(candidate, writer) for candidate in state.candidates],
            "finished": list(state.finished),
            "under_way": under_way and [under_way[0], _encoded(under_way[1], writer), list(under_way[2])],
        }
        self.write_tree(tree, writer)

    def read_search(self, start: State) -> SearchSnapshot | None:
        """Return the snapshot of the file, None if there is no file; `start` has the cost at the start."""
        content = self.read_tree(start)
        if content is None:
            return None
        tree, reader = content
        with self.faults_told():
            history = [Iteration(**reader.decode(line)) for line in tree["history"]]
            self.check_cost("start", history[0].cost, start.cost, start)
            under_way = tree["under_way"]
            state = SearchState(
                background=tree["background"] and _decoded_background(tree["background"], reader),
                candidates=tuple(_decoded(item, reader) for item in tree["candidates"]),
                finished=tuple(tree["finished"]),
                under_way=under_way and (under_way[0], _decoded(under_way[1], reader), tuple(under_way[2])),
            )
            snapshot = SearchSnapshot(state, history, tree["seconds"])
        self.continues(history)
        return snapshot


def _encoded(candidate: Candidate, writer: Writer) -> Tree:
    models = [model and asdict(replace(model, outliers=model.outliers.name)) for model in candidate.models]  # type: ignore[arg-type]
    return {
        "name": candidate.name,
        "hypothesis": candidate.hypothesis.name,
        "point": writer.encode(candidate.point),
        "models": models,
        "leverage": [writer.encode(np.asarray(h)) for h in candidate.leverage],
    } | {name: getattr(candidate, name) for name in NUMBERS}


def _decoded(tree: Tree, reader: Reader) -> Candidate:
    models = [item and ScaleMixture(**{**item, "outliers": Outliers[item["outliers"]]}) for item in tree["models"]]
    name, hypothesis, numbers = str(tree["name"]), Outliers[tree["hypothesis"]], [tree[name] for name in NUMBERS]
    return Candidate(
        name, hypothesis, reader.decode(tree["point"]), tuple(models), _arrays(tree["leverage"], reader), *numbers
    )


def _encoded_background(background: Background, writer: Writer) -> Tree:
    return {
        "first": writer.encode(background.first),
        "point": writer.encode(background.point),
        "leverage": [writer.encode(np.asarray(h)) for h in background.leverage],
        "variances": list(background.variances),
        "least_variance": list(background.least_variance),
    }


def _decoded_background(tree: Tree, reader: Reader) -> Background:
    variances, least = tuple(map(float, tree["variances"])), tuple(map(float, tree["least_variance"]))
    first, point = reader.decode(tree["first"]), reader.decode(tree["point"])
    return Background(first, point, _arrays(tree["leverage"], reader), variances, least)


def _arrays(items: list[Tree], reader: Reader) -> tuple[Floats, ...]:
    """Return the arrays of all factor groups, after a check of their lengths."""
    found = tuple(reader.decode(item) for item in items)
    if [len(x) for x in found] != [f.n for f in reader.engine.problem.factors]:
        raise ValueError(f"arrays of {[len(x) for x in found]} observations")
    return found
