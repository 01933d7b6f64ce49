"""Central differences of whole solves, each polished by Newton's method with a dense Hessian of JAX."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import asker
from asker.tracing.array_namespace import float64


def parameters(problem):
    """Return the arrays of a problem that its cost depends on, apart from variables."""
    ones = [np.ones(f.n) if f.weight is None else f.weight for f in problem.factors]
    return [(f.data, w, np.broadcast_to(f.tau, f.n)) for f, w in zip(problem.factors, ones, strict=True)]


def total_cost(problem, steps, rows, arrays):
    """Return Ψ after steps of all variables, written without asker's derivatives."""
    cost = 0.0
    for f, (data, weight, tau) in zip(problem.factors, arrays, strict=True):
        rows_of = [rows[problem.variables.index(s.variables)][s.index] for s in f.slots]
        steps_of = [steps[problem.variables.index(s.variables)][s.index] for s in f.slots]

        def psi(xs, ds, data, tau, f=f):
            moved = [s.variables.manifold.retract(x, d) for s, x, d in zip(f.slots, xs, ds, strict=True)]
            r = jnp.ravel(
                f.residual(*[s.variables.manifold.view(x) for s, x in zip(f.slots, moved, strict=True)], *data)
            )
            return replace(f.kernel, tau=tau).psi((r * r).sum())

        cost = cost + (weight * jax.vmap(psi)(rows_of, steps_of, data, tau)).sum()
    return cost


def slopes_of(problem):
    """Return a compiled function of rows and arrays: the dense gradient and Hessian of the cost."""
    sizes = [v.manifold.tangent * len(v) for v in problem.variables]

    def cost(x, rows, arrays):
        parts = jnp.split(x, np.cumsum(sizes)[:-1])
        steps = [p.reshape(len(v), -1) for v, p in zip(problem.variables, parts, strict=True)]
        return total_cost(problem, steps, rows, arrays)

    @jax.jit
    def slopes(rows, arrays):
        gradient = jax.grad(cost)
        zero = jnp.zeros(sum(sizes))
        return gradient(zero, rows, arrays), jax.lax.map(
            lambda e: jax.jvp(lambda x: gradient(x, rows, arrays), (zero,), (e,))[1], jnp.eye(sum(sizes))
        )

    return slopes


def polished(problem, values, slopes, n_steps=3):
    """Return the values after Newton steps over all coordinates that are neither fixed nor at a bound."""
    rows = [v.at(x).rows for v, x in zip(problem.variables, values, strict=True)]
    masks = []
    for v, x in zip(problem.variables, rows, strict=True):
        free = np.repeat(~v.fixed[:, None], v.manifold.tangent, axis=1)
        if v.bounds:
            start, low, high, _ = v.bounds.parts(x)
            free &= (start > low) & (start < high)
        masks.append(free.ravel())
    mask = np.concatenate(masks)
    for _ in range(n_steps):
        g, H = map(np.asarray, slopes(rows, parameters(problem)))
        step = np.zeros(len(g))
        step[mask] = -np.linalg.solve(H[np.ix_(mask, mask)], g[mask])
        parts = np.split(step, np.cumsum([m.size for m in masks])[:-1])
        moved = zip(problem.variables, rows, parts, strict=True)
        rows = [
            np.array([v.manifold.retract(*pair) for pair in zip(x, d.reshape(len(v), -1), strict=True)])
            for v, x, d in moved
        ]
    return [v.manifold.unpack(x) for v, x in zip(problem.variables, rows, strict=True)]


def flat(values):
    """Return all numbers of values, which may be tuples."""
    parts = jax.tree.leaves(values)
    return np.concatenate([np.ravel(x) for x in parts])


def difference(problem_at, start, h=1e-4):
    """Return the derivative at 0 of all values of the solution of `problem_at(t)`, to fourth order."""
    slopes = slopes_of(problem_at(0.0))

    def solution(t):
        problem = problem_at(t)
        free = {v.name: start[v.name] for v in problem.variables if not v.fixed.any()}
        result = asker.solve(problem, asker.IRLS(), start=free or None, tol=0, max_iterations=200)
        with float64():
            return flat(polished(problem, result.values, slopes))

    return (8 * (solution(h) - solution(-h)) - (solution(2 * h) - solution(-2 * h))) / (12 * h)
