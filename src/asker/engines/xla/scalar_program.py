"""Functions of one observation, vectorised over all observations as straight-line arithmetic.

`vmap` translates a residual into batched products of small matrices, transposes and concatenations, each of which is a
pass over memory or more.  The scalar program of the compiler, with simplified derivatives, is used instead: each of its
numbers becomes one array over the observations, and XLA fuses the arithmetic into few passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.cpu.compiler import Name, NotCompiled, Program, UnsupportedPrimitive, scalarise
from asker.engines.xla.small_matrices import Small, filled
from asker.geometry.manifolds import Euclidean, Manifold
from asker.tracing.array_namespace import float64

SAME_NAME = (
    *("sqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
OPERATIONS: dict[str, Callable[..., Any]] = {name: getattr(jnp, name) for name in SAME_NAME} | {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "neg": jnp.negative,
    "pow": jnp.power,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "and": jnp.bitwise_and,
    "or": jnp.bitwise_or,
    "xor": jnp.bitwise_xor,
    "not": jnp.logical_not,
    "select": jnp.where,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "rem": jnp.fmod,
    "is_finite": jnp.isfinite,
    "float": lambda x: jnp.asarray(x, dtype=jnp.float64),
    "int": lambda x: jnp.asarray(x).astype(jnp.int64),
    "int64": lambda x: jnp.asarray(x).astype(jnp.int64),
    "logistic": lax.logistic,
    "rsqrt": lax.rsqrt,
    "round": jnp.rint,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "cbrt": jnp.cbrt,
    "exp2": jnp.exp2,
    "atan2": jnp.arctan2,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "lgamma": lax.lgamma,
}
"""Array function of each operation of a scalar program; functions with other operations use `vmap`."""


class VectorisedProgram:
    """A function of one observation as a scalar program, which is called with arrays over all observations."""

    def __init__(self, shapes: Sequence[tuple[tuple[int, ...], Any]], *functions: Callable[..., Any]):
        """
        Parameters
        ----------
        shapes
            Shape and type of every argument, for one observation.
        functions
            Equivalent functions, of which the one with the shortest program is used.

        Raises
        ------
        UnsupportedPrimitive
            If no function has a scalar program.
        """
        programs = [x for x in (_scalarised(function, shapes) for function in functions) if x is not None]
        if not programs:
            raise UnsupportedPrimitive("residual", " that has no short scalar program")
        self.statements, self.inputs, self.outputs = min(programs, key=lambda x: len(x[0]))

    def __call__(self, *arrays: jax.Array) -> list[jax.Array]:
        """Return (n, *shape) of each output, from (n, *shape) of each argument."""
        n = len(arrays[0])
        return [jnp.stack(tuple(out.ravel()), axis=1).reshape(n, *out.shape) for out in self.small(*arrays)]

    def small(self, *arrays: jax.Array) -> list[Small]:
        """Return each output as small matrices."""
        known: dict[int, jax.Array] = {}
        for names, x in zip(self.inputs, arrays, strict=True):
            flat = x.reshape(len(x), -1)
            known |= {name.index: flat[:, i] for i, name in enumerate(names.ravel())}

        def value(v: Any) -> Any:
            return known[v.index] if isinstance(v, Name) else v

        for index, operation, operands in self.statements:
            known[index] = OPERATIONS[operation](*map(value, operands))
        n = len(arrays[0])
        return [filled(out.shape, [jnp.broadcast_to(value(v), (n,)) for v in out.ravel()]) for out in self.outputs]


def retraction(manifold: Manifold) -> Callable[[Any, Any], Any]:
    """Return a function that computes x ⊞ δ for all rows x and steps δ."""
    if type(manifold) is Euclidean:  # subclasses may differ, such as those with bounds
        return jnp.add
    shapes = [((manifold.ambient,), np.float64), ((manifold.tangent,), np.float64)]
    try:
        program = VectorisedProgram(shapes, lambda x, delta: (manifold.retract(x, delta),))
    except NotCompiled:
        return jax.vmap(manifold.retract)
    return lambda rows, steps: program(rows, steps)[0]


def _scalarised(function: Callable[..., Any], shapes: Sequence[tuple[tuple[int, ...], Any]]) -> Any:
    """Return the statements, names of the inputs and values of the outputs, or None without a short program."""
    program = Program()
    try:
        inputs = [
            np.array([program.input(f"a{j}.{i}") for i in range(int(np.prod(shape)))], dtype=object).reshape(shape)
            for j, (shape, _) in enumerate(shapes)
        ]
        with float64():
            jaxpr = jax.make_jaxpr(function)(*[np.zeros(shape, dtype) for shape, dtype in shapes])
            outputs = scalarise(program, jaxpr, inputs)
        needed = program.needed([v for out in outputs for v in out.ravel()])
    except NotCompiled:
        return None
    statements = [statement for statement in needed if statement[1] != "input"]
    if any(operation not in OPERATIONS for _, operation, _ in statements):
        return None
    return statements, inputs, outputs
