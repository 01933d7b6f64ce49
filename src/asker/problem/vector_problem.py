"""Problems from functions of one vector that return all residuals, as in `least_squares` and `curve_fit`."""

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
from asker.problem.finite_differences import POWERS, differences
from asker.problem.problem import Factors, Problem, ProblemError, Variables
from asker.tracing.affine import is_affine
from asker.tracing.array_namespace import float64, numbers, shaped

Floats = NDArray[np.float64]
MAX_CACHED_NUMBERS = 1 << 21
"""Maximum number of cached values of a function, and of its derivatives."""
VALUE, JACOBIAN = "the value of fun", "the value of jac"
"""Names of the values of the user's functions in messages."""


class Functions:
    """A user's function of x with its derivatives, as NumPy arrays.

    Values at the last points are cached, and calls are counted.  The option `derivatives` is "auto" (by JAX if the
    function returns arrays of JAX, else "2-point"), "jax", a method of `differences`, or a function of x that returns
    an array, a sparse matrix or a linear operator.
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
            value = fun(start.copy())
        self.is_jax = derivatives == "jax" or type(value).__module__.startswith("jax")
        self.method = derivatives if derivatives != "auto" else "jax" if self.is_jax else "2-point"
        if not callable(self.method) and self.method not in ("jax", *POWERS):
            raise ValueError(f"derivatives: one of auto, jax, {', '.join(POWERS)}, or a function, not {self.method!r}")
        self.fun, self.start, self.lower, self.upper, self.step = fun, start, lower, upper, step
        self.pattern: NDArray[np.bool_] | None = None
        """Sparsity pattern of the derivatives, (n, d), for finite differences."""
        self.given: Any = None
        """Last value of the user's function of derivatives."""
        self.n_calls = self.n_derivatives = 0
        self._by_jax: dict[int, Callable[[Any], Any]] = {}
        self._known: dict[bytes, Any] = {}
        self._derived: dict[bytes, Any] = {}
        self.shape = np.atleast_1d(numbers(VALUE, value)).shape
        f = self._checked(value, start)
        if not self.is_jax:
            self._remember(start, f)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without cached values and compiled functions, which can be computed again."""
        return vars(self) | {"_by_jax": {}, "_known": {}, "_derived": {}, "given": None}

    def __call__(self, x: Floats) -> Floats:
        """Return the residuals (n,) or (n, p)."""
        self.last = x
        """Argument of the last call."""
        known = self._known.get(x.tobytes())
        return self._remember(x, self._called(x)) if known is None else known

    def derivatives(self, x: Floats) -> Floats:
        """Return the derivatives (n, d) or (n, p, d)."""
        known = self._derived.get(x.tobytes())
        if known is None:
            self.n_derivatives += 1
            known = _cached(self._derived, x, self._derivatives_at(x), 1)
        return known

    def _remember(self, x: Floats, f: Any) -> Floats:
        """Count a call, and cache its value f at x."""
        self.n_calls += 1
        return _cached(self._known, x, f, 2)

    def _called(self, x: Any) -> Any:
        """Call the user's function, and check its value."""
        if not self.is_jax:
            return self._checked(self.fun(x.copy()), x)
        with float64():
            return np.atleast_1d(np.asarray(self._compiled(0, x)(x)))

    def _checked(self, value: Any, x: Any) -> Any:
        """Return a value of the function after checks: it has the shape of that at the start, and is real if x is.

        A step of "cs" is complex.
        """
        f = np.atleast_1d(numbers(VALUE, value))
        if f.shape != self.shape:
            raise ProblemError(f"{VALUE} has shape {f.shape}, and had {self.shape} at the start")
        if np.iscomplexobj(f) and not np.iscomplexobj(x):
            raise ProblemError(f"{VALUE} is complex, expected real numbers")
        return f

    def _derivatives_at(self, x: Floats) -> Floats:
        """Return the derivatives at x by the chosen method."""
        if self.method == "jax":
            with float64():
                return np.asarray(self._compiled(1, x)(x), dtype=float)
        if callable(self.method):
            with float64():
                self.given = self.method(x.copy())
            return jacobian_of(self.given, (*self.shape, len(x)))
        return differences(self._called, x, self(x), self.method, self.lower, self.upper, self.step, self.pattern)

    def _compiled(self, order: int, x: Any) -> Callable[[Any], Any]:
        """Return the function, or its derivative of order 1, compiled by XLA for arguments like x."""
        if order not in self._by_jax:
            import jax

            function = jax.jacfwd(self.fun) if order else self.fun
            self._by_jax[order] = interruptible(jax.jit(function).lower(x).compile)
        return self._by_jax[order]

    @property
    def is_linear(self) -> bool:
        """True if the trace shows that the function is affine in x."""
        if self.method != "jax":
            return False
        import jax

        with float64():
            return is_affine(jax.make_jaxpr(self.fun)(self.start), [1])


def _cached(known: dict[bytes, Any], x: Floats, value: Any, at_least: int) -> Any:
    """Return a value after adding it to a cache of the last points, such as a trial and its starting point."""
    known[x.tobytes()] = value
    while len(known) > max(at_least, MAX_CACHED_NUMBERS // max(np.size(value), 1)):
        del known[next(iter(known))]
    return value


def jacobian_of(given: Any, shape: tuple[int, ...]) -> Floats:
    """Return the value of a user's function of derivatives as an array.

    The value is an array, a sparse matrix or a linear operator.  Axes of length 1 may be missing, as in NumPy; a
    transposed Jacobian is rejected, as by SciPy.
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
    """Return the problem with one variable, on which all residuals depend."""
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
    """Return the residuals at parameters x, p numbers for each observation."""
    return _of_each(functions, x, k).reshape(-1, p)


def _derivatives(functions: Any, p: int, unit: Any, x: Floats, k: NDArray) -> Floats:
    """Return the Jacobian at parameters x, p rows for each observation, in units of the parameters."""
    return _of_each(functions.derivatives, x, k).reshape(-1, p, len(functions.start)) * unit


def _of_each(function: Callable[[Floats], Any], x: Floats, k: NDArray) -> Floats:
    """Return the value of a function of one vector for observation k[i] at x[i]; consecutive equal x share a call."""
    if len(x) < 2 or not x.strides[0]:
        return np.asarray(function(x[0]), dtype=float)[k]
    ends = [0, *(1 + np.flatnonzero((x[1:] != x[:-1]).any(axis=1))).tolist(), len(x)]
    return np.concatenate([np.asarray(function(x[a]), dtype=float)[k[a:b]] for a, b in pairwise(ends)])
