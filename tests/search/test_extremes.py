"""Very small and very large units, unusual types, arguments that mean nothing: right, or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.io.files import read_text_bytes
from asker.tracing.array_namespace import float64

N = 120
RNG = np.random.default_rng(3)
X = RNG.uniform(-5, 5, N)
Y = np.where(RNG.random(N) < 0.3, RNG.uniform(-8, 8, N), 0.8 * X - 1) + 0.05 * RNG.normal(size=N)


def line(x, t, y):
    return x[0] * t + x[1] - y


def line_in_units(unit):
    """A line with outliers; the ordinates, and the line with them, are in other units."""
    x = asker.Variables(np.array([[0.3, 0.5]]) * unit, name="x")
    kernel = asker.SmoothTruncated(0.3 * unit)
    return asker.Problem(asker.Factors(line, x[np.zeros(N, int)], data=(X, Y * unit), kernel=kernel))


@pytest.mark.parametrize("method", ["irls", "mhq", "gnc", "moo", "asker"])
def test_units_do_not_matter(method):
    """Powers of two: not even rounding differs."""
    plain = asker.solve(line_in_units(1.0), asker.METHODS[method](), max_iterations=40)
    assert plain.cost < 0.5 * plain.initial_cost
    for unit in (2.0**-27, 2.0**-160, 2.0**27, 2.0**160):
        other = asker.solve(line_in_units(unit), asker.METHODS[method](), max_iterations=40)
        np.testing.assert_allclose(other["x"] / unit, plain["x"], rtol=1e-6)
        assert other.status is plain.status


@pytest.mark.parametrize("method", sorted(asker.METHODS))
@pytest.mark.parametrize("unit", [1e-100, 1e-140, 1e100, 1e140])
def test_no_unit_breaks_a_method(method, unit):
    result = asker.solve(line_in_units(unit), asker.METHODS[method](), max_iterations=8)
    assert 0 < result.cost <= result.initial_cost


@pytest.mark.parametrize("tau", [1e-170, 1e-151, 1e151, 1e300])
def test_a_width_whose_square_is_no_number_is_refused(tau):
    with pytest.raises(ValueError, match="tau must lie between 1e-150 and 1e"):
        asker.Huber(tau)
    x = asker.Variables(np.zeros((1, 2)))
    with pytest.raises(asker.ProblemError, match=r"must lie between 1e-150 and 1e.*at index 1"):
        asker.Factors(line, x[np.zeros(2, int)], data=(X[:2], Y[:2]), tau=[1.0, tau])


def test_a_weight_that_makes_it_so_is_refused_too():
    x = asker.Variables(np.zeros((1, 2)))
    with pytest.raises(asker.ProblemError, match="at index 1"):
        asker.Factors(line, x[np.zeros(2, int)], data=(X[:2], Y[:2]), weight=[0.0, 5e-324])


# ------------------------------------------------------------------ types of data

FUNCTIONS = {
    "a square": lambda x, a: x[0] - a * a,
    "a difference": lambda x, a: x[0] + (a - 101),
    "a product": lambda x, a: x[0] * a,
    "a choice": lambda x, a: jnp.where(a > 50, x[0], x[1]),
    "made wider first": lambda x, a: x[0] + a.astype(int) * a.astype(int),
    "made narrow": lambda x, a: (x[0] * a).astype(jnp.int8) + x[1],
    "made half": lambda x, a: x[1] - (x[0] / 3 * a).astype(jnp.float16).astype(float),
}


@pytest.mark.filterwarnings("ignore:.*the CPU engine cannot compile")
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32", "uint64", "float16"])
def test_narrow_and_unsigned_data_behave_as_in_jax(dtype):
    data = np.array([100, 3, 0, 127, 41]).astype(dtype)
    x = asker.Variables([[0.5, 2.0]])
    for name, function in FUNCTIONS.items():
        factors = asker.Factors(function, x[np.zeros(5, int)], data=data, kernel=asker.Quadratic(), name=name)
        result = asker.solve(asker.Problem(factors), max_iterations=0, engine="cpu")
        with float64():
            expected = jax.vmap(lambda a, f=function: f(jnp.asarray([0.5, 2.0]), a))(jnp.asarray(data))
        np.testing.assert_array_equal(result.residuals[0][:, 0], expected, err_msg=name)


@pytest.mark.filterwarnings("ignore:.*the CPU engine cannot compile")
def test_a_large_unsigned_number_keeps_its_sign():
    x = asker.Variables([[0.0]])
    data = np.array([2**63 + 2**20], np.uint64)
    factors = asker.Factors(lambda x, a: x - a, x[[0]], data=data, kernel=asker.Quadratic())
    assert asker.solve(asker.Problem(factors), max_iterations=0).residuals[0][0, 0] == -float(2**63 + 2**20)


def masked(values):
    return np.ma.MaskedArray(values, mask=np.arange(len(values)) == 1)


def test_masked_entries_are_refused():
    x = asker.Variables(np.zeros((3, 2)))
    index, data = np.arange(3), np.ones((3, 2))
    broken = [
        lambda: asker.Variables(masked(np.zeros(3))),
        lambda: asker.Variables(np.zeros(3), fixed=masked(np.zeros(3, bool))),
        lambda: x[masked(index)],
        lambda: asker.Factors(line, x[index], data=np.ma.MaskedArray(data, mask=data > 0)),
        lambda: asker.Factors(line, x[index], data=(X[:3], masked(Y[:3]))),
        lambda: asker.Factors(line, x[index], data=(X[:3], Y[:3]), weight=masked(np.ones(3))),
        lambda: asker.Factors(line, x[index], data=(X[:3], Y[:3]), tau=masked(np.ones(3))),
    ]
    for make in broken:
        with pytest.raises(asker.ProblemError, match="masked entries"):
            make()
    asker.Factors(line, x[index], data=(X[:3], np.ma.MaskedArray(Y[:3], mask=False)))


# ------------------------------------------------------------------ arguments of solve


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tol": float("nan")}, "tol must be at least 0 and a number, not nan"),
        ({"tol": -1e-9}, "tol must be at least 0"),
        ({"time_limit": float("nan")}, "time_limit must be at least 0 and a number, not nan"),
        ({"max_iterations": float("nan")}, "max_iterations must be at least 0 and a whole number, not nan"),
        ({"eliminate": "x"}, "eliminate must be variables of the problem, True or False, not 'x'"),
        ({"eliminate": None}, "eliminate must be variables"),
        ({"eliminate": asker.Variables([[0.0]], name="others")}, "others cannot be eliminated: they are not in"),
        ({"relative_damping": "yes"}, "relative_damping must be True, False or None, not 'yes'"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        asker.solve(line_in_units(1.0), **options)


# ------------------------------------------------------------------ files without an end


def test_a_device_behind_a_link_is_not_read(asks, tmp_path):
    for name in ("graph.g2o", "problem.txt", "problem.txt.gz"):
        (tmp_path / name).symlink_to("/dev/zero")
        with pytest.raises(asker.FileError, match="this is a device or a pipe, not a file"):
            read_text_bytes(tmp_path / name)
        code, _, err = asks("solve", tmp_path / name)
        assert code == 2
        assert "Traceback" not in err
