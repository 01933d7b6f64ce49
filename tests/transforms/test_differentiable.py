"""The solution as a function that JAX transforms."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.tracing.array_namespace import float64

RNG = np.random.default_rng(0)
T = np.linspace(0, 3, 12)
Y = 1.5 * np.exp(-0.7 * T) + RNG.normal(0, 0.05, 12) + (np.arange(12) == 3)


def decay(p, rate, t, y):
    return p * jnp.exp(-rate * t) - y


def decay_problem(kernel=asker.Cauchy(0.2)):
    p = asker.Variables(np.array([1.4]), name="p")
    rates = asker.Variables(np.array([0.6, 0.8]), fixed=np.array([False, True]), name="rates")
    index = np.arange(12) % 2
    f = asker.Factors(decay, p[np.zeros(12, int)], rates[index], data=(T, Y), kernel=kernel, name="decay")
    return asker.Problem(f)


SOLUTION = asker.differentiable(decay_problem(), wrt=["decay.data[1]", "decay.tau", "decay.weight", "rates.fixed"])
START = (Y, np.array(0.2), np.ones(12), np.array([0.6, 0.8]))


def both(*arrays):
    values = SOLUTION(*arrays)
    return jnp.concatenate([values["p"], values["rates"]])


@pytest.fixture
def x64():
    with float64():
        yield


@pytest.mark.usefixtures("x64")
def test_jacobians_of_both_modes_equal_central_differences():
    forwards = jax.jacfwd(both, argnums=(0, 1, 2, 3))(*START)
    backwards = jax.jacrev(both, argnums=(0, 1, 2, 3))(*START)
    compiled = jax.jit(jax.jacrev(both, argnums=(0, 1, 2, 3)))(*START)
    h, rng = 1e-4, np.random.default_rng(1)
    directions = [rng.normal(size=x.shape) for x in START]
    directions[3][0] = 0.0  # of a free variable
    ahead, back = (both(*(x + s * d for x, d in zip(START, directions, strict=True))) for s in (h, -h))
    for J in (forwards, backwards, compiled):
        moved = sum(np.tensordot(Jx, d, d.ndim) for Jx, d in zip(J, directions, strict=True))
        np.testing.assert_allclose(moved, (ahead - back) / (2 * h), rtol=1e-6)
    assert (backwards[3][:, 0] == 0).all()  # an initial value has no influence
    np.testing.assert_array_equal(backwards[3][2], [0.0, 1.0])  # a fixed variable is its own value


@pytest.mark.usefixtures("x64")
def test_gradients_equal_those_of_the_result():
    result = asker.solve(decay_problem(), tol=1e-12)
    g = result.vjp({"p": np.array([1.0])})
    by = jax.grad(lambda *arrays: SOLUTION(*arrays)["p"][0], argnums=(0, 1, 2, 3))(*START)
    for ours, jaxs in zip((g.data[0][1], g.tau[0], g.weight[0], g.fixed["rates"]), by, strict=True):
        np.testing.assert_allclose(jaxs, ours, rtol=1e-8, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_batches_scans_and_nested_transformations_equal_loops():
    taus = np.array([0.1, 0.2, 0.4])

    def by_tau(tau):
        return SOLUTION(Y, tau, *START[2:])["p"][0]

    each = np.array([jax.grad(by_tau)(tau) for tau in taus])
    for batched in (jax.vmap(jax.grad(by_tau)), jax.jit(jax.vmap(jax.grad(by_tau))), jax.vmap(jax.jacfwd(by_tau)),
                    jax.grad(lambda x: jax.vmap(by_tau)(x).sum())):  # fmt: skip
        np.testing.assert_allclose(batched(taus), each, rtol=1e-10)
    nested = jax.vmap(jax.vmap(jax.grad(by_tau)))(taus[:2].reshape(1, 2))
    np.testing.assert_allclose(nested[0], each[:2], rtol=1e-10)

    def twice(tau):
        return jax.lax.scan(lambda x, _: (by_tau(x) / 5, None), tau, None, length=2)[0]

    first = by_tau(0.2) / 5
    np.testing.assert_allclose(jax.grad(twice)(0.2), jax.grad(by_tau)(first) * each[1] / 25, rtol=1e-8)


def test_without_float64_arrays_are_float32_and_solves_are_not():
    value, slope = jax.value_and_grad(lambda tau: SOLUTION(Y, tau, *START[2:])["p"][0])(0.2)
    assert value.dtype == slope.dtype == jnp.float32
    with float64():
        exact = jax.grad(lambda tau: SOLUTION(Y, tau, *START[2:])["p"][0])(0.2)
    np.testing.assert_allclose(slope, exact, rtol=1e-5)


def off_pair(x, d, a):
    return jnp.concatenate([x[0] - d, (x[1].angle - a)[None], x[1].translation])


@pytest.mark.usefixtures("x64")
def test_values_of_products_are_tuples():
    manifold = asker.Product(asker.Euclidean(2), asker.SE2)
    x = asker.Variables((np.zeros((1, 2)), np.zeros((1, 3))), manifold, name="x")
    f = asker.Factors(off_pair, x[[0, 0]], data=(np.ones((2, 2)), np.ones(2)), kernel=asker.Cauchy(9.0), name="f")
    solution = asker.differentiable(asker.Problem(f), wrt=["f.data[1]"])
    pull = jax.vjp(lambda a: solution(a)["x"][1][0, 2], np.ones(2))[1]
    np.testing.assert_allclose(pull(1.0)[0], [0.5, 0.5], rtol=1e-8)


def test_a_solution_is_computed_once_for_its_derivatives(monkeypatch):
    from asker.transforms import solutions

    calls = []
    monkeypatch.setattr(solutions, "solve", lambda *a, **k: calls.append(1) or asker.solve(*a, **k))
    solution = asker.differentiable(decay_problem(), wrt=["decay.tau"])
    jax.block_until_ready(jax.jit(jax.jacrev(lambda tau: solution(tau)["p"]))(0.3))
    assert len(calls) == 1


def test_second_derivatives_are_refused_with_the_reason():
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        jax.hessian(lambda tau: SOLUTION(Y, tau, *START[2:])["p"][0])(0.2)


def offset(x, d):
    return x - d


def test_a_solution_without_derivatives_has_values_and_the_reason():
    """Two clusters: their middle is stationary, and a maximum."""
    x = asker.Variables(np.zeros(1), name="x")
    d = np.array([-1.0, -1.0, 1.0, 1.0])
    f = asker.Factors(offset, x[np.zeros(4, int)], data=d, kernel=asker.GemanMcClure(0.5), name="f")
    solution = asker.differentiable(asker.Problem(f), wrt=["f.data"], strategy=asker.IRLS())
    assert solution(d)["x"] == 0
    with pytest.raises(Exception, match="no strict minimum"):
        jax.block_until_ready(jax.grad(lambda d: solution(d)["x"][0])(d))


@pytest.mark.parametrize(
    ("wrt", "message"),
    [
        ("decay.tau", "expected a list of names"),
        ([], "expected a list of names"),
        (["decay"], "does not name an array"),
        (["decay.data"], r"several arrays: name decay.data\[0\] or decay.data\[1\]"),
        (["decay.data[2]"], r"there are decay.data\[0\], decay.data\[1\]"),
        (["decay.tau[0]"], "only data have several arrays"),
        (["loops.tau"], "0 groups are called 'loops'; there are 'decay'"),
        (["p.fixed"], "no variable of this group is fixed"),
        (["decay.tau", "decay.tau"], "names an array twice"),
    ],
)
def test_names_that_denote_no_array_are_rejected(wrt, message):
    with pytest.raises(asker.ProblemError, match=message):
        asker.differentiable(decay_problem(), wrt=wrt)


def test_unknown_noise_and_wrong_arguments_are_rejected():
    x = asker.Variables(np.zeros(1), name="x")
    f = asker.Factors(offset, x[np.zeros(4, int)], data=np.ones(4), name="f")
    with pytest.raises(asker.ProblemError, match="f: the noise scale is unknown"):
        asker.differentiable(asker.Problem(f), wrt=["f.data"])
    with pytest.raises(asker.ProblemError, match=r"a function of decay.data\[1\], decay.tau"):
        SOLUTION(Y)
    with pytest.raises(asker.ProblemError, match=r"decay.weight has shape \(3,\), expected \(12,\)"):
        SOLUTION(Y, 0.2, np.ones(3), START[3])


@pytest.mark.parametrize(
    "function",
    [
        lambda d: asker.solve(decay_problem(), start={"p": d[:1]}).x,
        lambda d: asker.Factors(offset, asker.Variables(np.zeros(1))[[0]], data=d[:1]),
        lambda d: asker.Factors(offset, asker.Variables(np.zeros(1))[[0]], data=np.ones(1), weight=d[:1]),
        lambda d: asker.solve(decay_problem().with_kernel(asker.Huber(d[0]))),
        lambda d: asker.least_squares(lambda x: x - 1, d),
    ],
)
def test_a_direct_solve_under_a_transformation_says_what_to_use(function):
    with pytest.raises(asker.ProblemError, match=r"traced by JAX.*asker\.differentiable\(problem, wrt="):
        jax.grad(function)(np.ones(4))


SHARDED = """
import sys; sys.path.insert(0, {tests!r})
import jax, numpy as np, asker
from jax.sharding import Mesh, PartitionSpec as P
from asker.tracing.jax_compat import shard_map
from test_differentiable import offset
x = asker.Variables(np.zeros(1), name="x")
f = asker.Factors(offset, x[np.zeros(4, int)], data=np.ones(4), kernel=asker.Cauchy(3.0), name="f")
solution = asker.differentiable(asker.Problem(f), wrt=["f.data"])
many = lambda D: jax.vmap(lambda d: solution(d)["x"][0])(D)
shards = shard_map(many, Mesh(np.array(jax.devices()), ("i",)), P("i"), P("i"))
D = np.random.default_rng(0).normal(size=(4, 4))
assert len(jax.devices()) == 2
np.testing.assert_allclose(jax.jit(shards)(D), many(D), rtol=1e-6)
gradients = [jax.grad(lambda D: f(D).sum())(D) for f in (shards, many)]
np.testing.assert_allclose(*gradients, rtol=1e-6)
"""


@pytest.mark.long
def test_each_device_of_a_mesh_solves_its_problems():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    code = SHARDED.format(tests=os.path.dirname(__file__))
    run = partial(subprocess.run, env=environment, capture_output=True, text=True, timeout=240)
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
