"""Selection of JAX devices, and their memory."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np

from asker.engines.xla.fronts import Fronts
from asker.engines.xla.layout import MAX_SLAB_PAIRS, Layout, n_slabs
from asker.engines.xla.schur_pattern import n_pairs

GPUS = ("gpu", "cuda", "rocm")
GPU_COMPILER_OPTIONS: dict[str, str | bool | int] = {
    # The arguments of a program are new arrays in every iteration, for which XLA would rebuild a graph of its kernels.
    "xla_gpu_enable_command_buffer": "",
    # Autotuning the matrix products of XLA takes longer than it saves.
    "xla_gpu_enable_triton_gemm": False,
    # The same is true for library calls; programs that compile in parallel would also wait for the device.
    "xla_gpu_autotune_level": 0,
}
"""Compiler options for a GPU."""


class DeviceError(ValueError):
    """The requested devices or hosts cannot be used."""


@contextmanager
def errors_explained() -> Iterator[None]:
    """Translate runtime errors of JAX into errors with a remedy."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        if "RESOURCE_EXHAUSTED" in reason:
            raise MemoryError(f"out of device memory: {reason}; use more devices, or linear_solver='cg'") from None
        if jax.process_count() > 1:
            raise DeviceError(f"another process of this run has died or is unreachable: {reason}") from None
        raise


def available(n: int | None = None, local: bool = False) -> list[Any]:
    """Return the first `n` JAX devices of all hosts, or of this process only."""
    try:
        all_devices = jax.local_devices() if local else jax.devices()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        advice = "is jax installed with its CUDA build (pip install 'jax[cuda12]'), and is there a GPU?"
        raise DeviceError(f"JAX has no device to run on: {reason}; {advice}") from None
    if all_devices[0].platform not in GPUS and "JAX_PLATFORMS" not in os.environ:
        reason = (
            "JAX has no build for it (pip install 'jax[cuda12]')" if os.path.exists("/dev/nvidia0") else "none detected"
        )
        warnings.warn(
            f"engine xla without a GPU ({reason}): it runs on the CPU, where engine cpu is faster", stacklevel=3
        )
    if n is not None and not 1 <= n <= len(all_devices):
        raise DeviceError(f"{n} devices were requested, but JAX has {len(all_devices)}")
    return sorted(all_devices, key=lambda device: (device.process_index, device.id))[:n]


def compiler_options(device: Any) -> dict[str, str | bool | int]:
    """Return the compiler options for a device: those of `GPU_COMPILER_OPTIONS` that this version of XLA supports."""
    return {name: x for name, x in GPU_COMPILER_OPTIONS.items() if is_known(name, x)} if device.platform in GPUS else {}


@cache
def is_known(option: str, value: str | bool | int) -> bool:
    """Return whether this version of XLA supports a compiler option with this value."""
    try:
        jax.jit(lambda x: x + 1, compiler_options={option: value})(0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def own_part(x: jax.Array) -> np.ndarray:
    """Return the part of an array that is on the devices of this process."""
    if x.is_fully_replicated:
        return np.asarray(x)
    shards = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def fetch(x: jax.Array) -> np.ndarray:
    """Return the whole array on this host; all processes must call this."""
    if getattr(x, "is_fully_addressable", True) or x.is_fully_replicated:
        return np.asarray(x)
    from jax.experimental import multihost_utils

    with errors_explained():
        return multihost_utils.process_allgather(x, tiled=True)


# ------------------------------------------------------------------ memory


def estimate(layout: Layout, solver: str, fronts: Fronts | None = None) -> int:
    """Return an upper estimate of the peak memory of one device in an iteration, in bytes."""
    structure, k = layout.structure, layout.n_devices
    e = structure.eliminated
    d = 0 if e is None else e.manifold.tangent
    n, total = structure.n_kept, 0.0
    for f, source in zip(structure.factors, layout.sources, strict=True):
        m, p, D, K = len(source) // k, f.p, f.width, f.kept_width
        data = sum(x[:1].nbytes for x in f.factors.data) + 4 * (len(f.factors.slots) + 2 * len(f.kept)) + 24
        edges = sum(A.dim * B.dim for i, A in enumerate(f.kept) for B in f.kept[i + 1 :])
        total += m * (data + 8 * (12 + (2 if solver == "cg" else 1) * d * K + edges))
        temporary = 2 * p * (D + 1) + 2 * d * K + 2 * sum(s.dim * (s.dim + 3) // 2 for s in f.kept)
        total += 8 * temporary * m / n_slabs(m)
    if e is not None:
        total += layout.n_local * 8 * (4 * e.manifold.ambient + 3 * d + d * (d + 1))
    total += sum(8 * len(v) * (4 * v.manifold.ambient + 6 * v.manifold.tangent**2) for v in structure.kept)
    if solver != "cg":
        pairs = n_pairs(layout) / k
        in_matrix = 4 * n**2 if fronts is None else 3 * fronts.numbers
        total += 8 * in_matrix + 10 * pairs + 8 * d * d * min(pairs, MAX_SLAB_PAIRS)
    return int(total)


def memory_of(device: Any) -> int | None:
    """Return the memory of a device in bytes, for a CPU its part of the free memory, or None if it is unknown."""
    stats = device.memory_stats() if hasattr(device, "memory_stats") else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    if device.platform == "cpu" and os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024 // jax.local_device_count()
    return None


def check_memory(need: int, devices: list[Any]) -> None:
    """Raise a MemoryError if a device of this process has less memory than needed."""
    local = [device for device in devices if device.process_index == jax.process_index()]
    memory = memory_of(local[0]) if local else None
    if memory is not None and need > memory:
        raise MemoryError(
            f"about {gigabytes(need)} are needed on each of {len(devices)} {devices[0].platform} devices, but one has "
            f"{gigabytes(memory)}; use more devices, linear_solver='cg', or a subset of the observations"
        )


def gigabytes(n: float) -> str:
    return f"{n / 1e9:.3g} GB"


def plan(need: int, solver: str, devices: list[Any]) -> str:
    """Return one line for the user: devices, solver and memory."""
    memory = memory_of(devices[0]) if devices[0].process_index == jax.process_index() else None
    of = "" if memory is None else f" of {gigabytes(memory)}"
    kind = devices[0].device_kind
    hosts = f" on {jax.process_count()} hosts" if jax.process_count() > 1 else ""
    return f"xla: {len(devices)} x {kind}{hosts}, {solver}, about {gigabytes(need)}{of} on each"
