"""Whether a traced function is affine in some of its arguments.

Every value in a jaxpr has a degree: 0 when it does not depend on those arguments, 1 when it is affine in them, 2 when
it is anything else.  What no rule knows is 0 if all its inputs are, else 2: the answer may be a wrong no, never a
wrong yes.
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
    """`degrees`: 1 for the arguments in question, 0 for the others."""
    return max(_walk(closed_jaxpr.jaxpr, degrees), default=0) <= 1


def _walk(jaxpr: Any, degrees: list[int]) -> list[int]:
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
