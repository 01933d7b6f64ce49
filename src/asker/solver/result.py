"""Results of a solve: status, history, estimates, residuals, inliers and access to uncertainties."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from asker.io.files import FileError, FilePath
from asker.io.npz import read_npz, write_npz
from asker.problem.by_group import Groups, count
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables
from asker.solver.doubts import Alternative, Doubt
from asker.solver.result_summary import summary
from asker.solver.result_table import as_html, as_text, table
from asker.solver.saved_result import FORMAT, KIND, packed, unpacked
from asker.solver.status import Analysis, Iteration, Status
from asker.statistics.inliers import Classified, classify, inflection, squares
from asker.statistics.noise import Noise
from asker.statistics.scale import estimate
from asker.tracing.trees import mapped
from asker.version import __version__

T = TypeVar("T")
PER_OBSERVATION = ("residuals", "weights", "informative")
"""Fields of a result with one row per observation, for each factor group."""
MESSAGE_STEPS = 10
"""Number of last iterations over which `Result.message` reports the decrease of the cost."""


@dataclass(frozen=True, eq=False)
class Result:
    """Best point evaluated by a solve, with its history and statistics.

    Attributes with one item per group of variables or factors are indexed by the group, its name or its position: see
    `Groups`.  `save` writes everything except the problem, whose residual functions are code; `load` reads it
    back, and `attach` adds the problem.
    """

    problem: Problem | None
    """Problem that was solved; None in a loaded result."""
    values: Groups[Any]
    """Variables at the best point, in the shape of their initial values; also `result[variables]`, `result["name"]`."""
    cost: float
    """Ψ at the best point."""
    initial_cost: float
    """Ψ at the initial guess."""
    status: Status
    history: list[Iteration]
    residuals: Groups[np.ndarray]
    """Residuals of each factor group, (n, p)."""
    weights: Groups[np.ndarray]
    """Kernel weight ω of each observation, for each factor group; 0 for observations of weight 0."""
    informative: Groups[np.ndarray]
    """Masks of the observations with positive weight.  All others are excluded from every statistic."""
    seconds: dict[str, float]
    """Time spent in `evaluate`, `linearise` and `solve` (with its parts `assemble` and `factorise`), and in `total`."""
    strategy: object
    """Strategy with its settings; its text in a loaded result."""
    engine: str
    linear_solver: str
    """Linear solver that was used; with `auto`, the one that was selected."""
    relative_damping: bool
    """True if λ diag(H) was added instead of λI."""
    estimated_noise: tuple[Noise, ...] | None = None
    """Noise of each factor group as estimated during the solve; None if every noise scale was specified."""
    known_inliers: Classified | None = None
    """Inliers, if they are classified: after an estimation of the noise, in a portion, and in a loaded result."""
    possible: Sequence[np.ndarray] | None = None
    """Masks of the observations that `valid=` does not exclude; None without such a condition.  Not saved."""
    found_doubts: tuple[Doubt, ...] = ()
    """Part of `doubts` that the solve itself has reported."""
    alternatives: tuple[Alternative, ...] = ()
    """Other solutions that the data do not exclude, the best first, if the noise was estimated.  Not saved."""
    unwritten: str = ""
    """Error of the last attempt to write a checkpoint, "" if it succeeded.  Not saved."""
    continued_from: int = 0
    """Iteration of the earlier run at which this one was resumed from its checkpoint; 0 for a new run.  Not saved."""
    fitted_kernels: tuple[Any, ...] = ()
    """Kernels that were estimated together with the noise, of a loaded result, for `attach`."""
    analysis: "Analysis | None" = None
    """Functions that compute uncertainties and diagnostics.  Not saved."""

    def __getitem__(self, variables: Variables | str | int) -> Any:
        return self.values[variables]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickles and deep copies, without the cached uncertainty and derivatives."""
        return {name: value for name, value in vars(self).items() if name not in ("_uncertainty", "_derivatives")}

    @property
    def x(self) -> Any:
        """Estimate of a problem with a single variable, as in SciPy."""
        if len(self.values) != 1 or count(self.values[0]) != 1:
            raise AttributeError("`x` is for problems with one variable; use `result[variables]`")
        return mapped(lambda rows: rows[0], self.values[0])

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons not to rely on the result, one sentence each, with their kinds."""
        return self.found_doubts + (() if self.analysis is None else self.analysis.doubts(self))

    @cached_property
    def noise(self) -> Groups[Noise]:
        """Noise of each factor group, estimated from the residuals, with its inlier ratio and a matching τ.

        It is estimated at the returned solution; if the kernel was far too narrow or wide, solve again with that τ.
        """
        noises = self.classified.noises
        if len(noises) != len(self.residuals):
            raise AttributeError("this result was saved by an earlier version of asker, without its noise")
        return self._by_group(noises)

    @cached_property
    def inliers(self) -> Groups[np.ndarray]:
        """Masks of the inliers of each factor group, independent of the kernel.

        An observation is an inlier if ‖r‖²/σ² is at most the 99.9 % quantile of the χ² distribution, with the σ of
        `noise`; see `asker.statistics.inliers`.
        """
        return self._by_group(self.classified.inliers)

    @cached_property
    def classified(self) -> Classified:
        """Inliers, classified by the noise that is estimated from the residuals."""
        if self.known_inliers is not None:
            return self.known_inliers
        informative = self.of_informative
        assert informative.problem is not None
        factors = informative.problem.factors
        u = squares(factors, tuple(informative.residuals))
        classified = classify(factors, u, estimate(factors, u), informative.possible)
        masks = [mask.copy() for mask in self.informative]
        for mask, inliers in zip(masks, classified.inliers, strict=True):
            mask[mask] = inliers
        return classified._replace(inliers=tuple(masks))

    @property
    def within_inflection(self) -> Groups[np.ndarray]:
        """Masks of the observations within the inflection point of their kernel, the inliers of Le and Zach.

        The condition is ‖r‖ ≤ τ/√3 for the smooth truncated kernel; it depends on the kernel, not on the noise.
        """
        if self.problem is None or self.problem.portion is not None:
            raise AttributeError("the inflection point needs the whole problem: result.attach(problem)")
        norms = [np.linalg.norm(r, axis=1) for r in self.residuals]
        masks = [r <= inflection(f) for f, r in zip(self.problem.factors, norms, strict=True)]
        possible = self.informative if self.possible is None else self.possible
        return self._by_group([mask & ok for mask, ok in zip(masks, possible, strict=True)])

    def _by_group(self, items: Sequence[T]) -> Groups[T]:
        """Return `items`, one for each factor group, indexed by group."""
        return Groups(items, self.residuals.names, self.problem.factors if self.problem else None)

    @cached_property
    def of_informative(self) -> "Result":
        """Same result without the observations of weight 0; all statistics are computed from it."""
        assert self.problem is not None
        problem = self.problem.informative
        if problem is self.problem:
            return self

        def selected(items: Sequence[np.ndarray]) -> Groups[np.ndarray]:
            rows = [x[mask] for x, mask in zip(items, self.informative, strict=True)]
            return Groups(rows, self.residuals.names, problem.factors)

        changes: dict[str, Any] = {name: selected(getattr(self, name)) for name in PER_OBSERVATION}
        known, possible = self.known_inliers, self.possible
        return replace(
            self,
            problem=problem,
            possible=None if possible is None else selected(possible),
            known_inliers=None if known is None else known._replace(inliers=tuple(selected(known.inliers))),
            **changes,
        )

    def uncertainty(self, **options: Any) -> Any:
        """Return the uncertainty of this result.

        The last uncertainty is cached, so that several queries cost one factorisation.

        Parameters
        ----------
        **options
            `datum`, `sandwich` and `sigma`, see `asker.Uncertainty`.

        Returns
        -------
        asker.Uncertainty

        Raises
        ------
        ProblemError
            If the result was loaded: covariances need the problem.
        """
        if self.analysis is None:
            raise ProblemError("a loaded result has no problem, which covariances need: result.attach(problem)")
        options = {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in options.items()}
        last = self.__dict__.get("_uncertainty")
        if last is None or last[0] != options:
            last = options, self.analysis.uncertainty(self, **options)
            object.__setattr__(self, "_uncertainty", last)
        return last[1]

    def covariance(self, what: Any, other: Any = None, **options: Any) -> Any:
        """Return covariances of single variables.

        They refer to steps on the manifold of the variables, at the solution.

        Parameters
        ----------
        what
            Variables, some of them (`points[[3, 5]]`), or the name of a group.
        other
            As many variables, for the cross-covariance of each pair.
        **options
            `datum`, `sandwich` and `sigma`, see `asker.Uncertainty`.

        Returns
        -------
        array (n, d, d)
        """
        return self.uncertainty(**options).covariance(what, other)

    def standard_errors(self, what: Any, **options: Any) -> np.ndarray:
        """Return standard errors of single variables, the roots of the diagonals of `covariance`: (n, d)."""
        return self.uncertainty(**options).standard_errors(what)

    def interval(self, what: Any, level: float = 0.95, **options: Any) -> np.ndarray:
        """Return half-widths of confidence intervals of single variables.

        Parameters
        ----------
        what
            Variables, some of them (`points[[3, 5]]`), or the name of a group.
        level
            Confidence level.
        **options
            See `asker.Uncertainty`.  Coordinates that depend on the gauge are determined only relative to a `datum`.

        Returns
        -------
        array (n, d)
            Infinite if the inliers of a variable are too likely to agree by accident, NaN if the data do not determine
            the coordinate.
        """
        return self.uncertainty(**options).interval(what, level)

    def vjp(self, cotangents: Any) -> Any:
        """Return the gradient of a function of the solution with respect to the parameters of the problem.

        It is the vector-Jacobian product of the implicit function theorem, by one linear system: see `asker.Gradients`.

        Parameters
        ----------
        cotangents
            Gradient with respect to the values of the solution, in their shape: a mapping from groups of variables or
            their names, or one array for a single group.  Groups without a gradient count as 0.

        Returns
        -------
        Gradients
            Gradient with respect to data, weights, kernel widths and values of fixed variables.

        Raises
        ------
        ProblemError
            If the solution is no strict minimum, the function depends on undetermined variables, a bound is active with
            a gradient of 0, the noise scale was estimated, or a residual is a NumPy function.
        """
        return self._implicit.vjp(cotangents)

    def jvp(self, *, data: Any = None, weight: Any = None, tau: Any = None, fixed: Any = None) -> Groups[Any]:
        """Return the first-order change of the solution for a change of the parameters; raises as `vjp`.

        Parameters
        ----------
        data, weight, tau
            Change of the data (None for no change), of the weights (n,) and of the kernel widths: a mapping from groups
            of factors or their names, or one item for a single group.
        fixed
            Change of the values of fixed variables: a mapping from groups of variables or their names.
        """
        return self._implicit.jvp(data, weight, tau, fixed)

    @property
    def _implicit(self) -> Any:
        """Derivatives of this result; they are cached, so that several queries cost one factorisation."""
        if "_derivatives" not in self.__dict__:
            if self.analysis is None:
                raise ProblemError("a loaded result has no problem, which derivatives need: result.attach(problem)")
            object.__setattr__(self, "_derivatives", self.analysis.derivatives(self))
        return self.__dict__["_derivatives"]

    @cached_property
    def leverage(self) -> Groups[Any]:
        """Leverage of each observation, an `asker.Leverage` for each factor group."""
        uncertainty = self.uncertainty()
        assert self.analysis is not None
        return self.analysis.leverage(uncertainty, self.informative)

    @property
    def iterations(self) -> int:
        """Number of linear solves; a rejected step counts as one."""
        return self.history[-1].iteration

    @property
    def message(self) -> str:
        """Reason for termination, and the decrease of the last steps if the solve was cut short.

        It is not reported if the noise was estimated, because the costs of stages are not comparable.
        """
        n = min(MESSAGE_STEPS, self.iterations)
        reason = f"{self.status.value}; the checkpoint was not written" if self.unwritten else self.status.value
        is_cut_short = self.status in (Status.MAX_ITERATIONS, Status.TIME_LIMIT)
        if not is_cut_short or not n or self.estimated_noise is not None:
            return reason
        before, after = self.history[-1 - n].best_cost, self.history[-1].best_cost
        decrease = (before - after) / before if before else 0.0
        return f"{reason} (the last {n} steps lowered the cost by {100 * decrease:.3g} %)"

    @property
    def inlier_ratio(self) -> float:
        """Ratio of inliers among the observations of positive weight, over all factor groups."""
        return sum(self.classified.n_inliers) / max(sum(self.classified.n_informative), 1)

    def summary(self, level: float = 0.95) -> str:
        """Return a report: estimates with standard errors and intervals, and the outliers of each factor group.

        Parameters
        ----------
        level
            Level of the intervals.

        Returns
        -------
        str
            Text of at most 80 columns.
        """
        return summary(self, level)

    def save(self, path: FilePath) -> None:
        """Write everything except the problem to an `.npz` file, atomically."""
        write_npz(path, *packed(self))

    @classmethod
    def load(cls, path: FilePath) -> "Result":
        """Return the result that `save` has written.

        Raises
        ------
        FileError
            If the file is not a result, is damaged, or has a newer format.
        """
        tree, arrays = read_npz(path, KIND)
        if tree.get("kind") != KIND:
            raise FileError(path, "this is no result of asker")
        if tree.get("format") != FORMAT:
            version = f"format {tree.get('format')} (asker {tree.get('version')})"
            raise FileError(path, f"this result has {version}, but asker {__version__} reads format {FORMAT}")
        try:
            saved = unpacked(tree, arrays)
            saved["status"] = Status[saved["status"]]
            saved["history"] = [Iteration(**line) for line in saved["history"]]
            return cls(**saved)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
            raise FileError(path, f"this is a broken result of asker ({error})") from error

    def attach(self, problem: Problem) -> "Result":
        """Return a loaded result with its problem, for covariances, leverages and derivatives.

        Parameters
        ----------
        problem
            Problem that was solved, built again from the same data and functions; its initial values may differ.

        Raises
        ------
        ProblemError
            If groups, sizes or residuals are not those of the result.
        """
        from asker.solver.attached import attached

        return attached(self, problem)

    def __repr__(self) -> str:
        return (
            f"Result(cost {self.initial_cost:.6g} -> {self.cost:.6g}, inliers {self.inlier_ratio:.1%}, "
            f"{self.iterations} iterations in {self.seconds['total']:.3g} s: {self.status.value})"
        )

    def __str__(self) -> str:
        return as_text(table(self))

    def _repr_html_(self) -> str:
        """Return the HTML table that a notebook displays."""
        return as_html(table(self))
