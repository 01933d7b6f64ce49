"""Programs over all devices of a mesh, compiled by XLA once each.

XLA compiles a program mostly on one core.  If an iteration consists of several programs, a first pass calls each of
them with shapes in place of arrays, so that they compile in parallel (`Precompilation`); later calls use the compiled
programs.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from asker.engines.xla.devices import GPUS
from asker.io.interrupts import interruptible
from asker.tracing.jax_compat import shard_map

HOST_READS = "host reads"
"""Specification of results that the host reads; they are the same on all devices."""


def specifications(specs: Any) -> Any:
    """Return specifications for `shard_map`, with `HOST_READS` replaced by a replicated array."""
    return jax.tree.map(lambda spec: P() if spec == HOST_READS else spec, specs, is_leaf=lambda x: isinstance(x, P))


def shardings(mesh: Mesh, specs: Any) -> Any:
    """Return the shardings of arrays with these specifications.

    On a single GPU, results for the host are written to pinned host memory, since a transfer would take 0.2 ms.
    """
    host = "pinned_host" if mesh.size == 1 and mesh.devices.flat[0].platform in GPUS else None

    def sharding(spec: Any) -> NamedSharding:
        return NamedSharding(mesh, P(), memory_kind=host) if spec == HOST_READS else NamedSharding(mesh, spec)

    return jax.tree.map(sharding, specs, is_leaf=lambda x: isinstance(x, P))


class Programs:
    """The programs of an engine by key; engines under other kernels share them."""

    def __init__(self, mesh: Mesh, compiler_options: dict[str, str | bool | int]):
        self.mesh, self.compiler_options = mesh, compiler_options
        self._jitted: dict[Any, Callable[..., Any]] = {}
        self._compiled: set[Any] = set()

    def jitted(self, key: Any, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """Return the program of this key; it is made from `function` at the first call."""
        if key not in self._jitted:
            sharded = shard_map(function, self.mesh, in_specs, specifications(out_specs))
            out = shardings(self.mesh, out_specs)  # on one device XLA would choose its own, and compile again
            self._jitted[key] = jax.jit(sharded, out_shardings=out, compiler_options=self.compiler_options)
        return self._jitted[key]

    def run(self, key: Any, arguments: tuple[Any, ...]) -> Any:
        """Run a program; Ctrl-C interrupts the wait for its compilation, whose result a later run uses."""
        program = self._jitted[key]
        if key not in self._compiled:
            interruptible(program.lower(*arguments).compile)  # type: ignore[attr-defined]
            self._compiled.add(key)
        return program(*arguments)


class Precompilation:
    """Programs that compile in parallel; all are compiled at the end of the `with` statement."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self._threads = ThreadPoolExecutor()
        self._pending: list[Future[Any]] = []

    def compile(self, program: Callable[..., Any], arguments: tuple[Any, ...], out_specs: Any) -> Any:
        """Begin to compile a program and return the shapes of its results; the arguments may be shapes."""
        lowered = program.lower(*arguments)  # type: ignore[attr-defined]
        self._pending.append(self._threads.submit(lowered.compile))

        def shapes(sharding: NamedSharding, part: Any) -> Any:
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

        return jax.tree.map(shapes, shardings(self.mesh, out_specs), lowered.out_info)

    def __enter__(self) -> "Precompilation":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        """Wait until all programs are compiled; after an error, wait only for those that have begun."""
        self._threads.shutdown(wait=True, cancel_futures=error is not None)
        for program in self._pending if error is None else ():
            program.result()
