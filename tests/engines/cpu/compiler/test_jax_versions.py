"""All primitives and parameters of the installed JAX are known; unsupported functions are run by XLA."""

import signal
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import asker
from asker.engines.cpu.compiler import Argument, BatchedLoop, Loop, UnsupportedPrimitive, primitives
from asker.engines.cpu.compiler.arithmetic_rules import UNSUPPORTED_PARAMETERS, Parameters, check_parameters
from asker.engines.cpu.compiler.jaxprs import RULES
from asker.engines.cpu.compiler.supported_primitives import LIMITS
from asker.io.interrupts import interrupts_wait
from asker.tracing.array_namespace import float64
from asker.tracing.jax_compat import IGNORABLE_PARAMETERS
from asker.tracing.unsupported_primitives import NOT_COMPILED_BY_REASON
from compiler_cases import ARGUMENTS, CASES, INDEX, TRUTH, WHOLE, N, X, Y, printed

ALL_PRIMITIVES = """
import gc
import jax, jax.numpy, jax.scipy.linalg, jax.scipy.special
from jax.extend.core import Primitive
print(*{o.name for o in gc.get_objects() if isinstance(o, Primitive)})
"""


def equations(jaxpr):
    """Yield the equations of a jaxpr and of nested ones."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_every_primitive_of_this_jax_is_known():
    """The list is made in a new process, since other tests may have defined primitives."""
    shown = subprocess.run([sys.executable, "-c", ALL_PRIMITIVES], capture_output=True, text=True, check=True)
    known = {*primitives().compiled, *primitives().left_out}
    new = sorted(set(shown.stdout.split()) - known)
    assert not new, (
        f"JAX {jax.__version__} has primitives with neither a rule nor an entry in NOT_COMPILED_BY_REASON: {new}"
    )


def test_no_primitive_is_in_both_tables():
    left_out = [name for names in NOT_COMPILED_BY_REASON.values() for name in names]
    assert len(set(left_out)) == len(left_out)
    assert not set(left_out) & set(RULES)


def test_the_list_of_primitives_is_readable():
    compiled, left_out = primitives()
    assert compiled["sin"] == ""
    assert "6 rows" in compiled["cholesky"]
    assert left_out["while"] == "loops of unknown length"
    assert {name for names in LIMITS.values() for name in names} <= set(compiled)


def test_every_parameter_of_this_jax_is_known():
    """The check covers all functions of scalar_cases.py and their derivatives, which test all rules."""
    new, used = set(), set()
    with float64():
        for function in CASES.values():
            jaxpr = jax.make_jaxpr(printed(function))(X[0], Y[0], WHOLE[0], TRUTH[0])
            for eqn in equations(jaxpr.jaxpr):
                name = eqn.primitive.name
                used.add(name)
                if name in RULES:
                    new |= {
                        (name, key)
                        for key in eqn.params.keys() - RULES[name].uses - IGNORABLE_PARAMETERS - UNSUPPORTED_PARAMETERS
                    }
    assert {"scan", "gather", "dot_general", "lu"} <= used
    assert not new, f"JAX {jax.__version__} has parameters that the compiler does not know: {sorted(new)}"


def test_an_unknown_parameter_is_rejected_unless_empty():
    check_parameters("slice", {"strides": None, "tomorrow": None, "later": False}, RULES["slice"].uses)
    with pytest.raises(UnsupportedPrimitive, match="'slice' with the parameter 'tomorrow'"):
        check_parameters("slice", {"strides": None, "tomorrow": 1}, RULES["slice"].uses)


def test_a_missing_parameter_is_named():
    with pytest.raises(UnsupportedPrimitive, match="'scan' without the parameter 'length'"):
        Parameters("scan", {"jaxpr": 1})["length"]


@pytest.mark.parametrize("name", ["projection", "loops", "determinant", "computed_gather"])
def test_batched_loops_equal_compiled_loops(name):
    def one(*args):
        stores, sums = printed(CASES[name])(*args)
        return stores, (*sums, stores[0].sum())

    stored = []
    for loop in (Loop("case", ARGUMENTS, one), BatchedLoop(ARGUMENTS, one)):
        stores = [np.empty((N, *shape)) for shape in loop.store_shapes]
        sums = loop(N, [(X, INDEX), Y, WHOLE, TRUTH], stores)
        stored.append([*stores, sums])
    for ours, theirs in zip(*stored, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_long_loop_runs_in_batches(monkeypatch):
    monkeypatch.setattr("asker.engines.cpu.compiler.loops.BATCH_SIZE", 4)
    x, out = np.arange(10.0), np.empty(10)
    loop = BatchedLoop([Argument("each"), Argument("scalar")], lambda x, s: ((x * s,), (x,)))
    np.testing.assert_array_equal(loop(10, [x, 2.0], [out]), [45.0])
    np.testing.assert_array_equal(out, 2 * x)


def root(a, x, y):
    """Residual of y and the root of z + z³ = a x, by Newton's method: a loop of unknown length."""
    z = lax.while_loop(
        lambda z: abs(z + z**3 - a[0] * x) > 1e-13 * (1 + abs(a[0] * x)),
        lambda z: z - (z + z**3 - a[0] * x) / (1 + 3 * z * z),
        a[0] * x,
    )
    return z - y


def test_an_unsupported_primitive_is_run_by_xla_with_a_warning():
    x = np.linspace(-2, 2, 200)
    z = np.sort(x + 0.1)
    y = np.array([np.roots([1, 0, 1, -1.7 * v]) for v in z])
    y = np.array([r[np.abs(r.imag).argmin()].real for r in y])
    y[::5] += 3.0
    a = asker.Variables([[1.0]], name="a")
    factors = asker.Factors(root, a[np.zeros(200, int)], data=(z, y), kernel=asker.SmoothTruncated(0.5), name="roots")
    with pytest.warns(UserWarning, match="XLA computes it, which is slower") as caught:
        problem = asker.Problem(factors)
    assert caught[0].filename == __file__
    (message,) = [str(w.message) for w in caught]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning is not repeated
        result = asker.solve(problem.with_kernel(factors.kernel))
    assert message.startswith("roots: ")
    assert all(word in message for word in ("'while'", 'engine="xla"', "jacobian="))
    np.testing.assert_allclose(result[a], [[1.7]], rtol=1e-6)


def test_a_function_that_cannot_be_differentiated_is_named():
    def no_way(x, d):
        if x[0] > 0:  # depends on a value while JAX traces
            return x - d
        return x + d

    x = asker.Variables(np.ones((1, 2)))
    with pytest.raises(asker.ProblemError, match="no_way"):
        asker.Problem(asker.Factors(no_way, x[np.zeros(3, int)], data=np.zeros((3, 2)), kernel=asker.Quadratic()))


@pytest.mark.filterwarnings("ignore:engine xla without a GPU")
def test_both_engines_take_the_same_first_steps():
    rng = np.random.default_rng(0)
    x = asker.Variables(rng.normal(size=(4, 2)), name="x")
    index, d = rng.integers(0, 4, 60), rng.normal(size=(60, 2))
    problem = asker.Problem(asker.Factors(lambda x, d: jnp.tanh(x) - d, x[index], data=d, kernel=asker.Huber(1.0)))
    by_cpu, by_xla = (asker.solve(problem, asker.IRLS(), max_iterations=3, engine=e).history for e in ("cpu", "xla"))
    np.testing.assert_allclose([h.cost for h in by_cpu], [h.cost for h in by_xla], rtol=1e-10)
    assert by_cpu[-1].cost < by_cpu[0].cost


def test_an_interrupt_waits_until_jax_is_loaded():
    done = []

    def load():
        with interrupts_wait():
            signal.raise_signal(signal.SIGINT)
            done.append("loaded")

    with pytest.raises(KeyboardInterrupt):
        load()
    assert done == ["loaded"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with interrupts_wait():
        done.append("nothing came")
