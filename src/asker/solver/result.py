"""What a solve returns."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from asker.io.files import FileError, FilePath
from asker.io.npz import Arrays, Tree, read_npz, signed, write_npz
from asker.problem.by_group import Groups, count
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables
from asker.solver.result_table import as_html, as_text, table
from asker.solver.saved_result import PER_FACTOR, check
from asker.statistics.inliers import Classified, classify, inflection, squares
from asker.statistics.scale import Noise, estimate
from asker.version import __version__

T = TypeVar("T")
KIND, FORMAT = "result", 1
LAST_STEPS = 10


class Status(Enum):
    """Why the solver stopped; the value is the sentence for the user."""

    CONVERGED = "the relative decrease of the cost fell below `tol`, or below what the noise lets one tell"
    MAX_ITERATIONS = "reached `max_iterations`; the result may not be a minimum"
    TIME_LIMIT = "reached `time_limit`; the result may not be a minimum"
    STALLED = "no step was accepted up to the largest damping"
    AT_BORDER = "steps that may lower the cost further lead to where residuals are not finite"
    STOPPED = "`on_iteration` asked to stop"
    INTERRUPTED = "interrupted; this is the best point seen so far"


@dataclass(frozen=True, eq=False)
class Iteration:
    """One line of the history; number 0 is the start."""

    iteration: int
    cost: float
    """Ψ at the current point."""
    best_cost: float
    """The lowest Ψ so far.  Where the noise is estimated, every stage has kernels, and so a Ψ, of its own; the first
    and the last line are those of the start and of the result."""
    seconds: float
    """Since the start, compilation included."""
    damping: float
    accepted: bool
    details: dict[str, Any] = field(default_factory=dict)
    """What the strategy adds: its own objectives, its level."""

    def as_dict(self) -> dict[str, Any]:
        """All of it in one table, the details among the rest."""
        plain = {f.name: getattr(self, f.name) for f in fields(Iteration)}
        return plain | plain.pop("details")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iteration) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class HowSure:
    """Functions of a result that say how sure it is: they are made of all that stands above results."""

    uncertainty: Callable[..., Any]
    leverage: Callable[..., Groups[Any]]
    doubts: Callable[..., tuple[str, ...]]
    undetermined: Callable[..., str]
    """Names the unknowns that a linear model and weights do not determine."""


@dataclass(frozen=True, eq=False)
class Result:
    """The best point seen, and how it was reached.

    What belongs to a group of variables or factors is found by the group, its name or its position: see `Groups`.
    `save` keeps everything but the problem, whose residual functions are code; `load` reads it back.
    """

    problem: Problem | None
    """None in a result that was loaded."""
    values: Groups[Any]
    """The variables at the best point, shaped as they were given; also `result[variables]`, `result["name"]`."""
    cost: float
    """Ψ at the best point."""
    initial_cost: float
    status: Status
    history: list[Iteration]
    residuals: Groups[np.ndarray]
    """(n, p) for each factor group."""
    weights: Groups[np.ndarray]
    """ω of each residual, for each factor group; 0 where the observation has weight 0."""
    informative: Groups[np.ndarray]
    """Masks: whether an observation has a positive weight.  The others are left out of every statistic."""
    seconds: dict[str, float]
    """Time spent in `evaluate`, `linearise` and `solve` (with its parts `assemble` and `factorise`), and in `total`."""
    strategy: Any
    """With its settings; a text in a result that was loaded."""
    engine: str
    linear_solver: str
    """What was used, where `auto` was asked for."""
    relative_damping: bool
    """Whether λ diag(H) was added in place of λI."""
    found_noise: tuple[Noise, ...] | None = None
    """What was found while solving, where it was not known."""
    known_inliers: Classified | None = None
    """The inliers where they are known already: where the noise was found, in a portion of a problem, and in a result
    that was loaded."""
    possible: Sequence[np.ndarray] | None = None
    """Masks of the observations that `valid=` does not exclude; None where there is no such condition.  `save` leaves
    them out."""
    found_doubts: tuple[str, ...] = ()
    """The part of `doubts` that the solve itself has found."""
    unwritten: str = ""
    """Why the last checkpoint could not be written, if so; `save` leaves it out."""
    continued_from: int = 0
    """The iteration of an earlier run that this one went on from, by its checkpoint; `save` leaves it out."""
    how_sure: "HowSure | None" = None
    """What says how sure this is; `save` leaves it out."""

    def __getitem__(self, variables: Variables | str | int) -> Any:
        return self.values[variables]

    def __getstate__(self) -> dict[str, Any]:
        """For a pickle and a deep copy, which compute uncertainties anew when they are asked for."""
        return {name: value for name, value in vars(self).items() if name != "_uncertainty"}

    @property
    def x(self) -> Any:
        """The answer of a problem with a single variable, as in SciPy."""
        if len(self.values) != 1 or count(self.values[0]) != 1:
            raise AttributeError("`x` is for problems with one variable; use `result[variables]`")
        value = self.values[0]
        return tuple(part[0] for part in value) if isinstance(value, tuple) else value[0]

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against relying on the result, a sentence each."""
        return self.found_doubts + (() if self.how_sure is None else self.how_sure.doubts(self))

    @cached_property
    def noise(self) -> Groups[Noise]:
        """The noise that the residuals of each factor group show, with the share of inliers and the τ that follows.

        It is seen in the solution as it is: where the kernel was far too narrow or too wide for the noise, solve again
        with that τ, and look again.
        """
        noises = self.classified.noises
        if len(noises) != len(self.residuals):
            raise AttributeError("this result was saved by an earlier version, without its noise")
        return self._by_group(noises)

    @cached_property
    def inliers(self) -> Groups[np.ndarray]:
        """Masks of the inliers of each factor group, by the rule of `asker.statistics.inliers`: ‖r‖²/σ² is at most the
        quantile of the χ² distribution that one inlier in 1000 exceeds, with the σ of `noise`, whatever the kernel."""
        return self._by_group(self.classified.inliers)

    @cached_property
    def classified(self) -> Classified:
        """The inliers by the noise that the residuals show."""
        if self.known_inliers is not None:
            return self.known_inliers
        own = self.of_informative
        assert own.problem is not None
        factors = own.problem.factors
        u = squares(factors, tuple(own.residuals))
        found = classify(factors, u, estimate(factors, u), own.possible)
        masks = [mask.copy() for mask in self.informative]
        for mask, inliers in zip(masks, found.inliers, strict=True):
            mask[mask] = inliers
        return found._replace(inliers=tuple(masks))

    @property
    def within_inflection(self) -> Groups[np.ndarray]:
        """Masks of the observations within the inflection point of their kernel, ‖r‖ ≤ τ/√3 for the smooth truncated
        one: those that Le and Zach count as inliers.  It depends on the kernel, and not on the noise."""
        if self.problem is None or self.problem.portion is not None:
            raise AttributeError("the inflection point needs the whole problem: ask before `save`")
        norms = [np.linalg.norm(r, axis=1) for r in self.residuals]
        masks = [r <= inflection(f) for f, r in zip(self.problem.factors, norms, strict=True)]
        possible = self.informative if self.possible is None else self.possible
        return self._by_group([mask & ok for mask, ok in zip(masks, possible, strict=True)])

    def _by_group(self, items: Sequence[T]) -> Groups[T]:
        """One item for each factor group."""
        return Groups(items, self.residuals.names, self.problem.factors if self.problem else None)

    @cached_property
    def of_informative(self) -> "Result":
        """The same result without the observations of weight 0: what statistics are made of."""
        assert self.problem is not None
        problem = self.problem.informative
        if problem is self.problem:
            return self

        def of(items: Sequence[np.ndarray]) -> Groups[np.ndarray]:
            own = [x[mask] for x, mask in zip(items, self.informative, strict=True)]
            return Groups(own, self.residuals.names, problem.factors)

        parts: dict[str, Any] = {what: of(getattr(self, what)) for what in ("residuals", "weights", "informative")}
        known, possible = self.known_inliers, self.possible
        return replace(
            self,
            problem=problem,
            possible=None if possible is None else of(possible),
            known_inliers=None if known is None else known._replace(inliers=tuple(of(known.inliers))),
            **parts,
        )

    def uncertainty(self, **asked: Any) -> Any:
        """How sure this result is: `asker.uncertainty.covariance.Uncertainty`, with its options `datum`, `sandwich` and
        `sigma`.

        The last one is held, so that several questions cost one factorisation.
        """
        if self.how_sure is None:
            raise ProblemError("a loaded result has no problem, which covariances need: ask before `save`")
        asked = {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in asked.items()}
        last = self.__dict__.get("_uncertainty")
        if last is None or last[0] != asked:
            last = asked, self.how_sure.uncertainty(self, **asked)
            object.__setattr__(self, "_uncertainty", last)
        return last[1]

    def covariance(self, what: Any, other: Any = None, **asked: Any) -> Any:
        """The covariance of single variables, (n, d, d): of steps on their manifold, at the solution.

        what   variables, some of them (`points[[3, 5]]`), or all by their name
        other  as many others: then blocks of pairs, each variable with the one in the same place
        asked  `datum`, `sandwich` and `sigma`, as `asker.uncertainty.covariance.Uncertainty` has them
        """
        return self.uncertainty(**asked).covariance(what, other)

    def standard_errors(self, what: Any, **asked: Any) -> np.ndarray:
        """The roots of the diagonals of `covariance`, (n, d)."""
        return self.uncertainty(**asked).standard_errors(what)

    def interval(self, what: Any, level: float = 0.95, **asked: Any) -> np.ndarray:
        """How far the truth is from each number at most, with this probability, (n, d); infinite where what holds a
        variable is too likely to agree by chance, NaN where the data do not determine the number.  A number that moves
        with the gauge is determined only relative to a `datum` that is named among `asked`."""
        return self.uncertainty(**asked).interval(what, level)

    @cached_property
    def leverage(self) -> Groups[Any]:
        """`asker.uncertainty.leverage.Leverage` of each factor group: how much of every observation the fit has used
        up."""
        uncertainty = self.uncertainty()
        assert self.how_sure is not None
        return self.how_sure.leverage(uncertainty, self.informative)

    @property
    def iterations(self) -> int:
        """How many linear solves it took; a refused step counts as one."""
        return self.history[-1].iteration

    @property
    def message(self) -> str:
        """Why the solver stopped, and how much its last steps still gained where it could have gone on; not where the
        noise was estimated, since stages have different costs."""
        n = min(LAST_STEPS, self.iterations)
        said = f"{self.status.value}; the checkpoint was not written" if self.unwritten else self.status.value
        is_cut_short = self.status in (Status.MAX_ITERATIONS, Status.TIME_LIMIT)
        if not is_cut_short or not n or self.found_noise is not None:  # each stage has a cost of its own
            return said
        before, after = self.history[-1 - n].best_cost, self.history[-1].best_cost
        gain = (before - after) / before if before else 0.0
        return f"{said} (the last {n} steps lowered the cost by {100 * gain:.3g} %)"

    @property
    def inlier_ratio(self) -> float:
        """The share of inliers among the observations of all factor groups whose weight is not 0."""
        return sum(self.classified.n_inliers) / max(sum(self.classified.n_informative), 1)

    def save(self, path: FilePath) -> None:
        """Write everything but the problem to an `.npz` file, whole or not at all."""
        write_npz(path, *_packed(self))

    @classmethod
    def load(cls, path: FilePath) -> "Result":
        """Read what `save` wrote.  A `FileError` names a file that is no result, or a broken or a newer one."""
        tree, arrays = read_npz(path, KIND)
        if tree.get("kind") != KIND:
            raise FileError(path, "this is no result of asker")
        if tree.get("format") != FORMAT:
            found = f"format {tree.get('format')} (asker {tree.get('version')})"
            raise FileError(path, f"this result has {found}, and asker {__version__} reads format {FORMAT}")
        try:
            return cls(**_unpacked(tree, arrays))
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
            raise FileError(path, f"this is a broken result of asker ({error})") from error

    def __repr__(self) -> str:
        return (
            f"Result(cost {self.initial_cost:.6g} -> {self.cost:.6g}, inliers {self.inlier_ratio:.1%}, "
            f"{self.iterations} iterations in {self.seconds['total']:.3g} s: {self.status.value})"
        )

    def __str__(self) -> str:
        return as_text(table(self))

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        return as_html(table(self))


def _packed(result: Result) -> tuple[Tree, Arrays]:
    """As a table and named arrays, for `io.npz`."""
    arrays: Arrays = {}
    seen = result.classified

    def add(item: Any) -> Any:
        """The name of an array, or a list of those of a tuple's parts."""
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
            for name, *items in zip(result.inliers.names, *(getattr(result, what) for what in PER_FACTOR), strict=True)
        ],
        "noise": [_plain(asdict(noise)) for noise in seen.noises] or None,
        "finds_noise": result.found_noise is not None,
        "inliers": _plain([seen.n_inliers, seen.n_informative]),
        "doubts": list(result.doubts),
        "status": result.status.name,
        "history": [_plain(asdict(line)) for line in result.history],
        "seconds": _plain(result.seconds),
        "strategy": result.strategy if isinstance(result.strategy, str) else repr(result.strategy),
    }  # fmt: skip
    for name, kind in PLAIN.items():
        tree[name] = kind(getattr(result, name))
    return signed(tree, arrays), arrays


PLAIN = {"cost": float, "initial_cost": float, "engine": str, "linear_solver": str, "relative_damping": bool}


def _plain(x: Any) -> Any:
    """The same for JSON."""
    if isinstance(x, dict):
        return {str(key): _plain(item) for key, item in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(item) for item in x]
    if isinstance(x, np.generic | np.ndarray):
        return x.tolist()
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeError(f"a history with a {type(x).__name__} in its details cannot be saved")


def _unpacked(tree: Tree, arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a `Result`, all of them checked."""
    check(tree, arrays)

    def found(item: Any) -> Any:
        return tuple(found(part) for part in item) if isinstance(item, list) else arrays[item]

    rows = [[arrays[key] for key in row[1:]] for row in tree["factors"]]
    rows = [row if len(row) == len(PER_FACTOR) else [*row, np.ones(row[2].shape, dtype=bool)] for row in rows]  # 0.2
    factors = dict(zip(PER_FACTOR, zip(*rows, strict=True), strict=True))
    names = [name for name, *_ in tree["factors"]]
    known = _classified(tree, factors.pop("inliers"))
    return {
        **{name: tree[name] for name in PLAIN},
        "found_noise": known.noises if tree.get("finds_noise", True) and known.noises else None,
        "known_inliers": known,
        "found_doubts": tuple(tree.get("doubts", ())),
        **{what: Groups(items, names) for what, items in factors.items()},
        "problem": None,
        "values": Groups([found(item) for _, item in tree["variables"]], [name for name, _ in tree["variables"]]),
        "status": Status[tree["status"]],
        "history": [Iteration(**{key: _frozen(x) for key, x in line.items()}) for line in tree["history"]],
        "seconds": tree["seconds"],
        "strategy": tree["strategy"],
    }


def _classified(tree: Tree, masks: Sequence[np.ndarray]) -> Classified:
    """The inliers; earlier versions have saved no counts, and noise only where it was sought."""
    noises = tuple(Noise(**{key: float(x) for key, x in one.items()}) for one in tree.get("noise") or ())
    counts: Any = tree.get("inliers") or ([np.count_nonzero(mask) for mask in masks], list(map(len, masks)))
    return Classified(noises, tuple(masks), *map(tuple, counts))


def _frozen(x: Any) -> Any:
    """Sequences in a history are tuples; JSON has lists alone."""
    if isinstance(x, dict):
        return {key: _frozen(item) for key, item in x.items()}
    return tuple(map(_frozen, x)) if isinstance(x, list) else x
