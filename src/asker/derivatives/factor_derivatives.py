"""Derivatives of the cost of a factor group, in batches of observations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.derivatives.observation_cost import ObservationCost, Observed
from asker.problem.factors import Factors
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import as_argument, float64

Floats = NDArray[np.float64]
Steps = dict[Variables, Floats]
"""A step (n, tangent) of every variable, by group."""
MAX_BATCH, MIN_BATCH = 1 << 15, 16
"""Number of observations that one program evaluates, a power of two between these."""
MAX_BATCH_NUMBERS = 1 << 23
"""Number of derivatives of residuals in a batch; batches of long residuals are smaller."""


class FactorDerivatives:
    """Derivatives of the cost of one factor group at a point.

    The robust matrix is Σ Jᵀ(aI + b rrᵀ)J with a = ω and b = 2ω′/w of each observation, where r and J contain √w.  The
    gradient of each observation with respect to steps of its variables has a part (n, d) for each slot.
    """

    def __init__(self, factors: Factors, rows: dict[Variables, Floats]):
        if factors.jacobian is not None:
            raise ProblemError(
                f"{factors.name}: the solution cannot be differentiated, since `residual` and `jacobian` are NumPy "
                "functions, whose second derivatives are unknown: write the residual of one observation in JAX"
            )
        self.factors, self.of_one = factors, ObservationCost.of(factors)
        self.rows = [rows[slot.variables] for slot in factors.slots]
        weight = np.ones(factors.n) if factors.weight is None else factors.weight
        tau = factors.kernel.tau if factors.weight_is_precision else factors.tau
        each = np.array(np.broadcast_to(tau, factors.n), dtype=float)
        self.observed = Observed(tuple(as_argument(d) for d in factors.data), weight, each)
        costs, self.a, self.b, *self.gradient = self._run("evaluate")
        self.cost = float(costs.sum())
        """Sum of the costs."""

    def product(self, steps: Steps) -> list[Floats]:
        """Return the product of the Hessian of each observation with steps of its variables, (n, d) each."""
        return self._run("product", self._of_slots(steps))

    def pullback(self, steps: Steps) -> tuple[list[Floats], Observed]:
        """Return the gradient of the slope along steps, with respect to further steps, to data, weights and τ."""
        outs = self._run("pullback", self._of_slots(steps))
        n, m = len(self.factors.slots), len(self.of_one.real)
        real = dict(zip(self.of_one.real, outs[n : n + m], strict=True))
        data = tuple(real.get(k, np.zeros(d.shape)) for k, d in enumerate(self.factors.data))
        return outs[:n], Observed(data, outs[n + m], outs[n + m + 1])

    def pushforward(self, steps: Steps, tangent: Observed) -> list[Floats]:
        """Return the change of the gradient for tangents of the steps, the data, the weights and τ, (n, d) each."""
        real = tuple(tangent.data[k] for k in self.of_one.real)
        return self._run("pushforward", self._of_slots(steps), real, tangent.weight, tangent.tau)

    def sums(self, v: Variables, parts: Sequence[Floats]) -> Floats:
        """Return sums over the observations of each variable of a group, from numbers (n, d) for each slot."""
        total = np.zeros((len(v), v.manifold.tangent))
        for k, slot in enumerate(self.factors.slots):
            if slot.variables is v:
                total += self._incidence[k] @ parts[k]
        return total

    @cached_property
    def _incidence(self) -> list[Any]:
        """Matrix (variables, observations) of each slot, with 1 for the variable of an observation."""
        from scipy.sparse import csc_array

        n, slots = self.factors.n, self.factors.slots
        entries = [(np.ones(n), slot.index, np.arange(n + 1)) for slot in slots]
        return [csc_array(x, shape=(len(s.variables), n)).tocsr() for x, s in zip(entries, slots, strict=True)]

    def _of_slots(self, steps: Steps) -> tuple[Floats, ...]:
        """Return the step of the variable of each slot, by observation."""
        return tuple(steps[slot.variables][slot.index] for slot in self.factors.slots)

    def _run(self, name: str, *arguments: Any) -> list[Floats]:
        """Return the outputs of a function of one observation for all observations.

        `arguments` have one row per observation.  All batches have the same size, and dummies fill the last one.
        """
        import jax

        f, program, outs = self.factors, self._program(name, len(arguments)), []
        zeros = tuple(np.zeros(slot.variables.manifold.tangent) for slot in f.slots)
        batch = self._batch_size()
        with float64():
            for start in range(0, f.n, batch):
                chosen = np.arange(start, min(start + batch, f.n))
                padded = np.concatenate([chosen, np.full(batch - len(chosen), start)])
                rows = tuple(x[slot.index[padded]] for x, slot in zip(self.rows, f.slots, strict=True))
                batched = jax.tree.map(lambda x, at=padded: x[at], (self.observed, *arguments))
                leaves = jax.tree.leaves(program(zeros, rows, *batched))
                outs.append([np.asarray(leaf)[: len(chosen)] for leaf in leaves])
            if not outs:
                rows = tuple(x[:0] for x in self.rows)
                shapes = jax.eval_shape(program, zeros, rows, self.observed, *arguments)
                return [np.zeros(leaf.shape) for leaf in jax.tree.leaves(shapes)]
        return [self._without_excluded(np.concatenate(parts)) for parts in zip(*outs, strict=True)]

    def _without_excluded(self, x: NDArray[Any]) -> Floats:
        """Return numbers per observation, with 0 for observations of weight 0 where they are not finite."""
        x = x.astype(float, copy=False)
        excluded = np.flatnonzero(self.observed.weight == 0)
        if excluded.size:
            x = x.copy()
            x[excluded] = np.nan_to_num(x[excluded], nan=0.0, posinf=0.0, neginf=0.0)
        return x

    def _batch_size(self) -> int:
        """Return the number of observations of a batch."""
        f = self.factors
        width = sum(slot.variables.manifold.tangent for slot in f.slots)
        largest = max(1, min(MAX_BATCH, MAX_BATCH_NUMBERS // max(1, f.residual_size * width)))
        return min(largest, max(MIN_BATCH, 1 << max(0, f.n - 1).bit_length()))

    def _program(self, name: str, n_arguments: int) -> Callable[..., Any]:
        """Return the compiled program of a function for a batch; it is cached with the factors."""
        import jax

        f = self.factors
        kernel = repr(replace(f.kernel, tau=1.0)), id(type(f.kernel))
        programs = f.compiled.setdefault(("derivatives", f.signature, f.weight_is_precision, kernel), {})
        if name not in programs:
            function = getattr(self.of_one, name)
            programs[name] = jax.jit(jax.vmap(function, in_axes=(None, 0, 0, *[0] * n_arguments)))
        return programs[name]
