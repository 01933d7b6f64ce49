"""Every linear solver gives the step of the dense normal equations, whatever the structure.

The problems are made of random residuals and random Jacobians, handed over as batched functions: the linear system
is all that is tested.  A new structure or solver is tested by being listed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from asker.engines.cpu import cholesky, elimination_tree, front_layout, multifrontal, reduced, threads
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.system.factorise import CG
from asker.engines.cpu.pool import Pool
from asker.engines.point import Model
from asker.engines.solvers import SOLVERS
from asker.problem import Factors, Problem, Variables

SMALLEST_DIAGONAL = 1e-6  # of H, where the damping is relative to it

# ------------------------------------------------------------------ problems


@dataclass
class Observations:
    """One factor group: its random numbers, before weights, in the user's order."""

    p: int
    slots: tuple
    r: np.ndarray
    J: list
    weight: np.ndarray | None
    traced: bool

    def factors(self):
        if self.traced:
            return Factors(linear, *self.slots, data=(self.r, *self.J), weight=self.weight)
        batched = {"jacobian": lambda *_: tuple(self.J), "weight": self.weight, "name": f"p{self.p}"}
        return Factors(lambda *_: self.r, *self.slots, **batched)


def linear(x, r, J):
    """At x = 0: the residual r with the Jacobian J."""
    return r + J @ x


def observe(rng, p, *slots, weight=None, traced=False):
    n = len(slots[0].index)
    J = [rng.normal(size=(n, p, slot.variables.manifold.tangent)) for slot in slots]
    return Observations(p, slots, rng.normal(size=(n, p)), J, weight, traced)


def group(n, d, **options):
    return Variables(np.zeros((n, d)), **options)


def cameras(n=5, **options):
    return group(n, 3, name="cameras", **options)


def points(n=14, **options):
    return group(n, 2, name="points", **options)


def pairs(rng, n_cameras=5, n_points=14, n=50):
    """Which camera sees which point, each pair once, in no order."""
    chosen = rng.permutation(n_cameras * n_points)[:n]
    return chosen % n_cameras, chosen // n_cameras


def bundle(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, cameras()[i], points()[j])]


def sorted_by_point(rng):
    i, j = pairs(rng)
    order = np.lexsort((i, j))
    return [observe(rng, 2, cameras()[i[order]], points()[j[order]])]


def point_before_camera(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, points()[j], cameras()[i])]


def two_kinds_of_observations(rng):
    c, x = cameras(), points()
    (i, j), (k, m) = pairs(rng), pairs(rng, n=20)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, c[k], x[m])]


def two_kept_groups(rng):
    rigs = group(3, 1, name="rigs")
    i, j = pairs(rng)
    return [observe(rng, 2, cameras()[i], points()[j], rigs[rng.integers(0, 3, 50)])]


def kept_groups_in_separate_factors(rng):
    c, x, rigs = cameras(), points(), group(3, 1, name="rigs")
    (i, j), (_, m) = pairs(rng), pairs(rng, n=20)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 2, rigs[rng.integers(0, 3, 20)], x[m])]


def priors(rng):
    c, x = cameras(), points()
    i, j = pairs(rng)
    on_points = observe(rng, 1, x[np.arange(4)])
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, c[np.array([0, 0, 3])]), on_points]


def fixed_ones(rng):
    i, j = pairs(rng)
    some, one = np.arange(5) < 2, np.arange(14) == 6
    return [observe(rng, 2, cameras(fixed=some)[i], points(fixed=one)[j])]


def fixed_cameras(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, cameras(fixed=True)[i], points()[j])]


def observations_of_fixed_things_only(rng):
    c, x, held = cameras(), points(), cameras(3, fixed=True)
    i, j = pairs(rng)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, held[np.array([0, 2, 2])], traced=True)]


def seen_once(rng):
    return [observe(rng, 2, cameras()[rng.integers(0, 5, 14)], points()[rng.permutation(14)])]


def seen_by_nobody(rng):
    i, j = pairs(rng)
    return [observe(rng, 2, cameras(9)[i + 2], points(30)[j * 2])]


def seen_twice_by_one_camera(rng):
    i, j = pairs(rng, n=20)
    return [observe(rng, 2, cameras()[np.tile(i, 2)], points()[np.tile(j, 2)])]


def no_observations_of_one_kind(rng):
    c, x = cameras(), points()
    i, j = pairs(rng)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 1, c[np.zeros(0, int)], traced=True)]


def weighted(rng):
    i, j = pairs(rng)
    weight = rng.uniform(0.1, 9, 50)
    weight[3] = 0.0
    return [observe(rng, 2, cameras()[i], points()[j], weight=weight)]


def two_cameras_and_a_point(rng):
    c, x = cameras(), points()
    first, second, j = rng.integers(0, 5, 60), rng.integers(0, 5, 60), rng.integers(0, 14, 60)
    return [observe(rng, 2, c[first], c[second], x[j])]


def graph(rng):
    nodes = cameras(12)
    first, second = rng.integers(0, 12, 40), rng.integers(0, 12, 40)
    second[:3] = first[:3]  # one variable, twice in a factor
    return [observe(rng, 2, nodes[first], nodes[second]), observe(rng, 1, nodes[np.array([0])])]


def graph_and_points(rng):
    c, x = cameras(), points()
    i, j = pairs(rng)
    return [observe(rng, 2, c[i], x[j]), observe(rng, 2, c[np.arange(4)], c[np.arange(1, 5)])]


def one_variable(rng):
    return [observe(rng, 2, cameras(1)[np.zeros(9, int)])]


def few_variables(rng):
    return [observe(rng, 2, cameras(3)[rng.integers(0, 3, 20)])]


def many_small_problems(rng):
    x = points(20)
    return [observe(rng, 2, x[rng.integers(0, 20, 50)]), observe(rng, 1, x[np.arange(20)])]


STRUCTURES = [
    bundle,
    sorted_by_point,
    point_before_camera,
    two_kinds_of_observations,
    two_kept_groups,
    kept_groups_in_separate_factors,
    priors,
    fixed_ones,
    fixed_cameras,
    observations_of_fixed_things_only,
    seen_once,
    seen_by_nobody,
    seen_twice_by_one_camera,
    no_observations_of_one_kind,
    weighted,
    two_cameras_and_a_point,
    graph,
    graph_and_points,
    one_variable,
    few_variables,
    many_small_problems,
]
EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.__name__)

# ------------------------------------------------------------------ solvers


SOLVER_NAMES = [*(s for s in SOLVERS if s != "auto"), "pivoted", "small-fronts", "tiles", "power-series"]
EXACT_CG = {"loosest": 1e-13, "tightest": 1e-13, "max_iterations": 2000}
NAMED = {
    "pivoted": "sparse-cholesky",
    "small-fronts": "sparse-cholesky",
    "tiles": "dense-cholesky",
    "cg": CG(**EXACT_CG),
    "power-series": CG(order=3, **EXACT_CG),
}


@pytest.fixture(params=SOLVER_NAMES)
def engine_of(request, monkeypatch) -> Callable[..., CpuEngine]:
    """Makes an engine with each of the linear solvers."""
    name = request.param
    if name == "pivoted":
        monkeypatch.setattr(multifrontal.Multifrontal, "solve", lambda *_: None)
    if name == "small-fronts":
        monkeypatch.setattr(elimination_tree, "NARROW", 3)
        monkeypatch.setattr(elimination_tree, "WHOLE", 3)
        monkeypatch.setattr(front_layout, "WIDEST", 2)
        monkeypatch.setattr(front_layout, "SHARED", 0)
    if name == "tiles":
        monkeypatch.setattr(cholesky, "IN_ONE_CALL", 0)
        monkeypatch.setattr(cholesky, "TILE", 4)

    def make(problem, **options):
        return CpuEngine(problem, NAMED.get(name, name), **options)

    return make


# ------------------------------------------------------------------ the oracle


@dataclass
class Setup:
    """A problem with the numbers a, b, c of a model, per observation in the user's order."""

    observations: list
    problem: Problem
    a: list
    b: list | None
    c: list

    def model(self, engine):
        """In the engine's order."""

        def sort(arrays):
            layouts = engine.structure.layouts
            return tuple(np.ascontiguousarray(f.sorted(x)) for f, x in zip(layouts, arrays, strict=True))

        return Model(sort(self.a), None if self.b is None else sort(self.b), sort(self.c))

    def rows(self):
        """r (p,) and J (p, N) of each observation over all free variables, and a, b, c, one after the other."""
        free = [v for v in self.problem.variables if v.is_free]
        starts = np.cumsum([0, *[v.rows.size for v in free]])
        first = dict(zip(free, starts, strict=False))
        for k, o in enumerate(self.observations):
            for n in range(len(o.r)):
                J = np.zeros((o.p, starts[-1]))
                for slot, given in zip(o.slots, o.J, strict=True):
                    v, index = slot.variables, slot.index[n]
                    if v in first and not v.fixed[index]:
                        d = v.manifold.tangent
                        J[:, first[v] + index * d : first[v] + (index + 1) * d] += given[n]
                root = 1.0 if o.weight is None else np.sqrt(o.weight[n])
                b = 0.0 if self.b is None else self.b[k][n]
                yield root * o.r[n], root * J, self.a[k][n], b, self.c[k][n]

    def step(self, damping, relative=False):
        """δ over all free variables, from the whole matrix."""
        H, g = 0.0, 0.0
        for r, J, a, b, c in self.rows():
            H = H + J.T @ (a * np.eye(len(r)) + b * np.outer(r, r)) @ J
            g = g + c * J.T @ r
        unit = np.maximum(np.diag(H), SMALLEST_DIAGONAL) if relative else np.ones(len(g))
        return np.linalg.solve(H + damping * np.diag(unit), -g)

    def flat(self, delta):
        return np.concatenate([delta[v].ravel() for v in self.problem.variables if v.is_free])


def make_setup(structure, seed=0, radial=True) -> Setup:
    rng = np.random.default_rng(seed)
    observations = structure(rng)
    problem = Problem(*[o.factors() for o in observations])
    a, b, c = [], [], []
    for o in observations:
        n = len(o.r)
        u = (o.r**2).sum(axis=1) * (1.0 if o.weight is None else o.weight)
        a.append(rng.uniform(0.05, 1, n))
        left = rng.uniform(0.05, 2, n)  # a + b u, as a part of a: b has either sign
        b.append(a[-1] * (left - 1) / np.maximum(u, 1e-3))
        c.append(rng.normal(size=n))
    return Setup(observations, problem, a, b if radial else None, c)


def close(ours, expected, tol=1e-8):
    return np.abs(ours - expected).max() <= tol * np.abs(expected).max()


# ------------------------------------------------------------------ laws


@EVERY_STRUCTURE
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_step_is_that_of_the_whole_matrix(engine_of, structure, relative):
    setup = make_setup(structure)
    engine = engine_of(setup.problem, relative_damping=relative)
    step = engine.solve(engine.start(), setup.model(engine), 0.03)
    assert close(setup.flat(step.delta), setup.step(0.03, relative))
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
def test_one_engine_solves_again_and_again(engine_of, structure):
    """With other weights and dampings; nothing of the last solve is left."""
    engine, first = None, make_setup(structure)
    for damping in (1.0, 1e-3, 30.0):
        setup = make_setup(structure)
        setup.a = [a * damping for a in setup.a]
        setup.b = [b * damping for b in setup.b]
        engine = engine or engine_of(first.problem)
        step = engine.solve(engine.start(), setup.model(engine), damping)
        assert close(first.flat(step.delta), setup.step(damping))


@pytest.mark.parametrize("which", ["none", "cameras", "points"])
def test_what_is_eliminated_does_not_matter(engine_of, which):
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


def test_a_group_that_meets_itself_cannot_be_eliminated():
    problem = make_setup(graph).problem
    with pytest.raises(ValueError, match="cameras cannot be eliminated"):
        CpuEngine(problem, eliminate=problem.variables[0])


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
@pytest.mark.parametrize("structure", [bundle, two_kinds_of_observations, two_kept_groups, graph])
def test_long_rows_in_parts_give_the_same(structure, relative, monkeypatch):
    monkeypatch.setattr(reduced, "SPLIT", 3)
    setup = make_setup(structure)
    engine = CpuEngine(setup.problem, "dense-cholesky", relative_damping=relative)
    assert len(engine.system.reduced.values) > engine.structure.n_kept  # there are parts
    step = engine.solve(engine.start(), setup.model(engine), 0.03)
    assert close(setup.flat(step.delta), setup.step(0.03, relative))


@pytest.mark.parametrize("solver", ["dense-cholesky", "sparse-cholesky"])
@pytest.mark.parametrize("structure", [bundle, two_kinds_of_observations, two_kept_groups, two_cameras_and_a_point])
def test_rows_in_several_passes_give_the_same(structure, solver, monkeypatch):
    monkeypatch.setattr(reduced.ReducedMatrix, "_n_passes", lambda *_: 4)
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


@pytest.mark.parametrize("structure", [two_kinds_of_observations, two_cameras_and_a_point, graph, many_observations])
def test_any_number_of_threads_gives_the_same_step(structure, thread_count, monkeypatch):
    monkeypatch.setattr(cholesky, "IN_ONE_CALL", 0)
    monkeypatch.setattr(cholesky, "TILE", 8)
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
@pytest.mark.parametrize("how", ["no damping", "indefinite", "not finite"])
def test_a_system_without_solution_gives_none_or_a_finite_step(engine_of, structure, how):
    setup, good = make_setup(structure), make_setup(structure)
    engine = engine_of(setup.problem)
    if how == "indefinite":
        setup.a = [a - 20.0 for a in setup.a]
    if how == "not finite":
        setup.observations[0].J[0][3] = np.nan
    with np.errstate(all="ignore"):
        step = engine.solve(engine.start(), setup.model(engine), 0.0 if how == "no damping" else 1e-3)
    assert step is None or np.isfinite(setup.flat(step.delta)).all()
    for o, as_before in zip(setup.observations, good.observations, strict=True):
        o.J = as_before.J
    step = engine.solve(engine.start(), good.model(engine), 0.03)  # as if nothing had happened
    assert close(setup.flat(step.delta), good.step(0.03))


def test_an_indefinite_matrix_is_solved_by_a_direct_solver():
    """Where Cholesky fails, the same system is still solved."""
    setup = make_setup(graph)
    setup.a = [a - 0.3 for a in setup.a]
    for solver in ("dense-cholesky", "reference"):
        engine = CpuEngine(setup.problem, solver)
        step = engine.solve(engine.start(), setup.model(engine), 1e-3)
        assert close(setup.flat(step.delta), setup.step(1e-3))


def test_an_unknown_solver_is_refused():
    with pytest.raises(ValueError, match=r"linear_solver must be one of .*dense-cholesky.*not 'magic'"):
        CpuEngine(make_setup(bundle).problem, "magic")


@pytest.mark.parametrize("structure", [bundle, graph], ids=lambda s: s.__name__)
def test_rough_conjugate_gradients_go_downhill(structure):
    """Stopped early, the step still lowers the quadratic model."""
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


def test_an_array_of_the_pool_is_used_again_only_when_nobody_holds_it():
    pool = Pool()
    held = pool.empty(3, 2)
    part = pool.empty(3, 2)[1:]
    assert not np.shares_memory(held, part)
    third = pool.empty(3, 2)
    assert not np.shares_memory(third, held)
    assert not np.shares_memory(third, part)
    address = held.ctypes.data
    del held
    assert pool.empty(3, 2).ctypes.data == address
