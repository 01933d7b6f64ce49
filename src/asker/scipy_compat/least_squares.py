"""`least_squares` with the arguments, the conventions and the result of `scipy.optimize.least_squares`.

With one of SciPy's losses it descends from x0 to the same minimum as SciPy.  In addition, the loss can be a kernel,
which `asker.solve` minimises, or None to estimate the noise scale together with a suitable kernel.
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
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.problem.vector_problem import VALUE, Functions, dense_problem
from asker.scipy_compat.losses import LOSSES, GivenLoss, Loss, Rooted, covariance, in_model
from asker.scipy_compat.starts import flattened
from asker.scipy_compat.termination import Stopping, optimality
from asker.scipy_compat.trust_region import TrustRegion
from asker.solver.loop import OnIteration
from asker.solver.result import Result, Status
from asker.strategies.strategy import Strategy
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
"""Messages by SciPy's number of the reason for termination."""
NUMBERS = {Status.CONVERGED: 2, Status.STALLED: 3, Status.STOPPED: -2}
"""SciPy's numbers if the solve loop terminated by its own criteria; those of all other statuses are 0."""
JACOBIAN_METHODS = ("auto", "2-point", "3-point", "cs")
FORMER = ("kernel", "jacobian", "tau")
"""Names of arguments of `least_squares` in versions before its arguments were those of SciPy."""


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
    strategy: Strategy | None = None,
    weight: Any = None,
    **options: Any,
) -> Any:
    """Minimise ½ Σ s² ρ(fᵢ(x)²/s²) over one vector x, as `scipy.optimize.least_squares` does.

    Parameters
    ----------
    fun
        Function of x (d,) that returns the residuals (n,), with NumPy or with JAX.
    x0
        Initial guess: a vector, or a dictionary, a named tuple or a dataclass of numbers and arrays, also nested.  Then
        `fun` receives and the field `x` has this structure; all other fields refer to the vector of all numbers.
    jac
        "auto": by JAX if `fun` returns arrays of JAX, else by finite differences; "2-point", "3-point" or "cs"; or a
        function of x that returns the derivatives (n, d).
    bounds
        Lower and upper bounds, nested or numbers for a nested x0, or SciPy's `Bounds`.
    method, tr_solver, tr_options, workers
        Checked, but without effect: the only method is Levenberg-Marquardt.
    ftol, xtol, gtol
        Tolerances as in SciPy's method lm: relative decrease of the cost, relative length of the step, and cosine of
        the angle between the residuals and the columns of the Jacobian.
    x_scale
        Scale of each unknown, which is kept; by default, or with "jac", the scales follow from the derivatives and are
        adapted in each iteration.
    loss
        "linear", "huber", "soft_l1", "cauchy", "arctan", or a function ρ as in SciPy, whose minimum is that of SciPy.
        A kernel such as `asker.Tukey()` is minimised as by `asker.solve`.  With None the noise scale is estimated, with
        a kernel that suits the noise.
    f_scale
        Scale s of the inlier residuals; it multiplies the width of a kernel.
    diff_step, args, kwargs
        As in SciPy.
    jac_sparsity
        Sparsity pattern of the derivatives; finite differences vary unknowns without a common row together.
    max_nfev
        Maximum number of calls of `fun`, without those for finite differences; by default 100 for each unknown, and at
        least 1000.
    verbose
        1 to print the outcome, 2 to print each iteration as well.
    callback
        As in SciPy; in addition, the callback may return True to stop.
    strategy
        Strategy as in `solve`, instead of the descent.
    weight
        Weight of the cost of each residual, (n,), if the loss is a kernel or None.
    options
        Further arguments of `solve`.

    Returns
    -------
    OptimizeResult
        SciPy's result, with the additional fields `covariance` of x, and `result`, the `Result` of `solve`.
    """
    if isinstance(jac, Kernel | Scaled) or hasattr(bounds, "step") or any(name in options for name in FORMER):
        return _former(fun, x0, jac, bounds, strategy, weight, options)
    value_of, fun, jac, x0, lower, upper = flattened(fun, x0, jac, bounds)
    _check(method=method, tr_solver=tr_solver, verbose=verbose, loss=loss)
    _check_numbers(x0, x_scale, max_nfev, f_scale, diff_step)
    _check_functions(fun, jac, args, kwargs, callback)
    _check_options(options)
    tolerances = _tolerances(ftol, xtol, gtol)
    functions = _functions(fun, jac, args, kwargs, x0, lower, upper, diff_step)
    _check_shapes(functions, jac_sparsity)
    _check_weight(weight, loss)
    chosen = _chosen(loss, f_scale)
    descends = strategy is None and (isinstance(loss, str) or isinstance(chosen, GivenLoss))
    stopping = Stopping(functions, chosen if descends else None, lower, upper, tolerances, callback)
    problem = _problem(functions, chosen, x_scale, weight, lower, upper)
    limits = _limits(descends, max_nfev, len(x0), tolerances[0])
    asked = limits | options | {"on_iteration": _both(stopping, options.get("on_iteration")), "verbose": verbose == 2}
    result = solve(problem, _trust_region(functions, chosen, x_scale) if descends else strategy, **asked)
    outcome = _outcome(functions, result, chosen, lower, upper, stopping.status)
    outcome.x = value_of(outcome.x)
    if verbose:
        print(f"{outcome.message}: {outcome.nfev} calls, cost {result.initial_cost:.4e} -> {outcome.cost:.4e}")
    return outcome


def _problem(
    functions: Functions, loss: Kernel | GivenLoss | None, x_scale: Any, weight: Any, lower: Floats, upper: Floats
) -> Problem:
    """Return the problem that `solve` minimises: least squares of the roots of a given loss, else with a kernel."""
    rooted: Any = Rooted(functions, loss) if isinstance(loss, GivenLoss) else functions
    kernel = Quadratic() if isinstance(loss, GivenLoss) else loss
    unit = _unit(x_scale, functions)
    return dense_problem(rooted, kernel, weight=weight, lower=lower, upper=upper, unit=unit)


def _trust_region(functions: Functions, loss: Any, x_scale: Any) -> TrustRegion:
    """Return the method for SciPy's losses."""
    if x_scale is None or isinstance(x_scale, str):
        return TrustRegion(functions, loss)
    return TrustRegion(functions, loss, tuple(np.broadcast_to(x_scale, functions.start.shape).astype(float).tolist()))


def _limits(descends: bool, max_nfev: int | None, n_unknowns: int, ftol: float) -> dict[str, Any]:
    """Return the limits for `solve`; `Stopping` has the criteria of a descent."""
    limits: dict[str, Any] = {"tol": 0 if descends else ftol}
    if descends or max_nfev is not None:
        limits["max_iterations"] = (max(1000, 100 * (n_unknowns + 1)) if max_nfev is None else max_nfev) - 1
    return limits


def _both(stopping: Stopping, on_iteration: Any) -> OnIteration:
    """Return a callback that applies SciPy's tolerances and calls `on_iteration` of the user."""
    if on_iteration is None:
        return stopping
    check_function("on_iteration", on_iteration)
    return lambda line: stopping(line) | asks_to_stop(on_iteration(line))


def _outcome(
    functions: Functions, result: Result, given: Loss | None, lower: Floats, upper: Floats, reason: int | None
) -> Any:
    """Return SciPy's `OptimizeResult` of a result; `reason`: that for which SciPy's criteria terminated the loop."""
    from scipy.optimize import OptimizeResult
    from scipy.sparse import csr_array

    assert result.problem is not None
    loss = given or result.problem.factors[0].kernel
    status = NUMBERS.get(result.status, 0) if reason is None else reason
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
    """Return the factor of each squared residual within its loss, and the factor of the loss."""
    assert result.problem is not None
    f = result.problem.factors[0]
    ones, weight = np.ones(f.n), np.ones(f.n) if f.weight is None else f.weight
    return (weight, 1.0 * f.is_informative) if f.weight_is_precision else (ones, weight)


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
    if not callable(jac) and not (isinstance(jac, str) and jac in JACOBIAN_METHODS):
        raise ProblemError(f"jac must be one of {', '.join(JACOBIAN_METHODS)}, or a function, not {jac!r}")
    if not isinstance(args, tuple | list):
        raise ProblemError(f"args must be a tuple of the arguments of fun after x, not {args!r}")
    if not (kwargs is None or isinstance(kwargs, Mapping)):
        raise ProblemError(f"kwargs must be a dictionary of arguments of fun, not {kwargs!r}")
    if callback is not None:
        check_function("callback", callback)


def _check_options(options: Mapping[str, Any]) -> None:
    known = [*inspect.signature(solve).parameters][2:]
    for name in options:
        if name not in known:
            advice = (
                f"besides SciPy's arguments it accepts strategy, weight and those of asker.solve: {', '.join(known)}"
            )
            raise TypeError(f"least_squares() got an unexpected keyword argument {name!r}; {advice}")


def _check_weight(weight: Any, loss: Any) -> None:
    if weight is not None and not (loss is None or isinstance(loss, Kernel)):
        raise ProblemError("weight is for a kernel as the loss, or loss=None: let fun multiply residuals by √weight")


def _unit(x_scale: Any, functions: Functions) -> Floats:
    """Return the scale of each unknown; by default, a step of one scale changes the RMS of the residuals by 1."""
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
    """Return f(x, *args, **kwargs); unlike a lambda, the function can be pickled."""
    return f(x, *args, **kwargs)


def _check_shapes(functions: Functions, jac_sparsity: Any) -> None:
    """Check the shapes of the residuals and of the sparsity pattern, which is kept for finite differences."""
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
    """Solve with the arguments of version 0.2: residuals, start, kernel, strategy, jacobian, weight, tau."""
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
        message = (str(e).splitlines() or [""])[0]
        raise ProblemError(f"residuals fails at the start: {type(e).__name__}: {message}") from e
    problem = dense_problem(functions, kernel, weight=weight, tau=options.pop("tau", None))
    return solve(problem, strategy, **options)
