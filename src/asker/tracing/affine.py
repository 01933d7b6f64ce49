"""Detection of traced functions that are affine in some of their arguments.

Every value in a jaxpr has a degree: 0 if it is independent of these arguments, 1 if it is affine in them, 2 otherwise.
The result of a primitive without a rule has degree 0 if all its inputs have, else 2.  The test is conservative: affine
functions may be missed, but no function is wrongly reported as affine.
"""

from typing import Any

AFFINE = {
    "add", "sub", "neg", "reshape", "broadcast_in_dim", "slice", "concatenate", "transpose",
    "reduce_sum", "squeeze", "stack", "expand_dims", "rev", "copy", "pad", "add_any", "cumsum",
}  # fmt: skip
PRODUCTS = {"mul", "dot_general"}
BY_INDEX = {"gather", "dynamic_slice"}  # affine in the first operand, if the others are fixed
CALLS = {"jit", "pjit"}


def is_affine(closed_jaxpr: Any, degrees: list[int]) -> bool:
    """Return whether a function is affine in the arguments of degree 1; all others have degree 0."""
    return max(_walk(closed_jaxpr.jaxpr, degrees), default=0) <= 1


def _walk(jaxpr: Any, degrees: list[int]) -> list[int]:
    """Return the degrees of the outputs from those of the inputs: 0 constant, 1 affine, 2 anything else."""
    degree: dict[Any, int] = dict.fromkeys(jaxpr.constvars, 0)
    degree.update(zip(jaxpr.invars, degrees, strict=True))

    def of(atom: Any) -> int:
        return 0 if hasattr(atom, "val") else degree[atom]

    for eqn in jaxpr.eqns:
        inputs = [of(v) for v in eqn.invars]
        inner = eqn.params["jaxpr"].jaxpr if eqn.primitive.name in CALLS else None
        outs = _walk(inner, inputs) if inner else [_degree(eqn, inputs)] * len(eqn.outvars)
        degree.update(zip(eqn.outvars, outs, strict=True))
    return [of(v) for v in jaxpr.outvars]


def _degree(eqn: Any, inputs: list[int]) -> int:
    """Return the degree of the outputs of one equation."""
    name, highest = eqn.primitive.name, max(inputs, default=0)
    if name == "convert_element_type" and eqn.params["new_dtype"].kind == "f":
        return highest
    if name in AFFINE or highest == 0:
        return highest
    if name in PRODUCTS:
        return min(sum(inputs), 2)
    first, *others = inputs
    if name == "div" and others == [0]:
        return first
    if name == "select_n" and first == 0:
        return max(others)
    if name in BY_INDEX and not any(others):
        return first
    return 2
