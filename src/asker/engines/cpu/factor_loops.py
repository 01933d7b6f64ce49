"""Residuals and Jacobians of one factor group, as compiled loops over its observations."""

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.code_cache import folder_source
from asker.engines.cpu.compiler import Argument, BatchedLoop, Loop, ReadsOutside, make_loop
from asker.engines.cpu.system import Derivatives, FusedJacobian, Linearization, compressed, padded_rows
from asker.engines.sparsity import MOST_DERIVATIVES, FactorStructure
from asker.problem.factors import Factors
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import as_argument

AnyLoop = Loop | BatchedLoop
Rows = dict[Variables, np.ndarray]


def compiled_loop(
    name: str,
    arguments: Sequence[Argument],
    *functions: Callable[..., Any],
    what: str,
    digest: bytes = b"",
    shortest: bool = True,
    quiet: bool = False,
    signature: str = "",
    batched: bool = False,
) -> AnyLoop:
    """Make a loop as `make_loop` does, and report an error of the user's function as a `ProblemError`.

    quiet      do not warn if XLA runs the function
    signature  description of the function's arguments, for the error message
    batched    run the function by XLA, without compiling a loop
    """
    try:
        if batched:
            return BatchedLoop(arguments, *functions)
        return make_loop(name, arguments, *functions, what="" if quiet else what, digest=digest, shortest=shortest)
    except ReadsOutside as error:
        raise ProblemError(f"{what}: {error}{signature and f'; its arguments are {signature}'}") from None


def _warn_of_size(structure: FactorStructure) -> None:
    """Warn once per factor group of the user that its observations are too large to compile."""
    f, limit = structure.factors, f"more than {MOST_DERIVATIVES} are not compiled"
    if not f.origin.warned_too_large:
        f.origin.warned_too_large = True
        size = f"{structure.p} residuals with {structure.width} unknowns"
        warnings.warn(f"{f.name}: an observation has {size}, and {limit}: XLA computes them", stacklevel=2)


class FactorCode:
    """The compiled residual and Jacobian of one factor group, and its arrays in the engine's order.

    A weight w scales both r and τ by √w, which is equivalent to w·ψ since every kernel is homogeneous in τ.  If the
    weight is a precision, τ applies to √w·r.
    """

    def __init__(self, structure: FactorStructure, pool: Pool, fuse_jacobians: bool = False):
        """`fuse_jacobians`: compute Jacobians inside the loops that use them, if possible, without storing them."""
        self.fuse_jacobians = fuse_jacobians and structure.eliminated is not None and len(structure.kept) <= 1
        self.structure, self.factors, self.pool = structure, structure.factors, pool
        f = structure.factors
        if structure.is_long and f.jacobian is None:
            _warn_of_size(structure)
        self.root_weight = None if f.weight is None else np.sqrt(structure.sorted(f.weight))
        self.tau = self._scaled_tau(f)
        self.data = [as_argument(structure.sorted(d)) for d in f.data]
        self.free_masks = [(~f.slots[k].variables.fixed).astype(float) for k in structure.free]
        self.loops: dict[str, AnyLoop] = f.compiled.setdefault(f.signature, {})
        self.arrays: dict[str, np.ndarray] = {}
        """r and J of the last linearisation, shared with copies for other kernels."""

    def under(self, factors: Factors) -> "FactorCode":
        """Return a copy for the same factors with another kernel."""
        other = copy(self)
        other.factors, other.tau = factors, self._scaled_tau(factors)
        return other

    def _scaled_tau(self, f: Factors) -> Any:
        """Return τ scaled by √w, in the engine's order."""
        if f.weight_is_precision:
            return float(f.kernel.tau)
        tau = self.structure.sorted(f.tau) if isinstance(f.tau, np.ndarray) else f.tau
        if self.root_weight is None:
            return tau
        return np.ascontiguousarray(tau * np.where(self.root_weight > 0, self.root_weight, 1.0))

    def evaluate(self, rows: Rows) -> tuple[np.ndarray, bool]:
        """Return ‖r‖² of every observation, and whether all are finite."""
        n = self.factors.n
        if self.factors.jacobian is not None:
            r = self._batched_residual(rows)
            u = np.einsum("np,np->n", r, r)
            return u, bool(np.isfinite(u).all())
        u = self.pool.empty(n)
        (not_finite,) = self._loop("squared")(n, self._inputs(rows), [u])
        return u, not not_finite

    def derivatives(self, rows: Rows) -> Derivatives:
        """Return residuals and Jacobians, stored or fused; the next call may overwrite the same arrays."""
        if self.fuse_jacobians and self.factors.jacobian is None:
            loop = self._loop("linearise")
            if isinstance(loop, Loop):
                return FusedJacobian(loop.source, loop.by_item, tuple(loop.in_order(self._inputs_of_derivatives(rows))))
        return compressed(self.structure, self.linearise(rows))

    @property
    def will_be_compiled(self) -> bool:
        """True if Jacobians need a compiled loop that does not exist yet."""
        return not self.structure.is_long and self.factors.jacobian is None and "linearise" not in self.loops

    def linearise(self, rows: Rows) -> Linearization:
        """Return stored residuals and Jacobians; the next call overwrites the same arrays."""
        f = self.structure
        if not f.width:  # all its variables are fixed
            return Linearization(np.zeros((f.n, f.p)), np.zeros((f.n, 0)))
        if self.factors.jacobian is not None:
            return Linearization(self._batched_residual(rows), self._batched_jacobian(rows))
        if not self.arrays:
            self.arrays |= {"J": padded_rows(f.n, f.p * f.width), "r": np.empty((f.n, f.p))}
        r, J = self.arrays["r"], self.arrays["J"]
        self._loop("linearise")(f.n, self._inputs_of_derivatives(rows), [r, J])
        return Linearization(r, J)

    def residuals(self, rows: Rows) -> np.ndarray:
        """Return the unweighted residuals in the user's order."""
        if self.factors.jacobian is not None:
            return self.structure.unsorted(self._batched_residual(rows, weighted=False))
        r = np.empty((self.structure.n, self.structure.p))
        self._loop("residual")(self.structure.n, self._inputs(rows), [r])
        return self.structure.unsorted(r)

    # ------------------------------------------------------------ the loops

    def _inputs(self, rows: Rows) -> list[Any]:
        """Return the arguments of the loop of residuals: values by index, data and √weight."""
        slots = self.factors.slots
        gathered = [(rows[s.variables], index) for s, index in zip(slots, self.structure.indices, strict=True)]
        return [*gathered, *self.data, *([] if self.root_weight is None else [self.root_weight])]

    def _inputs_of_derivatives(self, rows: Rows) -> list[Any]:
        """Return the arguments of the loop of derivatives, with the masks of free variables."""
        f = self.structure
        return [*self._inputs(rows), *[(mask, f.indices[k]) for mask, k in zip(self.free_masks, f.free, strict=True)]]

    def _arguments(self) -> list[Argument]:
        """Return the declarations of `_inputs`."""
        gathered = [Argument("gathered", (s.variables.manifold.ambient,)) for s in self.factors.slots]
        each = [Argument("each", d.shape[1:], str(d.dtype)) for d in self.data]
        return [*gathered, *each, *([] if self.root_weight is None else [Argument("each")])]

    def _loop(self, what: str) -> AnyLoop:
        """Return the loop `residual`, `squared` or `linearise`, compiled once."""
        if what not in self.loops:
            if what == "linearise":
                arguments = self._arguments() + [Argument("gathered")] * len(self.free_masks)
                functions = [partial(self._one_linearise, mode) for mode in ("jacfwd", "jacrev")]
            else:
                arguments, functions = self._arguments(), [getattr(self, f"_one_{what}")]
            digest = self._digest() if self.factors.trace else b""
            f = self.factors
            self.loops[what] = compiled_loop(
                what,
                arguments,
                *functions,
                what=f.name,
                digest=digest,
                shortest=2 * self.structure.p < self.structure.width,  # a reverse pass costs about two forward passes
                quiet=f.warned_uncompiled,
                signature=f.argument_shapes,
                batched=self.structure.is_long,
            )
        return self.loops[what]

    def _digest(self) -> bytes:
        """Return a digest of all that determines the loops: the residual, the fixed variables and this module."""
        groups = [slot.variables for slot in self.factors.slots]
        moved = [(v.manifold.tangent, v.is_free, bool(v.fixed.any())) for v in groups]
        return self.factors.trace + f"{moved} {self.root_weight is None}\0{folder_source(__file__)}".encode()

    # ------------------------------------------------------------ one observation, traced by JAX

    def _split(self, arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Any]:
        """Return rows, data, and the function that scales the residual by √w, if there are weights."""
        n_slots, n_data = len(self.factors.slots), len(self.data)
        rows, data, rest = arguments[:n_slots], arguments[n_slots : n_slots + n_data], arguments[n_slots + n_data :]
        return rows, data, (lambda r: r * rest[0]) if rest else (lambda r: r)

    def _one_residual(self, *arguments: Any) -> Any:
        """Compute r of one observation, without its weight."""
        rows, data, _ = self._split(arguments)
        return (self.factors.residual_at(rows, data),), ()

    def _one_squared(self, *arguments: Any) -> Any:
        """Compute u = ‖r‖² of one observation, and add 1 to the sum if u is not finite."""
        import jax.numpy as jnp

        rows, data, weighted = self._split(arguments)
        r = weighted(self.factors.residual_at(rows, data))
        u = r @ r
        return (u,), (jnp.where(jnp.isfinite(u), 0.0, 1.0),)

    def _one_linearise(self, mode: str, *arguments: Any) -> Any:
        """Compute r and J of one observation by JAX's `jacfwd` or `jacrev`; columns of constant variables are 0."""
        import jax
        import jax.numpy as jnp

        f, n_masks = self.structure, len(self.free_masks)
        masks = arguments[-n_masks:]
        rows, data, weighted = self._split(arguments[:-n_masks])
        derivative = getattr(jax, mode)(lambda step: weighted(self.factors.residual_after(rows, step, data)))
        J = derivative(np.zeros(f.width))
        columns = []
        for k, start, mask in zip(f.free, f.offsets, masks, strict=True):
            v = self.factors.slots[k].variables
            block = J[:, start : start + v.manifold.tangent]
            columns.append(jnp.where(mask > 0, block, 0.0) if v.fixed.any() else block)
        return (weighted(self.factors.residual_at(rows, data)), jnp.concatenate(columns, axis=1)), ()

    # ------------------------------------------------------------ all observations, by the user's batched functions

    def _batched_residual(self, rows: Rows, weighted: bool = True) -> np.ndarray:
        """Return r (n, p) of a function of all observations at once."""
        f = self.factors
        r = self.structure.sorted(f.residuals_of_all([rows[s.variables] for s in f.slots]))
        return np.ascontiguousarray(r * self.root_weight[:, None] if weighted and self.root_weight is not None else r)

    def _batched_jacobian(self, rows: Rows) -> np.ndarray:
        """Return J of a function of all observations at once, in the memory layout of the loops."""
        f, structure = self.factors, self.structure
        jacobians = f.jacobians_of_all([rows[s.variables] for s in f.slots])
        columns = []
        for k, mask in zip(structure.free, self.free_masks, strict=True):
            J = jacobians[k]
            assert J is not None
            columns.append(structure.sorted(J) * mask[structure.indices[k]][:, None, None])
        flat = padded_rows(f.n, structure.p * structure.width)
        J = flat.reshape(f.n, structure.p, structure.width)
        np.concatenate(columns, axis=2, out=J)
        if self.root_weight is not None:
            J *= self.root_weight[:, None, None]
        return flat
