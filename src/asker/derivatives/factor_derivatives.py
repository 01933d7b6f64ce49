"""Derivatives of the cost of all observations of a factor group, by the compiled loops of the CPU engine."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.derivatives.observation_cost import ObservationCost, Observed
from asker.engines.cpu.code_cache import folder_source
from asker.engines.cpu.compiler import Argument
from asker.engines.cpu.factor_loops import AnyLoop, compiled_loop
from asker.engines.sparsity import is_long
from asker.problem.factors import Factors
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import as_argument, float64
from asker.tracing.jaxpr_digest import digest_of_trace
from asker.tracing.source_digest import digest_of

Floats = NDArray[np.float64]
Steps = dict[Variables, Floats]
"""A step (n, tangent) of every variable, by group."""


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
        self.observed = Observed(tuple(as_argument(d) for d in factors.data), np.ascontiguousarray(weight), each)
        self.loops: dict[str, AnyLoop] = factors.compiled.setdefault(self._key(), {})
        costs, self.a, self.b, *self.gradient = self._run("evaluate")
        self.cost = float(costs.sum())
        """Sum of the costs."""

    def product(self, steps: Steps) -> list[Floats]:
        """Return the product of the Hessian of each observation with steps of its variables, (n, d) each."""
        return self._run("product", steps)

    def pullback(self, steps: Steps) -> tuple[list[Floats], Observed]:
        """Return the gradient of the slope along steps, with respect to further steps, to data, weights and τ."""
        outs = self._run("pullback", steps)
        n, m = len(self.factors.slots), len(self.of_one.real)
        real = dict(zip(self.of_one.real, outs[n : n + m], strict=True))
        data = tuple(real.get(k, np.zeros(d.shape)) for k, d in enumerate(self.factors.data))
        return outs[:n], Observed(data, outs[n + m], outs[n + m + 1])

    def pushforward(self, steps: Steps, tangent: Observed) -> list[Floats]:
        """Return the change of the gradient for tangents of the steps, the data, the weights and τ, (n, d) each."""
        return self._run("pushforward", steps, tangent)

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

    # ------------------------------------------------------------ loops

    def _run(self, name: str, steps: Steps | None = None, tangent: Observed | None = None) -> list[Floats]:
        """Return the outputs of a function of one observation for all observations."""
        f = self.factors
        inputs: list[Any] = [(x, slot.index) for x, slot in zip(self.rows, f.slots, strict=True)]
        inputs += [*self.observed.data, self.observed.weight, self.observed.tau]
        if steps is not None:
            inputs += [(np.ascontiguousarray(steps[s.variables]), s.index) for s in f.slots]
        if tangent is not None:
            each = [*(tangent.data[k] for k in self.of_one.real), tangent.weight, tangent.tau]
            inputs += [np.ascontiguousarray(x, dtype=float) for x in each]
        loop = self._loop(name)
        outs = [np.empty((f.n, *shape)) for shape in loop.store_shapes]
        loop(f.n, inputs, outs)
        excluded = np.flatnonzero(self.observed.weight == 0)
        for out in outs if excluded.size else ():  # residuals of weight 0 may not be finite
            out[excluded] = np.nan_to_num(out[excluded], nan=0.0, posinf=0.0, neginf=0.0)
        return outs

    def _loop(self, name: str) -> AnyLoop:
        """Return the compiled loop of a function of one observation; it is cached with the factors."""
        if name not in self.loops:
            f = self.factors
            gathered = [Argument("gathered", (s.variables.manifold.ambient,)) for s in f.slots]
            each = [Argument("each", d.shape[1:], str(d.dtype)) for d in self.observed.data]
            arguments = [*gathered, *each, Argument("each"), Argument("each")]
            if name != "evaluate":
                arguments += [Argument("gathered", (s.variables.manifold.tangent,)) for s in f.slots]
            if name == "pushforward":
                real = [Argument("each", f.data[k].shape[1:]) for k in self.of_one.real]
                arguments += [*real, Argument("each"), Argument("each")]
            width = sum(slot.variables.manifold.tangent for slot in f.slots)
            self.loops[name] = compiled_loop(
                name,
                arguments,
                self._flat(name),
                what=f"the derivatives of {f.name}",
                digest=self._digest(name),
                quiet=True,
                signature=f.argument_shapes,
                batched=is_long(f.residual_size, width),
            )
        return self.loops[name]

    def _flat(self, name: str) -> Callable[..., Any]:
        """Return a function of one observation with flat arguments, as loops call it."""
        import jax

        cost, n_slots, n_data = self.of_one, len(self.factors.slots), len(self.factors.data)

        def function(*arguments: Any) -> Any:
            rows, rest = arguments[:n_slots], arguments[n_slots:]
            data, (weight, tau), rest = rest[:n_data], rest[n_data : n_data + 2], rest[n_data + 2 :]
            zeros = tuple(np.zeros(m.tangent) for m in cost.manifolds)
            along, tangent = (rest[:n_slots],) if rest else (), rest[n_slots:]
            split = (tangent[:-2], *tangent[-2:]) if tangent else ()
            outs = getattr(cost, name)(zeros, rows, Observed(data, weight, tau), *along, *split)
            return tuple(jax.tree.leaves(outs)), ()

        return function

    def _key(self) -> tuple[Any, ...]:
        """Return all that the loops depend on, apart from the residual function."""
        f = self.factors
        return ("derivatives", f.signature, f.weight_is_precision, repr(replace(f.kernel, tau=1.0)), id(type(f.kernel)))

    def _digest(self, name: str) -> bytes:
        """Return a digest of the computation; b"" if that of a user's manifold is unknown."""
        import jax

        f = self.factors
        manifolds = digest_of([slot.variables.manifold for slot in f.slots])
        if not f.trace or not manifolds:
            return b""

        def kernel(u: Any, tau: Any) -> Any:
            scaled: Any = replace(f.kernel, tau=tau)
            return scaled.psi(u), scaled.omega(u), scaled.domega(u)

        with float64():
            of_kernel = digest_of_trace(jax.make_jaxpr(kernel)(1.0, 1.0))
        return b"\0".join([f.trace, manifolds, of_kernel, f"{name} {self._key()[2]}".encode(), _source()])


def _source() -> bytes:
    return folder_source(__file__).encode()
