"""Compiled scalar code equals JAX: values, and derivatives in both modes, for all cases of `scalar_cases`."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import asker
from asker.engines.cpu import compiler
from asker.engines.cpu.code_cache import on_compile
from asker.engines.cpu.compiler import Argument, BatchedLoop, Loop, NotCompiled, UnsupportedPrimitive, loops
from asker.engines.cpu.compiler.scalars import MAX_STATEMENTS, Program
from asker.tracing.array_namespace import float64
from asker.tracing.jaxpr_digest import differentiated_with
from asker.tracing.unsupported_primitives import NOT_COMPILED
from compiler_cases import (
    ACROSS,
    ARGUMENTS,
    CASES,
    INDEX,
    TRUTH,
    WHOLE,
    N,
    X,
    Y,
    flattened,
    joined,
    printed,
)


def by_jax(function):
    def one(x, y, i, m):
        flat, z = flattened(function, i, m), joined(x, y)
        return flat(z), jax.jacfwd(flat)(z)

    return one


def run_jax(one, *arrays):
    with float64():
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(*arrays))


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_jax(name):
    loop = Loop("case", ARGUMENTS, printed(CASES[name]))
    value, forward, reverse = stores = [np.empty((N, *shape)) for shape in loop.store_shapes]
    loop(N, [(X, INDEX), Y, WHOLE, TRUTH], stores)
    expected, J = run_jax(by_jax(CASES[name]), X[INDEX], Y, WHOLE, TRUTH)
    assert np.isfinite(J).all()
    down = np.linspace(0.5, 2.0, value.shape[1])
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(forward, J @ ACROSS, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(reverse, np.einsum("p,npd->nd", down, J), rtol=1e-12, atol=1e-11)


NOT_FINITE = {
    "largest": lambda x: joined(jnp.maximum(x[0], x), jnp.maximum(x, x[0]), x.max(), x[::-1].max()),
    "min_size": lambda x: joined(jnp.minimum(x[0], x), jnp.minimum(x, x[0]), x.min(), x[::-1].min()),
    "clipped": lambda x: joined(jnp.clip(x, -1.0, 1.0), lax.clamp(x[0], x, 1.0), jax.nn.relu(x)),
    "chosen": lambda x: jnp.where(jnp.isnan(x), 5.0, jnp.where(jnp.isinf(x), 6.0, x)) + 0 * jnp.isfinite(x),
    "compared": lambda x: (x > x[0]) + 2.0 * (x <= x[0]) + 4.0 * (x == x) + 8.0 * (x != x),
    "signed": lambda x: joined(jnp.sign(x), jnp.abs(x), -x),
    "sorted": lambda x: jnp.sort(joined(x, 1.0)),
    "divided": lambda x: joined(1 / x, x / x, x / 0.0, x**-2.0, jnp.arctan2(x, x[0])),
    "out of domain": lambda x: joined(jnp.sqrt(x), jnp.log(x), jnp.arccos(x), jnp.log1p(-x), x**0.5, jnp.exp(x)),
}


@pytest.mark.parametrize("name", NOT_FINITE)
def test_nonfinite_values_equal_those_of_jax(name):
    """A NaN must be propagated: the solver rejects steps by it."""
    values = [np.nan, np.inf, -np.inf, 0.0, -2.0, 1e200]
    rows = np.array([[a, b, c] for a in values for b in values for c in (1.0, np.nan)])

    def one(x):
        return (NOT_FINITE[name](x),), ()

    loop = Loop("case", [Argument("each", (3,))], one)
    (ours,) = [np.empty((len(rows), *shape)) for shape in loop.store_shapes]
    loop(len(rows), [rows], [ours])
    ((expected,), _) = run_jax(one, rows)
    np.testing.assert_allclose(ours, expected, rtol=1e-14)


UNSUPPORTED = {
    "sort": lambda x, y, i, m: jnp.sort(jnp.tile(x, 5)),
    "while": lambda x, y, i, m: lax.while_loop(lambda z: z @ z > 1, lambda z: z / 2, x),
    "eigh": lambda x, y, i, m: jnp.linalg.eigh(y + y.T)[0],
    "svd": lambda x, y, i, m: jnp.linalg.svd(y, compute_uv=False),
    "argmax": lambda x, y, i, m: x * jnp.argmax(x),
    "div": lambda x, y, i, m: x * (i[0] // 2),
    "scatter": lambda x, y, i, m: jnp.tile(x, 30).at[i].set(0.0),
    "lu": lambda x, y, i, m: jnp.linalg.det(jnp.kron(y, y)),
    "gather": lambda x, y, i, m: jnp.tile(x, 30)[i],
    "shift_left": lambda x, y, i, m: (i << 1) * x[0],
}


def primitives(jaxpr):
    """The names of all primitives in a jaxpr and in those inside it."""
    names = set()
    for eqn in jaxpr.eqns:
        names.add(eqn.primitive.name)
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                names |= primitives(inner)
    return names


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_primitive_is_named(name):
    def one(*args):
        return (UNSUPPORTED[name](*args),), ()

    with pytest.raises(UnsupportedPrimitive) as error:
        Loop("case", ARGUMENTS, one)
    named = str(error.value).split("'")[1]
    with float64():
        jaxpr = jax.make_jaxpr(one)(X[0], Y[0], WHOLE[0], TRUTH[0])
    assert named in primitives(jaxpr.jaxpr)
    assert named == name or " " in name
    assert "jacobian" in str(error.value)  # the workaround


def differentiated(function):
    """The unsupported primitive that a problem reports for this function, or ""."""
    data = (WHOLE[0], TRUTH[0])
    return differentiated_with(NOT_COMPILED, lambda xy, data: function(*xy, *data), (X[0], Y[0]), data)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_primitives_without_rule_are_detected_by_the_problem(name):
    """Unsupported sizes of supported primitives are only detected by the compiler."""
    assert differentiated(UNSUPPORTED[name]) == (name if name in NOT_COMPILED else "")


def test_supported_functions_cause_no_warning():
    assert [differentiated(function) for function in CASES.values()] == [""] * len(CASES)


def test_constant_subexpressions_cause_no_warning():
    def constants(x, y, i, m):
        inner = jax.jit(lambda x, A: x * jnp.linalg.eigh(A)[0])
        return inner(x, jnp.eye(3) + 1.0) + jnp.argmax(jnp.arange(3.0))

    assert differentiated(constants) == ""
    assert differentiated(lambda x, y, i, m: jax.jit(lambda A: jnp.linalg.eigh(A)[0])(y + y.T)) == "eigh"


@jax.custom_vjp
def reverse_only(x):
    return x**3


reverse_only.defvjp(lambda x: (x**3, x), lambda x, g: (7 * x * g,))


@jax.custom_jvp
def forward_only(x):
    return x**3


forward_only.defjvp(lambda at, by: (at[0] ** 3, jnp.cbrt(343 * (at[0] * by[0]) ** 3)))  # in no linear form


def jacobians(function):
    """The Jacobian in forward and in reverse mode."""
    return [lambda x, mode=mode: ((mode(function)(x),), ()) for mode in (jax.jacfwd, jax.jacrev)]


@pytest.mark.parametrize("function", [reverse_only, forward_only])
@pytest.mark.parametrize("shortest", [True, False])
def test_a_function_with_one_differentiation_mode_is_compiled(function, shortest):
    loop = Loop("case", [Argument("each", (3,))], *jacobians(function), shortest=shortest)
    (J,) = [np.empty((4, *shape)) for shape in loop.store_shapes]
    loop(4, [X], [J])
    np.testing.assert_allclose(J, 7 * X[:, None] * np.eye(3), rtol=1e-12)


@pytest.mark.parametrize(("shortest", "n_traced"), [(True, 2), (False, 1)])
def test_alternatives_are_only_traced_for_the_shortest_program(shortest, n_traced):
    traced = []

    def one(x):
        traced.append(x)
        return (x,), ()

    Loop("case", [Argument("each", (3,))], one, lambda x: one(x), shortest=shortest)
    assert len(traced) == n_traced


@pytest.mark.parametrize("before", [jnp.sin, reverse_only, forward_only])
def test_the_error_of_an_uncompilable_function_names_the_primitive(before):
    with pytest.raises(UnsupportedPrimitive, match="'eigh'"):
        Loop("case", [Argument("each", (3,))], *jacobians(lambda x: jnp.linalg.eigh(jnp.outer(before(x), x))[0]))


def test_an_error_of_the_function_is_raised():
    with pytest.raises(ZeroDivisionError):
        Loop("case", [Argument("each", (3,))], *jacobians(lambda x: x * (1 // 0)))


def test_sums_over_items_and_scalars():
    def one(x, scale):
        return (x * scale,), (x[0], x[1] * scale)

    loop = Loop("case", [Argument("each", (3,)), Argument("scalar")], one)
    n = 10_000  # several tasks
    x = np.random.default_rng(1).normal(size=(n, 3))
    (stored,) = [np.empty((n, *shape)) for shape in loop.store_shapes]
    sums = loop(n, [x, 2.5], [stored])
    np.testing.assert_allclose(stored, 2.5 * x, rtol=1e-15)
    np.testing.assert_allclose(sums, [x[:, 0].sum(), 2.5 * x[:, 1].sum()], rtol=1e-11)
    (stored,) = [np.empty((0, *shape)) for shape in loop.store_shapes]
    np.testing.assert_array_equal(loop(0, [x[:0], 2.5], [stored]), 0.0)


def test_products_of_many_factors_take_linear_time():
    program = Program()
    x, y = program.input("x"), program.input("y")
    squared = chain = x
    for _ in range(64):
        squared = program.emit("mul", squared, squared)
    for _ in range(3000):
        chain = program.emit("mul", chain, y)
    program.emit("sub", program.emit("add", squared, x), program.emit("add", chain, y))
    assert len(program.statements) == 2 + 64 + 3000 + 3


def test_the_shortest_of_several_programs_is_compiled():
    def long(x):
        return (jnp.cos(x[0] + x[1]),), ()

    def short(x):
        return (x[0],), ()

    one, other, alone = (Loop("case", ARGUMENTS[:1], *f) for f in ([long, short], [short, long], [short]))
    assert one.kernel is other.kernel is alone.kernel


@pytest.mark.parametrize("x64", [False, True])
def test_the_precision_setting_of_jax_is_unchanged(x64):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)
    try:
        x = asker.Variables(np.ones((1, 2)))
        data = np.random.default_rng(2).normal(size=(5, 2))
        index = np.zeros(5, int)
        factors = asker.Factors(lambda x, d: x - d, x[index], data=data, kernel=asker.Quadratic())
        result = asker.solve(asker.Problem(factors))
        assert jax.config.jax_enable_x64 == x64
        assert jnp.ones(1).dtype == (jnp.float64 if x64 else jnp.float32)
    finally:
        jax.config.update("jax_enable_x64", before)
    np.testing.assert_allclose(result[x][0], data.mean(axis=0), rtol=1e-9)  # more than single precision


def test_listeners_are_notified_of_compilations():
    notified = []
    on_compile.append(notified.append)
    try:
        text = f"def twice(start, stop, x):\n    for k in range(start, stop):\n        x[k] *= 2.0  # {time.time()}\n"
        x = np.array([3.0])
        for _ in range(2):
            compiler.compile_source("twice", text)(0, 1, x)
        assert x == 12.0
    finally:
        on_compile.remove(notified.append)
    assert notified == ["twice"]


@pytest.mark.parametrize("n", [0, 1, 3, 8, 11])
def test_overlapping_batches_are_summed_once(n, monkeypatch):
    monkeypatch.setattr(loops, "BATCH_SIZE", 4)
    x, out = np.arange(2.0 * n).reshape(n, 2), np.zeros((n, 2))
    loop = BatchedLoop([Argument("each", (2,)), Argument("scalar")], lambda x, s: ((s * x,), (x[0], s)))
    sums = loop(n, [x, 3.0], [out])
    np.testing.assert_array_equal(out, 3.0 * x)
    np.testing.assert_array_equal(sums, [x[:, 0].sum(), 3.0 * n])


def test_a_program_of_too_many_statements_is_not_compiled():
    def long(x):
        for _ in range(MAX_STATEMENTS + 1):
            x = jnp.sin(x)
        return (x,), ()

    with pytest.raises(NotCompiled, match=f"more than {MAX_STATEMENTS} operations"):
        Loop("long", [Argument("each")], long)


def test_unrolling_stops_at_the_limit():
    def product(x):
        return (jnp.outer(x, x) @ jnp.outer(x, x),), ()

    with pytest.raises(NotCompiled, match="operations"):
        Loop("product", [Argument("each", (300,))], product)
