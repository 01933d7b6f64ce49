"""The XLA engine on several devices and in several processes, some of which may fail."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import asker
from asker.applications import bundle
from asker.applications.bundle import sharded_output
from asker.applications.bundle.bal import read_bal, read_bal_portion, write_bal
from asker.applications.bundle.problem import bundle_problem, reprojection_norms
from asker.applications.bundle.synthetic import make_scene
from asker.engines.xla import devices, distributed
from asker.problem.problem import Portion
from asker.problem.variables import ProblemError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:engine xla without a GPU")]
HANGS = 900  # seconds: a busy machine is slow, and no test fails by that

PROGRAM = """
import json, os, signal, sys
import asker
from asker.applications.bundle.synthetic import make_scene
from asker.engines.solvers import CG
from asker.engines.xla import distributed
from asker.applications.bundle.problem import bundle_problem, reprojection_norms

where, die = json.loads(sys.argv[1]), json.loads(sys.argv[2])
distributed.join(*where)

def on_iteration(line):
    if die is not None and line.iteration == die["at"] and (not where or where[2] == 1):
        os.kill(os.getpid(), signal.SIGKILL)

problem = bundle_problem(make_scene(8, 600).start).problem
options = {"max_iterations": 8, "tol": 0, "engine": "xla", "on_iteration": on_iteration}
if die is not None:
    try:
        asker.solve(problem, asker.ASKER(), checkpoint=die["file"], every=3, **options)
    except ValueError as error:
        print(error, flush=True)
        distributed.exit_at_once(3)
exact = CG(loosest=1e-13, tightest=1e-13, max_iterations=2000)
ways = {"auto": asker.ASKER(), "sparse-cholesky": asker.IRLS(), exact: asker.IRLS()}
each = [asker.solve(problem, strategy, linear_solver=solver, **options) for solver, strategy in ways.items()]
costs = [[line.cost for line in result.history] for result in each]
print(json.dumps(costs))
"""


def launch(where=(), die=None, n_devices=1, program=PROGRAM):
    command = [sys.executable, "-c", program, json.dumps(where), json.dumps(die)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment(n_devices), **pipes)


def environment(n_devices):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={n_devices}"
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def finished(process):
    out, err = process.communicate(timeout=HANGS)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def costs():
    """Return the costs on one device, as in `PROGRAM`, by IRLS, which has the fewest programs to compile."""
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 8, "tol": 0, "engine": "cpu"}
    by_asker, by_irls = (asker.solve(problem, strategy, **options) for strategy in (asker.ASKER(), asker.IRLS()))
    return [[line.cost for line in result.history] for result in (by_asker, by_irls, by_irls)]


def slurm(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))


@pytest.mark.parametrize(
    ("nodes", "first"), [("n1", "n1"), ("n1,n2", "n1"), ("gpu[007-015],x", "gpu007"), ("gpu[3,5-9]", "gpu3")]
)
def test_the_first_host_of_a_slurm_job_is_the_coordinator(monkeypatch, nodes, first):
    slurm(monkeypatch, STEP_NODELIST=nodes, JOB_ID=4096 + 17, STEP_NUM_TASKS=4, PROCID=3)
    assert distributed._slurm() == (f"{first}:{61440 + 17}", 4, 3)


MEETING = """
import json
from asker.engines.xla import distributed
distributed.join()
print(json.dumps([*distributed.rank_and_size(), distributed.all_max(distributed.rank_and_size()[0])]))
"""


def test_the_processes_of_a_slurm_job_find_each_other(port, monkeypatch):
    """The environment variables of `srun -n 2` are simulated."""
    job = {"JOB_ID": port, "STEP_NODELIST": "localhost", "STEP_NUM_TASKS": 2, "NTASKS": 2, "STEP_NUM_NODES": 1}
    processes = []
    for k in range(2):
        slurm(monkeypatch, **job, PROCID=k, LOCALID=k)
        processes.append(launch(program=MEETING))
    assert list(map(finished, processes)) == [[0, 2, 1], [1, 2, 1]]


def test_a_kubernetes_job_without_the_package_for_it(monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"):
        monkeypatch.setenv(name, "0")
    _, err = launch(program="import sys; sys.modules['kubernetes'] = None\n" + MEETING).communicate(timeout=HANGS)
    assert "could not connect" in err.splitlines()[-1]
    assert 'pip install "jax[k8s]"' in err.splitlines()[-1]


@pytest.fixture
def port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def test_eight_devices_give_the_costs_of_one(costs):
    np.testing.assert_allclose(finished(launch(n_devices=8)), costs, rtol=1e-9)


@pytest.mark.long
def test_two_processes_give_the_costs_of_one(costs, port):
    both = [launch((f"localhost:{port}", 2, k), n_devices=2) for k in range(2)]
    for process in both:
        np.testing.assert_allclose(finished(process), costs, rtol=1e-9)


def commands(port, files, *options, n_devices=1):
    """Run `asker solve` with one process for each file."""
    command = "import sys; from asker.cli import main; sys.exit(main(sys.argv[1:]))"
    place = f"--coordinator localhost:{port} --num-processes {len(files)} --process-id"
    return [
        subprocess.Popen(
            [sys.executable, "-c", command, "solve", str(file), *options, *place.split(), str(k)],
            env=environment(n_devices),
            stderr=subprocess.PIPE,
            text=True,
        )
        for k, file in enumerate(files)
    ]


def test_each_process_has_its_portion(port, tmp_path):
    """Two processes with a portion each resume from the checkpoint of one process, and one resumes from theirs.

    Files contain the whole problem.  The method has the fewest programs to compile; the test with eight devices uses
    ASKER.
    """
    file, run, out = tmp_path / "scene.txt", tmp_path / "run.npz", tmp_path / "out.txt"
    scene = make_scene(8, 600).start
    write_bal(file, scene)
    whole = bundle_problem(scene, asker.SmoothTruncated()).problem  # that of a command that names a method
    solved = partial(asker.solve, whole, asker.IRLS(), max_iterations=8, tol=0, engine="cpu")
    solved(on_iteration=lambda line: line.iteration == 3, checkpoint=run)
    options = f"--method irls --iterations 8 --tol 0 --json {tmp_path}/1.json --output {out} --checkpoint {run}"
    for process in commands(port, [file] * 2, *options.split(), n_devices=2):
        _, err = process.communicate(timeout=HANGS)
        assert process.returncode == 0, err
    record = json.loads((tmp_path / "1.json").read_text())
    alone = [line.cost for line in solved().history]
    np.testing.assert_allclose([line["cost"] for line in record["history"]], alone, rtol=1e-8)
    assert record["n_observations"] == scene.n_observations
    refined = read_bal(out)
    np.testing.assert_array_equal(refined.uv, scene.uv)
    for when, one in (("before", scene), ("after", refined)):
        r, depth = reprojection_norms(one, "pixel")
        figures = record["reprojection_error"][when]
        assert figures["mean"] == pytest.approx(r[depth > 0].mean(), rel=1e-6)
        assert figures["median"] == pytest.approx(np.median(r[depth > 0]), rel=1e-6)
        assert figures["n_behind"] == np.count_nonzero(depth <= 0)
    inliers = r <= record["inlier_radius"]
    assert inliers.mean() == record["inlier_ratio"]
    result = solved(checkpoint=run)
    assert len(result.history) == 9  # nothing is left to do
    assert result.cost == pytest.approx(record["cost"], rel=1e-9)


@pytest.mark.long
def test_two_processes_estimate_the_noise(port, tmp_path):
    """The estimate is nearly that of one process, which can resume from the checkpoint of two.

    It is not equal, since each process draws the trials of its own points.
    """
    file, run = tmp_path / "scene.txt", tmp_path / "run.npz"
    scene = make_scene(8, 600, noise=2.0, outlier_ratio=0.3, start_error=15.0).start
    write_bal(file, scene)
    out = tmp_path / "out.txt"
    options = f"--json {tmp_path}/2.json --checkpoint {run} --every 20 --output {out} --parts"
    told = []
    for process in commands(port, [file] * 2, *options.split()):
        told.append(process.communicate(timeout=HANGS)[1])
        assert process.returncode == 0, told[-1]
    assert "noise estimation on several processes: block coordinate moves change only points" in told[0]
    record = json.loads((tmp_path / "2.json").read_text())
    alone = bundle.refine(scene).record
    assert record["finds_noise"]
    for name, tol in (("sigma", 0.03), ("inlier_ratio", 0.05), ("inlier_limit", 0.03)):
        assert record["noise"]["reprojection"][name] == pytest.approx(alone["noise"]["reprojection"][name], rel=tol)
    assert record["inlier_ratio"] == pytest.approx(alone["inlier_ratio"], abs=0.02)
    assert not out.exists()
    sharded_output.join(file, out)
    r, depth = reprojection_norms(read_bal(out), "pixel")
    assert record["reprojection_error"]["after"]["mean"] == pytest.approx(r[depth > 0].mean(), rel=1e-6)
    assert record["reprojection_error"]["after"]["median"] == pytest.approx(np.median(r[depth > 0]), rel=1e-6)
    again = bundle.refine(scene, checkpoint=run, engine="cpu").record
    assert again["iterations"] == record["iterations"]
    assert again["cost"] == pytest.approx(record["cost"], rel=1e-8)


def test_portions_add_up_to_the_whole(tmp_path, monkeypatch):
    """A portion may have no observations, and a single portion is not accepted as the whole problem."""
    scene = make_scene(8, 600).start
    kept = scene.point_index % 3 != 2
    scene = replace(scene, **{name: getattr(scene, name)[kept] for name in ("camera_index", "point_index", "uv")})
    write_bal(tmp_path / "scene.txt", scene)
    kernel = asker.SmoothTruncated()  # else each asks all on which side of the cameras the points are
    parts = [bundle_problem(read_bal_portion(tmp_path / "scene.txt", k, 3), kernel).problem for k in range(3)]
    assert [p.factors[0].n > 0 for p in parts] == [True, True, False]
    own = []
    for p in parts:
        p.fingerprint(lambda x: own.append(x) or x)
    told = {p.fingerprint(lambda x: sum(own, np.zeros_like(x))) for p in parts}
    assert told == {bundle_problem(scene, kernel).problem.fingerprint()}
    with pytest.raises(ProblemError, match=r"portions of 1 processes do not make the whole problem: \d+ of \d+ points"):
        asker.solve(parts[0], asker.ASKER(), engine="xla")


def test_a_portion_is_checked():
    scene = make_scene(8, 600).start
    made = bundle_problem(scene)
    factors, own = made.problem.factors, np.arange(scene.n_points)
    numbers = (np.arange(scene.n_observations),)
    with pytest.raises(asker.ProblemError, match=r"portion: 3 numbers for \d+ points"):
        asker.Problem(*factors, portion=Portion(made.points, own[:3], scene.n_points, numbers, (len(numbers[0]),)))
    portion = Portion(made.points, own, scene.n_points, numbers, (len(numbers[0]),))
    problem = asker.Problem(*factors, portion=portion)
    with pytest.raises(asker.ProblemError, match="only engine='xla' can solve it"):
        asker.solve(problem, asker.ASKER(), engine="cpu")


@pytest.mark.long
def test_a_killed_run_on_eight_devices_continues_on_another_engine(costs, tmp_path):
    file = tmp_path / "run.npz"
    killed = launch(die={"at": 7, "file": str(file)}, n_devices=8)
    killed.communicate(timeout=HANGS)
    assert killed.returncode == -signal.SIGKILL
    problem = bundle_problem(make_scene(8, 600).start).problem
    result = asker.solve(problem, asker.ASKER(), max_iterations=8, tol=0, engine="cpu", checkpoint=file)
    assert [h.iteration for h in result.history] == list(range(9))
    np.testing.assert_allclose([h.cost for h in result.history], costs[0], rtol=1e-8)


@pytest.mark.long
def test_a_worker_that_dies_is_reported(port, tmp_path):
    file = tmp_path / "run.npz"
    first, second = (launch((f"localhost:{port}", 2, k), die={"at": 4, "file": str(file)}) for k in range(2))
    out, err = first.communicate(timeout=HANGS)
    second.communicate(timeout=HANGS)
    assert second.returncode == -signal.SIGKILL
    assert first.returncode == 3, err
    assert "another process of this run has died" in out
    assert file.exists()  # nothing is lost


def test_a_coordinator_that_cannot_be_reached(port, monkeypatch):
    monkeypatch.setattr(distributed, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(devices.DeviceError, match=f"coordinator localhost:{port} cannot be reached"):
        distributed.join(f"localhost:{port}", 2, 1)


def test_a_process_that_does_not_come(port, monkeypatch):
    monkeypatch.setattr(distributed, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(devices.DeviceError, match="process 1, 2 of 3 did not connect"):
        distributed.join(f"localhost:{port}", 3, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("localhost:1", None, None), "must be given together"),
        (("localhost:1", 2, 2), "must be 0 to 1, got 2"),
        (("localhost", 2, 1), "must be HOST:PORT"),
    ],
)
def test_processes_named_wrongly(given, message):
    with pytest.raises(devices.DeviceError, match=message):
        distributed.join(*given)


def test_different_files_on_different_hosts(port, tmp_path, capfd):
    files = [tmp_path / "0.txt", tmp_path / "1.txt"]
    for seed, file in enumerate(files):
        write_bal(file, make_scene(8, 600, seed=seed).start)
    for process in commands(port, files):
        _, err = process.communicate(timeout=HANGS)
        assert process.returncode == 2
        assert "process 1 and process 0 were given different files" in err


def test_without_a_compiler():
    program = """
    import sys
    for name in ("llvmlite", "rich", "typer", "matplotlib", "threadpoolctl", "requests"):
        sys.modules[name] = None
    import asker
    from asker.applications.bundle.synthetic import make_scene
    from asker.applications.bundle.problem import bundle_problem
    made = bundle_problem(make_scene(8, 600).start)
    print(asker.solve(made.problem, asker.IRLS(), max_iterations=1, engine="xla").cost)
    """
    assert finished(launch(program=textwrap.dedent(program))) < 150
