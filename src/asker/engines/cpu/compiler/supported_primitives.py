"""Which primitives of JAX the compiler knows, for people to read."""

from typing import NamedTuple

from asker.engines.cpu.compiler import jaxprs, linear_algebra, movement_rules
from asker.tracing.unsupported_primitives import LEFT_OUT

LIMITS = {
    f"matrices of at most {linear_algebra.LARGEST} rows": ("cholesky", "lu", "triangular_solve"),
    f"at most {movement_rules.LONGEST_SORTED} values": ("sort",),
    f"an index that is computed, among at most {movement_rules.MOST_PLACES} places": (
        "dynamic_slice", "dynamic_update_slice", "gather", "scatter", "scatter-add",
    ),
    "real numbers": ("div",),
    "numbers of 64 bits": ("bitcast_convert_type",),
}  # fmt: skip
"""How far some rules go, and which they are."""


class Primitives(NamedTuple):
    """The primitives of JAX, as the compiler sees them."""

    compiled: dict[str, str]
    """Those that become scalar code, and how far: an empty text where there is no limit."""
    left_out: dict[str, str]
    """Those that do not, and why.  A function that uses one is run by XLA, and the user is told."""


def primitives() -> Primitives:
    """Which primitives of JAX are compiled, and which are left out for what reason.

    `jax.make_jaxpr(residual)(...)` shows those that a function uses.
    """
    limits = {name: limit for limit, names in LIMITS.items() for name in names}
    compiled = {name: limits.get(name, "") for name in sorted(jaxprs.RULES)}
    return Primitives(compiled, dict(sorted((name, why) for why, names in LEFT_OUT.items() for name in names)))
