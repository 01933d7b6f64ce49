"""`least_squares` with the arguments, the conventions and the result of `scipy.optimize.least_squares`.

With one of SciPy's losses it is a descent from x0 to SciPy's minimum.  What asker adds: a kernel as the loss is solved
for as `asker.solve` would, and with loss=None the noise is found, and a kernel that fits it.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker._arguments import check_function, check_number, check_positive
from asker._solve import asks_to_stop, solve
from asker.kernels.kernel import Kernel, Scaled
from asker.kernels.kernels import Quadratic
from asker.problem.variables import ProblemError
from asker.scipy_compat.losses import LOSSES, GivenLoss, Loss, Rooted, covariance, in_model
from asker.scipy_compat.termination import Stopping, optimality
from asker.scipy_compat.vector_problem import VALUE, Functions, dense_problem
from asker.solver.loop import OnIteration
from asker.solver.result import Result, Status
from asker.strategies.triggs import Triggs
from asker.tracing.array_namespace import real_numbers

Floats = NDArray[np.float64]
MESSAGES = {
    -2: "the callback asked to stop",
    0: "reached `max_nfev`; the result may not be a minimum",
    1: "the gradient fell below `gtol`",
    2: "the relative decrease of the cost fell below `ftol`",
    3: "the relative length of the step fell below `xtol`",
    4: "the decrease of the cost and the length of the step fell below `ftol` and `xtol`",
}
"""SciPy's numbers of why it stopped."""
NUMBERS = {Status.CONVERGED: 2, Status.STALLED: 3, Status.STOPPED: -2}
"""The same, where asker's own loop stopped; all others are 0."""
WAYS = ("auto", "2-point", "3-point", "cs")
FORMER = ("kernel", "jacobian", "tau")
"""Arguments that `least_squares` had before it was as SciPy's."""


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    jac: str | Callable[..., Any] = "auto",
    bounds: Any = (-np.inf, np.inf),
    method: str = "trf",
    ftol: float | None = 1e-8,
    xtol: float | None = 1e-8,
    gtol: float | None = 1e-8,
    x_scale: Any = None,
    loss: str | Kernel | Callable[[Any], Any] | None = "linear",
    f_scale: float = 1.0,
    diff_step: Any = None,
    tr_solver: str | None = None,
    tr_options: Mapping[str, Any] | None = None,
    jac_sparsity: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    callback: Callable[..., Any] | None = None,
    workers: Any = None,
    *,
    strategy: Any = None,
    weight: Any = None,
    **options: Any,
) -> Any:
    """Minimise ½ Σ s² ρ(fᵢ(x)²/s²) over one vector x, as `scipy.optimize.least_squares` does.

    fun       function of x (d,) that returns the residuals (n,), with NumPy or with JAX
    x0        x to begin with
    jac       "auto": by JAX where `fun` is one of JAX's, else finite differences; "2-point", "3-point", "cs"; or a
              function of x that returns the derivatives (n, d)
    bounds    lower and upper, or SciPy's `Bounds`
    loss      "linear", "huber", "soft_l1", "cauchy", "arctan", or ρ as SciPy takes it: then the minimum is SciPy's.  A
              kernel, as `asker.Tukey()`: solved for as in `asker.solve`.  None: the noise is found, and a kernel for it
    f_scale   s, the scale of an inlier; a kernel's width is multiplied by it
    ftol, xtol, gtol  as SciPy's: relative decrease of the cost, relative length of the step, and gradient
    max_nfev  calls of `fun`, beside those for differences
    args, kwargs, diff_step  as SciPy's
    callback  as SciPy's: what it returns counts for nothing, but that True asks to stop
    verbose   1 prints how it ended, 2 each iteration
    x_scale   what a step of 1 is in each number; "jac", or when not given: by the derivatives at x0
    jac_sparsity  where derivatives may be other than 0: unknowns that share no row are moved together in differences
    method, tr_solver, tr_options, workers  are checked and change nothing: there is one method, Levenberg-Marquardt
    strategy  as in `solve`, in place of the descent
    weight    of each residual's cost, (n,), where the loss is a kernel or None
    options   go to `solve`

    Returns SciPy's `OptimizeResult`; beside the usual it has `covariance`, that of x, and `result`, the `Result`.
    """
    if isinstance(jac, Kernel | Scaled) or hasattr(bounds, "step") or any(name in options for name in FORMER):
        return _former(fun, x0, jac, bounds, strategy, weight, options)
    x0, lower, upper = box_of(x0, bounds)
    _check(method=method, tr_solver=tr_solver, verbose=verbose, loss=loss)
    _check_numbers(x0, x_scale, max_nfev, f_scale, diff_step)
    _check_functions(fun, jac, args, kwargs, callback)
    _check_options(options)
    tolerances = _tolerances(ftol, xtol, gtol)
    functions = _functions(fun, jac, args, kwargs, x0, lower, upper, diff_step)
    _check_shapes(functions, jac_sparsity)
    if weight is not None and not (loss is None or isinstance(loss, Kernel)):
        raise ProblemError("weight is for a kernel as the loss, or loss=None: let fun multiply residuals by √weight")
    chosen = _chosen(loss, f_scale)
    descends = strategy is None and (isinstance(loss, str) or isinstance(chosen, GivenLoss))
    stopping = Stopping(functions, chosen if descends else None, lower, upper, tolerances, callback)
    rooted: Any = Rooted(functions, chosen) if isinstance(chosen, GivenLoss) else functions
    kernel = Quadratic() if isinstance(chosen, GivenLoss) else chosen
    unit = _unit(x_scale, functions)
    problem = dense_problem(rooted, kernel, weight=weight, lower=lower, upper=upper, unit=unit)
    limits: dict[str, Any] = {"tol": 0 if descends else tolerances[0]}
    if descends or max_nfev is not None:
        limits["max_iterations"] = (100 * (len(x0) + 1) if max_nfev is None else max_nfev) - 1
    asked = limits | options | {"on_iteration": _both(stopping, options.get("on_iteration")), "verbose": verbose == 2}
    result = solve(problem, Triggs() if descends else strategy, **asked)
    status = NUMBERS.get(result.status, 0) if stopping.status is None else stopping.status
    assert result.problem is not None
    told = _told(functions, result, chosen or result.problem.factors[0].kernel, lower, upper, status)
    if verbose:
        print(f"{told.message}: {told.nfev} calls, cost {result.initial_cost:.4e} -> {told.cost:.4e}")
    return told


def _both(stopping: Stopping, on_iteration: Any) -> OnIteration:
    """SciPy's tolerances, and what a user asks for."""
    if on_iteration is None:
        return stopping
    check_function("on_iteration", on_iteration)
    return lambda line: stopping(line) | asks_to_stop(on_iteration(line))


def _told(functions: Functions, result: Result, loss: Loss, lower: Floats, upper: Floats, status: int) -> Any:
    from scipy.optimize import OptimizeResult
    from scipy.sparse import csr_array

    x = result.x
    n_calls = functions.n_calls
    f, J = np.asarray(functions(x), dtype=float), functions.derivatives(x)
    of_squares, of_loss = _weights(result)
    scaled = np.sqrt(of_squares) * f, np.sqrt(of_squares)[:, None] * J
    in_f, in_J = in_model(loss, *scaled)
    in_f, in_J = np.sqrt(of_loss) * in_f, np.sqrt(of_loss)[:, None] * in_J
    g = in_J.T @ in_f
    return OptimizeResult(
        x=x,
        cost=result.cost,
        fun=f,
        jac=csr_array(in_J) if hasattr(functions.given, "toarray") else in_J,
        grad=g,
        optimality=optimality(g, x, lower, upper),
        active_mask=np.where(x <= lower, -1, np.where(x >= upper, 1, 0)),
        nfev=n_calls,
        njev=functions.n_derivatives,
        status=status,
        message=MESSAGES[status] if status or result.status is Status.MAX_ITERATIONS else result.message,
        success=status > 0,
        covariance=covariance(loss, *scaled, of_loss),
        result=result,
    )


def _weights(result: Result) -> tuple[Floats, Floats]:
    """What multiplies each squared residual, and what multiplies its loss."""
    assert result.problem is not None
    f = result.problem.factors[0]
    ones, weight = np.ones(f.n), np.ones(f.n) if f.weight is None else f.weight
    return (weight, 1.0 * f.is_informative) if f.weight_is_precision else (ones, weight)


def vector(name: str, given: Any) -> Floats:
    """The numbers (d,) to begin with."""
    array = np.atleast_1d(real_numbers(name, given))
    if array.ndim > 1 or not array.size:
        raise ProblemError(f"{name} has shape {array.shape}, expected (d,)")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ProblemError(f"{name} holds NaN or infinity at index {bad[0]}")
    return array


def bounds_of(bounds: Any, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """The lower and the upper bounds of each number, from a pair or SciPy's `Bounds`."""
    given = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    if not isinstance(given, tuple | list | np.ndarray):
        raise ProblemError(f"bounds is {bounds!r}, expected a pair: lower and upper bounds")
    if len(given) != 2:
        raise ProblemError(f"bounds has {len(given)} items, expected lower and upper")
    lower, upper = (real_numbers(f"bounds[{k}]", b) for k, b in enumerate(given))
    lower, upper = (np.full(shape, b) if b.ndim == 0 else b for b in (lower, upper))
    if lower.shape != shape or upper.shape != shape:
        raise ProblemError(f"bounds have shapes {lower.shape} and {upper.shape}, expected that of x0, {shape}")
    return lower, upper


def box_of(x0: Any, bounds: Any) -> tuple[Floats, Floats, Floats]:
    """The start and the bounds of each of its numbers."""
    x0 = vector("x0", x0)
    lower, upper = bounds_of(bounds, x0.shape)
    if not (lower < upper).all():
        raise ProblemError(f"bounds: the lower one is not below the upper one at index {np.argmin(lower < upper)}")
    outside = (x0 < lower) | (x0 > upper)
    if outside.any():
        raise ProblemError(f"x0: Initial guess is outside of provided bounds at index {np.argmax(outside)}")
    return x0, lower, upper


def _check(**given: Any) -> None:
    known = {
        "method": ("trf", "dogbox", "lm"),
        "tr_solver": (None, "exact", "lsmr"),
        "verbose": (0, 1, 2),
        "loss": (*LOSSES, None),
    }
    for name, value in given.items():
        if name == "loss" and isinstance(value, type):
            raise ProblemError(f"loss is the class {value.__name__}, expected an object such as asker.Tukey(tau=1.0)")
        if name == "loss" and (callable(value) or isinstance(value, Kernel)):
            continue
        if value not in known[name]:
            more = ", a kernel or a function" if name == "loss" else ""
            raise ProblemError(f"{name} must be one of {', '.join(map(repr, known[name]))}{more}, not {value!r}")


def _check_numbers(x0: Floats, x_scale: Any, max_nfev: Any, f_scale: Any, diff_step: Any) -> None:
    if isinstance(x_scale, str) and x_scale != "jac":
        raise ProblemError(f"x_scale must be 'jac' or positive numbers, not {x_scale!r}")
    if x_scale is not None and not isinstance(x_scale, str):
        scale = np.asarray(x_scale)
        if scale.dtype.kind not in "fiu" or not (np.isfinite(scale) & (scale > 0)).all():
            raise ProblemError(f"x_scale must be 'jac' or positive numbers, not {x_scale!r}")
        if scale.shape not in ((), x0.shape):
            raise ProblemError(f"x_scale has shape {scale.shape}, expected () or that of x0, {x0.shape}")
    if max_nfev is not None:
        check_number("max_nfev", max_nfev, 1, whole=True)
    check_positive("f_scale", f_scale)
    if diff_step is not None:
        step = real_numbers("diff_step", diff_step)
        if step.shape not in ((), x0.shape) or not np.isfinite(step).all():
            raise ProblemError(f"diff_step is {diff_step!r}, expected one finite number, or one for each of x0")


def _check_functions(fun: Any, jac: Any, args: Any, kwargs: Any, callback: Any) -> None:
    check_function("fun", fun)
    if not callable(jac) and not (isinstance(jac, str) and jac in WAYS):
        raise ProblemError(f"jac must be one of {', '.join(WAYS)}, or a function, not {jac!r}")
    if not isinstance(args, tuple | list):
        raise ProblemError(f"args must be a tuple of the arguments of fun behind x, not {args!r}")
    if not (kwargs is None or isinstance(kwargs, Mapping)):
        raise ProblemError(f"kwargs must be a dictionary of arguments of fun, not {kwargs!r}")
    if callback is not None:
        check_function("callback", callback)


def _check_options(options: Mapping[str, Any]) -> None:
    known = [*inspect.signature(solve).parameters][2:]
    for name in options:
        if name not in known:
            told = f"beside SciPy's arguments there are strategy, weight and those of asker.solve: {', '.join(known)}"
            raise TypeError(f"least_squares() got an unexpected keyword argument {name!r}; {told}")


def _unit(x_scale: Any, functions: Functions) -> Floats:
    """By the derivatives at the start: a step of 1 changes a residual by 1, as their root mean square."""
    if x_scale is not None and not isinstance(x_scale, str):
        return np.broadcast_to(np.asarray(x_scale, dtype=float), functions.start.shape)
    norms = np.sqrt(np.mean(functions.derivatives(functions.start) ** 2, axis=0))
    return 1 / np.where((norms > 0) & np.isfinite(norms), norms, 1.0)


def _tolerances(*given: float | None) -> tuple[float, float, float]:
    for name, tol in zip(("ftol", "xtol", "gtol"), given, strict=True):
        if tol is not None:
            check_number(name, tol)
    ftol, xtol, gtol = (tol or 0.0 for tol in given)
    if max(ftol, xtol, gtol) < np.finfo(float).eps:
        raise ProblemError("one of ftol, xtol and gtol must be above the rounding of numbers, 2.2e-16")
    return ftol, xtol, gtol


def _functions(
    fun: Callable[..., Any], jac: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, *start: Any
) -> Functions:
    def applied(f: Callable[..., Any]) -> Callable[[Any], Any]:
        return partial(_applied, f, tuple(args), dict(kwargs or {}))

    x0, lower, upper, step = start
    return Functions(applied(fun), x0, applied(jac) if callable(jac) else jac, lower, upper, step)


def _applied(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], x: Any) -> Any:
    return f(x, *args, **kwargs)


def _check_shapes(functions: Functions, jac_sparsity: Any) -> None:
    """Of what the function returns; the pattern of its derivatives is for differences."""
    if len(functions.shape) != 1:
        raise ProblemError(f"{VALUE} has shape {functions.shape}, expected (n,)")
    if not np.isfinite(functions(functions.start)).all():
        raise ProblemError("the residuals at x0 are not finite")
    expected = (*functions.shape, len(functions.start))
    if jac_sparsity is not None:
        whole = jac_sparsity.toarray() if hasattr(jac_sparsity, "toarray") else np.atleast_2d(jac_sparsity)
        if whole.shape != expected:
            raise ProblemError(f"jac_sparsity has shape {whole.shape}, expected {expected}")
        functions.pattern = whole != 0


def _chosen(loss: Any, scale: float) -> Kernel | GivenLoss | None:
    if isinstance(loss, str):
        return LOSSES[loss](tau=float(scale))
    if isinstance(loss, Kernel):
        return replace(loss, tau=loss.tau * float(scale))
    return None if loss is None else GivenLoss(loss, float(scale))


def _former(
    residuals: Callable[[Any], Any], start: Any, kernel: Any, strategy: Any, named: Any, weight: Any, options: dict
) -> Result:
    """As it was until 0.2: least_squares(residuals, start, kernel, strategy, jacobian=..., weight=..., tau=...)."""
    warnings.warn(
        "asker.least_squares(f, x, kernel, strategy, jacobian=...) is now least_squares(f, x, jac, loss=kernel, "
        "strategy=...), as SciPy's; its result has the former one as `result`",
        DeprecationWarning,
        stacklevel=3,
    )
    kernel = options.pop("kernel", kernel if isinstance(kernel, Kernel | Scaled) else None)
    strategy = strategy if hasattr(strategy, "step") else named
    x0 = np.asarray(start, dtype=float)
    if x0.ndim != 1 or not x0.size:
        raise ProblemError(f"start has shape {x0.shape}, expected (d,)")
    jacobian = options.pop("jacobian", "jax")
    try:
        functions = Functions(residuals, x0, jacobian)
    except Exception as e:
        said = (str(e).splitlines() or [""])[0]
        raise ProblemError(f"residuals fails at the start: {type(e).__name__}: {said}") from e
    problem = dense_problem(functions, kernel, weight=weight, tau=options.pop("tau", None))
    return solve(problem, strategy, **options)
