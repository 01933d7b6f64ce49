"""The devices: which there are, and how much they hold."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np

from asker.engines.xla.fronts import Fronts
from asker.engines.xla.layout import SLAB, Layout, n_slabs
from asker.engines.xla.schur_pattern import n_pairs

GPUS = ("gpu", "cuda", "rocm")
OPTIONS: dict[str, str | bool | int] = {
    # A program is given new arrays in every iteration: a graph of its kernels would be made anew for these.
    "xla_gpu_enable_command_buffer": "",
    # To find out which of its own matrix products is the fastest takes longer than it saves.
    "xla_gpu_enable_triton_gemm": False,
    # The same of those of libraries; programs that are compiled beside each other would wait for the device.
    "xla_gpu_autotune_level": 0,
}
"""Of the compiler, on a GPU."""


class DeviceError(ValueError):
    """The devices or hosts that were asked for cannot be used."""


@contextmanager
def errors_explained() -> Iterator[None]:
    """What JAX says while it runs, in words that help."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        said = str(error).splitlines()[0]
        if "RESOURCE_EXHAUSTED" in said:
            raise MemoryError(f"a device is full: {said}; use more devices, or linear_solver='cg'") from None
        if jax.process_count() > 1:
            raise DeviceError(f"another process of this run has died or cannot be reached any more: {said}") from None
        raise


def available(n: int | None = None, own: bool = False) -> list[Any]:
    """JAX's devices, over all hosts, or this process's own."""
    try:
        found = jax.local_devices() if own else jax.devices()
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        advice = "is jax installed with its CUDA build (pip install 'jax[cuda12]'), and is there a GPU?"
        raise DeviceError(f"JAX finds no device to run on: {said}; {advice}") from None
    if found[0].platform not in GPUS and "JAX_PLATFORMS" not in os.environ:
        reason = (
            "JAX has no build for it (pip install 'jax[cuda12]')" if os.path.exists("/dev/nvidia0") else "none found"
        )
        warnings.warn(f"engine xla without a GPU ({reason}): it runs on the CPU, where cpu is faster", stacklevel=3)
    if n is not None and not 1 <= n <= len(found):
        raise DeviceError(f"{n} devices were asked for, and JAX finds {len(found)}")
    return sorted(found, key=lambda device: (device.process_index, device.id))[:n]


def compiler_options(device: Any) -> dict[str, str | bool | int]:
    """How XLA makes programs for a device: of `OPTIONS` those that it knows."""
    return {name: x for name, x in OPTIONS.items() if is_known(name, x)} if device.platform in GPUS else {}


@cache
def is_known(option: str, value: str | bool | int) -> bool:
    """Whether XLA knows a compiler option: they come and go."""
    try:
        jax.jit(lambda x: x + 1, compiler_options={option: value})(0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def own_part(x: jax.Array) -> np.ndarray:
    """What this process's devices hold of an array."""
    if x.is_fully_replicated:
        return np.asarray(x)
    shards = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def fetch(x: jax.Array) -> np.ndarray:
    """The whole array on this host; where there are several, all of them must ask."""
    if getattr(x, "is_fully_addressable", True) or x.is_fully_replicated:
        return np.asarray(x)
    from jax.experimental import multihost_utils

    with errors_explained():
        return multihost_utils.process_allgather(x, tiled=True)


# ------------------------------------------------------------------ memory


def estimate(layout: Layout, solver: str, fronts: Fronts | None = None) -> int:
    """Bytes that one device will need, at the fullest moment of an iteration; generous."""
    structure, k = layout.structure, layout.n_devices
    e = structure.eliminated
    d = 0 if e is None else e.manifold.tangent
    n, total = structure.n_kept, 0.0
    for f, source in zip(structure.factors, layout.sources, strict=True):
        m, p, D, K = len(source) // k, f.p, f.width, f.kept_width
        data = sum(x[:1].nbytes for x in f.factors.data) + 4 * (len(f.factors.slots) + 2 * len(f.kept)) + 24
        edges = sum(A.dim * B.dim for i, A in enumerate(f.kept) for B in f.kept[i + 1 :])
        total += m * (data + 8 * (12 + (2 if solver == "cg" else 1) * d * K + edges))
        on_the_way = 2 * p * (D + 1) + 2 * d * K + 2 * sum(s.dim * (s.dim + 3) // 2 for s in f.kept)
        total += 8 * on_the_way * m / n_slabs(m)
    if e is not None:
        total += layout.n_local * 8 * (4 * e.manifold.ambient + 3 * d + d * (d + 1))
    total += sum(8 * len(v) * (4 * v.manifold.ambient + 6 * v.manifold.tangent**2) for v in structure.kept)
    if solver != "cg":
        pairs = n_pairs(layout) / k
        in_matrix = 4 * n**2 if fronts is None else 3 * fronts.numbers
        total += 8 * in_matrix + 10 * pairs + 8 * d * d * min(pairs, SLAB)
    return int(total)


def memory_of(device: Any) -> int | None:
    """Bytes that a device has for arrays; of a CPU, its share of what is free.  None when nobody says."""
    stats = device.memory_stats() if hasattr(device, "memory_stats") else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    if device.platform == "cpu" and os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024 // jax.local_device_count()
    return None


def check_memory(need: int, devices: list[Any]) -> None:
    own = [device for device in devices if device.process_index == jax.process_index()]
    there = memory_of(own[0]) if own else None
    if there is not None and need > there:
        raise MemoryError(
            f"about {gigabytes(need)} are needed on each of {len(devices)} {devices[0].platform} devices, and one has "
            f"{gigabytes(there)}; use more devices, linear_solver='cg', or a part of the observations"
        )


def gigabytes(n: float) -> str:
    return f"{n / 1e9:.3g} GB"


def plan(need: int, solver: str, devices: list[Any]) -> str:
    """One line for a person, before the run."""
    there = memory_of(devices[0]) if devices[0].process_index == jax.process_index() else None
    of = "" if there is None else f" of {gigabytes(there)}"
    kind = devices[0].device_kind
    hosts = f" on {jax.process_count()} hosts" if jax.process_count() > 1 else ""
    return f"xla: {len(devices)} x {kind}{hosts}, {solver}, about {gigabytes(need)}{of} on each"
