"""Several hosts: how their processes come together, and leave.

JAX ends a process that waits for others in vain.  So they first meet here: everyone tells process 0 that it is there,
and only when all are does JAX begin.
"""

import inspect
import os
import re
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from asker.engines.xla.devices import DeviceError, errors_explained
from asker.problem.problem import Portion
from asker.problem.variables import ProblemError

PATIENCE = 45.0  # seconds until a host that does not answer is given up


def join(coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Come together with the other processes of a run, before JAX is used for anything.

    With nothing given, a Slurm or Kubernetes job says who takes part; outside of one this does nothing.
    """
    if coordinator is None and num_processes is None and process_id is None:
        if _in_a_slurm_job():
            coordinator, num_processes, process_id = _slurm()
        elif not _in_a_kubernetes_job():
            return
    if (coordinator is None) != (num_processes is None) or (coordinator is None) != (process_id is None):
        raise DeviceError("--coordinator, --num-processes and --process-id belong together")
    if coordinator is not None and num_processes is not None and process_id is not None:
        _check(coordinator, num_processes, process_id)
        _meet(coordinator, num_processes, process_id)
    wanted = {"initialization_timeout": 60, "heartbeat_timeout_seconds": int(PATIENCE), "shutdown_timeout_seconds": 60}
    known = inspect.signature(jax.distributed.initialize).parameters
    options: dict[str, Any] = {name: value for name, value in wanted.items() if name in known}
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id, **options)
    except (RuntimeError, ValueError, ImportError) as error:
        said = str(error).splitlines()[0]
        advice = "" if coordinator else '; a Kubernetes job needs `pip install "jax[k8s]"`, or the three options'
        raise DeviceError(f"the processes of this run did not come together: {said}{advice}") from None
    if jax.device_count() != jax.process_count() * jax.local_device_count():
        raise DeviceError(
            f"process {jax.process_index()} has {jax.local_device_count()} of {jax.device_count()} devices; all of the "
            f"{jax.process_count()} processes must have the same number"
        )


def _check(coordinator: str, num_processes: int, process_id: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise DeviceError(f"--coordinator must be HOST:PORT, got {coordinator!r}")
    if not 0 <= process_id < num_processes:
        raise DeviceError(f"--process-id must be 0 to {num_processes - 1}, got {process_id}")


def in_a_job() -> bool:
    """Whether the environment is that of one of several processes."""
    return _in_a_slurm_job() or _in_a_kubernetes_job()


def _in_a_slurm_job() -> bool:
    return "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def _slurm() -> tuple[str, int, int]:
    """The first host of the job's step listens, on a port that follows from the number of the job."""
    step = os.environ
    name = re.match(r"([^,\[]*)(?:\[([^,\-\]]*))?", step.get("SLURM_STEP_NODELIST", "localhost"))
    assert name is not None  # it matches everything
    port = 61440 + int(step.get("SLURM_JOB_ID", "0")) % 4096
    return f"{name[1]}{name[2] or ''}:{port}", int(step["SLURM_STEP_NUM_TASKS"]), int(step["SLURM_PROCID"])


def _in_a_kubernetes_job() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and "JOB_COMPLETION_INDEX" in os.environ


def _meet(coordinator: str, num_processes: int, process_id: int) -> None:
    host, _, port = coordinator.rpartition(":")
    deadline = time.monotonic() + PATIENCE
    if process_id == 0:
        _wait_for_all(int(port), num_processes, deadline)
    else:
        _report(host, int(port), num_processes, process_id, deadline)


def _wait_for_all(port: int, num_processes: int, deadline: float) -> None:
    missing = set(range(1, num_processes))
    present: list[socket.socket] = []
    try:
        with socket.create_server(("", port)) as server:
            while missing:
                server.settimeout(max(deadline - time.monotonic(), 0.01))
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    names = ", ".join(map(str, sorted(missing)))
                    raise DeviceError(
                        f"process {names} of {num_processes} did not come within {PATIENCE:.0f} s"
                    ) from None
                said = _said(connection)
                if said[:1] != ["asker"] or len(said) != 3 or not said[1].isdigit():
                    connection.close()  # somebody else
                    continue
                present.append(connection)
                if said[2] != str(num_processes):
                    raise DeviceError(
                        f"process {said[1]} was told of {said[2]} processes, process 0 of {num_processes}"
                    )
                missing.discard(int(said[1]))
            for connection in present:
                with suppress(OSError):
                    connection.sendall(b"go")
            for connection in present:  # until they have closed, so that the port is free at once
                with suppress(OSError):
                    connection.recv(1)
    except OSError as error:
        raise DeviceError(f"cannot listen on port {port} of the coordinator: {error}") from None
    finally:
        for connection in present:
            connection.close()


def _said(connection: socket.socket) -> list[str]:
    connection.settimeout(2)
    try:
        return connection.recv(64).decode(errors="replace").split()
    except OSError:
        return []


def _report(host: str, port: int, num_processes: int, process_id: int, deadline: float) -> None:
    while True:
        try:
            with socket.create_connection((host, port), timeout=5) as connection:
                connection.sendall(f"asker {process_id} {num_processes}".encode())
                connection.settimeout(max(deadline - time.monotonic(), 0.01))
                if connection.recv(2) == b"go":
                    return
                raise DeviceError(f"process 0 at {host}:{port} gave up")
        except OSError as error:
            if time.monotonic() > deadline:
                raise DeviceError(f"the coordinator {host}:{port} cannot be reached: {error}") from None
            time.sleep(0.2)


def is_first() -> bool:
    return jax.process_index() == 0


def place() -> tuple[int, int]:
    """Which process this is, and of how many."""
    return jax.process_index(), jax.process_count()


def of_all(x: np.ndarray) -> np.ndarray:
    """What each process has, (n_processes, *x.shape); the shapes must be the same."""
    x = np.ascontiguousarray(x)
    if jax.process_count() == 1 or not x.size:
        return np.repeat(x[None], jax.process_count(), axis=0)
    from jax.experimental import multihost_utils

    with errors_explained():
        as_bytes = multihost_utils.process_allgather(np.frombuffer(x.tobytes(), dtype=np.uint8))
    return np.frombuffer(np.ascontiguousarray(as_bytes).tobytes(), dtype=x.dtype).reshape(-1, *x.shape)


def largest(n: int) -> int:
    """Of the numbers that the processes have."""
    return int(of_all(np.array(n, dtype=np.int64)).max())


def added_up(x: np.ndarray) -> np.ndarray:
    """Over the processes."""
    return of_all(x).sum(axis=0, dtype=x.dtype)


def union(own: np.ndarray) -> np.ndarray:
    """Of the numbers that the processes have, ascending."""
    own = np.unique(own)
    most = largest(len(own))
    if not most:
        return own
    known = of_all(np.array(own[:1].sum() if len(own) else -1)).max()  # some number that is there fills up
    padded = np.full(most, known, dtype=own.dtype)
    padded[: len(own)] = own
    return np.unique(of_all(padded))


def whole(own: np.ndarray, numbers: np.ndarray, n: int) -> np.ndarray:
    """The array of `n` rows of which each process has some; `numbers` says which."""
    most = largest(len(own))
    rows = np.zeros((most, *own.shape[1:]), dtype=own.dtype)
    rows[: len(own)] = own
    at = np.full(most, n, dtype=np.int64)  # one row beyond the end takes what fills up
    at[: len(own)] = numbers
    out = np.zeros((n + 1, *own.shape[1:]), dtype=own.dtype)
    out[of_all(at).ravel()] = of_all(rows).reshape(-1, *own.shape[1:])
    return out[:n]


def check_portions(portion: Portion) -> None:
    """Those of all processes make the whole, and no more."""
    numbers = (portion.numbers, *portion.observations)
    found = added_up(np.array([(len(x), x.sum()) for x in numbers], dtype=np.int64))
    whole = [(n, n * (n - 1) // 2) for n in (portion.n_variables, *portion.n_observations)]
    if found.tolist() != list(map(list, whole)):
        raise ProblemError(
            f"the portions of {place()[1]} processes do not make the whole: {found[0, 0]} of "
            f"{portion.n_variables} {portion.variables.name}, {found[1:, 0].sum()} of "
            f"{sum(portion.n_observations)} observations"
        )


def check_same(what: bytes, complaint: str) -> None:
    """All hosts must hold the same."""
    everyone = of_all(np.frombuffer(what, dtype=np.uint8))
    different = np.flatnonzero((everyone != everyone[0]).any(axis=1))
    if different.size:
        raise ProblemError(f"process {different[0]} and process 0 {complaint}")


def are_several() -> bool:
    return jax.process_count() > 1


def part_ways() -> None:
    """The processes go their ways: none waits for another any more."""
    if are_several():
        jax.distributed.shutdown()


def leave(code: int) -> None:
    """End this process at once, without the good-byes that JAX waits for: after an error nobody answers them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
