"""Problem composed of factors, and the portion of it that a process of a distributed solve has.

    cameras = Variables(poses, manifold=SE3)
    points = Variables(xyz)
    problem = Problem(Factors(reprojection, cameras[i], points[j], data=uv))

minimises Ψ = Σ weightᵢ ψ(‖rᵢ‖) over all variables, where rᵢ = reprojection(cameras[i[k]], points[j[k]], uv[k]).
"""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from asker.kernels.kernel import Kernel
from asker.problem.factors import Factors
from asker.problem.variables import ProblemError, Slot, Variables
from asker.tracing.array_namespace import sum_of_rows
from asker.tracing.unsupported_primitives import cannot_compile


@dataclass(frozen=True, eq=False)
class Portion:
    """Portion of a problem that one of several processes has.

    One group of variables is partitioned over the processes, and each observation is on one of them; all other
    variables are replicated.  The result of a solve is that of the whole problem.
    """

    variables: Variables
    """Partitioned variables, those of this process."""
    numbers: np.ndarray
    """Number of each of these variables in the whole problem."""
    n_variables: int
    """Number of partitioned variables in the whole problem."""
    observations: tuple[np.ndarray, ...]
    """Number of each observation of this process in the whole problem, for each factor group."""
    n_observations: tuple[int, ...]
    """Number of observations in the whole problem, for each factor group."""
    in_parts: bool = False
    """True if the result is restricted to this portion."""


class Problem:
    """Robust least-squares problem: factors and the variables that they depend on."""

    def __init__(self, *factors: Factors, portion: Portion | None = None):
        """
        Parameters
        ----------
        *factors
            Groups of factors.
        portion
            Portion of a distributed problem that this one is; None for a whole problem.

        Raises
        ------
        ProblemError
            If there are no observations or no free variables, or if a residual function is invalid.
        """
        if not factors:
            raise ProblemError("a problem needs at least one group of factors")
        for k, f in enumerate(factors):
            if not isinstance(f, Factors):
                raise ProblemError(f"argument {k} of Problem is {type(f).__name__}, expected Factors")
        if portion is not None and not isinstance(portion, Portion):
            raise ProblemError(f"portion is {type(portion).__name__}, expected a Portion")
        self.factors = factors
        groups = [slot.variables for f in factors for slot in f.slots]
        self.variables = tuple(dict.fromkeys(groups))
        for f in factors:
            f.residual_size  # noqa: B018  checks the residual function against the arrays
            if f.uncompiled and not f.warned_uncompiled:
                warnings.warn(f"{f.name}: {cannot_compile(f.uncompiled)}", stacklevel=2)
                f.warned_uncompiled = True
        if not any(v.is_free for v in self.variables):
            raise ProblemError("every variable is fixed (or there are none): nothing to solve for")
        self.portion = portion
        """Portion of a distributed problem that this one is; None for a whole problem."""
        self.unfiltered: Problem | None = None
        """Problem with the observations of weight 0, if this one excludes them."""
        if not sum(self.n_observations):
            raise ProblemError("there are no observations: nothing to fit")
        if portion is not None:
            self._check_portion(portion)

    def under(self, kernels: Sequence[Kernel]) -> "Problem":
        """Return the same problem, on the same variables, under other kernels: one for each factor group."""
        return self.with_factors([f.under(kernel) for f, kernel in zip(self.factors, kernels, strict=True)])

    def with_factors(self, factors: Sequence[Factors]) -> "Problem":
        """Return the same problem, on the same variables, with other factor groups."""
        other = copy(self)
        other.factors = tuple(factors)
        return other

    def beside(self, factors: Sequence[Factors]) -> "Problem":
        """Return a problem with other factors on the same variables, in this process only; all may be fixed."""
        other = self.with_factors(factors)
        other.portion = other.unfiltered = None
        return other

    def only(self, masks: Sequence[np.ndarray]) -> "Problem":
        """Return the same problem, on the same variables, with the observations of a mask for each factor group."""
        pairs = zip(self.factors, masks, strict=True)
        return self.with_factors([f if mask.all() else f.only(np.flatnonzero(mask)) for f, mask in pairs])

    @property
    def n_unknowns(self) -> int:
        """Number of unknowns of the whole problem, also if it is distributed."""
        distributed = self.portion.variables if self.portion else None  # none of these are fixed
        counts = [(v, self.count(v) if v is distributed else int(np.count_nonzero(~v.fixed))) for v in self.variables]
        return sum(n * v.manifold.tangent for v, n in counts if v.is_free)

    @property
    def informative(self) -> "Problem":
        """Same problem without the observations of weight 0, which carry no information."""
        masks = [f.is_informative for f in self.factors]
        if all(mask.all() for mask in masks):
            return self
        if self.portion is not None:
            raise ProblemError("a portion of a problem has observations of weight 0: remove them")
        if not any(mask.any() for mask in masks):
            raise ProblemError("every observation has weight 0: nothing to fit")
        other = self.only(masks)
        other.unfiltered = self
        return other

    @property
    def restored(self) -> "Problem":
        """Same problem with the observations of weight 0 that it excludes."""
        if self.unfiltered is None:
            return self
        pairs = zip(self.unfiltered.factors, self.factors, strict=True)
        return self.unfiltered.with_factors([f.with_kernel_and_balance_of(g) for f, g in pairs])

    def with_kernel(self, kernel: Kernel, factors: Factors | str | None = None) -> "Problem":
        """Return the same problem under another kernel.

        Parameters
        ----------
        kernel
            Kernel, whose width applies to residuals without weights.
        factors
            Factor group or its name; by default all groups.
        """
        chosen = self.factors if factors is None else [self._named(factors)]
        return self._with([f.with_kernel(kernel) if f in chosen else f for f in self.factors])

    def with_data(self, data: Any, factors: Factors | str | None = None) -> "Problem":
        """Return the same problem with other data of one factor group.

        Parameters
        ----------
        data
            Data of the same shapes.
        factors
            Factor group or its name; optional if the problem has a single group.
        """
        if factors is None and len(self.factors) > 1:
            raise ProblemError(f"with_data: name one of the factors {', '.join(f.name for f in self.factors)}")
        chosen = self.factors[0] if factors is None else self._named(factors)
        return self._with([f.with_data(data) if f is chosen else f for f in self.factors])

    def with_fixed(self, variables: Variables | str, fixed: bool | np.ndarray = True) -> "Problem":
        """Return the same problem with another mask of fixed variables of a group.

        Parameters
        ----------
        variables
            Group of variables or its name.
        fixed
            Mask of the variables to keep constant, or True for all.  All others of the group become free.
        """
        matches = [v for v in self.variables if _matches(variables, v)]
        if len(matches) != 1:
            raise ProblemError(f"with_fixed: {len(matches)} groups of variables are {variables!r}")
        replacement = {matches[0]: matches[0].with_fixed(fixed)}
        return self._with([f.with_variables(replacement) for f in self.factors])

    def _named(self, factors: Factors | str) -> Factors:
        matches = [f for f in self.factors if _matches(factors, f)]
        if len(matches) != 1:
            raise ProblemError(f"{len(matches)} groups of factors are {factors!r}")
        return matches[0]

    def _with(self, factors: Sequence[Factors]) -> "Problem":
        return Problem(*factors, portion=self.portion)

    def __repr__(self) -> str:
        return "Problem(" + ", ".join(map(repr, self.factors)) + ")"

    def count(self, variables: Variables) -> int:
        """Return the number of variables of a group in the whole problem."""
        return self.portion.n_variables if self.portion and variables is self.portion.variables else len(variables)

    @property
    def n_observations(self) -> tuple[int, ...]:
        """Number of observations of each factor group in the whole problem."""
        return self.portion.n_observations if self.portion else tuple(f.n for f in self.factors)

    def _numbers(self, slot: Slot) -> np.ndarray:
        """Return the variable of each observation of a slot, by number in the whole problem."""
        is_partitioned = self.portion and slot.variables is self.portion.variables
        return self.portion.numbers[slot.index] if self.portion and is_partitioned else slot.index

    def _check_portion(self, portion: Portion) -> None:
        v = portion.variables
        if v not in self.variables or v.fixed.any():
            raise ProblemError(f"portion: {v.name} must be variables of the problem, none of them fixed")
        if len(portion.numbers) != len(v):
            raise ProblemError(f"portion: {len(portion.numbers)} numbers for {len(v)} {v.name}")
        sizes = [len(numbers) for numbers in portion.observations]
        if sizes != [f.n for f in self.factors] or len(portion.n_observations) != len(sizes):
            raise ProblemError(f"portion: observations have lengths {sizes}, expected {[f.n for f in self.factors]}")

    @property
    def is_linear(self) -> bool:
        """True if the traces show that every residual is affine in the variables."""
        return all(f.is_linear for f in self.factors)

    @property
    def n_residuals(self) -> int:
        """Number of observations over all groups, in this process."""
        return sum(f.n for f in self.factors)

    def fingerprint(self, added_up: Callable[[np.ndarray], np.ndarray] = lambda sums: sums) -> bytes:
        """Return a digest of everything that determines the result: functions, arrays, and specified noise scales.

        It is the same for a portion of a problem and for the whole.  Arrays enter as sums over their rows, which
        `added_up` adds over all processes.  NumPy functions are excluded, since they cannot be traced.
        """
        portion, texts, sums, is_partitioned = self.portion, [], [], []

        def add(array: Any, numbers: np.ndarray | None) -> None:
            if isinstance(array, np.ndarray):
                sums.append(sum_of_rows(array, numbers))
                is_partitioned.append(numbers is not None)
            else:
                texts.append(repr(array))

        for v in self.variables:
            texts.append(f"{v.name} {v.manifold} {self.count(v)}")
            numbers = portion.numbers if portion and v is portion.variables else None
            add(v.rows, numbers)
            add(v.fixed, numbers)
        for k, f in enumerate(self.factors):
            texts.append(f"{f.name} {self.n_observations[k]} {f.residual_size} {f.kernel} {f.digest().hex()}")
            texts.append(f"{f.noise_is_known} {f.weight_is_precision} {f.linear} {[str(d.dtype) for d in f.data]}")
            for array in (f.weight, f.tau, *[self._numbers(s) for s in f.slots], *f.data):
                add(array, portion.observations[k] if portion else None)
        local = np.array(sums, dtype=np.uint64)
        total = np.where(is_partitioned, added_up(local), local)
        return hashlib.sha256(repr(texts).encode() + total.tobytes()).digest()


def _matches(key: object, group: Variables | Factors) -> bool:
    """Return whether a key denotes a group: the group itself, the group that it is a copy of, or its name."""
    return key is group or key is group.origin or (isinstance(key, str) and key == group.name)
