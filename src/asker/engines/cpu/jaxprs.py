"""From a traced JAX function to a scalar program.

`scalarise` walks a jaxpr whose arrays are arrays of scalar values.  Elementwise primitives become one statement per
scalar, data movement moves the values, sums and products unroll, and nested calls are walked in place.  Constants
are NumPy arrays; whatever depends on constants alone is folded.  The rules stand in one table, `RULES`.
"""

from typing import Any

import numpy as np

from asker.engines.cpu import movement  # noqa: F401  fills the table
from asker.engines.cpu.rules import RULES, UnsupportedPrimitive, Values, rule, select_n
from asker.engines.cpu.scalars import Name, Program


def scalarise(program: Program, closed_jaxpr: Any, inputs: list[Values]) -> list[Values]:
    """Walk a ClosedJaxpr; the outputs as arrays of values."""
    return _walk(program, closed_jaxpr.jaxpr, [np.asarray(c) for c in closed_jaxpr.consts], inputs)


def _walk(program: Program, jaxpr: Any, consts: list[Values], inputs: list[Values]) -> list[Values]:
    env: dict[Any, Values] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom):
        return np.asarray(atom.val) if hasattr(atom, "val") else env[atom]

    for eqn in jaxpr.eqns:
        args = [read(v) for v in eqn.invars]
        rule = RULES.get(eqn.primitive.name)
        if rule is not None:
            outs = rule(program, eqn, args)
        elif any(a.dtype == object for a in args):
            raise UnsupportedPrimitive(eqn.primitive.name)
        else:
            outs = eqn.primitive.bind(*args, **eqn.params)
            outs = outs if eqn.primitive.multiple_results else [outs]
        for var, out in zip(eqn.outvars, outs, strict=True):
            env[var] = _settled(out, var.aval)
    return [read(v) for v in jaxpr.outvars]


def _settled(x: Values, aval: Any) -> Values:
    """With the shape that JAX promises, and as plain numbers once no name is left in it."""
    x = np.asarray(x).reshape(aval.shape)
    if x.dtype == object and not any(isinstance(v, Name) for v in x.flat):
        return x.astype(aval.dtype)
    return x


@rule("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
@rule("remat", "remat2", "checkpoint")
def _call(program, eqn, args):
    inner = next(eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params)
    if hasattr(inner, "consts"):
        return scalarise(program, inner, args)
    return _walk(program, inner, [], args)


@rule("cond")
def _cond(program, eqn, args):
    which, *operands = args
    branches = eqn.params["branches"]
    if which.dtype != object:
        return scalarise(program, branches[int(np.clip(which, 0, len(branches) - 1))], operands)
    results = [scalarise(program, b, operands) for b in branches]  # all are computed, one is chosen
    return [select_n(program, eqn, [which, *cases])[0] for cases in zip(*results, strict=True)]


@rule("scan")
def _scan(program, eqn, args):
    p = eqn.params
    n_consts, n_carry = p["num_consts"], p["num_carry"]
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
