"""The solution of a problem as a function that JAX transforms: `asker.differentiable`."""

from collections.abc import Callable, Sequence
from typing import Any

from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.transforms.jax_primitive import jax_function
from asker.transforms.solutions import Solutions


def differentiable(problem: Problem, wrt: Sequence[str], **options: Any) -> Callable[..., dict[str, Any]]:
    """Return the solution of a problem as a JAX function of some of its arrays.

    The function may stand inside `jax.jit`, `grad`, `jacfwd`, `jacrev`, `vmap`, `lax.scan` and `shard_map`.  JAX calls
    the solver on the host; `vmap` solves one problem after the other.  Derivatives are those of `Result.vjp` and
    `Result.jvp`, not of the iterations.

    Parameters
    ----------
    problem
        Problem, in which the noise scale of every factor group is given by its kernel or by `tau`.
    wrt
        Names of the arrays: "edges.data" (or "edges.data[1]" if there are several), "edges.weight" and "edges.tau" for
        factors called "edges", and "cameras.fixed" for the values of the variables "cameras", of which some are fixed.
    **options
        Options of `asker.solve`, such as `strategy` and `engine`.  The default of `tol` is 1e-12.

    Returns
    -------
    function
        Function of as many arrays as `wrt` has names, in the shapes that they have in the problem, which returns a
        dictionary with the values of each group of free variables by its name.

    Raises
    ------
    ProblemError
        If a name denotes no array, or a noise scale is unknown.  The returned function raises an error in JAX if a
        solution has no derivatives.

    Examples
    --------
    >>> import asker, jax, numpy as np
    >>> x = asker.Variables(np.zeros(1), name="x")
    >>> def offset(x, d):
    ...     return x - d
    >>> f = asker.Factors(offset, x[[0, 0]], data=np.array([1.0, 3.0]), kernel=asker.Cauchy(10.0), name="points")
    >>> solution = asker.differentiable(asker.Problem(f), wrt=["points.data"])
    >>> jax.grad(lambda d: solution(d)["x"][0])(np.array([1.0, 3.0]))
    Array([0.5, 0.5], dtype=float32)
    """
    solutions = Solutions(problem, wrt, options)
    products, names = solutions.products(), [p.name for p in solutions.parameters]
    function = jax_function(products)

    def solution(*arrays: Any) -> dict[str, Any]:
        import jax.numpy as jnp

        if len(arrays) != len(names):
            raise ProblemError(f"the solution is a function of {', '.join(names)}; {len(arrays)} arrays are given")
        checked = [jnp.asarray(x, dtype=float) for x in arrays]
        for name, x, shape in zip(names, checked, products.in_shapes, strict=True):
            if x.shape != shape:
                raise ProblemError(f"{name} has shape {x.shape}, expected {shape}")
        return dict(zip(solutions.names, solutions.like_values(function(*checked)), strict=True))

    solution.__doc__ = f"Return the solution as a function of {', '.join(names)}: values by name of the variables."
    return solution
