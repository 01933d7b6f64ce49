"""The XLA engine agrees with the CPU engine."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from conftest import data_path

import asker
import linear_problems
from asker import _solve
from asker.applications.bundle.bal import read_bal, write_bal
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.cli import main
from asker.engines.cpu.engine import CpuEngine
from asker.engines.interface import Model, Tried, psi
from asker.engines.solvers import CG
from asker.engines.sparsity import Structure
from asker.engines.xla import devices, layout, programs, small_matrices
from asker.engines.xla.blocks import safe_inverse
from asker.engines.xla.engine import XlaEngine
from asker.engines.xla.residuals import FactorFunctions
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.tracing.array_namespace import float64
from linear_problems import (
    EVERY_STRUCTURE,
    bundle,
    close,
    fixed_cameras,
    graph,
    graph_and_points,
    line_problem,
    make_setup,
    many_small_problems,
    one_variable,
    points_observed_once,
    priors,
    reduced_groups_in_separate_factors,
    some_fixed_variables,
    traced,
    two_cameras_and_a_point,
    two_kinds_of_observations,
    two_reduced_groups,
    unobserved_points,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:engine xla without a GPU")]
METHODS = sorted(asker.METHODS)
EXACT_CG = CG(**linear_problems.EXACT_CG)

# ------------------------------------------------------------------ the linear system


def traced_setup(structure):
    setup = make_setup(structure)
    return replace(setup, problem=Problem(*map(traced, setup.observations)))


def flat(engine, step):
    return np.concatenate(
        [engine._whole_rows(v, engine.placement.fetch_rows(v, step.delta[v])).ravel() for v in engine.free]
    )


def checked_step(structure, solver, relative):
    setup = traced_setup(structure)
    engine = XlaEngine(setup.problem, solver, relative_damping=relative)
    start, model = engine.start(), setup.model(engine)
    step = engine.solve(start, model, 0.03)
    assert close(flat(engine, step), setup.step(0.03, relative))
    return setup, engine, start, model, step


def check_step(structure, solver, relative):
    setup, engine, start, model, step = checked_step(structure, solver, relative)
    along = [r @ J @ flat(engine, step) for r, J, *_ in setup.rows()]
    radial = np.concatenate(engine.in_user_order(engine.radial(step)))
    np.testing.assert_allclose(radial, along, rtol=1e-10, atol=1e-10)
    return setup, engine, start, model


@EVERY_STRUCTURE
def test_dense_step_is_that_of_the_whole_matrix(structure):
    check_step(structure, "dense-cholesky", relative=True)


PATTERNS = [
    bundle,
    two_reduced_groups,
    reduced_groups_in_separate_factors,
    priors,
    some_fixed_variables,
    fixed_cameras,
    points_observed_once,
    unobserved_points,
    graph,
    graph_and_points,
    one_variable,
    many_small_problems,
]
"""Structures with other couplings of kept variables; the assembled matrix is that of the dense solver."""


@pytest.mark.parametrize("structure", PATTERNS, ids=lambda s: s.__name__)
def test_sparse_step_is_that_of_the_whole_matrix(structure):
    checked_step(structure, "sparse-cholesky", relative=True)


def test_a_sparse_matrix_that_is_not_positive_definite_gives_no_step():
    setup = traced_setup(graph)
    setup.a = [a - 10.0 for a in setup.a]
    engine = XlaEngine(setup.problem, "sparse-cholesky")
    assert engine.solve(engine.start(), setup.model(engine), 1e-3) is None


ITERATED = [
    bundle,
    two_reduced_groups,
    priors,
    graph,
    two_cameras_and_a_point,
]


@pytest.mark.parametrize("structure", ITERATED, ids=lambda s: s.__name__)
def test_iterated_step_is_that_of_the_whole_matrix(structure):
    check_gradients(*check_step(structure, EXACT_CG, relative=False))


def check_gradients(setup, engine, start, model):
    g = sum(c * J.T @ r for r, J, _, _, c in setup.rows())
    h = sum(a * J.T @ r for r, J, a, _, _ in setup.rows())
    products = engine.gradient_products(start, model.c, model.a)
    np.testing.assert_allclose(products, [g @ g, g @ h, h @ h], rtol=1e-10, atol=1e-10)


def test_power_series_as_preconditioner():
    check_step(bundle, replace(EXACT_CG, order=3), relative=True)


def test_sums_in_slabs_give_the_same(monkeypatch):
    monkeypatch.setattr(layout, "MAX_SLAB_PAIRS", 16)
    check_step(two_kinds_of_observations, "dense-cholesky", relative=False)


@pytest.mark.parametrize("solver", ["dense-cholesky", EXACT_CG], ids=["dense", "cg"])
@pytest.mark.parametrize("structure", [two_kinds_of_observations, two_reduced_groups], ids=lambda s: s.__name__)
def test_observations_in_slabs_give_the_same(monkeypatch, structure, solver):
    monkeypatch.setattr(layout, "MAX_SLAB_OBSERVATIONS", 7)
    setup, engine, start, model = check_step(structure, solver, relative=True)
    assert any(len(o.by_kept[0].segment) > 1 for o in engine._arrays[0] if o.by_kept)  # there are several
    check_gradients(setup, engine, start, model)


@pytest.mark.parametrize("structure", [bundle, graph, two_cameras_and_a_point], ids=lambda s: s.__name__)
def test_matrices_of_many_numbers_give_the_same(monkeypatch, structure):
    monkeypatch.setattr(small_matrices, "MAX_ENTRIES_AS_ARRAYS", 0)
    check_step(structure, "dense-cholesky", relative=True)


def trial_step(verbs, point, a, *, lam):
    """Trial function with all verbs that a program can have."""
    model = Model(a, None, a)
    step = verbs.solve(point, model, lam)
    if step is None:
        return None
    moved = verbs.move(step)
    return Tried(moved, (verbs.each(twice, point, verbs.radial(step)),), verbs.total(weighted_and_cost, moved, a))


def twice(kernel, u, x):
    return 2 * x


def weighted_and_cost(kernel, u, a):
    return a * u, kernel.psi(u)


@pytest.mark.parametrize("solver", ["dense-cholesky", "sparse-cholesky", EXACT_CG], ids=["dense", "sparse", "cg"])
def test_verbs_in_one_program_agree_with_single_verbs(solver):
    setup = traced_setup(two_kinds_of_observations)
    engine = XlaEngine(setup.problem, solver)
    start, (a, _, _) = engine.start(), setup.model(engine)
    expected, ours = trial_step(engine, start, a, lam=0.03), engine.together(trial_step, start, a, lam=0.03)
    np.testing.assert_allclose(ours.totals, expected.totals, rtol=1e-12)
    for x, y in (
        (ours.point.theta, expected.point.theta),
        (ours.point.u, expected.point.u),
        (ours.arrays[0], expected.arrays[0]),
    ):
        for mine, other in zip(x, y, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
    nowhere = engine.in_own_order(tuple(np.full(f.n, np.nan) for f in setup.problem.factors))
    assert engine.together(trial_step, start, nowhere, lam=0.03) is None


def test_a_device_does_not_wait_for_the_host_between_solving_and_moving():
    setup = traced_setup(two_kinds_of_observations)
    engine = XlaEngine(setup.problem, "sparse-cholesky")
    nowhere = engine.in_own_order(tuple(np.full(f.n, np.nan) for f in setup.problem.factors))
    moved = []

    def trial(verbs, point, a):
        step = verbs.solve(point, Model(a, None, a), 0.03)
        moved.append(verbs.move(step))  # of no step, as it turns out
        return Tried(moved[-1], (), ())

    assert engine.together(trial, engine.start(), nowhere) is None
    assert [isinstance(point.finite, jax.Array) for point in moved] == [False, True]  # compiled first, and then run


def test_consecutive_programs_are_compiled_in_parallel_and_once(caplog, monkeypatch):
    setup = traced_setup(two_kinds_of_observations)
    engine = XlaEngine(setup.problem, "sparse-cholesky")
    start, (a, _, _) = engine.start(), setup.model(engine)
    monkeypatch.setattr(programs, "interruptible", lambda work: work())
    with jax.log_compiles():  # of this thread
        assert engine.together(trial_step, start, a, lam=0.03) is not None
        assert engine.together(trial_step, start, a, lam=0.02) is not None
        assert not [line for line in caplog.messages if "Finished XLA compilation" in line]
        assert len([line for line in caplog.messages if "Compiling" in line]) > 3
        engine.largest(psi, start)
        assert [line for line in caplog.messages if "Finished XLA compilation" in line]  # the log would contain it


def test_the_change_along_a_step_needs_no_derivatives_in_other_directions(monkeypatch):
    setup = traced_setup(bundle)
    engine = XlaEngine(setup.problem)
    step = engine.solve(engine.start(), setup.model(engine), 1e-3)
    monkeypatch.setattr(FactorFunctions, "linearised", None)
    assert all(np.isfinite(x).all() for x in engine.radial(step))


@pytest.mark.parametrize("d", [3, 12])
def test_blocks_are_inverted_where_they_are_safely_positive_definite(d):
    rng = np.random.default_rng(d)
    A = rng.normal(size=(3, d, d))
    whole = A @ np.swapaxes(A, 1, 2) + np.eye(d)
    taken = np.stack([0.5 * np.eye(d), 2 * whole[1], 0 * whole[2]])  # leaves a good one, none, and none at all
    whole[2] = -np.eye(d)
    with float64():
        found = np.asarray(safe_inverse(whole, taken))
    expected = np.stack([np.linalg.inv(whole[0] - taken[0]), np.linalg.inv(whole[1]), np.eye(d)])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_an_indefinite_matrix_is_solved_and_a_nonfinite_step_is_rejected():
    setup = traced_setup(graph)
    setup.a = [a - 0.3 for a in setup.a]
    engine = XlaEngine(setup.problem)
    start = engine.start()
    step = engine.solve(start, setup.model(engine), 1e-3)
    assert close(flat(engine, step), setup.step(1e-3))
    setup.a[0][3] = np.nan
    assert engine.solve(start, setup.model(engine), 1e-3) is None


def test_tracks_are_distributed_evenly():
    made = bundle_problem(make_scene(8, 600).start)
    dealt = layout.Layout(Structure(made.problem), 3)
    (o,) = dealt.observations
    lengths = np.bincount(made.bundle.point_index)
    assert o.n_used.sum() == 600
    assert np.ptp(o.n_used) <= lengths.max()
    per_device = [np.sort(lengths[dealt.device == d]) for d in range(3)]
    assert max(map(len, per_device)) - min(map(len, per_device)) <= 1
    order = dealt.sorted(0, np.arange(600), fill=-1)
    np.testing.assert_array_equal(dealt.unsorted(0, order), np.arange(600))


# ------------------------------------------------------------------ the same iterates as the CPU engine


def scene_with_fixed_gauge():
    """Return a scene in which all directions are determined, so that rounding errors do not grow.

    In other scenes two solvers of the CPU differ by 1e-7, too.
    """
    made = bundle_problem(make_scene(8, 600, start_error=0.7, outlier_ratio=0.05, mean_track=8.0).start)
    made.cameras.fixed[:2] = True
    return made.problem


@pytest.fixture(scope="module")
def both():
    problem = scene_with_fixed_gauge()
    return CpuEngine(problem), XlaEngine(problem)


def iterate(engine, strategy, n=5):
    run = _solve.SolveLoop(0.0, None)
    run.run(engine, strategy, engine.start(), n, tol=0.0, time_limit=None)
    return run


@pytest.mark.parametrize("method", METHODS)
def test_first_five_iterates_are_those_of_the_cpu(both, method):
    """Rounding errors grow by 1/λ: two solvers of the CPU differ by 2e-9 after a step of Triggs with λ = 1e-8."""
    expected, ours = (iterate(engine, asker.METHODS[method]()) for engine in both)
    assert [h.accepted for h in ours.history] == [h.accepted for h in expected.history]
    tol = 1e-8 * max(1.0, 1e-6 / min(h.damping for h in expected.history))
    np.testing.assert_allclose([h.cost for h in ours.history[:-1]], [h.cost for h in expected.history[:-1]], rtol=1e-8)
    assert ours.history[-1].cost == pytest.approx(expected.history[-1].cost, rel=tol)
    for a, b in zip(both[1].rows(ours.best.point), both[0].rows(expected.best.point), strict=True):
        assert np.linalg.norm(a - b) <= tol * np.linalg.norm(b)


def test_nothing_is_compiled_again(both, caplog):
    """The programs have λ, levels and scales as arguments."""
    for strategy in (asker.GNC(levels=2), asker.ASKER()):
        iterate(both[1], strategy, 4)
    with jax.log_compiles():
        for strategy in (asker.GNC(levels=3), asker.ASKER(damping=0.3, s0=3.0)):
            iterate(both[1], strategy, 9)
        assert not [line for line in caplog.messages if "Compiling" in line]
        jax.jit(lambda x: x + 1)(1.0)
        assert [line for line in caplog.messages if "Compiling" in line]  # the log would contain it


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("name", ["49-7776", "16-22106", "21-11315"])
def test_first_five_iterates_on_a_bal_file(name):
    """The gauge is free in these files: rounding errors grow by 1/λ, and for λ < 1e-6 two CPU solvers differ by 1e-5.

    The order of sums alone moves the fifth cost of sqrt-psi on trafalgar-21 by 1e-9 to 3e-7 of it.
    """
    made = bundle_problem(read_bal(data_path(f"bal/problem-{name}-pre.txt.bz2")))
    engines = CpuEngine(made.problem), XlaEngine(made.problem)
    for method in sorted(name for name in METHODS if hasattr(asker.METHODS[name](), "damping")):  # composed: of a part
        strategy = replace(asker.METHODS[method](), damping=100.0)
        expected, ours = ([h.cost for h in iterate(engine, strategy).history] for engine in engines)
        np.testing.assert_allclose(ours[:5], expected[:5], rtol=1e-8, err_msg=method)
        np.testing.assert_allclose(ours, expected, rtol=1e-6, err_msg=method)
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


# ------------------------------------------------------------------ choosing, and bad input


def test_auto_takes_a_gpu_for_a_large_problem(monkeypatch):
    problem = line_problem()
    assert asker.solve(problem, max_iterations=1).engine == "cpu"
    monkeypatch.setattr(_solve, "_has_gpu", lambda: True)
    assert asker.solve(problem, max_iterations=1).engine == "cpu"
    monkeypatch.setattr(_solve, "MIN_GPU_RESIDUALS", 20)
    assert asker.solve(problem, max_iterations=1).engine == "xla"


def test_unsupported_options_of_xla_are_rejected():
    with pytest.raises(ValueError, match="engine must be one of auto, cpu, xla, not 'gpu'"):
        asker.solve(line_problem(), engine="gpu")
    with pytest.raises(ValueError, match="on xla, not 'reference'"):
        asker.solve(line_problem(), engine="xla", linear_solver="reference")
    with pytest.raises(ProblemError, match="p2: a residual with `jacobian=` is a NumPy function"):
        asker.solve(make_setup(bundle).problem, engine="xla")
    with pytest.raises(devices.DeviceError, match="9 devices were requested"):
        XlaEngine(line_problem(), n_devices=9)


def test_a_problem_too_large_for_the_memory_is_rejected_with_advice(monkeypatch):
    monkeypatch.setattr(devices, "memory_of", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"about .* GB are needed on each of 1 cpu dev.*1e-06 GB; use more"):
        XlaEngine(line_problem())


def test_compiler_options_that_xla_does_not_know_are_left_out():
    assert devices.is_known("xla_cpu_enable_fast_math", False)
    assert not devices.is_known("xla_cpu_enable_fast_math", "perhaps")
    assert not devices.is_known("xla_of_another_time", True)
    assert devices.compiler_options(jax.devices("cpu")[0]) == {}


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
    first, second = ([h["cost"] for h in record["history"]][1:3] for record in (run, again))
    assert second == pytest.approx(first, rel=1e-9)  # a search begins again, on the other engine
    assert main(["solve", str(file), "--engine=cpu", "--process-id=0"]) == 2
    assert "are for --engine xla" in capsys.readouterr().err
