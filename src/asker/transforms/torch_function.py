"""The solution of a problem as a function that PyTorch differentiates: `asker.torch_differentiable`."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.transforms.jax_primitive import Products
from asker.transforms.solutions import Solutions

Function = Callable[[Sequence[Any]], Sequence[Any]]


def torch_differentiable(problem: Problem, wrt: Sequence[str], **options: Any) -> Callable[..., dict[str, Any]]:
    """Return the solution of a problem as a function of some of its arrays, for the autograd of PyTorch.

    It needs the package torch: `pip install asker-solver[torch]`.  Tensors on the CPU are shared with the solver
    by DLPack, without a copy; those on a GPU are copied to the host and back.  `backward`, `torch.func.grad`, `jacrev`,
    `jacfwd` and `vmap` are supported; `vmap` solves one problem after the other.

    Parameters
    ----------
    problem, wrt, **options
        As for `asker.differentiable`.

    Returns
    -------
    function
        Function of as many tensors as `wrt` has names, which returns a dictionary with the values of each group of free
        variables by its name, in the type and on the device of the tensors.

    Raises
    ------
    ProblemError
        If torch is not installed, a name denotes no array, or a noise scale is unknown.  The returned function raises
        it if tensors have other shapes, and its derivative if a solution has none.
    """
    try:
        import torch
    except ImportError as error:
        raise ProblemError(f"torch_differentiable needs PyTorch: pip install asker-solver[torch] ({error})") from None
    solutions = Solutions(problem, wrt, options)
    products, names = solutions.products(), [p.name for p in solutions.parameters]

    def solution(*arrays: Any) -> dict[str, Any]:
        if len(arrays) != len(names):
            raise ProblemError(f"the solution is a function of {', '.join(names)}; {len(arrays)} tensors are given")
        tensors = [x if isinstance(x, torch.Tensor) else torch.as_tensor(x) for x in arrays]
        for name, x, shape in zip(names, tensors, products.in_shapes, strict=True):
            if tuple(x.shape) != shape:
                raise ProblemError(f"{name} has shape {tuple(x.shape)}, expected {shape}")
        leaves = _solution().apply(products, *tensors)
        return dict(zip(solutions.names, solutions.like_values(leaves), strict=True))

    solution.__doc__ = f"Return the solution as a function of {', '.join(names)}: values by name of the variables."
    return solution


def _on_host(function: Function, tensors: Sequence[Any], dtype: Any, device: Any) -> tuple[Any, ...]:
    """Return tensors from a function of NumPy arrays."""
    import torch

    outs = function([np.from_dlpack(x.detach().cpu().contiguous()) for x in tensors])
    return tuple(torch.as_tensor(np.asarray(x), dtype=dtype, device=device) for x in outs)


def _type_of(tensors: Sequence[Any]) -> tuple[Any, Any]:
    """Return the type of the outputs and their device."""
    import torch

    floating = [x.dtype for x in tensors if x.dtype.is_floating_point]
    dtype = floating[0] if floating else torch.get_default_dtype()
    for other in floating[1:]:
        dtype = torch.promote_types(dtype, other)
    return dtype, tensors[0].device


def _looped(function: Any, size: int, axes: Sequence[Any], products: Products, *arguments: Any) -> Any:
    """Return stacked outputs of a function, for the rule of `vmap`: one application after the other."""
    import torch

    def at(k: int) -> list[Any]:
        each = zip(arguments, axes, strict=True)
        return [x if axis is None or not isinstance(x, torch.Tensor) else x.select(axis, k) for x, axis in each]

    outs = [function.apply(products, *at(k)) for k in range(size)]
    return tuple(torch.stack(parts) for parts in zip(*outs, strict=True)), (0,) * len(outs[0])


def _pulled_back(products: Products, *tensors: Any) -> Any:
    n, (dtype, device) = len(products.in_shapes), _type_of(tensors)
    outs = _on_host(lambda arrays: products.vjp(arrays[:n], arrays[n:]), tensors, dtype, device)
    return tuple(out.to(x.dtype) for out, x in zip(outs, tensors, strict=False))


def _pushed_forward(products: Products, *tensors: Any) -> Any:
    n = len(products.in_shapes)
    return _on_host(lambda arrays: products.jvp(arrays[:n], arrays[n:]), tensors, *_type_of(tensors))


@cache
def _product(function: Callable[..., Any]) -> Any:
    """Return the function of autograd for products of the derivative at the first tensors with the others."""
    import torch

    class Product(torch.autograd.Function):
        forward = staticmethod(function)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            raise NotImplementedError("asker.torch_differentiable has first derivatives only")

        @staticmethod
        def vmap(info: Any, in_dims: Any, products: Products, *tensors: Any) -> Any:
            return _looped(Product, info.batch_size, in_dims[1:], products, *tensors)

    return Product


@cache
def _solution() -> Any:
    """Return the function of autograd for the values of the solution."""
    import torch

    class Solution(torch.autograd.Function):
        @staticmethod
        def forward(products: Products, *tensors: Any) -> Any:
            return _on_host(products.values, tensors, *_type_of(tensors))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.products, *tensors = inputs
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            return None, *_product(_pulled_back).apply(ctx.products, *ctx.saved_tensors, *cotangents)

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            pairs = zip(tangents, ctx.saved_tensors, strict=True)
            moved = [torch.zeros_like(x) if t is None else t for t, x in pairs]
            return _product(_pushed_forward).apply(ctx.products, *ctx.saved_tensors, *moved)

        @staticmethod
        def vmap(info: Any, in_dims: Any, products: Products, *tensors: Any) -> Any:
            return _looped(Solution, info.batch_size, in_dims[1:], products, *tensors)

    return Solution
