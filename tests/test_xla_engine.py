"""The XLA engine gives what the CPU engine gives, on any number of devices and processes, and after being killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
import test_linear_system as structures
from asker.cli import main
from asker.datasets import make_scene
from asker.engines.cpu.engine import CpuEngine
from asker.engines.point import Model
from asker.engines.solvers import CG
from asker.engines.structure import Structure
from asker.engines.xla import devices, hosts, layout
from asker.engines.xla.engine import XlaEngine
from asker.io.bal import read_bal, read_bal_part, write_bal
from asker.problem import Factors, Problem, ProblemError, Share
from asker.problems.bundle import bundle_problem, reprojection_norms
from conftest import data_path

pytestmark = pytest.mark.filterwarnings("ignore:engine xla without a GPU")
METHODS = sorted(asker.METHODS)
loop = sys.modules["asker.solve"]  # `asker.solve` is the function
EXACT_CG = CG(**structures.EXACT_CG)

# ------------------------------------------------------------------ the linear system


def traced(o):
    """The same observations as a JAX function."""
    n = len(o.slots)

    def affine(*arguments):
        x, r, J = arguments[:n], arguments[n], arguments[n + 1 :]
        return r + sum(A @ y for A, y in zip(J, x, strict=True))

    return Factors(affine, *o.slots, data=(o.r, *o.J), weight=o.weight)


def make_setup(structure, radial=True):
    setup = structures.make_setup(structure, radial=radial)
    return replace(setup, problem=Problem(*map(traced, setup.observations)))


def model_of(setup, engine):
    return Model(*[None if x is None else engine.in_own_order(x) for x in (setup.a, setup.b, setup.c)])


def flat(engine, step):
    return np.concatenate([engine.step_of(step, v).ravel() for v in engine.free])


def check_step(structure, solver, relative):
    setup = make_setup(structure)
    engine = XlaEngine(setup.problem, solver, relative_damping=relative)
    start, model = engine.start(), model_of(setup, engine)
    step = engine.solve(start, model, 0.03)
    assert structures.close(flat(engine, step), setup.step(0.03, relative))
    along = [r @ J @ flat(engine, step) for r, J, *_ in setup.rows()]
    radial = np.concatenate(engine.in_user_order(engine.radial(step)))
    np.testing.assert_allclose(radial, along, rtol=1e-10, atol=1e-10)
    return setup, engine, start, model


@structures.EVERY_STRUCTURE
def test_dense_step_is_that_of_the_whole_matrix(structure):
    check_step(structure, "dense-cholesky", relative=True)


ITERATED = [
    structures.bundle,
    structures.two_kept_groups,
    structures.priors,
    structures.graph,
    structures.two_cameras_and_a_point,
]


@pytest.mark.parametrize("structure", ITERATED, ids=lambda s: s.__name__)
def test_iterated_step_is_that_of_the_whole_matrix(structure):
    setup, engine, start, model = check_step(structure, EXACT_CG, relative=False)
    g = sum(c * J.T @ r for r, J, _, _, c in setup.rows())
    h = sum(a * J.T @ r for r, J, a, _, _ in setup.rows())
    products = engine.gradient_products(start, model.c, model.a)
    np.testing.assert_allclose(products, [g @ g, g @ h, h @ h], rtol=1e-10, atol=1e-10)


def test_power_series_as_preconditioner():
    check_step(structures.bundle, replace(EXACT_CG, order=3), relative=True)


def test_sums_in_slabs_give_the_same(monkeypatch):
    monkeypatch.setattr(layout, "SLAB", 16)
    check_step(structures.two_kinds_of_observations, "dense-cholesky", relative=False)


def test_an_indefinite_matrix_is_solved_and_what_is_not_finite_is_refused():
    setup = make_setup(structures.graph)
    setup.a = [a - 0.3 for a in setup.a]
    engine = XlaEngine(setup.problem)
    start = engine.start()
    step = engine.solve(start, model_of(setup, engine), 1e-3)
    assert structures.close(flat(engine, step), setup.step(1e-3))
    setup.a[0][3] = np.nan
    assert engine.solve(start, model_of(setup, engine), 1e-3) is None


def test_tracks_are_dealt_evenly():
    made = bundle_problem(make_scene(8, 600).start)
    dealt = layout.Layout(Structure(made.problem), 3)
    (o,) = dealt.observations
    lengths = np.bincount(made.bundle.point_index)
    assert o.count.sum() == 600
    assert np.ptp(o.count) <= lengths.max()
    per_device = [np.sort(lengths[dealt.device == d]) for d in range(3)]
    assert max(map(len, per_device)) - min(map(len, per_device)) <= 1
    order = dealt.sorted(0, np.arange(600), fill=-1)
    np.testing.assert_array_equal(dealt.unsorted(0, order), np.arange(600))


# ------------------------------------------------------------------ the same iterates as the CPU engine


def held_scene():
    """Every direction is determined: rounding cannot grow.  (Elsewhere two solvers of the CPU differ by 1e-7, too.)"""
    made = bundle_problem(make_scene(8, 600, start_error=0.7, outlier_ratio=0.05, mean_track=8.0).start)
    made.cameras.fixed[:2] = True
    return made.problem


@pytest.fixture(scope="module")
def both():
    problem = held_scene()
    return CpuEngine(problem), XlaEngine(problem)


def iterate(engine, strategy, n=5):
    run = loop.Run(0.0, None)
    run.loop(engine, strategy, engine.start(), n, tol=0.0, time_limit=None)
    return run


@pytest.mark.parametrize("method", METHODS)
def test_first_five_iterates_are_those_of_the_cpu(both, method):
    expected, ours = (iterate(engine, asker.METHODS[method]()) for engine in both)
    assert [h.accepted for h in ours.history] == [h.accepted for h in expected.history]
    np.testing.assert_allclose([h.cost for h in ours.history], [h.cost for h in expected.history], rtol=1e-8)
    for a, b in zip(both[1].rows(ours.best.point.theta), both[0].rows(expected.best.point.theta), strict=True):
        assert np.linalg.norm(a - b) <= 1e-8 * np.linalg.norm(b)


def test_nothing_is_compiled_again(both, caplog):
    """λ, levels and scales are arguments."""
    for strategy in (asker.GNC(levels=2), asker.ASKER()):
        iterate(both[1], strategy, 4)
    with jax.log_compiles():
        for strategy in (asker.GNC(levels=3), asker.ASKER(damping=0.3, s0=3.0)):
            iterate(both[1], strategy, 9)
        assert not [line for line in caplog.messages if "Compiling" in line]
        jax.jit(lambda x: x + 1)(1.0)
        assert [line for line in caplog.messages if "Compiling" in line]  # the log would have told


@pytest.mark.data
@pytest.mark.parametrize("name", ["49-7776", "16-22106", "21-11315"])
def test_first_five_iterates_on_a_bal_file(name):
    """Nothing is held in these files: rounding grows by 1/λ, and with λ below 1e-6 two CPU solvers differ by 1e-5."""
    made = bundle_problem(read_bal(data_path(f"bal/problem-{name}-pre.txt.bz2")))
    engines = CpuEngine(made.problem), XlaEngine(made.problem)
    for method in sorted({*METHODS} - {"gnc-last"}):  # its first steps are those of gnc, and λ is a setting of that
        strategy = replace(asker.METHODS[method](), damping=100.0)
        expected, ours = ([h.cost for h in iterate(engine, strategy).history] for engine in engines)
        np.testing.assert_allclose(ours, expected, rtol=1e-8, err_msg=method)
    expected, ours = ([h.cost for h in iterate(engine, asker.ASKER()).history] for engine in engines)
    np.testing.assert_allclose(ours, expected, rtol=1e-7)


def slope(a, b, x, y):
    return a * x + b - y


def test_weights_taus_and_numbers_as_variables():
    rng = np.random.default_rng(0)
    a, b = asker.Variables(np.zeros(4), name="a"), asker.Variables(np.zeros(3), name="b", fixed=np.array([1, 0, 0]) > 0)
    i, j = rng.integers(0, 4, 60), rng.integers(0, 3, 60)
    data = (rng.normal(size=60), rng.normal(size=60))
    options = {"weight": rng.uniform(0, 2, 60), "tau": rng.uniform(0.5, 2, 60), "kernel": asker.Cauchy()}
    problem = Problem(Factors(slope, a[i], b[j], data=data, **options))
    expected, ours = (asker.solve(problem, max_iterations=8, engine=e) for e in ("cpu", "xla"))
    assert ours.cost == pytest.approx(expected.cost, rel=1e-9)
    np.testing.assert_allclose(ours.weights[0], expected.weights[0], rtol=1e-5)
    np.testing.assert_allclose(ours.residuals[0], expected.residuals[0], atol=1e-6)
    np.testing.assert_array_equal(ours.inliers[0], expected.inliers[0])
    assert (ours.engine, ours.linear_solver) == ("xla", "dense-cholesky")
    assert ours[b][0] == 0


# ------------------------------------------------------------------ devices and processes

PROGRAM = """
import json, os, signal, sys
import asker
from asker.datasets import make_scene
from asker.engines.xla import hosts
from asker.problems.bundle import bundle_problem, reprojection_norms

where, die = json.loads(sys.argv[1]), json.loads(sys.argv[2])
hosts.join(*where)

def on_iteration(line):
    if die is not None and line.iteration == die["at"] and (not where or where[2] == 1):
        os.kill(os.getpid(), signal.SIGKILL)

problem = bundle_problem(make_scene(8, 600).start).problem
options = {"max_iterations": 8, "tol": 0, "engine": "xla", "on_iteration": on_iteration}
if die is not None:
    try:
        asker.solve(problem, checkpoint=die["file"], every=3, **options)
    except ValueError as error:
        print(error, flush=True)
        hosts.leave(3)
costs = [[line.cost for line in asker.solve(problem, linear_solver=s, **options).history] for s in ("auto", "cg")]
print(json.dumps(costs))
"""


def launch(where=(), die=None, n_devices=1, program=PROGRAM):
    flags = f"--xla_force_host_platform_device_count={n_devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program, json.dumps(where), json.dumps(die)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process):
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def costs():
    """Of one device."""
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 8, "tol": 0, "engine": "xla"}
    return [[h.cost for h in asker.solve(problem, linear_solver=s, **options).history] for s in ("auto", "cg")]


def slurm(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))


@pytest.mark.parametrize(
    ("nodes", "first"), [("n1", "n1"), ("n1,n2", "n1"), ("gpu[007-015],x", "gpu007"), ("gpu[3,5-9]", "gpu3")]
)
def test_the_first_host_of_a_slurm_job_is_the_coordinator(monkeypatch, nodes, first):
    slurm(monkeypatch, STEP_NODELIST=nodes, JOB_ID=4096 + 17, STEP_NUM_TASKS=4, PROCID=3)
    assert hosts._slurm() == (f"{first}:{61440 + 17}", 4, 3)


MEETING = """
import json
from asker.engines.xla import hosts
hosts.join()
print(json.dumps([*hosts.place(), hosts.largest(hosts.place()[0])]))
"""


def test_the_processes_of_a_slurm_job_find_each_other(port, monkeypatch):
    """The variables that `srun -n 2` sets; there is no Slurm here."""
    job = {"JOB_ID": port, "STEP_NODELIST": "localhost", "STEP_NUM_TASKS": 2, "NTASKS": 2, "STEP_NUM_NODES": 1}
    processes = []
    for k in range(2):
        slurm(monkeypatch, **job, PROCID=k, LOCALID=k)
        processes.append(launch(program=MEETING))
    assert list(map(finished, processes)) == [[0, 2, 1], [1, 2, 1]]


def test_a_kubernetes_job_without_the_package_for_it(monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"):
        monkeypatch.setenv(name, "0")
    _, err = launch(program="import sys; sys.modules['kubernetes'] = None\n" + MEETING).communicate(timeout=60)
    assert "did not come together" in err.splitlines()[-1]
    assert 'pip install "jax[k8s]"' in err.splitlines()[-1]


@pytest.fixture
def port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def test_eight_devices_give_the_costs_of_one(costs):
    np.testing.assert_allclose(finished(launch(n_devices=8)), costs, rtol=1e-9)


def test_two_processes_give_the_costs_of_one(costs, port):
    both = [launch((f"localhost:{port}", 2, k), n_devices=2) for k in range(2)]
    for process in both:
        np.testing.assert_allclose(finished(process), costs, rtol=1e-9)


def commands(port, files, *options, n_devices=1):
    """`asker solve` in a process for each file."""
    command = "import sys; from asker.cli import main; sys.exit(main(sys.argv[1:]))"
    flags = f"--xla_force_host_platform_device_count={n_devices}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    place = f"--coordinator localhost:{port} --num-processes {len(files)} --process-id"
    return [
        subprocess.Popen(
            [sys.executable, "-c", command, "solve", str(file), *options, *place.split(), str(k)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for k, file in enumerate(files)
    ]


def test_each_process_has_its_share(costs, port, tmp_path):
    """And what they read and write is of the whole: they go on where one process stopped, and one goes on with it."""
    file, run, out = tmp_path / "scene.txt", tmp_path / "run.npz", tmp_path / "out.txt"
    scene = make_scene(8, 600).start
    write_bal(file, scene)
    whole = bundle_problem(scene).problem
    asker.solve(
        whole, max_iterations=8, tol=0, engine="cpu", checkpoint=run, on_iteration=lambda line: line.iteration == 3
    )
    options = f"--iterations 8 --tol 0 --json {tmp_path}/1.json --output {out} --checkpoint {run}"
    for process in commands(port, [file] * 2, *options.split(), n_devices=2):
        _, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
    record = json.loads((tmp_path / "1.json").read_text())
    np.testing.assert_allclose([line["cost"] for line in record["history"]], costs[0], rtol=1e-8)
    assert record["n_observations"] == scene.n_observations
    refined = read_bal(out)
    np.testing.assert_array_equal(refined.uv, scene.uv)
    inliers = reprojection_norms(refined, "pixel")[0] <= record["inlier_radius"]
    assert inliers.mean() == record["inlier_ratio"]
    result = asker.solve(whole, max_iterations=8, tol=0, engine="cpu", checkpoint=run)
    assert len(result.history) == 9  # nothing is left to do
    assert result.cost == pytest.approx(record["cost"], rel=1e-9)


def test_shares_add_up_to_the_whole(tmp_path, monkeypatch):
    """One of them has no observations; and one alone is not taken for the whole."""
    scene = make_scene(8, 600).start
    kept = scene.point_index % 3 != 2
    scene = replace(scene, **{name: getattr(scene, name)[kept] for name in ("camera_index", "point_index", "uv")})
    write_bal(tmp_path / "scene.txt", scene)
    parts = [bundle_problem(read_bal_part(tmp_path / "scene.txt", k, 3)).problem for k in range(3)]
    assert [p.factors[0].n > 0 for p in parts] == [True, True, False]
    own = []
    for p in parts:
        p.fingerprint(lambda x: own.append(x) or x)
    told = {p.fingerprint(lambda x: sum(own, np.zeros_like(x))) for p in parts}
    assert told == {bundle_problem(scene).problem.fingerprint()}
    with pytest.raises(ProblemError, match=r"shares of 1 processes do not make the whole: \d+ of \d+ points"):
        asker.solve(parts[0], engine="xla")


def test_a_share_is_checked():
    scene = make_scene(8, 600).start
    made = bundle_problem(scene)
    factors, rows = made.problem.factors, np.arange(scene.n_points)
    numbers = (np.arange(scene.n_observations),)
    with pytest.raises(asker.ProblemError, match=r"share: 3 rows for \d+ points"):
        asker.Problem(*factors, share=Share(made.points, rows[:3], scene.n_points, numbers, (len(numbers[0]),)))
    share = Share(made.points, rows, scene.n_points, numbers, (len(numbers[0]),))
    problem = asker.Problem(*factors, share=share)
    with pytest.raises(asker.ProblemError, match="only engine='xla' solves"):
        asker.solve(problem, engine="cpu")


def test_a_killed_run_on_eight_devices_continues_on_another_engine(costs, tmp_path):
    file = tmp_path / "run.npz"
    killed = launch(die={"at": 7, "file": str(file)}, n_devices=8)
    killed.communicate(timeout=100)
    assert killed.returncode == -signal.SIGKILL
    problem = bundle_problem(make_scene(8, 600).start).problem
    result = asker.solve(problem, max_iterations=8, tol=0, engine="cpu", checkpoint=file)
    assert [h.iteration for h in result.history] == list(range(9))
    np.testing.assert_allclose([h.cost for h in result.history], costs[0], rtol=1e-8)


def test_a_worker_that_dies_is_reported(port, tmp_path):
    file = tmp_path / "run.npz"
    first, second = (launch((f"localhost:{port}", 2, k), die={"at": 4, "file": str(file)}) for k in range(2))
    out, err = first.communicate(timeout=60)
    second.communicate(timeout=60)
    assert second.returncode == -signal.SIGKILL
    assert first.returncode == 3, err
    assert "another process of this run has died" in out
    assert file.exists()  # nothing is lost


def test_a_coordinator_that_cannot_be_reached(port, monkeypatch):
    monkeypatch.setattr(hosts, "PATIENCE", 0.5)
    with pytest.raises(devices.DeviceError, match=f"coordinator localhost:{port} cannot be reached"):
        hosts.join(f"localhost:{port}", 2, 1)


def test_a_process_that_does_not_come(port, monkeypatch):
    monkeypatch.setattr(hosts, "PATIENCE", 0.5)
    with pytest.raises(devices.DeviceError, match="process 1, 2 of 3 did not come"):
        hosts.join(f"localhost:{port}", 3, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("localhost:1", None, None), "belong together"),
        (("localhost:1", 2, 2), "must be 0 to 1, got 2"),
        (("localhost", 2, 1), "must be HOST:PORT"),
    ],
)
def test_processes_named_wrongly(given, message):
    with pytest.raises(devices.DeviceError, match=message):
        hosts.join(*given)


def test_different_files_on_different_hosts(port, tmp_path, capfd):
    files = [tmp_path / "0.txt", tmp_path / "1.txt"]
    for seed, file in enumerate(files):
        write_bal(file, make_scene(8, 600, seed=seed).start)
    for process in commands(port, files):
        _, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "process 1 and process 0 were given different files" in err


def test_without_numba():
    program = """
    import sys
    for name in ("numba", "rich", "typer", "matplotlib", "threadpoolctl", "pooch", "requests"):
        sys.modules[name] = None
    import asker
    from asker.datasets import make_scene
    from asker.problems.bundle import bundle_problem
    print(asker.solve(bundle_problem(make_scene(8, 600).start).problem, max_iterations=1, engine="xla").cost)
    """
    assert finished(launch(program=textwrap.dedent(program))) < 150


# ------------------------------------------------------------------ checkpoints


class Killed(Exception):
    pass


def kill_at(n):
    def on_iteration(line):
        if line.iteration == n:
            raise Killed

    return on_iteration


@pytest.mark.parametrize("method", METHODS)
def test_a_run_continues_as_if_nothing_had_happened(method, tmp_path):
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 12, "tol": 0, "engine": "cpu"}
    whole = asker.solve(problem, asker.METHODS[method](), **options)
    options |= {"checkpoint": tmp_path / "run.npz", "every": 4}
    with pytest.raises(Killed):
        asker.solve(problem, asker.METHODS[method](), on_iteration=kill_at(6), **options)
    result = asker.solve(problem, asker.METHODS[method](), **options)
    assert [h.cost for h in result.history] == [h.cost for h in whole.history]
    assert result.history[-1].details == whole.history[-1].details
    assert result.cost == whole.cost
    assert result.initial_cost == whole.initial_cost


def test_a_run_of_the_cpu_continues_on_xla(tmp_path):
    problem = bundle_problem(make_scene(8, 600).start).problem
    options = {"max_iterations": 8, "tol": 0}
    whole = asker.solve(problem, engine="cpu", **options)
    options |= {"checkpoint": tmp_path / "run.npz", "every": 3}
    with pytest.raises(Killed):
        asker.solve(problem, engine="cpu", on_iteration=kill_at(5), **options)
    result = asker.solve(problem, engine="xla", **options)
    np.testing.assert_allclose([h.cost for h in result.history], [h.cost for h in whole.history], rtol=1e-8)


def line_problem(shift=0.0):
    def residual(x, t, y):
        return jnp.stack([x[0] * t + x[1] - y])

    t = np.linspace(0, 1, 20)
    x = asker.Variables(np.zeros((1, 2)), name="x")
    return Problem(Factors(residual, x[np.zeros(20, int)], data=(t, 2 * t + shift)))


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    file = tmp_path / "run.npz"
    asker.solve(line_problem(), asker.GNC(), max_iterations=3, checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.npz: this checkpoint is of another problem"):
        asker.solve(line_problem(0.1), asker.GNC(), checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.npz: this checkpoint is of another strategy.*GNC.*not IRLS"):
        asker.solve(line_problem(), asker.IRLS(), checkpoint=file)
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"run\.npz: this is no checkpoint of asker, or a broken one"):
        asker.solve(line_problem(), asker.GNC(), checkpoint=file)
    with pytest.raises(ValueError, match="every must be at least 1"):
        asker.solve(line_problem(), checkpoint=tmp_path / "new.npz", every=0)
    assert os.listdir(tmp_path) == ["run.npz"]


# ------------------------------------------------------------------ choosing, and bad input


def test_auto_takes_a_gpu_for_a_large_problem(monkeypatch):
    problem = line_problem()
    assert asker.solve(problem, max_iterations=1).engine == "cpu"
    monkeypatch.setattr(loop, "_has_gpu", lambda: True)
    assert asker.solve(problem, max_iterations=1).engine == "cpu"
    monkeypatch.setattr(loop, "WORTH_A_GPU", 20)
    assert asker.solve(problem, max_iterations=1).engine == "xla"


def test_what_xla_cannot_do_is_refused():
    with pytest.raises(ValueError, match="engine must be one of auto, cpu, xla, not 'gpu'"):
        asker.solve(line_problem(), engine="gpu")
    with pytest.raises(ValueError, match="on xla, not 'sparse-cholesky'"):
        asker.solve(line_problem(), engine="xla", linear_solver="sparse-cholesky")
    with pytest.raises(ProblemError, match="p2: a residual with `jacobian=` is a NumPy function"):
        asker.solve(structures.make_setup(structures.bundle).problem, engine="xla")
    with pytest.raises(devices.DeviceError, match="9 devices were asked for"):
        XlaEngine(line_problem(), n_devices=9)


def test_a_problem_that_does_not_fit_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(devices, "memory_of", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"about .* GB are needed on each of 1 cpu dev.*1e-06 GB; use more"):
        XlaEngine(line_problem())


def test_no_device(monkeypatch):
    def none_found():
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(devices.jax, "devices", none_found)
    with pytest.raises(devices.DeviceError, match="Unable to initialize backend 'cuda'; is jax installed"):
        XlaEngine(line_problem())


def test_the_command_line_solves_on_xla_and_continues(tmp_path, capsys):
    file, record, checkpoint = tmp_path / "scene.txt", tmp_path / "run.json", tmp_path / "run.npz"
    write_bal(file, make_scene(8, 600).start)
    options = [f"--json={record}", f"--checkpoint={checkpoint}", "--every=2", "--tol=0"]
    assert main(["solve", str(file), "--engine=xla", "--iterations=3", *options]) == 0
    assert "xla: 1 x cpu, dense-cholesky, about" in capsys.readouterr().err
    run = json.loads(record.read_text())
    assert (run["engine"], run["iterations"]) == ("xla", 3)
    assert main(["solve", str(file), "--engine=cpu", "--iterations=5", *options]) == 0
    again = json.loads(record.read_text())
    assert (again["engine"], again["iterations"]) == ("cpu", 5)
    assert [h["cost"] for h in again["history"]][:4] == [h["cost"] for h in run["history"]]
    assert main(["solve", str(file), "--engine=cpu", "--process-id=0"]) == 2
    assert "are for --engine xla" in capsys.readouterr().err
