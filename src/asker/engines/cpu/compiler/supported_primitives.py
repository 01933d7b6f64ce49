"""The list of supported and unsupported JAX primitives, as documentation."""

from typing import NamedTuple

from asker.engines.cpu.compiler import jaxprs, linear_algebra, movement_rules
from asker.tracing.unsupported_primitives import NOT_COMPILED_BY_REASON

LIMITS = {
    f"matrices of at most {linear_algebra.MAX_MATRIX_ROWS} rows": ("cholesky", "lu", "triangular_solve"),
    f"at most {movement_rules.MAX_SORT_LENGTH} values": ("sort",),
    f"constant indices, or computed ones of at most {movement_rules.MAX_INDEX_TARGETS} possible values": (
        "dynamic_slice", "dynamic_update_slice", "gather", "scatter", "scatter-add",
    ),
    "real numbers": ("div",),
    "numbers of 64 bits": ("bitcast_convert_type",),
}  # fmt: skip
"""Limits of rules, with the primitives they apply to."""


class Primitives(NamedTuple):
    """The primitives of JAX, by whether the compiler supports them."""

    compiled: dict[str, str]
    """Supported primitives, with the limit of their support; an empty text if there is none."""
    left_out: dict[str, str]
    """Unsupported primitives, with the reason.  A function that uses one is run by XLA, with a warning."""


def primitives() -> Primitives:
    """Return the JAX primitives that the CPU compiler supports, and those that it does not.

    `jax.make_jaxpr(residual)(...)` lists the primitives that a function uses.

    Returns
    -------
    Primitives
        `compiled` maps each supported primitive to its limit, `left_out` each unsupported one to the reason.
    """
    limits = {name: limit for limit, names in LIMITS.items() for name in names}
    compiled = {name: limits.get(name, "") for name in sorted(jaxprs.RULES)}
    return Primitives(
        compiled, dict(sorted((name, why) for why, names in NOT_COMPILED_BY_REASON.items() for name in names))
    )
