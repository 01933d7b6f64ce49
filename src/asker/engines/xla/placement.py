"""Transfer of arrays between the host and the devices, from the user's order to that of the layout and back."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from asker.engines.xla import devices, distributed
from asker.engines.xla.blocks import AXIS
from asker.engines.xla.formulas import Widths, width
from asker.engines.xla.layout import Layout
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import Variables
from asker.tracing.array_namespace import float64

SHARDED, REPLICATED = P(AXIS), P()


class Placement:
    """The arrays of one problem on the devices of a mesh.

    Arrays of eliminated variables and of observations are sharded; those of all other variables are replicated.  If
    each process has a portion of the problem, it transfers the arrays of its portion.
    """

    def __init__(self, problem: Problem, layout: Layout, mesh: Mesh):
        self.variables, self.portion = problem.variables, problem.portion
        self.layout, self.mesh = layout, mesh
        self.eliminated = layout.structure.eliminated

    def specs(self, variables: Sequence[Variables]) -> tuple[P, ...]:
        """Return the specification of the array of each variable group."""
        return tuple(SHARDED if v is self.eliminated else REPLICATED for v in variables)

    # ------------------------------------------------------------ to the devices

    def put(self, x: np.ndarray, spec: P = SHARDED) -> jax.Array:
        """Return an array on the devices; each process provides the part of its own devices."""
        sharding = NamedSharding(self.mesh, spec)
        if self.portion and spec == SHARDED:
            return jax.make_array_from_process_local_data(
                sharding, x, (distributed.rank_and_size()[1] * len(x), *x.shape[1:])
            )
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    def put_rows(self, rows: Sequence[np.ndarray]) -> tuple[jax.Array, ...]:
        """Return the rows of every variable group on the devices."""
        pairs = zip(self.variables, rows, strict=True)
        return tuple(
            self.put(self.layout.spread(x)) if v is self.eliminated else self.put(x, REPLICATED) for v, x in pairs
        )

    def put_per_factor(self, arrays: Sequence[np.ndarray]) -> tuple[jax.Array, ...]:
        """Return one array of per-observation numbers for each factor group on the devices."""
        if self.portion:
            arrays = [x[numbers] for x, numbers in zip(arrays, self.portion.observations, strict=True)]
        with float64():
            return tuple(self.put(self.layout.sorted(f, x)) for f, x in enumerate(arrays))

    def put_widths(self, factors: Sequence[Factors]) -> Widths:
        """Return τ of each factor group on the devices: a transfer in every iteration would take time."""
        with float64():
            return tuple(None if tau is None else self.put(tau, REPLICATED) for tau in map(width, factors))

    # ------------------------------------------------------------ to the host

    def fetch(self, x: jax.Array) -> np.ndarray:
        """Return an array on the host; if each process has a portion, the part of this process."""
        return devices.own_part(x) if self.portion else devices.fetch(x)

    def fetch_rows(self, v: Variables, x: jax.Array) -> np.ndarray:
        """Return the rows of a variable group in the user's order."""
        rows = self.fetch(x)
        return rows[self.layout.at] if v is self.eliminated else np.array(rows)

    def fetch_per_factor(self, arrays: Sequence[jax.Array]) -> tuple[np.ndarray, ...]:
        """Return per-observation numbers of each factor group in the user's order."""
        return tuple(self.layout.unsorted(f, self.fetch(x)) for f, x in enumerate(arrays))
