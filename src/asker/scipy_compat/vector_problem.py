"""A function of one vector that returns all residuals, as a problem: what `least_squares` and `curve_fit` solve."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.io.interrupts import interruptible
from asker.kernels.kernel import Kernel
from asker.problem.problem import Factors, Problem, ProblemError, Variables
from asker.scipy_compat.finite_differences import POWERS, differences
from asker.tracing.affine import is_affine
from asker.tracing.array_namespace import float64, numbers, shaped

Floats = NDArray[np.float64]
MOST_KEPT = 1 << 21
"""Numbers that are remembered of a function, and of its derivatives."""
VALUE, JACOBIAN = "the value of fun", "the value of jac"
"""What a user's functions return, in messages."""


class Functions:
    """A user's function of x with its derivatives, as NumPy arrays; the last points are remembered, and calls counted.

    Derivatives are asked for as "auto": by JAX where the function is one of JAX's, else "2-point"; as "jax"; as one of
    `differences`; or as a function of x that returns an array, a sparse matrix or a linear operator.
    """

    def __init__(
        self,
        fun: Callable[[Any], Any],
        start: Floats,
        derivatives: Any = "auto",
        lower: Floats | float = -np.inf,
        upper: Floats | float = np.inf,
        step: Any = None,
    ):
        with float64() if "jax" in sys.modules else nullcontext():
            told = fun(start.copy())
        self.is_jax = derivatives == "jax" or type(told).__module__.startswith("jax")
        self.way = derivatives if derivatives != "auto" else "jax" if self.is_jax else "2-point"
        if not callable(self.way) and self.way not in ("jax", *POWERS):
            raise ValueError(f"derivatives: one of auto, jax, {', '.join(POWERS)}, or a function, not {self.way!r}")
        self.fun, self.start, self.lower, self.upper, self.step = fun, start, lower, upper, step
        self.pattern: NDArray[np.bool_] | None = None
        """(n, d): where derivatives may be other than 0, for differences."""
        self.given: Any = None
        """What a user's function of derivatives returned last."""
        self.n_calls = self.n_derivatives = 0
        self._by_jax: dict[int, Callable[[Any], Any]] = {}
        self._known: dict[bytes, Any] = {}
        self._derived: dict[bytes, Any] = {}
        self.shape = np.atleast_1d(numbers(VALUE, told)).shape
        f = self._checked(told, start)
        if not self.is_jax:
            self._remember(start, f)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is remembered and what JAX compiled, both of which can be had again."""
        return vars(self) | {"_by_jax": {}, "_known": {}, "_derived": {}, "given": None}

    def __call__(self, x: Floats) -> Floats:
        """The residuals (n,) or (n, p)."""
        self.last = x
        """The x that was asked for last."""
        known = self._known.get(x.tobytes())
        return self._remember(x, self._called(x)) if known is None else known

    def derivatives(self, x: Floats) -> Floats:
        """(n, d) or (n, p, d)"""
        known = self._derived.get(x.tobytes())
        if known is None:
            self.n_derivatives += 1
            known = _kept(self._derived, x, self._found(x), 1)
        return known

    def _remember(self, x: Floats, f: Any) -> Floats:
        self.n_calls += 1
        return _kept(self._known, x, f, 2)

    def _called(self, x: Any) -> Any:
        if not self.is_jax:
            return self._checked(self.fun(x.copy()), x)
        with float64():
            return np.atleast_1d(np.asarray(self._compiled(0, x)(x)))

    def _checked(self, value: Any, x: Any) -> Any:
        """Shaped as at the start, and real where x is: a step of "cs" is complex."""
        f = np.atleast_1d(numbers(VALUE, value))
        if f.shape != self.shape:
            raise ProblemError(f"{VALUE} has shape {f.shape}, and had {self.shape} at the start")
        if np.iscomplexobj(f) and not np.iscomplexobj(x):
            raise ProblemError(f"{VALUE} is complex, expected real numbers")
        return f

    def _found(self, x: Floats) -> Floats:
        if self.way == "jax":
            with float64():
                return np.asarray(self._compiled(1, x)(x), dtype=float)
        if callable(self.way):
            with float64():
                self.given = self.way(x.copy())
            return jacobian_of(self.given, (*self.shape, len(x)))
        return differences(self._called, x, self(x), self.way, self.lower, self.upper, self.step, self.pattern)

    def _compiled(self, order: int, x: Any) -> Callable[[Any], Any]:
        """The function, or its derivative of order 1, as XLA's code for arguments like x."""
        if order not in self._by_jax:
            import jax

            function = jax.jacfwd(self.fun) if order else self.fun
            self._by_jax[order] = interruptible(jax.jit(function).lower(x).compile)
        return self._by_jax[order]

    @property
    def is_linear(self) -> bool:
        """True if the function is seen to be affine in x."""
        if self.way != "jax":
            return False
        import jax

        with float64():
            return is_affine(jax.make_jaxpr(self.fun)(self.start), [1])


def _kept(known: dict[bytes, Any], x: Floats, value: Any, at_least: int) -> Any:
    """The value, now among those of the last points: trials, and where they came from, are asked for again."""
    known[x.tobytes()] = value
    while len(known) > max(at_least, MOST_KEPT // max(np.size(value), 1)):
        del known[next(iter(known))]
    return value


def jacobian_of(given: Any, shape: tuple[int, ...]) -> Floats:
    """The derivatives that a user's function returned, an array, a sparse matrix or a linear operator, as an array.

    Axes of length 1 may be missing, as in NumPy; a transposed Jacobian is refused, as it is by SciPy.
    """
    if hasattr(given, "toarray"):
        given = given.toarray()
    elif hasattr(given, "matvec"):
        if given.shape != shape:
            raise ProblemError(f"{JACOBIAN} has shape {given.shape}, expected {shape}")
        given = given @ np.eye(shape[-1])
    return shaped(JACOBIAN, given, shape)


def dense_problem(
    functions: Any,
    kernel: Kernel | None = None,
    *,
    weight: Any = None,
    tau: Any = None,
    lower: Any = None,
    upper: Any = None,
    unit: Any = 1.0,
    name: str = "residuals",
) -> Problem:
    """The problem of one variable that every residual depends on."""
    x0, shape = functions.start, functions.shape
    if len(shape) > 2 or not np.prod(shape):
        raise ProblemError(f"{name} returns shape {shape}, expected (n,) or (n, p)")
    n, p = shape if len(shape) == 2 else (*shape, 1)
    variable = Variables(x0[None], name="x", lower=lower, upper=upper, unit=unit)
    factors = Factors(
        partial(_residuals, functions, p),
        variable[np.zeros(n, dtype=int)],
        data=np.arange(n),
        kernel=kernel,
        weight=weight,
        tau=tau,
        jacobian=partial(_derivatives, functions, p, unit),
        linear=functions.is_linear,
        name=name,
    )
    return Problem(factors)


def _residuals(functions: Any, p: int, x: Floats, k: NDArray) -> Floats:
    return _of_each(functions, x, k).reshape(-1, p)


def _derivatives(functions: Any, p: int, unit: Any, x: Floats, k: NDArray) -> Floats:
    return _of_each(functions.derivatives, x, k).reshape(-1, p, len(functions.start)) * unit


def _of_each(function: Callable[[Floats], Any], x: Floats, k: NDArray) -> Floats:
    """What a function of one vector says of observation k[i] at x[i]; it is called once for equal ones in a row."""
    if len(x) < 2 or not x.strides[0]:
        return np.asarray(function(x[0]), dtype=float)[k]
    ends = [0, *(1 + np.flatnonzero((x[1:] != x[:-1]).any(axis=1))).tolist(), len(x)]
    return np.concatenate([np.asarray(function(x[a]), dtype=float)[k[a:b]] for a, b in pairwise(ends)])
