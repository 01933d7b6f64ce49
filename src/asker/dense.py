"""The simple door: a function of one vector that returns all residuals, as in `scipy.optimize.least_squares`."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from asker.arrays import float64
from asker.kernels import Kernel
from asker.linearity import is_affine
from asker.problem import Factors, Problem, ProblemError, Variables
from asker.result import Result
from asker.solve import solve

Jacobian = Callable[[np.ndarray], Any] | Literal["jax", "2-point"]


def least_squares(
    residuals: Callable[[Any], Any],
    start: Any,
    kernel: Kernel | None = None,
    strategy: Any = None,
    *,
    jacobian: Jacobian = "jax",
    weight: Any = None,
    tau: Any = None,
    **options: Any,
) -> Result:
    """Minimise Σ ψ(‖rᵢ(x)‖) over one vector x; the answer is `result.x`.

    residuals  function of x (d,) that returns (n,) numbers or (n, p) vectors, each under its own kernel
    start      x to begin with
    kernel     ψ; smooth truncated with τ = 1 when not given
    strategy   as in `solve`
    jacobian   "jax" differentiates `residuals`, which is then written with jax.numpy; "2-point" uses finite
               differences of a NumPy function; or a function of x that returns (n, d) or (n, p, d)
    weight, tau  per residual, (n,)
    options    go to `solve`
    """
    problem = dense_problem(residuals, start, kernel, jacobian=jacobian, weight=weight, tau=tau)
    return solve(problem, strategy, **options)


def dense_problem(
    residuals: Callable[[Any], Any],
    start: Any,
    kernel: Kernel | None = None,
    *,
    jacobian: Jacobian = "jax",
    weight: Any = None,
    tau: Any = None,
) -> Problem:
    """The `Problem` behind `least_squares`: one variable that every residual depends on."""
    x0 = np.asarray(start, dtype=float)
    if x0.ndim != 1 or not x0.size:
        raise ProblemError(f"start has shape {x0.shape}, expected (d,)")
    function, derivative = _functions(residuals, jacobian)
    try:
        r = function(x0)
    except Exception as e:
        said = (str(e).splitlines() or [""])[0]
        hint = ' (a NumPy function needs jacobian="2-point" or a function)' if jacobian == "jax" else ""
        raise ProblemError(f"residuals fails at the start{hint}: {type(e).__name__}: {said}") from e
    if r.ndim not in (1, 2) or not r.size:
        raise ProblemError(f"residuals returns shape {r.shape}, expected (n,) or (n, p)")
    p = 1 if r.ndim == 1 else r.shape[1]

    def all_residuals(x):
        return function(x[0]).reshape(-1, p)

    def all_derivatives(x):
        return derivative(x[0]).reshape(-1, p, x0.size)

    variable = Variables(x0[None], name="x")
    name = getattr(residuals, "__name__", "residuals")
    factors = Factors(
        all_residuals,
        variable[np.zeros(len(r), dtype=int)],
        kernel=kernel,
        weight=weight,
        tau=tau,
        jacobian=all_derivatives,
        linear=jacobian == "jax" and _is_linear(residuals, x0),
        name=name,
    )
    return Problem(factors)


def _is_linear(residuals: Callable, x: np.ndarray) -> bool:
    import jax

    with float64():
        return is_affine(jax.make_jaxpr(residuals)(x), [1])


def _functions(residuals: Callable, jacobian: Jacobian) -> tuple[Callable, Callable]:
    """x -> residuals and x -> derivatives, as NumPy arrays."""
    if jacobian == "jax":
        import jax

        compiled = jax.jit(residuals), jax.jit(jax.jacfwd(residuals))

        def in_float64(f):
            def call(x):
                with float64():
                    return np.asarray(f(np.asarray(x)), dtype=float)

            return call

        return in_float64(compiled[0]), in_float64(compiled[1])

    def function(x):
        return np.asarray(residuals(np.asarray(x)), dtype=float)

    if callable(jacobian):
        return function, lambda x: np.asarray(jacobian(np.asarray(x)), dtype=float)
    if jacobian != "2-point":
        raise ProblemError(f"jacobian must be 'jax', '2-point' or a function, not {jacobian!r}")

    def differences(x):
        h = np.sqrt(np.finfo(float).eps) * np.maximum(1.0, np.abs(x))
        r = function(x)
        return np.stack([(function(x + h[k] * np.eye(len(x))[k]) - r) / h[k] for k in range(len(x))], axis=-1)

    return function, differences
