"""Invalid arguments of public functions raise an error whose message names the argument."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker._arguments import check_number, check_settings, is_number
from asker.tracing.array_namespace import float64

T = np.linspace(0, 3, 20)
Y = 2 * np.exp(-1.5 * T)
D = np.linspace(2.9, 3.1, 20)
I = np.zeros(20, dtype=int)


def off(x, d):
    return x - d


def curve(t, a, b):
    return a * np.exp(-b * t)


def residuals(p):
    return curve(T, *p) - Y


X = asker.Variables(np.zeros(1), name="x")


def factors(residual=off, **options):
    return asker.Factors(residual, X[I], data=D, **{"kernel": asker.Huber(0.1)} | options)


PROBLEM = asker.Problem(factors())


@pytest.fixture(scope="module")
def result():
    return asker.solve(PROBLEM)


SOLVE = [
    ("strategy", 5, "strategy is 5, expected an object"),
    ("max_iterations", "a", "max_iterations must be at least 0 and a whole number, not 'a'"),
    ("max_iterations", 2.5, "max_iterations must be at least 0 and a whole number, not 2.5"),
    ("max_iterations", np.inf, "max_iterations must be at least 0 and a whole number, not inf"),
    ("tol", None, "tol must be at least 0 and a number, not None"),
    ("tol", "a", "tol must be at least 0"),
    ("tol", np.ones(2), "tol must be at least 0"),
    ("time_limit", "a", "time_limit must be at least 0 and a number, not 'a'"),
    ("on_iteration", 5, "on_iteration must be a function, not 5"),
    ("relative_damping", np.ones(2), "relative_damping must be True, False or None"),
    ("checkpoint", 5, "checkpoint must be the path of a file, not 5"),
    ("every", "a", "every must be at least 1 and a whole number, not 'a'"),
    ("threads", "a", "the number of threads must be at least 1 and a whole number, not 'a'"),
    ("threads", 1.5, "the number of threads must be at least 1"),
    ("start", {"x": 5}, "x: start is 5, expected an array with a row for each variable"),
]


@pytest.mark.parametrize(("name", "value", "message"), SOLVE, ids=[f"{n}={v!r}" for n, v, _ in SOLVE])
def test_solve(name, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        asker.solve(PROBLEM, **{name: value})


SETTINGS = [
    (lambda: asker.ASKER(s0="a"), "ASKER: s0 must be a number, not 'a'"),
    (lambda: asker.ASKER(damping=np.nan), "ASKER: damping must be a number, not nan"),
    (lambda: asker.ASKER(grid=0), "ASKER: grid must be at least 1 and a whole number, not 0"),
    (lambda: asker.ASKER(as_printed="no"), "ASKER: as_printed must be True or False, not 'no'"),
    (lambda: asker.ASKER(anneal=5), "ASKER: anneal must be of type Anneal, not 5"),
    (lambda: asker.ASKER(anneal=asker.Paced(longest=2.5)), "Paced: longest must be at least 1 and a whole number"),
    (lambda: asker.ASKER(first=None), "ASKER: first must be of type IRLS, not None"),
    (lambda: asker.GNC(levels="a"), "GNC: levels must be at least 1 and a whole number, not 'a'"),
    (lambda: asker.WithMoves("irls"), "WithMoves: method must be of type Strategy, not 'irls'"),
    (lambda: asker.WithMoves(steps=0), "WithMoves: steps must be at least 1"),
    (lambda: asker.LastPhase(asker.IRLS), "LastPhase: method must be of type Strategy, not"),
]


@pytest.mark.parametrize(("make", "message"), SETTINGS, ids=[message[:40] for _, message in SETTINGS])
def test_settings_of_a_strategy(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        asker.solve(PROBLEM, make())


@pytest.mark.parametrize("name", asker.METHODS)
def test_the_settings_of_every_method_are_valid(name):
    check_settings(asker.METHODS[name]())


def test_whole_numbers_may_be_written_as_floats():
    assert asker.solve(PROBLEM, max_iterations=1e2).cost == asker.solve(PROBLEM, max_iterations=100).cost


LEAST_SQUARES = [
    ("fun", None, "fun must be a function, not None"),
    ("x0", None, "x0 is NoneType, expected an array of numbers"),
    ("x0", "ab", "x0 is an array of <U2"),
    ("x0", [[1.0], 1.0], "x0 is no array"),
    ("x0", [np.nan, 1.0], "x0 holds NaN or infinity at index 0"),
    ("x0", np.ma.masked_greater([1.0, 3.0], 2), "x0 holds masked entries"),
    ("jac", np.ones((20, 2)), "jac must be one of auto, 2-point, 3-point, cs, or a function"),
    ("jac", True, "jac must be one of"),
    ("bounds", 5, "bounds is 5, expected a pair: lower and upper bounds"),
    ("bounds", None, "bounds is None, expected a pair"),
    ("bounds", ("a", 1), "bounds[0] is an array of <U1"),
    ("ftol", "a", "ftol must be at least 0 and a number, not 'a'"),
    ("xtol", np.nan, "xtol must be at least 0 and a number, not nan"),
    ("gtol", np.ones(2), "gtol must be at least 0"),
    ("loss", asker.Tukey, "loss is the class Tukey, expected an object such as asker.Tukey(tau=1.0)"),
    ("f_scale", "a", "f_scale must be positive, finite and a number, not 'a'"),
    ("f_scale", None, "f_scale must be positive"),
    ("diff_step", "a", "diff_step is an array of <U1"),
    ("diff_step", [1e-6] * 3, "diff_step is [1e-06, 1e-06, 1e-06], expected one finite number, or one for each of x0"),
    ("max_nfev", "a", "max_nfev must be at least 1 and a whole number, not 'a'"),
    ("args", 5, "args must be a tuple of the arguments of fun after x, not 5"),
    ("args", "ab", "args must be a tuple"),
    ("kwargs", 5, "kwargs must be a dictionary of arguments of fun, not 5"),
    ("callback", 5, "callback must be a function, not 5"),
    ("strategy", 5, "strategy is 5, expected an object"),
]


@pytest.mark.parametrize(("name", "value", "message"), LEAST_SQUARES, ids=[f"{n}={v!r}" for n, v, _ in LEAST_SQUARES])
def test_least_squares(name, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        asker.least_squares(**{"fun": residuals, "x0": [1.0, 1.0]} | {name: value})


CURVE_FIT = [
    ("f", None, "f must be a function, not None"),
    ("f", max, "the number of parameters cannot be determined from the signature of f: give p0"),
    ("ydata", "ab", "ydata is an array of <U2"),
    ("ydata", Y * 1j, "ydata is complex, expected real numbers"),
    ("ydata", np.ma.masked_greater(Y, 1), "ydata holds masked entries: leave these out"),
    ("xdata", T * 1j, "xdata is complex"),
    ("xdata", T[1:], "the value of f has shape (19,), expected that of ydata, (20,)"),
    ("p0", "ab", "p0 is an array of <U2"),
    ("p0", [[1.0, 1.0]], "p0 has shape (1, 2), expected (d,)"),
    ("sigma", "a", "sigma is an array of <U1"),
    ("sigma", np.arange(20.0), "sigma is 0 at index 0, expected positive numbers"),
    ("sigma", np.full(20, np.nan), "sigma is nan at index 0"),
    ("bounds", 1, "bounds is 1, expected a pair"),
    ("bounds", ([0, 0, 0], [9, 9, 9]), "bounds have shapes (3,) and (3,), expected that of x0, (2,)"),
    ("maxfev", "a", "max_nfev must be at least 1"),
    ("epsfcn", "a", "epsfcn must be positive, finite and a number, not 'a'"),
    ("factor", -1, "factor must be positive"),
    ("diag", "a", "diag is an array of <U1"),
    ("col_deriv", True, "asker.curve_fit does not support col_deriv"),
]


@pytest.mark.parametrize(("name", "value", "message"), CURVE_FIT, ids=[f"{n}={v!r:.20}" for n, v, _ in CURVE_FIT])
def test_curve_fit(name, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        asker.curve_fit(**{"f": curve, "xdata": T, "ydata": Y} | {name: value})


@pytest.mark.parametrize("options", [{"epsfcn": 1e-10}, {"diag": [2.0, 1.0]}, {"factor": 10}], ids=str)
def test_the_options_of_minpack_work(options):
    np.testing.assert_allclose(asker.curve_fit(curve, T, Y, **options)[0], [2.0, 1.5], rtol=1e-6)


def test_epsfcn_is_the_square_of_the_relative_step():
    calls = []

    def counted(t, a, b):
        calls.append((a, b))
        return curve(t, a, b)

    asker.curve_fit(counted, T, Y, p0=[1.0, 1.0], epsfcn=1e-6)
    assert any(a == pytest.approx(1.001, abs=1e-12) and b == 1 for a, b in calls)


@pytest.mark.parametrize("call", [asker.least_squares, lambda f, x, **o: asker.curve_fit(curve, T, Y, **o)])
def test_an_unknown_option_is_named(call):
    with pytest.raises(TypeError, match=r"least_squares\(\) got an unexpected keyword argument 'foo'; besides SciPy's"):
        call(residuals, [1.0, 1.0], foo=1)


OTHERS = [
    (lambda: asker.Variables([1.0], fixed="yes"), "fixed is <U3 (), expected True, False or a mask: bool (1,)"),
    (lambda: asker.Variables([1.0, 2.0], fixed=2), "fixed is int64 (), expected True, False or a mask"),
    (lambda: asker.Variables([1.0], 5, name="v"), "v: manifold is 5, expected an object such as asker.SE3"),
    (lambda: asker.Variables([1.0], "SE3"), "manifold is 'SE3', expected an object"),
    (lambda: asker.Variables([[1.0, 0, 0]], asker.Sphere), "expected an object such as asker.SE3"),
    (lambda: asker.Product(5), "part 0 of a Product is 5, expected a manifold"),
    (lambda: asker.Sphere(0), "dim must be a whole number of at least 2, not 0"),
    (lambda: asker.Sphere("a"), "dim must be a whole number"),
    (lambda: asker.Euclidean("a"), "shape must be a whole number or a tuple of whole numbers, not 'a'"),
    (lambda: asker.Euclidean(-1), "shape must be a whole number"),
    (lambda: asker.Euclidean(2.5), "shape must be a whole number"),
    (lambda: factors(None), "residual: residual is None, expected a function"),
    (lambda: factors(jacobian=5), "off: jacobian is 5, expected a function"),
    (lambda: factors(valid=True), "off: valid is True, expected a function"),
    (lambda: asker.solve(asker.Problem(factors(valid=lambda x, d: x * 1j))), "valid returns complex numbers"),
    (lambda: asker.Problem(factors(), portion=5), "portion is int, expected a Portion"),
    (lambda: PROBLEM.with_kernel("huber"), "off: kernel is 'huber', expected a kernel such as Huber(tau=1.0)"),
    (lambda: PROBLEM.with_kernel(asker.Huber), "expected a kernel such as Huber(tau=1.0)"),
    (lambda: PROBLEM.with_kernel(asker.Huber(), np.ones(2)), "0 groups of factors are"),
    (lambda: PROBLEM.with_fixed(np.ones(3)), "with_fixed: 0 groups of variables are"),
    (lambda: PROBLEM.with_fixed("x", "a"), "x: fixed is <U1 ()"),
    (lambda: asker.holdout(5), "the first argument of holdout is int, expected an asker.Problem"),
    (lambda: asker.holdout(PROBLEM, unit="a"), "unit must be positive, finite and a number, not 'a'"),
    (lambda: asker.kernel_named(5), "kernel must be the name of a kernel, not 5"),
    (lambda: asker.Barron(1.0, "a"), "alpha must be at most 2 and a number, not 'a'"),
    (lambda: asker.Huber([1]), "tau must be positive, finite and a number, not [1]"),
    (lambda: asker.Huber(1j), "tau must be positive, finite and a number, not 1j"),
    (lambda: asker.Scaled(5, 1.0), "kernel is 5, expected a kernel"),
    (lambda: asker.Scaled(asker.Huber(), "a"), "scale must be positive, finite and a number, not 'a'"),
    (lambda: asker.set_threads("a"), "the number of threads must be at least 1"),
]


@pytest.mark.parametrize(("call", "message"), OTHERS, ids=[message[:40] for _, message in OTHERS])
def test_others(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"level": "a"}, "level must be between 0 and 1, not 'a'"),
        ({"sigma": "a"}, "sigma must be positive and finite, not 'a'"),
        ({"datum": 5}, "expected variables, some of them"),
    ],
)
def test_intervals(asked, message, result):
    with pytest.raises(ValueError, match=re.escape(message)):
        result.interval("x", **asked)


def test_a_scaled_kernel_is_accepted():
    problem = PROBLEM.with_kernel(asker.Scaled(asker.Huber(0.1), 2.0))
    assert problem.factors[0].kernel == asker.Huber(0.2)
    assert asker.solve(problem).cost == asker.solve(PROBLEM.with_kernel(asker.Huber(0.2))).cost


@pytest.mark.parametrize("engine", ["cpu", "xla"])
@pytest.mark.parametrize("make", [jax.random.PRNGKey, jax.random.key])
@pytest.mark.filterwarnings("ignore:engine xla without a GPU")
def test_a_residual_may_draw_random_numbers(make, engine):
    """Keys are arrays of a type unknown to NumPy, and each solve evaluates the function again."""

    def noisy(x, d):
        first, second = jax.random.split(make(3))
        return x - d + jax.random.normal(first) + jax.random.uniform(second)

    with float64():
        shift = float(noisy(0.0, 0.0))
    random = asker.solve(asker.Problem(factors(noisy)), engine=engine)
    usual = asker.solve(asker.Problem(factors(lambda x, d: x - d + shift)), engine=engine)
    np.testing.assert_allclose(random.x, usual.x, rtol=1e-6)
    assert random.problem.factors[0].trace != usual.problem.factors[0].trace


@pytest.mark.filterwarnings("ignore:.*cannot compile the JAX primitive")
def test_random_numbers_of_each_observation_are_those_of_jax():
    key, numbers = jax.random.key(0), np.arange(20)

    def noisy(x, d, k):
        return x - d + jax.random.normal(jax.random.fold_in(key, k))

    with float64():
        shifts = np.array([jax.random.normal(jax.random.fold_in(key, k)) for k in numbers])
    one = asker.Factors(noisy, X[I], data=(D, numbers), kernel=asker.Quadratic())
    assert asker.solve(asker.Problem(one)).x == pytest.approx(np.mean(D - shifts), rel=1e-9)


def test_what_is_a_number():
    for x in (1, 1.5, np.float32(2), np.array(3.0), np.int8(4), jnp.float32(5)):
        assert is_number(x)
    for x in (True, "1", None, 1j, [1.0], np.ones(1), np.bool_(1), object()):
        assert not is_number(x)
    with pytest.raises(ValueError, match="n must be at least 1 and a whole number, not nan"):
        check_number("n", np.nan, 1, whole=True)
