"""Translation of a traced JAX function to a scalar program.

`scalarise` evaluates a jaxpr on arrays of scalar values.  Elementwise primitives become one statement per scalar, data
movement permutes values, sums and products are unrolled, and nested calls are inlined.  Constants are NumPy arrays, and
operations on constants are folded.  The table `RULES` contains one rule per primitive.
"""

from typing import Any

import numpy as np

from asker.engines.cpu.compiler import linear_algebra, movement_rules  # noqa: F401  fill the table
from asker.engines.cpu.compiler.arithmetic_rules import (
    RULES,
    Parameters,
    UnsupportedPrimitive,
    Values,
    check_parameters,
    rule,
    select_n,
)
from asker.engines.cpu.compiler.scalars import Name, Program
from asker.tracing.array_namespace import is_narrow
from asker.tracing.jax_compat import CALLS, called_jaxpr, check_xla, is_random_key, platform_index, scan_counts

MOVES = {*CALLS, "cond", "copy", "custom_linear_solve", "name", "scan", "select_n", "stop_gradient"} | {
    name for name, rule_ in RULES.items() if rule_.apply.__module__ == movement_rules.__name__ and name != "scatter-add"
}
"""Primitives that only move or choose values."""


def scalarise(program: Program, closed_jaxpr: Any, inputs: list[Values]) -> list[Values]:
    """Evaluate a ClosedJaxpr and return its outputs as arrays of values."""
    return _walk(program, closed_jaxpr.jaxpr, [_array(c) for c in closed_jaxpr.consts], inputs)


def _walk(program: Program, jaxpr: Any, consts: list[Values], inputs: list[Values]) -> list[Values]:
    env: dict[Any, Values] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Values:
        return _array(atom.val) if hasattr(atom, "val") else env[atom]

    for eqn in jaxpr.eqns:
        args, name = [read(v) for v in eqn.invars], eqn.primitive.name
        _check_width(eqn, args)
        if name in RULES and (name in CALLS or not any(map(is_random_key, args))):
            check_parameters(name, eqn.params, RULES[name].uses)
            outs = RULES[name].apply(program, eqn.replace(params=Parameters(name, eqn.params)), args)
        elif any(a.dtype == object for a in args):
            raise UnsupportedPrimitive(name)
        else:
            check_xla()
            outs = eqn.primitive.bind(*args, **eqn.params)
            outs = outs if eqn.primitive.multiple_results else [outs]
        for var, out in zip(eqn.outvars, outs, strict=True):
            env[var] = _settled(out, var.aval)
    return [read(v) for v in jaxpr.outvars]


def _check_width(eqn: Any, args: list[Values]) -> None:
    """Reject narrow types: everything is computed in 64 bits, without their rounding and overflow."""
    name = eqn.primitive.name
    if name in MOVES or not any(_array(a).dtype == object for a in args):
        return
    for var in eqn.outvars:
        if is_narrow(var.aval.dtype):
            raise UnsupportedPrimitive(name, f" in {var.aval.dtype.name}")


def _settled(x: Values, aval: Any) -> Values:
    """Return x in the shape of its abstract value, as an array of numbers if all elements are constants."""
    if is_random_key(x):
        return x
    x = np.asarray(x).reshape(aval.shape)
    if x.dtype == object and not any(isinstance(v, Name) for v in x.flat):
        return x.astype(aval.dtype)
    return x


def _array(x: Any) -> Values:
    """Return x as a NumPy array, except for a random key of JAX, on which operations are folded."""
    return x if is_random_key(x) else np.asarray(x)


@rule(*CALLS, uses="jaxpr call_jaxpr fun_jaxpr")
def _call(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    inner = called_jaxpr(eqn.primitive.name, eqn.params)
    return scalarise(program, inner, args) if hasattr(inner, "consts") else _walk(program, inner, [], args)


@rule("custom_linear_solve", uses="const_lengths jaxprs")
def _custom_linear_solve(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    """Evaluate the `solve` function; the other ones serve differentiation, which is done before."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    right_hand_side = args[sum(lengths) :]
    return scalarise(program, jaxprs.solve, [*args[before : before + lengths.solve], *right_hand_side])


@rule("cond", uses="branches")
def _cond(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    which, *operands = args
    branches = eqn.params["branches"]
    if which.dtype != object:
        return scalarise(program, branches[int(np.clip(which, 0, len(branches) - 1))], operands)
    results = [scalarise(program, b, operands) for b in branches]  # all branches are evaluated, one is selected
    return [select_n(program, eqn, [which, *cases])[0] for cases in zip(*results, strict=True)]


@rule("platform_index", uses="platforms has_default")
def _platform_index(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    return [np.array(platform_index(eqn.params), np.int32)]


@rule("scan", uses="ft_in ft_out jaxpr length num_carry num_consts reverse")
def _scan(program: Program, eqn: Any, args: list[Values]) -> list[Values]:
    p = eqn.params
    n_consts, n_carry = scan_counts(p, len(args))
    consts, carry, sequences = args[:n_consts], args[n_consts : n_consts + n_carry], args[n_consts + n_carry :]
    stacked: list[list[Values]] = []
    steps = range(p["length"])
    for k in reversed(steps) if p["reverse"] else steps:
        outs = scalarise(program, p["jaxpr"], [*consts, *carry, *[s[k] for s in sequences]])
        carry = outs[:n_carry]
        stacked.append(outs[n_carry:])
    if p["reverse"]:
        stacked.reverse()
    columns = [np.stack([o.astype(object) for o in column]) for column in zip(*stacked, strict=True)]
    return [*carry, *columns]
