"""The problem that factors make, and the portion of one that a process may hold.

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
    """The portion of a larger problem that one of several processes holds.

    One group of variables is dealt to the processes, and every observation is with one of them; all other variables
    are whole in each.  What a solve returns is of the whole problem.
    """

    variables: Variables
    """Those that are dealt; the group has this process's own ones."""
    numbers: np.ndarray
    """The number of each of them in the whole problem,"""
    n_variables: int
    """which has so many."""
    observations: tuple[np.ndarray, ...]
    """For each factor group: the number of each own observation in the whole problem,"""
    n_observations: tuple[int, ...]
    """which has so many."""
    in_parts: bool = False
    """Whether a result is of this portion alone, and not of the whole problem."""


class Problem:
    """Factors and the variables they touch."""

    def __init__(self, *factors: Factors, portion: Portion | None = None):
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
            if f.left_out and not f.is_told:
                warnings.warn(f"{f.name}: {cannot_compile(f.left_out)}", stacklevel=2)
                f.is_told = True
        if not any(v.is_free for v in self.variables):
            raise ProblemError("every variable is fixed (or there are none): nothing to solve for")
        self.portion = portion
        """What of a larger problem this is, where several processes solve one together."""
        self.given: Problem | None = None
        """The problem with its observations of weight 0, where this one leaves them out."""
        if not sum(self.n_observations):
            raise ProblemError("there are no observations: nothing to fit")
        if portion is not None:
            self._check_portion(portion)

    def under(self, kernels: Sequence[Kernel]) -> "Problem":
        """The same problem, on the same variables, under other kernels: one for each factor group."""
        return self.with_factors([f.under(kernel) for f, kernel in zip(self.factors, kernels, strict=True)])

    def with_factors(self, factors: Sequence[Factors]) -> "Problem":
        """The same problem, on the same variables, with each factor group changed."""
        other = copy(self)
        other.factors = tuple(factors)
        return other

    def beside(self, factors: Sequence[Factors]) -> "Problem":
        """Other factors on the same variables, all of which may be fixed for them; a problem of this process alone."""
        other = self.with_factors(factors)
        other.portion = other.given = None
        return other

    def only(self, masks: Sequence[np.ndarray]) -> "Problem":
        """The same problem, on the same variables, with some of the observations of each factor group alone."""
        pairs = zip(self.factors, masks, strict=True)
        return self.with_factors([f if mask.all() else f.only(np.flatnonzero(mask)) for f, mask in pairs])

    @property
    def n_unknowns(self) -> int:
        """The number of unknowns of the whole problem, also where several processes hold portions of it."""
        distributed = self.portion.variables if self.portion else None  # none of these are fixed
        counts = [(v, self.count(v) if v is distributed else int(np.count_nonzero(~v.fixed))) for v in self.variables]
        return sum(n * v.manifold.tangent for v, n in counts if v.is_free)

    @property
    def informative(self) -> "Problem":
        """The same problem without the observations of weight 0, which carry no information."""
        masks = [f.is_informative for f in self.factors]
        if all(mask.all() for mask in masks):
            return self
        if self.portion is not None:
            raise ProblemError("a portion of a problem has observations of weight 0: leave them out")
        if not any(mask.any() for mask in masks):
            raise ProblemError("every observation has weight 0: nothing to fit")
        other = self.only(masks)
        other.given = self
        return other

    @property
    def restored(self) -> "Problem":
        """The same problem with the observations of weight 0 that it leaves out."""
        if self.given is None:
            return self
        pairs = zip(self.given.factors, self.factors, strict=True)
        return self.given.with_factors([f.solved_as(g) for f, g in pairs])

    def with_kernel(self, kernel: Kernel, factors: Factors | str | None = None) -> "Problem":
        """The same problem under another kernel: that of one factor group, or of all when none is named."""
        chosen = self.factors if factors is None else [self._named(factors)]
        return self._with([f.with_kernel(kernel) if f in chosen else f for f in self.factors])

    def with_data(self, data: Any, factors: Factors | str | None = None) -> "Problem":
        """The same problem with other data of one factor group; when there is one alone, it need not be named."""
        if factors is None and len(self.factors) > 1:
            raise ProblemError(f"with_data: name one of the factors {', '.join(f.name for f in self.factors)}")
        chosen = self.factors[0] if factors is None else self._named(factors)
        return self._with([f.with_data(data) if f is chosen else f for f in self.factors])

    def with_fixed(self, variables: Variables | str, fixed: bool | np.ndarray = True) -> "Problem":
        """The same problem with these variables of a group fixed, and no others of it: a mask, or True for all."""
        found = [v for v in self.variables if _is_meant(variables, v)]
        if len(found) != 1:
            raise ProblemError(f"with_fixed: {len(found)} groups of variables are {variables!r}")
        instead = {found[0]: found[0].holding(fixed)}
        return self._with([f.among(instead) for f in self.factors])

    def _named(self, factors: Factors | str) -> Factors:
        found = [f for f in self.factors if _is_meant(factors, f)]
        if len(found) != 1:
            raise ProblemError(f"{len(found)} groups of factors are {factors!r}")
        return found[0]

    def _with(self, factors: Sequence[Factors]) -> "Problem":
        return Problem(*factors, portion=self.portion)

    def __repr__(self) -> str:
        return "Problem(" + ", ".join(map(repr, self.factors)) + ")"

    def count(self, variables: Variables) -> int:
        """How many there are in the whole problem."""
        return self.portion.n_variables if self.portion and variables is self.portion.variables else len(variables)

    @property
    def n_observations(self) -> tuple[int, ...]:
        """Of each factor group, in the whole problem."""
        return self.portion.n_observations if self.portion else tuple(f.n for f in self.factors)

    def _numbers(self, slot: Slot) -> np.ndarray:
        """Which variables a slot touches, by their numbers in the whole problem."""
        is_dealt = self.portion and slot.variables is self.portion.variables
        return self.portion.numbers[slot.index] if self.portion and is_dealt else slot.index

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
        """Whether every residual is seen to be affine in the variables."""
        return all(f.is_linear for f in self.factors)

    @property
    def n_residuals(self) -> int:
        """How many residual vectors there are, over all groups."""
        return sum(f.n for f in self.factors)

    def fingerprint(self, added_up: Callable[[np.ndarray], np.ndarray] = lambda sums: sums) -> bytes:
        """A digest of all that decides the answer: functions, numbers, and what is known of the noise.

        It is the same for a portion of a problem and for the whole.  Arrays enter by sums over their rows; `added_up`
        adds those of all processes.  NumPy functions do not enter: nothing tells what they compute.
        """
        portion, texts, sums, is_dealt = self.portion, [], [], []

        def add(array: Any, numbers: np.ndarray | None) -> None:
            if isinstance(array, np.ndarray):
                sums.append(sum_of_rows(array, numbers))
                is_dealt.append(numbers is not None)
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
        own = np.array(sums, dtype=np.uint64)
        total = np.where(is_dealt, added_up(own), own)
        return hashlib.sha256(repr(texts).encode() + total.tobytes()).digest()


def _is_meant(asked: object, group: Variables | Factors) -> bool:
    """Whether a user asks for this group: by itself, by the group that it was made from, or by its name."""
    return asked is group or asked is group.origin or (isinstance(asked, str) and asked == group.name)
