"""How sure a result is: covariances of its variables, and what the data do not determine.

Tangent     A covariance is that of a step δ of each variable on its manifold, at the solution.
Model       C = A⁻¹ B A⁻¹ of `asker.uncertainty.information`: the inliers with the noise that they show.  The sandwich
            has B = Σ ω² Jᵀ r rᵀ J instead: what the residuals themselves say, whatever the weights.
Gauge       Where directions N of many variables change no residual, M is any inverse of A there, and

                C = S M Sᵀ,   S = I − N (NᵀDN)⁻¹ NᵀD

            with D = 1 for the variables of the datum and 0 for others: of all solutions that which moves the datum
            least.  With a datum of one pose in a pose graph that is to hold this pose.  Without a datum the numbers
            that N moves are not determined, and C = M for all others.
Slope       Where α and β differ between observations, A⁻¹BA⁻¹ is the slope of (A − tB)⁻¹ at t = 0, by central
            differences: no whole inverse is needed, and the error is of the order of STEP².  Where β/α differs by
            orders of magnitude, B is a sum of parts with a step for each, or rounding would hide the smaller ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import is_number
from asker.problem.by_group import Groups
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Slot, Variables
from asker.solver.result import Result
from asker.statistics.coincidence import Seen, chances
from asker.uncertainty.information import alike, counted, information, one_factor, some_of, squares
from asker.uncertainty.observability import moved_numbers, named, not_pulled

if TYPE_CHECKING:
    from asker.engines.cpu.linearized_problem import LinearModel
    from asker.engines.inverse_blocks import Columns, HeldInverse, Stiffening
    from asker.engines.xla.linearized_problem import DeviceModel

Floats = NDArray[np.float64]
What = Variables | Slot | str
"""Variables, some of them (`points[[3, 5]]`), or all by their name."""
Datum = What | Sequence[What]
STEP, SHORTER_STEPS = 1e-4, 4
"""t B over A, at most, and how often it is made ten times as small."""
LOST = 0.1
"""The part of a variance that rounding may change."""
MANY = 1e9
"""Numbers from which on σ is as good as known."""
HOLDS = 1e-12
"""NᵀDN over NᵀN, below which the datum does not hold a direction."""


@dataclass(frozen=True, eq=False)
class Covariance:
    """Blocks of a covariance, and what they are relative to."""

    blocks: Floats
    """(n, d, d) of single variables, (n, d, e) of pairs; 0 for fixed variables, NaN for numbers not determined."""
    gauge: str
    """Which directions are not determined by the data, and what they are taken relative to."""
    undetermined: NDArray[np.bool_]
    """(n,): whether the data leave a direction of the variable open."""

    @property
    def standard_errors(self) -> Floats:
        """(n, d): roots of the diagonals."""
        return np.sqrt(np.maximum(np.einsum("nqq->nq", self.blocks), 0.0))


class _Relative:
    """C = S M Sᵀ of one inverse M."""

    def __init__(self, inverse: "HeldInverse", N: "Columns", T: "Columns"):
        """T: (NᵀDN)⁻¹ NᵀD, transposed."""
        self.inverse, self.N = inverse, N
        self.X = inverse.solve(T) if next(iter(N.values())).shape[2] else N
        """M Tᵀ"""
        self.Q = sum(np.einsum("ndq,ndr->qr", T[v], self.X[v]) for v in N)
        """T M Tᵀ"""

    def pairs(self, v: Variables, i: Any, w: Variables, j: Any) -> Floats:
        same = v is w and i is j
        M = self.inverse.blocks(v)[i] if same else self.inverse.pairs(v, i, w, j)
        if not self.N[v].shape[2]:
            return M
        N_i, X_i, N_j, X_j = self.N[v][i], self.X[v][i], self.N[w][j], self.X[w][j]
        return M - N_i @ np.swapaxes(X_j - N_j @ self.Q.T, 1, 2) - X_i @ np.swapaxes(N_j, 1, 2)


class Uncertainty:
    """How sure a result is, for one noise, one datum and one kind of model."""

    def __init__(
        self,
        result: Result,
        *,
        datum: Datum | None = None,
        sandwich: bool = False,
        sigma: float | Sequence[float] | None = None,
    ):
        """
        datum     the variables relative to which the gauge is taken, one group or several; when not given, the numbers
                  that move with the gauge are not determined
        sandwich  take the spread of the gradient from the residuals themselves
        sigma     the noise, where it is known: one number, or one for each factor group
        """
        from asker.engines.inverse_blocks import SingularError

        if result.problem is None:
            raise ProblemError("a loaded result has no problem, which covariances need: solve again, or before `save`")
        if result.problem.portion is not None:
            raise ProblemError("covariances need the whole problem, and this process has a portion of it")
        result = result.of_informative
        assert result.problem is not None
        problem = result.problem
        self.result, self.problem = result, problem
        self.asked: dict[str, Any] = {"datum": datum, "sandwich": sandwich, "sigma": sigma}
        given = _given_noise(sigma, len(problem.factors))
        if datum is not None:
            _datum(problem, datum)
        theta = tuple(v.at(x).rows for v, x in zip(problem.variables, result.values, strict=True))
        self._units = {v: v.bounds.parts(rows)[3] for v, rows in zip(problem.variables, theta, strict=True) if v.bounds}
        self.model = linear_model(result.engine, problem, theta)
        try:
            plain = self._counted_and_held(given, datum)
            masks = [of.counted for of in self.information]
            for v, mask in not_pulled(self.model, result.weights, masks, plain).items():
                self.open[v] |= mask
            self._differences: tuple[_Relative, list[list[tuple[float, _Relative]]]] | None = None
            """The inverse, and the terms of each slope, where there are several."""
            self._terms = self._made_terms(plain, sandwich)
        except SingularError as error:
            raise ProblemError(f"there is no covariance: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle and a deep copy have the question, and compute the answer anew."""
        return partial(Uncertainty, **self.asked), (self.result,)

    # ------------------------------------------------------------ what is determined

    def _counted_and_held(self, given: list[float | None], datum: Datum | None) -> "HeldInverse":
        """The inverse of ΣJᵀJ over what counts; what a kernel far narrower than the noise gives up does not."""
        masks = counted(self.result, given)
        while True:
            plain = self.model.inverse([mask.astype(float) for mask in masks])
            self.stiffening = plain.stiffening
            self._read_stiffening(plain.stiffening, plain.together if plain.n_together else None, datum)
            self.information = information(self.result, masks, self.n_determined, given)
            seen = [of.alpha > 0 for of in self.information]
            if all(np.array_equal(mask, some) for mask, some in zip(masks, seen, strict=True)):
                return plain
            masks = some_of(seen)

    def _read_stiffening(self, stiffening: "Stiffening", together: "Columns | None", datum: Datum | None) -> None:
        self.open: dict[Variables, NDArray[np.bool_]] = {v: h.is_open.copy() for v, h in stiffening.single.items()}
        """(n, d) of each group: the numbers that the data do not determine."""
        self.n_single = sum(int(h.free.sum()) for h in stiffening.single.values())
        """Directions of single variables that the data do not determine."""
        self.n_gauge = len(stiffening.unknowns)
        """Directions in which many variables move together, and that the data do not determine."""
        n_unknowns = sum(int((~v.fixed).sum()) * v.manifold.tangent for v in stiffening.single)
        self.n_determined = n_unknowns - self.n_single - self.n_gauge
        """How many numbers the fit has used up."""
        none = {v: np.zeros((len(v), v.manifold.tangent, 0)) for v in stiffening.single}
        self._N = self._T = none
        fixed = ", ".join(f"{int(v.fixed.sum())} of {len(v)} {v.name}" for v in stiffening.single if v.fixed.any())
        what = "all others" if self.n_single else "all directions"
        self.gauge = f"{self._single_told()}{what} are determined" + (f", with {fixed} held" if fixed else "")
        if together is not None:
            self._hold(together, datum)

    def _hold(self, N: "Columns", datum: Datum | None) -> None:
        """Relative to the datum; what it does not hold is not determined."""
        of = [] if datum is None else _datum(self.problem, datum)
        left = self._relative_to(N, of) if of else np.eye(self.n_gauge)
        scale = {v: of_v.scale for v, of_v in self.stiffening.single.items()}
        for v, moved in moved_numbers({v: N[v] @ left for v in N}, scale).items():
            self.open[v] |= moved
        counts = [(v, moved.any(axis=1).sum()) for v, moved in moved_numbers(N, scale).items()]
        names = " and ".join(f"{n} of {len(v)} {v.name}" for v, n in counts if n)
        over = ", ".join(f"{len(index)} {v.name}" for v, index in of)
        relative = (
            f"taken relative to {over}" if of else "errors are known relative to a datum alone, which is not given"
        )
        several = "directions" if self.n_gauge > 1 else "direction"
        are = "are" if self.n_gauge > 1 else "is"
        self.gauge = (
            f"{self._single_told()}{self.n_gauge} {several} in which {names} move together {are} not determined by the "
            f"data; {relative}" + (f", which leave {left.shape[1]} open" if of and left.shape[1] else "")
        )

    def _relative_to(self, N: "Columns", of: list[tuple[Variables, NDArray[np.int64]]]) -> Floats:
        """Take T relative to a datum, and return the combinations of N that this leaves open."""
        D = {v: np.zeros(len(v)) for v in N}
        for v, index in of:
            D[v][index] = 1.0
        whole = sum(np.einsum("ndq,ndr->qr", N[v], N[v]) for v in N)
        held = sum(np.einsum("n,ndq,ndr->qr", D[v], N[v], N[v]) for v in N)
        sizes, U = _generalised(held, whole)
        ok = sizes > HOLDS * max(float(sizes.max()), 1e-300)
        inverse = (U[:, ok] / sizes[ok]) @ U[:, ok].T
        self._N, self._T = N, {v: D[v][:, None, None] * (N[v] @ inverse) for v in N}
        return U[:, ~ok]

    def _single_told(self) -> str:
        """What single variables leave open, before all else."""
        single = {v: h.is_open for v, h in self.stiffening.single.items()}
        return f"the data do not determine {named(single)}; " if self.n_single else ""

    @property
    def undetermined(self) -> dict[Variables, NDArray[np.bool_]]:
        """(n,) of each group: whether the data leave a direction of the variable open."""
        return {v: np.any(mask, axis=1) for v, mask in self.open.items()}

    @property
    def n_undetermined(self) -> dict[str, int]:
        """How many variables of each group the data leave open, by name; groups without such are left out."""
        return {v.name: int(mask.sum()) for v, mask in self.undetermined.items() if mask.any()}

    @property
    def sigma(self) -> Groups[float]:
        """The noise of each factor group, as it entered."""
        sigmas = [of.sigma / f.balance for f, of in zip(self.problem.factors, self.information, strict=True)]
        return Groups(sigmas, [f.name for f in self.problem.factors], self.problem.factors)

    # ------------------------------------------------------------ A⁻¹ B A⁻¹

    def _made_terms(self, plain: "HeldInverse", sandwich: bool) -> list[tuple[float, _Relative]]:
        """C = Σ factor · S M Sᵀ"""
        factor = None if sandwich else one_factor(self.information)
        if factor is not None:
            return [(factor, self._relative(plain))]
        alpha = [of.alpha for of in self.information]
        weights = zip(self.result.weights, self.information, strict=True)
        b = [w**2 if sandwich else np.zeros_like(w) for w, _ in weights]
        spread = [np.zeros_like(of.beta) if sandwich else of.beta for of in self.information]
        if sandwich:  # with as many numbers as are spare
            left = [max(of.n_spare, 1.0) / max(f.residual_size * of.n_counted, 1) for f, of in self._groups()]
            b = [x / share for x, share in zip(b, left, strict=True)]
            return self._slope(plain, alpha, spread, b)
        slopes = [self._slope(plain, alpha, part) for part in alike(alpha, spread)]
        if len(slopes) > 1:
            self._differences = self._relative(plain), slopes
        return [term for slope in slopes for term in slope]

    def _slope(
        self, plain: "HeldInverse", alpha: list[Floats], spread: list[Floats], b: list[Floats] | None = None
    ) -> list[tuple[float, _Relative]]:
        """A⁻¹BA⁻¹ as a central difference; B = Σ spread JᵀJ, or Σ b Jᵀr rᵀJ."""
        from asker.engines.inverse_blocks import SingularError

        t = STEP * self._largest_step(alpha, spread if b is None else b, b is not None)

        def term(sign: float, t: float) -> tuple[float, _Relative]:
            a = [x + sign * t * y for x, y in zip(alpha, spread, strict=True)]
            radial = None if b is None else [sign * t * x for x in b]
            return -sign / (2 * t), self._relative(self.model.inverse(a, radial, plain.stiffening))

        for _ in range(SHORTER_STEPS):  # what does not count pulls too, and may outweigh the little that does
            try:
                return [term(sign, t) for sign in (-1.0, 1.0)]
            except SingularError:
                t /= 10
        return [term(sign, t) for sign in (-1.0, 1.0)]

    def _groups(self) -> Any:
        return zip(self.problem.factors, self.information, strict=True)

    def _largest_step(self, alpha: list[Floats], spread: list[Floats], sandwich: bool) -> float:
        """t with t B ≤ A, observation by observation of those that count."""
        sizes = squares(self.result) if sandwich else [np.ones_like(x) for x in spread]
        ratios = []
        for a, s, u in zip(alpha, spread, sizes, strict=True):
            some = (a > 0) & (s * u > 0)
            ratios += [float((a[some] / (s * u)[some]).min())] if some.any() else []
        return min(ratios)

    def _relative(self, inverse: "HeldInverse") -> _Relative:
        return _Relative(inverse, self._N, self._T)

    # ------------------------------------------------------------ for users

    def __repr__(self) -> str:
        sigmas = ", ".join(f"{name} {sigma:.3g}" for name, sigma in self.sigma.items())
        n = self.n_determined + self.n_single + self.n_gauge
        return f"Uncertainty({self.n_determined} of {n} unknowns determined; noise: {sigmas}; {self.gauge})"

    def covariance(self, what: What, other: What | None = None) -> Covariance:
        """Blocks of single variables; with `other`, of pairs: of each variable with the one in the same place."""
        v, i = self._chosen(what)
        w, j = (v, i) if other is None else self._chosen(other)
        if len(i) != len(j):
            raise ProblemError(f"pairs need as many {w.name} as {v.name}: {len(j)} and {len(i)} were asked for")
        is_open = self._open(v)[i][:, :, None] | self._open(w)[j][:, None, :]
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
        """Refuse variances that rounding hides, by the second differences, which are 0 but for it."""
        assert self._differences is not None
        plain, slopes = self._differences
        twice, error = 2.0 * plain.pairs(v, i, v, i), np.zeros_like(blocks)
        for slope in slopes:
            error += max(factor for factor, _ in slope) * np.abs(
                sum(term.pairs(v, i, v, i) for _, term in slope) - twice
            )
        hidden = np.diagonal(~is_open & (error > LOST * blocks), axis1=1, axis2=2) & ~v.fixed[i][:, None]
        if hidden.any():
            raise ProblemError(
                f"there is no covariance of {v.name}: the noises of the factor groups are orders of magnitude from "
                "what their kernels say, and rounding hides the smaller: give kernels or weights that fit the noise"
            )

    def standard_errors(self, what: What) -> Floats:
        """(n, d): of each direction of each variable."""
        return self.covariance(what).standard_errors

    @cached_property
    def _chances(self) -> dict[Variables, Floats]:
        seen = []
        for f, r, u, part in zip(
            self.problem.factors, self.result.residuals, squares(self.result), self.information, strict=True
        ):
            refused = np.abs(r if f.weight is None else np.sqrt(f.weight)[:, None] * r)[~part.counted]
            typical = float(np.median(refused)) if refused.size else 1.0
            seen.append(Seen(u, part.counted, part.sigma, typical))
        return chances(self.problem, seen)

    def chance(self, what: What) -> Floats:
        """(n,): the probability that what holds a variable agrees by chance (`asker.statistics.coincidence`); 0 for
        fixed ones."""
        v, i = self._chosen(what)
        return np.where(v.fixed, 0.0, self._chances.get(v, 0.0))[i]

    def interval(self, what: What, level: float = 0.95) -> Floats:
        """(n, d): how far the truth is from each number at most, with this probability.

        By Student's distribution, since σ was found from few or many numbers, and at the level that is left once the
        variable may hang on what agrees by chance; infinite where that alone is as likely as 1 − level.
        """
        from scipy.special import stdtrit

        if not is_number(level) or not 0 < level < 1:
            raise ProblemError(f"level must be between 0 and 1, not {level!r}")
        errors = self.standard_errors(what)
        left = level / np.maximum(1 - self.chance(what), level)
        n = min([part.n_behind for part in self.information if part.n_counted])
        factor = stdtrit(min(n, MANY), (1 + left) / 2)
        return np.where(errors == 0, 0.0, factor[:, None] * np.where(errors == 0, 1.0, errors))

    def relative(self, steps: dict[Variables, Floats]) -> dict[Variables, Floats]:
        """Steps (n, d) of all free variables as the datum sees them, S δ: without what is not determined."""
        moved = sum(np.einsum("ndq,nd->q", self._T[v], steps[v]) for v in self._N)
        return {v: steps[v] - np.einsum("ndq,q->nd", self._N[v], moved) for v in self._N}

    def _unit(self, v: Variables) -> Floats:
        """(n, d): what a step of 1 is in each number."""
        return self._units.get(v, np.ones((len(v), v.manifold.tangent)))

    def _open(self, v: Variables) -> NDArray[np.bool_]:
        return self.open.get(v, np.zeros((len(v), v.manifold.tangent), dtype=bool))

    def _chosen(self, what: What) -> tuple[Variables, NDArray[np.int64]]:
        return chosen(self.problem.variables, what)


def chosen(variables: Sequence[Variables], what: What) -> tuple[Variables, NDArray[np.int64]]:
    """The group that is meant, and which of its variables."""
    if isinstance(what, str):
        named = Groups(variables, [v.name for v in variables])[what]
        return named, np.arange(len(named))
    if isinstance(what, Variables):
        what = what[np.arange(len(what))]
    if not isinstance(what, Slot):
        raise ProblemError(f"covariances are of variables, some of them (points[[3, 5]]), or a name, not {what!r}")
    v, index = what.variables, np.atleast_1d(what.index)
    if v not in variables:
        raise ProblemError(f"{v!r} is not part of the problem that was solved")
    if index.dtype.kind not in "iu" or index.ndim != 1:
        raise ProblemError(f"{v.name}: the index must be integers, not {index.dtype} {index.shape}")
    bad = np.flatnonzero((index < 0) | (index >= len(v)))
    if bad.size:
        raise ProblemError(f"{v.name}: the index is {index[bad[0]]} at {bad[0]}, allowed are 0 to {len(v) - 1}")
    return v, index.astype(np.int64)


def linear_model(engine: str, problem: Problem, theta: tuple[Floats, ...]) -> "LinearModel | DeviceModel":
    """On the device where that has solved, and a dense matrix fits; else on the processor."""
    if engine == "xla":
        from asker.engines.xla.linearized_problem import DeviceModel

        if DeviceModel.suits(problem):
            return DeviceModel(problem, theta)
    from asker.engines.cpu.linearized_problem import LinearModel

    return LinearModel(problem, theta)


def _datum(problem: Problem, datum: Datum) -> list[tuple[Variables, NDArray[np.int64]]]:
    """The groups of a datum that are not fixed, and which of their variables."""
    named: Sequence[Any] = datum if isinstance(datum, list | tuple) else [datum]
    of = [chosen(problem.variables, what) for what in named]
    if not any(v.is_free for v, _ in of):
        raise ProblemError(f"datum: all {' and '.join(v.name for v, _ in of) or 'of nothing'} are fixed")
    return [(v, np.unique(index)) for v, index in of if v.is_free]


def _given_noise(sigma: float | Sequence[float] | None, n: int) -> list[float | None]:
    if sigma is None:
        return [None] * n
    given: list[Any] = [sigma] * n if np.ndim(sigma) == 0 else list(sigma)  # type: ignore[arg-type]
    if len(given) != n:
        raise ProblemError(f"sigma has {len(given)} numbers for {n} groups of factors")
    if not all(is_number(x) and 0 < x < np.inf for x in given):
        raise ProblemError(f"sigma must be positive and finite, not {sigma!r}")
    return [float(x) for x in given]


def _generalised(held: Any, whole: Any) -> tuple[Floats, Floats]:
    """Eigenvalues and vectors of NᵀDN, with N taken as orthonormal: Uᵀ whole U = 1."""
    from scipy.linalg import eigh

    return eigh(held, whole)
