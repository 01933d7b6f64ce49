"""The primitive of JAX that applies the derivative of a solution to tangents or cotangents.

JAX transposes a function of tangents for reverse mode, and batches it for Jacobians, so a plain callback is not enough.
The primitive is linear in its last arguments, and its rules are

    transpose   the product with J becomes the product with Jᵀ, and vice versa
    batch       all arguments get one more leading axis; the products are computed one after the other
    jvp         linear in tangents; second derivatives of a solution are not implemented and raise an error
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np


class Products:
    """Products of the derivative of a function of arrays with tangents and cotangents; JAX compares it by identity."""

    def __init__(
        self,
        values: Callable[[Sequence[Any]], Sequence[Any]],
        jvp: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        vjp: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        in_shapes: Sequence[tuple[int, ...]],
        out_shapes: Sequence[tuple[int, ...]],
    ):
        self.values, self.jvp, self.vjp = values, jvp, vjp
        self.in_shapes, self.out_shapes = list(in_shapes), list(out_shapes)


class Setting(NamedTuple):
    """The parameters of one application of the primitive."""

    products: Products
    is_transposed: bool
    """True for products with Jᵀ."""
    batch: tuple[int, ...]
    """Leading axes of all arguments."""
    dtype: str
    """Type of the outputs."""

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs."""
        each = self.products.in_shapes if self.is_transposed else self.products.out_shapes
        return [(*self.batch, *shape) for shape in each]

    def on_host(self, *arguments: Any) -> list[np.ndarray]:
        """Return the products, one for each index of the batch."""
        n = len(self.products.in_shapes)
        arrays = [np.asarray(x) for x in arguments]
        outs = [np.empty(shape, self.dtype) for shape in self.shapes()]
        function = self.products.vjp if self.is_transposed else self.products.jvp
        for index in np.ndindex(*self.batch):
            each = [x[index] for x in arrays]
            for out, x in zip(outs, function(each[:n], each[n:]), strict=True):
                out[index] = x
        return outs


def _callback(*arguments: Any, setting: Setting) -> Any:
    import jax

    shapes = [jax.ShapeDtypeStruct(shape, np.dtype(setting.dtype)) for shape in setting.shapes()]
    return jax.pure_callback(setting.on_host, shapes, *arguments, vmap_method="sequential")


def _abstract(*_: Any, setting: Setting) -> Any:
    import jax

    return [jax.core.ShapedArray(shape, np.dtype(setting.dtype)) for shape in setting.shapes()]


def _transpose(cotangents: Any, *arguments: Any, setting: Setting) -> Any:
    from jax.interpreters import ad

    n = len(setting.products.in_shapes)
    instantiated = [ad.instantiate_zeros(c) for c in cotangents]
    opposite = setting._replace(is_transposed=not setting.is_transposed)
    return [*[None] * n, *primitive().bind(*arguments[:n], *instantiated, setting=opposite)]


def _jvp(primals: Any, tangents: Any, *, setting: Setting) -> Any:
    from jax.interpreters import ad

    n = len(setting.products.in_shapes)
    if any(type(t) is not ad.Zero for t in tangents[:n]):
        raise NotImplementedError(
            "asker.differentiable has first derivatives only: the derivative of a solution cannot be differentiated "
            "(as in jax.hessian)"
        )
    moved = [ad.instantiate_zeros(t) for t in tangents[n:]]
    outs = primitive().bind(*primals, setting=setting)
    return outs, primitive().bind(*primals[:n], *moved, setting=setting)


def _batched(arguments: Any, axes: Any, *, setting: Setting) -> Any:
    import jax.numpy as jnp

    size = next(x.shape[k] for x, k in zip(arguments, axes, strict=True) if isinstance(k, int))

    def leading(x: Any, k: Any) -> Any:
        return jnp.moveaxis(x, k, 0) if isinstance(k, int) else jnp.broadcast_to(x, (size, *x.shape))

    moved = [leading(x, k) for x, k in zip(arguments, axes, strict=True)]
    outs = primitive().bind(*moved, setting=setting._replace(batch=(size, *setting.batch)))
    return outs, [0] * len(outs)


@cache
def primitive() -> Any:
    """Return the primitive, with its rules."""
    import jax
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    product = Primitive("asker_derivative")
    product.multiple_results = True
    product.def_impl(jax.jit(_callback, static_argnames="setting"))
    product.def_abstract_eval(_abstract)
    mlir.register_lowering(product, mlir.lower_fun(_callback, multiple_results=True))
    ad.primitive_transposes[product] = _transpose
    ad.primitive_jvps[product] = _jvp
    batching.primitive_batchers[product] = _batched
    return product


def jax_function(products: Products) -> Callable[..., Any]:
    """Return the JAX function of arrays whose derivatives are these products; it returns a tuple of arrays."""
    import jax
    import jax.numpy as jnp

    @jax.custom_jvp
    def function(*arrays: Any) -> Any:
        dtype = jnp.result_type(float)

        def on_host(*arrays: Any) -> list[np.ndarray]:
            return [np.asarray(x, dtype=dtype) for x in products.values(arrays)]

        shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in products.out_shapes]
        return tuple(jax.pure_callback(on_host, shapes, *arrays, vmap_method="sequential"))

    @function.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        setting = Setting(products, False, (), str(jnp.result_type(float)))
        return function(*primals), tuple(primitive().bind(*primals, *tangents, setting=setting))

    return function
