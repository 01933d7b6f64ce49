"""Cost of one observation and its derivatives, by JAX.

The cost is w ψ_τ(‖r‖²), a function of a step of each variable, of the data, of the weight w and of the width τ.  JAX
differentiates it exactly, so its Hessian contains the curvature of the kernel and that of the residual function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from asker.geometry.manifolds import Manifold
from asker.kernels.kernel import Kernel
from asker.problem.data_layout import DataLayout
from asker.problem.factors import Factors


class Observed(NamedTuple):
    """Parameters of observations that a solution can be differentiated by, or a gradient or tangent of them."""

    data: tuple[Any, ...]
    weight: Any
    tau: Any


@dataclass(frozen=True)
class ObservationCost:
    """Cost of one observation of a factor group.

    In all methods, `steps` and `along` are steps of the variables of the observation, and `rows` are their rows.
    """

    residual: Callable[..., Any]
    data_layout: DataLayout
    residual_size: int
    manifolds: tuple[Manifold, ...]
    kernel: Kernel
    """Kernel; its width is an argument of the cost."""
    weight_is_precision: bool
    """True if the cost is ψ(w‖r‖²)."""
    real: tuple[int, ...]
    """Numbers of the data arrays that hold real numbers; all others have no derivative."""

    @classmethod
    def of(cls, f: Factors) -> "ObservationCost":
        """Return the cost of an observation of these factors."""
        manifolds = tuple(slot.variables.manifold for slot in f.slots)
        real = tuple(k for k, d in enumerate(f.data) if d.dtype.kind == "f")
        return cls(f.residual, f.data_layout, f.residual_size, manifolds, f.kernel, f.weight_is_precision, real)

    def cost(self, steps: Sequence[Any], rows: Sequence[Any], observed: Observed) -> Any:
        """Return the cost after a step of each variable."""
        moved = [m.retract(x, d) for m, x, d in zip(self.manifolds, rows, steps, strict=True)]
        kernel, w, u = self._kernel(observed), observed.weight, self._square(moved, observed)
        return kernel.psi(w * u) if self.weight_is_precision else w * kernel.psi(u)

    def evaluate(self, steps: Sequence[Any], rows: Sequence[Any], observed: Observed) -> tuple[Any, Any, Any, Any]:
        """Return the cost, ω, 2ω′/w, and the gradient with respect to the steps."""
        import jax
        import jax.numpy as jnp

        cost, gradient = jax.value_and_grad(self.cost)(steps, rows, observed)
        kernel, w, u = self._kernel(observed), observed.weight, self._square(rows, observed)
        if self.weight_is_precision:
            return cost, kernel.omega(w * u), 2 * kernel.domega(w * u), gradient
        return cost, kernel.omega(u), 2 * kernel.domega(u) / jnp.where(w > 0, w, 1.0), gradient

    def _square(self, rows: Sequence[Any], observed: Observed) -> Any:
        """Return ‖r‖²."""
        import jax.numpy as jnp

        views = [m.view(x) for m, x in zip(self.manifolds, rows, strict=True)]
        r = jnp.asarray(self.residual(*views, *self.data_layout.arguments(observed.data))).reshape(self.residual_size)
        return r @ r

    def _kernel(self, observed: Observed) -> Any:
        return replace(self.kernel, tau=observed.tau)

    def slope(self, along: Sequence[Any], steps: Any, rows: Any, observed: Observed) -> Any:
        """Return the derivative of the cost along given steps."""
        import jax

        pairs = zip(jax.grad(self.cost)(steps, rows, observed), along, strict=True)
        return sum((g * d).sum() for g, d in pairs)

    def product(self, steps: Any, rows: Any, observed: Observed, along: Any) -> Any:
        """Return the product of the Hessian with given steps."""
        import jax

        return jax.grad(self.slope, argnums=1)(along, steps, rows, observed)

    def pullback(self, steps: Any, rows: Any, observed: Observed, along: Any) -> Any:
        """Return the gradient of the slope with respect to the steps, the real data, the weight and τ."""
        import jax

        def slope(steps: Any, real: Any, weight: Any, tau: Any) -> Any:
            return self.slope(along, steps, rows, Observed(self._with_real(observed.data, real), weight, tau))

        real = tuple(observed.data[k] for k in self.real)
        return jax.grad(slope, argnums=(0, 1, 2, 3))(steps, real, observed.weight, observed.tau)

    def pushforward(
        self, steps: Any, rows: Any, observed: Observed, of_steps: Any, real: Any, weight: Any, tau: Any
    ) -> Any:
        """Return the change of the gradient for tangents of the steps, the real data, the weight and τ."""
        import jax

        def change(along: Any) -> Any:  # linear in `along`
            pulled = self.pullback(steps, rows, observed, along)
            return sum((x * y).sum() for x, y in zip(jax.tree.leaves(pulled), tangent, strict=True))

        tangent = [*of_steps, *real, weight, tau]
        return jax.grad(change)(steps)

    def _with_real(self, data: Sequence[Any], real: Sequence[Any]) -> tuple[Any, ...]:
        """Return data with other arrays of real numbers."""
        new = dict(zip(self.real, real, strict=True))
        return tuple(new.get(k, x) for k, x in enumerate(data))
