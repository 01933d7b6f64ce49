"""Observations with many derivatives: the linear system is the same with and without printed loops."""

import numpy as np
import pytest

from asker.engines import sparsity as structures
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.system import wide_residuals
from asker.engines.solvers import CG
from linear_problems import EVERY_STRUCTURE, EXACT_CG, bundle, close, group, make_setup, observe

SOLVERS = {
    "dense-cholesky": "dense-cholesky",
    "sparse-cholesky": "sparse-cholesky",
    "cg": CG(**EXACT_CG),
    "reference": "reference",
}


def tall(rng):
    """More residuals than unknowns, with variables that are eliminated and kept ones."""
    a, b = group(20, 2, name="curves"), group(3, 3, name="cameras")
    i, j = np.arange(60) % 20, np.arange(60) % 3
    return [observe(rng, 60, a[i], b[j]), observe(rng, 100, b[j[:7]])]


def broad(rng):
    """More unknowns than residuals, and another factor group with few unknowns."""
    a, b = group(6, 40, name="vectors"), group(20, 2, name="points")
    i, j = np.arange(30) % 6, np.arange(30) % 20
    return [
        observe(rng, 5, a[i], a[(i + 1 + j % 2) % 6]),
        observe(rng, 50, a[i]),
        observe(rng, 3, b[j], b[(j + 1) % 20]),
    ]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("structure", [tall, broad], ids=lambda s: s.__name__)
@pytest.mark.parametrize("radial", [False, True])
def test_the_step_equals_that_of_the_dense_matrix(structure, solver, radial):
    setup = make_setup(structure, radial=radial)
    for relative in (False, True):
        engine = CpuEngine(setup.problem, SOLVERS[solver], relative_damping=relative)
        assert any(f.is_long for f in engine.structure.factors)
        assert any(f.is_wide for f in engine.structure.factors) == (structure is broad)
        step = engine.solve(engine.start(), setup.model(engine), 0.03)
        assert close(setup.flat(step.delta), setup.step(0.03, relative))
        along = [r @ J @ setup.flat(step.delta) for r, J, *_ in setup.rows()]
        radial_part = np.concatenate(engine.in_user_order(engine.radial(step)))
        np.testing.assert_allclose(radial_part, along, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@EVERY_STRUCTURE
def test_every_structure_without_printed_loops(structure, solver, monkeypatch):
    monkeypatch.setattr(structures, "MOST_DERIVATIVES", 0)
    setup = make_setup(structure)
    engine = CpuEngine(setup.problem, SOLVERS[solver])
    assert engine.structure.eliminated is None
    point, model = engine.start(), setup.model(engine)
    for _ in range(2):  # the second solve is not affected by the first
        step = engine.solve(point, model, 0.03)
        assert close(setup.flat(step.delta), setup.step(0.03))
    g = sum(c * J.T @ r for r, J, _, _, c in setup.rows())
    h = sum(a * J.T @ r for r, J, a, _, _ in setup.rows())
    products = engine.gradient_products(point, model.c, model.a)
    np.testing.assert_allclose(products, [g @ g, g @ h, h @ h], rtol=1e-10, atol=1e-10)


def test_the_batch_size_does_not_change_the_step(monkeypatch):
    monkeypatch.setattr(wide_residuals, "NUMBERS_PER_BATCH", 500)
    setup = make_setup(broad)
    engine = CpuEngine(setup.problem, "sparse-cholesky")
    assert close(setup.flat(engine.solve(engine.start(), setup.model(engine), 0.03).delta), setup.step(0.03))


def test_variables_of_wide_residuals_cannot_be_eliminated(monkeypatch):
    problem = make_setup(bundle).problem
    points = next(v for v in problem.variables if v.name == "points")
    monkeypatch.setattr(structures, "MOST_DERIVATIVES", 3)
    with pytest.raises(ValueError, match=r"points cannot be eliminated: .* more than 3 derivatives"):
        CpuEngine(problem, eliminate=points)


def test_a_narrow_group_is_eliminated_in_a_problem_with_wide_residuals():
    setup = make_setup(lambda rng: [*broad(rng), *tall(rng)])
    curves = next(v for v in setup.problem.variables if v.name == "curves")
    engine = CpuEngine(setup.problem, eliminate=curves)
    assert close(setup.flat(engine.solve(engine.start(), setup.model(engine), 0.03).delta), setup.step(0.03))
