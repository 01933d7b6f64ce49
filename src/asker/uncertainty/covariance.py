"""Covariances, standard errors and confidence intervals of a result.

Tangent     A covariance is that of a step δ of each variable on its manifold, at the solution.
Model       C = A⁻¹ B A⁻¹ of `asker.uncertainty.information`: the inliers with their estimated noise.  The sandwich
            estimator has B = Σ ω² Jᵀ r rᵀ J instead, from the residuals themselves: it is robust to misspecified
            weights.
Gauge       Undetermined directions in which many variables move together: `asker.uncertainty.gauge`.
Derivative  If α and β differ between observations, A⁻¹BA⁻¹ is the derivative of (A − tB)⁻¹ at t = 0, by central
            differences: no full inverse is needed, and the error is of the order of RELATIVE_STEP².  If β/α differs by
            orders of magnitude, B is split into parts with a step each, so that rounding does not hide the smaller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import is_number
from asker.engines.linearised import linear_model
from asker.problem.by_group import Groups
from asker.problem.variables import ProblemError, Variables
from asker.solver.result import Result
from asker.uncertainty.active_bounds import at_bounds, report
from asker.uncertainty.coincidence import Seen, chances
from asker.uncertainty.gauge import RelativeInverse, datum_projection
from asker.uncertainty.information import (
    common_factor,
    information,
    inlier_masks,
    require_an_observation,
    similar_ratio_parts,
    squared_norms,
)
from asker.uncertainty.observability import format_parameters, moved_parameters, unsupported_parameters
from asker.uncertainty.selection import Datum, Selection, select_datum, select_variables, stated_scales

if TYPE_CHECKING:
    from asker.engines.inverse_blocks import Columns, Regularisation, RegularisedInverse

Floats = NDArray[np.float64]
RELATIVE_STEP, MAX_STEP_REDUCTIONS = 1e-4, 4
"""Largest t B over A in the central differences, and how often the step may be divided by ten."""
MAX_RELATIVE_ROUNDING_ERROR = 0.1
"""Relative error of a variance above which no covariance is returned."""
MAX_DEGREES_OF_FREEDOM = 1e9
"""Degrees of freedom from which σ counts as known."""


@dataclass(frozen=True, eq=False)
class Covariance:
    """Blocks of a covariance matrix, and the datum that they are relative to."""

    blocks: Floats
    """(n, d, d) of single variables, (n, d, e) of pairs; 0 for fixed variables, NaN for undetermined parameters."""
    gauge: str
    """Description of the undetermined directions and of the datum."""
    undetermined: NDArray[np.bool_]
    """(n,): True if the data do not determine every parameter of the variable."""

    @property
    def standard_errors(self) -> Floats:
        """Square roots of the diagonals, (n, d)."""
        return np.sqrt(np.maximum(np.einsum("nqq->nq", self.blocks), 0.0))


class Uncertainty:
    """Uncertainty of a result, for one choice of noise, datum and covariance estimator.

    Parameters
    ----------
    datum
        The variables relative to which the gauge is taken: one group, some of its variables, or a list of these.
        Without a datum, the parameters that move with the gauge are undetermined.
    sandwich
        Estimate the covariance of the gradient from the residuals themselves.
    sigma
        The noise scale, if it is known: one number, or one for each factor group.

    Raises
    ------
    ProblemError
        If the result has no problem, the noise cannot be estimated, or the matrix cannot be inverted.
    """

    def __init__(
        self,
        result: Result,
        *,
        datum: Datum | None = None,
        sandwich: bool = False,
        sigma: float | Sequence[float] | None = None,
    ):
        from asker.engines.inverse_blocks import SingularError

        if result.problem is None:
            raise ProblemError("a loaded result has no problem, which covariances need: result.attach(problem)")
        if result.problem.portion is not None:
            raise ProblemError("covariances need the whole problem, and this process has only a portion of it")
        result = result.of_informative
        assert result.problem is not None
        problem = result.problem
        self.result, self.problem = result, problem
        self.arguments: dict[str, Any] = {"datum": datum, "sandwich": sandwich, "sigma": sigma}
        stated = stated_scales(sigma, len(problem.factors))
        if datum is not None:
            select_datum(problem, datum)
        theta = tuple(v.at(x).rows for v, x in zip(problem.variables, result.values, strict=True))
        self._units = {v: v.bounds.parts(rows)[3] for v, rows in zip(problem.variables, theta, strict=True) if v.bounds}
        self.model = linear_model(result.engine, problem, theta)
        try:
            plain = self._inverse_of_inliers(stated, datum)
            masks = [of.counted for of in self.information]
            for v, mask in unsupported_parameters(self.model, result.weights, masks, plain).items():
                self.undetermined_parameters[v] |= mask
            self._exclude_bounds(theta)
            self._differences: tuple[RelativeInverse, list[list[tuple[float, RelativeInverse]]]] | None = None
            """The inverse of A, and the terms of each central difference."""
            self._terms = self._weighted_inverses(plain, sandwich)
        except SingularError as error:
            raise ProblemError(f"there is no covariance: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and deep-copy the arguments only; the analysis is computed again."""
        return partial(Uncertainty, **self.arguments), (self.result,)

    # ------------------------------------------------------------ undetermined directions

    def _inverse_of_inliers(self, stated: list[float | None], datum: Datum | None) -> "RegularisedInverse":
        """Return the inverse of ΣJᵀJ over the inliers, without those of zero expected curvature."""
        masks = inlier_masks(self.result, stated)
        while True:
            plain = self.model.inverse([mask.astype(float) for mask in masks])
            self.regularisation = plain.regularisation
            self._read_regularisation(plain.regularisation, plain.null_space if plain.nullity else None, datum)
            self.information = information(self.result, masks, self.n_determined, stated)
            curved = [of.alpha > 0 for of in self.information]
            if all(np.array_equal(mask, other) for mask, other in zip(masks, curved, strict=True)):
                return plain
            masks = require_an_observation(curved)

    def _exclude_bounds(self, theta: tuple[Floats, ...]) -> None:
        """Mark the parameters at bounds, which have no standard error."""
        masks = at_bounds(self.problem.variables, theta)
        for v, mask in masks.items():
            self.undetermined_parameters[v] = self._undetermined(v) | mask
        self.gauge += f"; {report(masks)}" if masks else ""

    def _read_regularisation(
        self, regularisation: "Regularisation", together: "Columns | None", datum: Datum | None
    ) -> None:
        """Set the undetermined parameters and their numbers, and the description of the datum."""
        single = {v: h.is_open.copy() for v, h in regularisation.single.items()}
        self.undetermined_parameters: dict[Variables, NDArray[np.bool_]] = single
        """(n, d) of each group: True for parameters that the data do not determine."""
        self.n_single = sum(int(h.free.sum()) for h in regularisation.single.values())
        """Number of undetermined directions of single variables."""
        self.n_gauge = len(regularisation.unknowns)
        """Number of undetermined directions in which many variables move together."""
        n_unknowns = sum(int((~v.fixed).sum()) * v.manifold.tangent for v in regularisation.single)
        self.n_determined = n_unknowns - self.n_single - self.n_gauge
        """Number of parameters that the fit has determined."""
        none = {v: np.zeros((len(v), v.manifold.tangent, 0)) for v in regularisation.single}
        self._N = self._T = none
        self._datum: list[tuple[Variables, NDArray[np.int64]]] = []
        fixed = ", ".join(f"{int(v.fixed.sum())} of {len(v)} {v.name}" for v in regularisation.single if v.fixed.any())
        directions = "all others" if self.n_single else "all directions"
        with_fixed = f", with {fixed} fixed" if fixed else ""
        self.gauge = f"{self._single_report()}{directions} are determined{with_fixed}"
        if together is not None:
            self._apply_datum(together, datum)

    def _apply_datum(self, N: "Columns", datum: Datum | None) -> None:
        """Take covariances relative to the datum; parameters that it does not fix are undetermined."""
        self._datum = selected = [] if datum is None else select_datum(self.problem, datum)
        free = np.eye(self.n_gauge)
        if selected:
            self._N = N
            self._T, free = datum_projection(N, selected)
        scale = {v: of_v.scale for v, of_v in self.regularisation.single.items()}
        for v, moved in moved_parameters({v: N[v] @ free for v in N}, scale).items():
            self.undetermined_parameters[v] |= moved
        counts = [(v, moved.any(axis=1).sum()) for v, moved in moved_parameters(N, scale).items()]
        names = " and ".join(f"{n} of {len(v)} {v.name}" for v, n in counts if n)
        over = ", ".join(f"{len(index)} {v.name}" for v, index in selected)
        relative = (
            f"covariances are relative to {over}" if selected else "their errors need a datum (datum=...), none is set"
        )
        several, are = ("directions", "are") if self.n_gauge > 1 else ("direction", "is")
        self.gauge = (
            f"{self._single_report()}{self.n_gauge} {several} in which {names} move together {are} not determined by "
            f"the data; {relative}"
            + (f", which leave {free.shape[1]} undetermined" if selected and free.shape[1] else "")
        )

    def _single_report(self) -> str:
        """Return the opening words of `gauge`: parameters of single variables that are undetermined."""
        single = {v: h.is_open for v, h in self.regularisation.single.items()}
        return f"the data do not determine {format_parameters(single)}; " if self.n_single else ""

    @property
    def undetermined(self) -> dict[Variables, NDArray[np.bool_]]:
        """Mask (n,) of each group: True if the data do not determine every parameter of the variable."""
        return {v: np.any(mask, axis=1) for v, mask in self.undetermined_parameters.items()}

    @property
    def n_undetermined(self) -> dict[str, int]:
        """Number of undetermined variables by the name of their group; groups with none are omitted."""
        return {v.name: int(mask.sum()) for v, mask in self.undetermined.items() if mask.any()}

    @property
    def sigma(self) -> Groups[float]:
        """Noise scale of each factor group that the covariances are based on."""
        sigmas = [of.sigma / f.balance for f, of in zip(self.problem.factors, self.information, strict=True)]
        return Groups(sigmas, [f.name for f in self.problem.factors], self.problem.factors)

    # ------------------------------------------------------------ A⁻¹ B A⁻¹

    def _weighted_inverses(self, plain: "RegularisedInverse", sandwich: bool) -> list[tuple[float, RelativeInverse]]:
        """Return the terms of C = Σ factor · S M Sᵀ."""
        factor = None if sandwich else common_factor(self.information)
        if factor is not None:
            return [(factor, self._relative(plain))]
        alpha = [of.alpha for of in self.information]
        weights = zip(self.result.weights, self.information, strict=True)
        b = [w**2 if sandwich else np.zeros_like(w) for w, _ in weights]
        spread = [np.zeros_like(of.beta) if sandwich else of.beta for of in self.information]
        if sandwich:  # corrected for the degrees of freedom
            shares = [
                max(of.n_degrees_of_freedom, 1.0) / max(f.residual_size * of.n_counted, 1)
                for f, of in zip(self.problem.factors, self.information, strict=True)
            ]
            b = [x / share for x, share in zip(b, shares, strict=True)]
            return self._central_difference(plain, alpha, spread, b)
        differences = [self._central_difference(plain, alpha, part) for part in similar_ratio_parts(alpha, spread)]
        middle = self._relative(self.model.inverse(alpha, None, plain.regularisation))
        self._differences = middle, differences
        return [term for difference in differences for term in difference]

    def _central_difference(
        self, plain: "RegularisedInverse", alpha: list[Floats], spread: list[Floats], b: list[Floats] | None = None
    ) -> list[tuple[float, RelativeInverse]]:
        """Return the terms of A⁻¹BA⁻¹ as a central difference; B = Σ spread JᵀJ, or Σ b Jᵀr rᵀJ."""
        from asker.engines.inverse_blocks import SingularError

        t = RELATIVE_STEP * self._largest_step(alpha, spread if b is None else b, b is not None)

        def term(sign: float, t: float) -> tuple[float, RelativeInverse]:
            a = [x + sign * t * y for x, y in zip(alpha, spread, strict=True)]
            radial = None if b is None else [sign * t * x for x in b]
            return -sign / (2 * t), self._relative(self.model.inverse(a, radial, plain.regularisation))

        for _ in range(MAX_STEP_REDUCTIONS):  # outliers enter B as well, and may dominate A
            try:
                return [term(sign, t) for sign in (-1.0, 1.0)]
            except SingularError:
                t /= 10
        return [term(sign, t) for sign in (-1.0, 1.0)]

    def _largest_step(self, alpha: list[Floats], spread: list[Floats], sandwich: bool) -> float:
        """Return the largest t with t B ≤ A for every inlier."""
        sizes = squared_norms(self.result) if sandwich else [np.ones_like(x) for x in spread]
        ratios = []
        for a, s, u in zip(alpha, spread, sizes, strict=True):
            positive = (a > 0) & (s * u > 0)
            ratios += [float((a[positive] / (s * u)[positive]).min())] if positive.any() else []
        return min(ratios)

    def _relative(self, inverse: "RegularisedInverse") -> RelativeInverse:
        return RelativeInverse(inverse, self._N, self._T)

    # ------------------------------------------------------------ for users

    def __repr__(self) -> str:
        sigmas = ", ".join(f"{name} {sigma:.3g}" for name, sigma in self.sigma.items())
        n = self.n_determined + self.n_single + self.n_gauge
        return f"Uncertainty({self.n_determined} of {n} unknowns determined; noise: {sigmas}; {self.gauge})"

    def covariance(self, what: Selection, other: Selection | None = None) -> Covariance:
        """Return the covariance blocks of single variables, or the cross-covariance blocks of pairs.

        Parameters
        ----------
        what
            A group of variables, some variables of it (`points[[3, 5]]`), or the name of a group.
        other
            As many other variables: the blocks are then those of `what[k]` with `other[k]`.
        """
        v, i = self._select(what)
        w, j = (v, i) if other is None else self._select(other)
        if len(i) != len(j):
            raise ProblemError(f"pairs need as many {w.name} as {v.name}, not {len(j)} and {len(i)}")
        is_open = self._undetermined(v)[i][:, :, None] | self._undetermined(w)[j][:, None, :]
        blocks = np.zeros((len(i), v.manifold.tangent, w.manifold.tangent))
        if v in self._N and w in self._N:
            blocks = sum(factor * term.pairs(v, i, w, j) for factor, term in self._terms)  # type: ignore[assignment]
            if other is None and self._differences is not None:
                self._check_rounding(v, i, blocks, is_open)
        blocks = self._unit(v)[i][:, :, None] * blocks * self._unit(w)[j][:, None, :]
        blocks[v.fixed[i] | w.fixed[j]] = 0.0
        blocks[is_open] = np.nan
        return Covariance(blocks, self.gauge, np.any(is_open, axis=(1, 2)))

    def _check_rounding(self, v: Variables, i: NDArray[np.int64], blocks: Floats, is_open: NDArray[np.bool_]) -> None:
        """Raise an error if rounding dominates a variance: second differences are 0 but for rounding."""
        assert self._differences is not None
        middle, differences = self._differences
        twice, error = 2.0 * middle.pairs(v, i, v, i), np.zeros_like(blocks)
        for terms in differences:
            error += max(factor for factor, _ in terms) * np.abs(
                sum(term.pairs(v, i, v, i) for _, term in terms) - twice
            )
        is_lost = error > MAX_RELATIVE_ROUNDING_ERROR * blocks
        is_constant = v.fixed.copy()
        for w, index in self._datum:  # their variances may be 0
            if w is v:
                is_constant[index] = True
        hidden = np.diagonal(~is_open & is_lost, axis1=1, axis2=2) & ~is_constant[i][:, None]
        if hidden.any():
            raise ProblemError(
                f"there is no covariance of {v.name}: the noise scales of the factor groups differ by orders of "
                "magnitude from their kernel widths, and rounding hides the smaller ones: set kernels or weights that "
                "match the noise"
            )

    def standard_errors(self, what: Selection) -> Floats:
        """Return the standard error of each parameter of each variable, (n, d)."""
        return self.covariance(what).standard_errors

    @cached_property
    def _chances(self) -> dict[Variables, Floats]:
        groups = []
        for f, r, u, part in zip(
            self.problem.factors, self.result.residuals, squared_norms(self.result), self.information, strict=True
        ):
            rejected = np.abs(r if f.weight is None else np.sqrt(f.weight)[:, None] * r)[~part.counted]
            outlier_scale = float(np.median(rejected)) if rejected.size else 1.0
            groups.append(Seen(u, part.counted, part.sigma, outlier_scale))
        return chances(self.problem, groups)

    def chance(self, what: Selection) -> Floats:
        """Return the probability that the inliers of each variable agree by accident, (n,); 0 for fixed variables.

        See `asker.uncertainty.coincidence`.
        """
        v, i = self._select(what)
        return np.where(v.fixed, 0.0, self._chances.get(v, 0.0))[i]

    def interval(self, what: Selection, level: float = 0.95) -> Floats:
        """Return the half-width of the confidence interval of each parameter, (n, d).

        The quantile is that of Student's distribution with the degrees of freedom of σ.  The interval is widened for
        the probability that the inliers agree by accident, and is infinite if that exceeds 1 − level.
        """
        from scipy.special import stdtrit

        if not is_number(level) or not 0 < level < 1:
            raise ProblemError(f"level must be between 0 and 1, not {level!r}")
        errors = self.standard_errors(what)
        conditional = level / np.maximum(1 - self.chance(what), level)
        n = min([part.sigma_degrees_of_freedom for part in self.information if part.n_counted])
        factor = stdtrit(min(n, MAX_DEGREES_OF_FREEDOM), (1 + conditional) / 2)
        return np.where(errors == 0, 0.0, factor[:, None] * np.where(errors == 0, 1.0, errors))

    def relative(self, steps: dict[Variables, Floats]) -> dict[Variables, Floats]:
        """Return S δ: steps (n, d) of all free variables relative to the datum, without gauge directions."""
        moved = sum(np.einsum("ndq,nd->q", self._T[v], steps[v]) for v in self._N)
        return {v: steps[v] - np.einsum("ndq,q->nd", self._N[v], moved) for v in self._N}

    def _unit(self, v: Variables) -> Floats:
        """Return the change of each parameter in a unit step, (n, d)."""
        return self._units.get(v, np.ones((len(v), v.manifold.tangent)))

    def _undetermined(self, v: Variables) -> NDArray[np.bool_]:
        return self.undetermined_parameters.get(v, np.zeros((len(v), v.manifold.tangent), dtype=bool))

    def _select(self, what: Selection) -> tuple[Variables, NDArray[np.int64]]:
        return select_variables(self.problem.variables, what)
