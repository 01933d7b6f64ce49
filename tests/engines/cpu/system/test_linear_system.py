"""Every linear solver computes the step of the dense normal equations, for every problem structure.

A new solver is tested by being listed.
"""

from collections import deque
from collections.abc import Callable

import numpy as np
import pytest

from asker.engines.cpu import cholesky, threads
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.sparse import elimination_tree, multifrontal, symbolic
from asker.engines.cpu.system import fused_jacobians, schur_complement
from asker.engines.cpu.system.schur_rows import matrix_rows
from asker.engines.solvers import CG, CPU_SOLVERS
from linear_problems import (
    EVERY_STRUCTURE,
    EXACT_CG,
    STRUCTURES,
    bundle,
    cameras,
    close,
    graph,
    make_setup,
    observe,
    pairs,
    points,
    two_cameras_and_a_point,
    two_kinds_of_observations,
    two_reduced_groups,
)

pytestmark = pytest.mark.slow

# ------------------------------------------------------------------ solvers


SOLVER_NAMES = [
    *(s for s in CPU_SOLVERS if s != "auto"),
    "pivoted",
    "small-fronts",
    "tiles",
    "power-series",
    "chunks",
]
NAMED = {
    "pivoted": "sparse-cholesky",
    "small-fronts": "sparse-cholesky",
    "tiles": "dense-cholesky",
    "chunks": "dense-cholesky",
    "cg": CG(**EXACT_CG),
    "power-series": CG(order=3, **EXACT_CG),
}


@pytest.fixture(params=SOLVER_NAMES)
def engine_of(request, monkeypatch) -> Callable[..., CpuEngine]:
    """A function that creates an engine, for each of the linear solvers."""
    name = request.param
    if name == "pivoted":
        monkeypatch.setattr(multifrontal.Multifrontal, "solve", lambda *_: None)
    if name == "small-fronts":
        monkeypatch.setattr(symbolic, "RECENT_PATTERNS", deque())
        monkeypatch.setattr(elimination_tree, "SMALL_FRONT_UNKNOWNS", 3)
        monkeypatch.setattr(elimination_tree, "MAX_UNCUT_VERTICES", 3)
        monkeypatch.setattr(symbolic, "MAX_FRONT_PIVOTS", 2)
        monkeypatch.setattr(symbolic, "MIN_SHARED_WORK", 0)
    if name == "tiles":
        monkeypatch.setattr(cholesky, "MAX_UNTILED_UNKNOWNS", 0)
        monkeypatch.setattr(cholesky, "TILE_SIZE", 4)
    if name == "chunks":  # several chunks, some with stored Jacobians
        monkeypatch.setattr(fused_jacobians, "CHUNK_OBSERVATIONS", 5)

    def make(problem, **options):
        return CpuEngine(problem, NAMED.get(name, name), **options)

    return make


# ------------------------------------------------------------------ laws


@EVERY_STRUCTURE
def test_the_step_equals_that_of_the_dense_matrix(engine_of, structure):
    setup = make_setup(structure)
    for relative in (False, True):
        engine = engine_of(setup.problem, relative_damping=relative)
        step = engine.solve(engine.start(), setup.model(engine), 0.03)
        assert close(setup.flat(step.delta), setup.step(0.03, relative)), relative
        along = [r @ J @ setup.flat(step.delta) for r, J, *_ in setup.rows()]
        radial = np.concatenate(engine.in_user_order(engine.radial(step)))
        np.testing.assert_allclose(radial, along, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("structure", [bundle, graph], ids=lambda s: s.__name__)
def test_step_without_radial_part(engine_of, structure):
    setup = make_setup(structure, radial=False)
    engine = engine_of(setup.problem)
    step = engine.solve(engine.start(), setup.model(engine), 0.03)
    assert close(setup.flat(step.delta), setup.step(0.03))


@pytest.mark.parametrize("structure", [bundle, two_kinds_of_observations, graph], ids=lambda s: s.__name__)
def test_an_engine_can_solve_repeatedly(engine_of, structure):
    """A solve with other weights and damping is not affected by the previous one."""
    engine, first = None, make_setup(structure)
    for damping in (1.0, 1e-3, 30.0):
        setup = make_setup(structure)
        setup.a = [a * damping for a in setup.a]
        setup.b = [b * damping for b in setup.b]
        engine = engine or engine_of(first.problem)
        step = engine.solve(engine.start(), setup.model(engine), damping)
        assert close(first.flat(step.delta), setup.step(damping))


@pytest.mark.parametrize("which", ["none", "cameras", "points"])
def test_the_eliminated_group_does_not_change_the_step(engine_of, which):
    setup = make_setup(bundle)
    groups = {v.name: v for v in setup.problem.variables}
    engine = engine_of(setup.problem, eliminate=groups.get(which, False))
    assert engine.structure.eliminated is groups.get(which)
    step = engine.solve(engine.start(), setup.model(engine), 0.03)
    assert close(setup.flat(step.delta), setup.step(0.03))


def test_points_are_eliminated_and_nodes_of_a_graph_are_not():
    for structure in STRUCTURES:
        setup = make_setup(structure)
        chosen = CpuEngine(setup.problem).structure.eliminated
        has_points = [v for v in setup.problem.variables if v.name == "points"]
        assert ([] if chosen is None else [chosen]) == has_points


def test_a_group_coupled_to_itself_cannot_be_eliminated():
    problem = make_setup(graph).problem
    with pytest.raises(ValueError, match="cameras cannot be eliminated"):
        CpuEngine(problem, eliminate=problem.variables[0])


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
@pytest.mark.parametrize("structure", [bundle, two_kinds_of_observations, two_reduced_groups, graph])
def test_splitting_long_rows_does_not_change_the_step(structure, relative, monkeypatch):
    monkeypatch.setattr(schur_complement, "MAX_ENTRIES_PER_ITEM", 3)
    setup = make_setup(structure)
    engine = CpuEngine(setup.problem, "dense-cholesky", relative_damping=relative)
    assert len(engine.system.reduced.values) > engine.structure.n_kept  # there are parts
    step = engine.solve(engine.start(), setup.model(engine), 0.03)
    assert close(setup.flat(step.delta), setup.step(0.03, relative))


@pytest.mark.parametrize("solver", ["dense-cholesky", "sparse-cholesky"])
@pytest.mark.parametrize("structure", [bundle, two_kinds_of_observations, two_reduced_groups, two_cameras_and_a_point])
def test_the_number_of_passes_does_not_change_the_step(structure, solver, monkeypatch):
    monkeypatch.setattr(schur_complement.ReducedMatrix, "_n_passes", lambda *_: 4)
    setup = make_setup(structure)
    engine = CpuEngine(setup.problem, solver, relative_damping=True)
    step = engine.solve(engine.start(), setup.model(engine), 0.03)
    assert close(setup.flat(step.delta), setup.step(0.03, True))


@pytest.fixture
def thread_count():
    before = threads.n_threads()
    yield
    threads.set_threads(before)


def many_observations(rng):
    """Enough for several tasks in every loop."""
    c, p = cameras(12), points(3000)
    i, j = pairs(rng, 12, 3000, 9000)
    return [observe(rng, 2, c[i], p[j])]


@pytest.mark.parametrize("n_passes", [1, 3])
@pytest.mark.parametrize("structure", [two_kinds_of_observations, two_cameras_and_a_point, graph, many_observations])
def test_the_step_does_not_depend_on_the_number_of_threads(structure, n_passes, thread_count, monkeypatch):
    monkeypatch.setattr(schur_complement.ReducedMatrix, "_n_passes", lambda *_: n_passes)
    monkeypatch.setattr(cholesky, "MAX_UNTILED_UNKNOWNS", 0)
    monkeypatch.setattr(cholesky, "TILE_SIZE", 8)
    setup = make_setup(structure)
    matrices, steps = [], []
    for n in (1, 2, 5):
        threads.set_threads(n)
        engine = CpuEngine(setup.problem, "dense-cholesky")
        step = engine.solve(engine.start(), setup.model(engine), 0.03)
        matrices.append(engine.system.reduced.matrix.copy())
        steps.append(setup.flat(step.delta))
    for other in (1, 2):
        np.testing.assert_array_equal(matrices[other], matrices[0])
        np.testing.assert_array_equal(steps[other], steps[0])
    assert np.tril(matrices[0], -1).any()


@EVERY_STRUCTURE
def test_a_singular_system_returns_none_or_a_finite_step(engine_of, structure):
    setup = make_setup(structure)
    engine, expected = engine_of(setup.problem), setup.step(0.03)
    first = setup.observations[0]
    good_a, good_J = setup.a, first.J
    for how in ("no damping", "indefinite", "not finite"):
        if how == "indefinite":
            setup.a = [a - 20.0 for a in good_a]
        if how == "not finite":
            first.J = [J.copy() for J in good_J]
            first.J[0][3] = np.nan
        with np.errstate(all="ignore"):
            step = engine.solve(engine.start(), setup.model(engine), 0.0 if how == "no damping" else 1e-3)
        assert step is None or np.isfinite(setup.flat(step.delta)).all(), how
        setup.a, first.J = good_a, good_J
        step = engine.solve(engine.start(), setup.model(engine), 0.03)  # as if nothing had happened
        assert close(setup.flat(step.delta), expected), how


def test_indefinite_systems_are_solved_with_pivoting():
    """If Cholesky fails, the same system is solved with pivoting."""
    setup = make_setup(graph)
    setup.a = [a - 0.3 for a in setup.a]
    for solver in ("dense-cholesky", "reference"):
        engine = CpuEngine(setup.problem, solver)
        step = engine.solve(engine.start(), setup.model(engine), 1e-3)
        assert close(setup.flat(step.delta), setup.step(1e-3))


def test_an_unknown_solver_is_rejected():
    with pytest.raises(ValueError, match=r"linear_solver must be one of .*dense-cholesky.*not 'magic'"):
        CpuEngine(make_setup(bundle).problem, "magic")


@pytest.mark.parametrize("structure", [bundle, graph], ids=lambda s: s.__name__)
def test_truncated_conjugate_gradients_return_a_descent_direction(structure):
    """A step of truncated conjugate gradients decreases the quadratic model."""
    setup = make_setup(structure)
    engine = CpuEngine(setup.problem, CG(loosest=0.3, tightest=0.3, max_iterations=3))
    step = engine.solve(engine.start(), setup.model(engine), 0.03)
    g = sum(c * J.T @ r for r, J, _, _, c in setup.rows())
    assert setup.flat(step.delta) @ g < 0


@EVERY_STRUCTURE
def test_products_of_gradients(structure):
    setup = make_setup(structure)
    engine = CpuEngine(setup.problem)
    model = setup.model(engine)
    g = sum(c * J.T @ r for r, J, _, _, c in setup.rows())
    h = sum(a * J.T @ r for r, J, a, _, _ in setup.rows())
    products = engine.gradient_products(engine.start(), model.c, model.a)
    np.testing.assert_allclose(products, [g @ g, g @ h, h @ h], rtol=1e-10, atol=1e-10)


def test_slots_share_the_compiled_loop_of_rows():
    """Compiling it takes longer than many solves: once for both ends of an edge, with and without a radial part."""
    matrix_rows.cache_clear()
    for radial in (False, True):
        setup = make_setup(graph, radial=radial)
        engine = CpuEngine(setup.problem, "dense-cholesky")
        engine.solve(engine.start(), setup.model(engine), 0.03)
    assert matrix_rows.cache_info().currsize == 2  # for the edges, and for the prior on a node
