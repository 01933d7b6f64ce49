"""Communication between the processes of several hosts.

JAX kills a process that waits too long for others.  So the processes first connect here: each reports to process 0, and
JAX is initialised once all are present.
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

TIMEOUT_SECONDS = 45.0  # until a host that does not answer is considered unreachable


def join(coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Connect to the other processes of a run, before any other use of JAX.

    Without arguments the processes are those of the Slurm or Kubernetes job; outside of a job this does nothing.
    """
    if coordinator is None and num_processes is None and process_id is None:
        if _in_a_slurm_job():
            coordinator, num_processes, process_id = _slurm()
        elif not _in_a_kubernetes_job():
            return
    if (coordinator is None) != (num_processes is None) or (coordinator is None) != (process_id is None):
        raise DeviceError("--coordinator, --num-processes and --process-id must be given together")
    if coordinator is not None and num_processes is not None and process_id is not None:
        _check(coordinator, num_processes, process_id)
        _connect(coordinator, num_processes, process_id)
    wanted = {
        "initialization_timeout": 60,
        "heartbeat_timeout_seconds": int(TIMEOUT_SECONDS),
        "shutdown_timeout_seconds": 60,
    }
    known = inspect.signature(jax.distributed.initialize).parameters
    options: dict[str, Any] = {name: value for name, value in wanted.items() if name in known}
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id, **options)
    except (RuntimeError, ValueError, ImportError) as error:
        reason = str(error).splitlines()[0]
        options_needed = "--coordinator, --num-processes and --process-id"
        advice = "" if coordinator else f'; a Kubernetes job needs `pip install "jax[k8s]"`, or {options_needed}'
        raise DeviceError(f"the processes of this run could not connect: {reason}{advice}") from None
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
    """Return whether this is one of several processes of a Slurm or Kubernetes job."""
    return _in_a_slurm_job() or _in_a_kubernetes_job()


def _in_a_slurm_job() -> bool:
    return "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def _slurm() -> tuple[str, int, int]:
    """Return coordinator, number of processes and process id of a Slurm job.

    The coordinator is the first host of the job's step, with a port computed from the number of the job.
    """
    step = os.environ
    name = re.match(r"([^,\[]*)(?:\[([^,\-\]]*))?", step.get("SLURM_STEP_NODELIST", "localhost"))
    assert name is not None  # the pattern matches every string
    port = 61440 + int(step.get("SLURM_JOB_ID", "0")) % 4096
    return f"{name[1]}{name[2] or ''}:{port}", int(step["SLURM_STEP_NUM_TASKS"]), int(step["SLURM_PROCID"])


def _in_a_kubernetes_job() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and "JOB_COMPLETION_INDEX" in os.environ


def _connect(coordinator: str, num_processes: int, process_id: int) -> None:
    host, _, port = coordinator.rpartition(":")
    deadline = time.monotonic() + TIMEOUT_SECONDS
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
                        f"process {names} of {num_processes} did not connect within {TIMEOUT_SECONDS:.0f} s"
                    ) from None
                message = _message(connection)
                if message[:1] != ["asker"] or len(message) != 3 or not message[1].isdigit():
                    connection.close()  # not a process of asker
                    continue
                present.append(connection)
                if message[2] != str(num_processes):
                    raise DeviceError(
                        f"process {message[1]} has --num-processes {message[2]}, process 0 has {num_processes}"
                    )
                missing.discard(int(message[1]))
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


def _message(connection: socket.socket) -> list[str]:
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


def rank_and_size() -> tuple[int, int]:
    """Return the number of this process, and of all processes."""
    return jax.process_index(), jax.process_count()


def all_gather(x: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, (n_processes, *x.shape); their shapes must be equal."""
    x = np.ascontiguousarray(x)
    if jax.process_count() == 1 or not x.size:
        return np.repeat(x[None], jax.process_count(), axis=0)
    from jax.experimental import multihost_utils

    with errors_explained():
        as_bytes = multihost_utils.process_allgather(np.frombuffer(x.tobytes(), dtype=np.uint8))
    return np.frombuffer(np.ascontiguousarray(as_bytes).tobytes(), dtype=x.dtype).reshape(-1, *x.shape)


def all_max(n: int) -> int:
    """Return the maximum of a number over the processes."""
    return int(all_gather(np.array(n, dtype=np.int64)).max())


def all_sum(x: np.ndarray) -> np.ndarray:
    """Return the sum of an array over the processes."""
    return all_gather(x).sum(axis=0, dtype=x.dtype)


def all_union(numbers: np.ndarray) -> np.ndarray:
    """Return the sorted union of the numbers of all processes."""
    local = np.unique(numbers)
    size = all_max(len(local))
    if not size:
        return local
    padding = all_gather(np.array(local[:1].sum() if len(local) else -1)).max()  # an element of the union
    padded = np.full(size, padding, dtype=local.dtype)
    padded[: len(local)] = local
    return np.unique(all_gather(padded))


def gather_rows(local: np.ndarray, numbers: np.ndarray, n: int) -> np.ndarray:
    """Return the array of `n` rows from the rows of each process; `numbers` are their positions."""
    size = all_max(len(local))
    rows = np.zeros((size, *local.shape[1:]), dtype=local.dtype)
    rows[: len(local)] = local
    at = np.full(size, n, dtype=np.int64)  # padding goes to a row after the last one
    at[: len(local)] = numbers
    out = np.zeros((n + 1, *local.shape[1:]), dtype=local.dtype)
    out[all_gather(at).ravel()] = all_gather(rows).reshape(-1, *local.shape[1:])
    return out[:n]


def check_portions(portion: Portion) -> None:
    """Raise an error unless the portions of all processes partition the problem."""
    numbers = (portion.numbers, *portion.observations)
    sums = all_sum(np.array([(len(x), x.sum()) for x in numbers], dtype=np.int64))
    expected = [[n, n * (n - 1) // 2] for n in (portion.n_variables, *portion.n_observations)]
    if sums.tolist() != expected:
        raise ProblemError(
            f"the portions of {rank_and_size()[1]} processes do not make the whole problem: {sums[0, 0]} of "
            f"{portion.n_variables} {portion.variables.name}, {sums[1:, 0].sum()} of "
            f"{sum(portion.n_observations)} observations"
        )


def check_same(content: bytes, complaint: str) -> None:
    """Raise a `ProblemError` with the complaint unless all processes have the same content."""
    contents = all_gather(np.frombuffer(content, dtype=np.uint8))
    different = np.flatnonzero((contents != contents[0]).any(axis=1))
    if different.size:
        raise ProblemError(f"process {different[0]} and process 0 {complaint}")


def is_distributed() -> bool:
    return jax.process_count() > 1


def shut_down() -> None:
    """Disconnect from the other processes, so that none waits for another."""
    if is_distributed():
        jax.distributed.shutdown()


def exit_at_once(code: int) -> None:
    """Exit without the shutdown of JAX, which after an error would wait for other processes in vain."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
