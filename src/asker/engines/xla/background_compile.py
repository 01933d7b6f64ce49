"""Programs compiled beside each other, before they run.

XLA compiles a program on one core for the most part.  Where an iteration is several programs, a first pass over it
calls each of them with shapes in place of arrays; they are compiled at the same time, and found when they are run.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from asker.engines.xla.devices import GPUS

TOLD = "told"
"""Stands for the specification of numbers that the host reads."""


def specifications(specs: Any) -> Any:
    """The same for `shard_map`: numbers that the host reads are the same on all devices."""
    return jax.tree.map(lambda spec: P() if spec == TOLD else spec, specs, is_leaf=lambda x: isinstance(x, P))


def shardings(mesh: Mesh, specs: Any) -> Any:
    """Where arrays with these specifications lie.

    A GPU by itself writes numbers for the host into the host's memory: to fetch them takes a fifth of a millisecond.
    """
    host = "pinned_host" if mesh.size == 1 and mesh.devices.flat[0].platform in GPUS else None

    def sharding(spec: Any) -> NamedSharding:
        return NamedSharding(mesh, P(), memory_kind=host) if spec == TOLD else NamedSharding(mesh, spec)

    return jax.tree.map(sharding, specs, is_leaf=lambda x: isinstance(x, P))


class Ahead:
    """Programs that are being compiled, and are at the end of the `with` statement."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self._threads = ThreadPoolExecutor()
        self._coming: list[Future[Any]] = []

    def called(self, program: Callable, arguments: tuple[Any, ...], out_specs: Any) -> Any:
        """What the program will return, as shapes; it is compiled, and not run.  Arguments may be shapes."""
        lowered = program.lower(*arguments)  # type: ignore[attr-defined]
        self._coming.append(self._threads.submit(lowered.compile))

        def shapes(sharding: NamedSharding, part: Any) -> Any:
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

        return jax.tree.map(shapes, shardings(self.mesh, out_specs), lowered.out_info)

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        """Wait until all are compiled; after an error, for those alone that have begun."""
        self._threads.shutdown(wait=True, cancel_futures=error is not None)
        for program in self._coming if error is None else ():
            program.result()
