"""Pickles and deep copies of problems and results, which are solved in this process or another."""

import copy
import pickle
import sys
from multiprocessing import get_context

import jax.numpy as jnp
import numpy as np
import pytest

import asker

RNG = np.random.default_rng(0)
D = RNG.normal(3, 0.1, 40) + 3 * (np.arange(40) < 5)
T = np.linspace(0, 3, 40)
Y = 2 * np.exp(-1.5 * T) + 0.02 * RNG.normal(size=40)
WAYS = {"pickle": lambda thing: pickle.loads(pickle.dumps(thing)), "deepcopy": copy.deepcopy}


def off(x, d):
    return x - d + 0.1 * jnp.sin(x)


def possible(x, d):
    return d + 10


def offsets(x, d):
    return x - d


def slopes(x, d):
    return np.ones((len(d), 1))


def decay(p, t, y):
    return p[0] * np.exp(-p[1] * t) - y


def decay_slopes(p, t, y):
    return np.stack([np.exp(-p[1] * t), -p[0] * t * np.exp(-p[1] * t)], axis=1)


def rho(z):
    return np.stack([2 * np.log1p(z / 2), 1 / (1 + z / 2), -0.5 / (1 + z / 2) ** 2])


FACTORS = {
    "unknown noise": (off, {}),
    "kernel": (off, {"kernel": asker.Cauchy(0.1)}),
    "condition": (off, {"valid": possible}),
    "batched": (offsets, {"jacobian": slopes, "kernel": asker.Huber(0.1)}),
}


def problem(which="kernel"):
    residual, options = FACTORS[which]
    x = asker.Variables(np.zeros(1), name="x")
    return asker.Problem(asker.Factors(residual, x[np.zeros(40, dtype=int)], data=D, **options))


@pytest.fixture(params=WAYS)
def through(request):
    return WAYS[request.param]


@pytest.mark.parametrize("which", FACTORS)
def test_a_copied_problem_has_the_same_solution(which, through):
    p = problem(which)
    cost = asker.solve(through(p)).cost
    assert asker.solve(p).cost == cost
    assert asker.solve(through(p)).cost == cost


@pytest.mark.parametrize("engine", ["cpu", "xla"])
@pytest.mark.parametrize("which", ["unknown noise", "kernel", "condition"])
@pytest.mark.filterwarnings("ignore:engine xla without a GPU")
def test_a_copied_result_has_the_same_statistics(which, engine, through):
    result = asker.solve(problem(which), engine=engine)
    result.interval("x"), result.leverage, result.noise
    other = through(result)
    assert str(other) == str(result)
    np.testing.assert_array_equal(other["x"], result["x"])
    np.testing.assert_allclose(other.interval("x"), result.interval("x"), rtol=1e-10)
    uncertainty = through(result.uncertainty(sandwich=True))
    np.testing.assert_allclose(uncertainty.interval("x"), result.interval("x", sandwich=True), rtol=1e-10)
    assert asker.solve(other.problem, start=other, engine=engine).cost <= other.cost * (1 + 1e-9)


def test_groups_are_identical_within_one_pickle():
    p = problem()
    x = p.variables[0]
    y, result = WAYS["pickle"]((x, asker.solve(p)))
    assert result[y] == result["x"]


def test_copied_variables_can_be_solved_for(through):
    x = through(asker.Variables(np.zeros(1), name="x"))
    factors = asker.Factors(off, x[np.zeros(40, dtype=int)], data=D, kernel=asker.Cauchy(0.1))
    assert asker.solve(asker.Problem(factors)).cost == asker.solve(problem()).cost


@pytest.mark.parametrize("kind", [float, np.longlong, bool])
def test_arrays_whose_dtype_is_another_equal_object_are_valid_data(kind):
    """Compiled code identifies a dtype by its address; pickles, and C's `long long`, have a separate object."""
    data = WAYS["pickle"]((10 * D).astype(kind))
    x = asker.Variables(np.zeros(1), name="x")
    factors = asker.Factors(off, x[np.zeros(40, dtype=int)], data=data, kernel=asker.Cauchy(1.0))
    usual = asker.Factors(off, x[np.zeros(40, dtype=int)], data=np.array(data.tolist()), kernel=asker.Cauchy(1.0))
    costs = [asker.solve(asker.Problem(f)).cost for f in (factors, usual)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


def test_a_spawned_process_solves_and_returns():
    problems = [problem(which) for which in FACTORS]
    solved = [asker.solve(p) for p in problems]  # problems that were solved before can be sent as well
    with get_context("spawn").Pool(1) as pool:
        results = pool.map_async(asker.solve, problems).get(240)
    assert [r.cost for r in results] == [r.cost for r in solved]
    assert [r["x"] for r in results] == [r["x"] for r in solved]


@pytest.mark.parametrize(
    "options",
    [{}, {"jac": decay_slopes}, {"loss": rho}, {"loss": None}, {"jac": "3-point"}],
    ids=["plain", "jac", "loss", "no loss", "differences"],
)
def test_results_of_least_squares_can_be_copied(options, through):
    fit = asker.least_squares(decay, [1.0, 1.0], args=(T, Y), **options)
    other = through(fit)
    np.testing.assert_array_equal(other.x, fit.x)
    np.testing.assert_allclose(other.result.interval("x"), fit.result.interval("x"), rtol=1e-6)
    assert asker.solve(other.result.problem).cost <= fit.result.cost * (1 + 1e-6)


def test_a_copied_iteration_is_a_record_of_the_history(through):
    lines = []
    result = asker.solve(problem(), on_iteration=lines.append)
    assert [through(line) for line in lines] == result.history


def problem_of_a_lambda():
    x = asker.Variables(np.zeros(1), name="x")
    f = asker.Factors(lambda x, d: x - d, x[np.zeros(40, dtype=int)], data=D, valid=lambda x, d: d + 10, name="off")
    return asker.Problem(f)


def test_a_lambda_needs_cloudpickle(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    p = problem_of_a_lambda()
    asker.solve(copy.deepcopy(p))
    with pytest.raises(pickle.PicklingError, match=r"residual of off, .*lambda.*install cloudpickle"):
        pickle.dumps(p)


def test_a_lambda_is_pickled_by_cloudpickle():
    pytest.importorskip("cloudpickle")
    result = asker.solve(problem_of_a_lambda())
    other = pickle.loads(pickle.dumps(result))
    assert other.cost == result.cost
    assert asker.solve(other.problem).cost == asker.solve(result.problem).cost


TREE = asker.Variables({"a": np.zeros(2), "b": np.zeros((2, 3))}, name="tree")
PUBLIC = {
    "Variables": asker.Variables(np.ones((3, 2)), fixed=np.array([True, False, False]), lower=0.0, name="v"),
    "nested Variables": TREE,
    "Product": asker.Product(asker.SE3, asker.Euclidean(2), asker.Sphere(4)),
    "manifolds": (asker.SO3, asker.SE2, asker.Sim3, asker.SE3),
    "views": (asker.Pose(np.eye(3), np.ones(3)), asker.Similarity(np.eye(3), np.ones(3), 2.0)),
    "kernels": [kind() for kind in asker.KERNELS.values()],
    "Scaled": asker.Scaled(asker.Cauchy(0.5), 4.0),
    "methods": [make() if isinstance(make, type) else make for make in asker.METHODS.values()],
    "Status": asker.Status.CONVERGED,
    "FileError": asker.FileError("file", "reason"),
    "ProblemError": asker.ProblemError("reason"),
}


@pytest.mark.parametrize("which", PUBLIC)
def test_public_values_are_the_same_after_a_copy(which, through):
    other = through(PUBLIC[which])
    assert repr(other) == repr(PUBLIC[which])
    if isinstance(other, asker.Variables):
        np.testing.assert_array_equal(other.rows, PUBLIC[which].rows)
        np.testing.assert_array_equal(other.fixed, PUBLIC[which].fixed)


def test_every_field_of_a_result_is_copied(through):
    result = asker.solve(problem("unknown noise"))
    derivable = asker.solve(problem(), asker.IRLS(), tol=0)
    g = derivable.vjp(np.ones(1))
    uncertainty, leverage = result.uncertainty(), result.leverage
    values = (result.noise, result.doubts, result.values, result.covariance("x"), leverage[0].studentised)
    np.testing.assert_equal(repr(through(values)), repr(values))
    np.testing.assert_allclose(through(uncertainty).interval("x"), uncertainty.interval("x"), rtol=1e-12)
    np.testing.assert_array_equal(through(g).data[0][0], g.data[0][0])
    assert through(derivable).vjp(np.ones(1)).data[0][0].tolist() == g.data[0][0].tolist()
    judged = asker.holdout(problem(), seed=0)
    assert repr(through(judged)) == repr(judged)


@pytest.mark.long
def test_a_pool_of_two_spawned_processes_runs_100_solves():
    problems = [problem().with_data(D + 0.01 * k) for k in range(100)]
    with get_context("spawn").Pool(2) as pool:
        results = pool.map_async(asker.solve, problems, chunksize=10).get(240)
    assert [r.cost for r in results] == [asker.solve(p).cost for p in problems]
    assert results[7].vjp({"x": np.ones(1)}).data[0][0].shape == (40,)


@pytest.mark.slow
def test_joblib_carries_problems_and_results():
    joblib = pytest.importorskip("joblib")
    problems = [problem_of_a_lambda() for _ in range(2)]
    results = joblib.Parallel(n_jobs=2)(joblib.delayed(asker.solve)(p) for p in problems)
    assert [r.cost for r in results] == [asker.solve(p).cost for p in problems]


@pytest.mark.slow
def test_dask_carries_problems_and_results():
    distributed = pytest.importorskip("distributed")
    cluster = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**cluster) as local, distributed.Client(local) as client:
        future = client.submit(asker.solve, problem_of_a_lambda())
        assert future.result(120).cost == asker.solve(problem_of_a_lambda()).cost


@pytest.mark.parametrize("name", [5, ("cam", 1), b"x", 0, False])
def test_a_name_that_is_no_string_is_rejected(name):
    """Results are saved by name."""
    with pytest.raises(TypeError, match=r"name is .*, expected a str"):
        asker.Variables(np.zeros(1), name=name)
    x = asker.Variables(np.zeros(1))
    with pytest.raises(TypeError, match=r"name is .*, expected a str"):
        asker.Factors(off, x[np.zeros(40, dtype=int)], data=D, name=name)
