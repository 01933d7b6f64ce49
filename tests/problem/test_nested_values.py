"""Variables, data and arguments of SciPy's functions as dictionaries, named tuples and dataclasses."""

import copy
import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from asker.tracing.trees import leaves_of, like, mapped, tree_of

RNG = np.random.default_rng(0)
N = 40
T = np.linspace(0, 3, N)
Y = 1.5 * np.exp(-0.8 * T) + 0.3 + RNG.normal(0, 0.02, N) + (np.arange(N) % 9 == 0)
S = RNG.uniform(0.5, 2.0, N)


class Decay(NamedTuple):
    amplitude: Any
    rate: Any


@dataclass(frozen=True)
class Model:
    decay: Decay
    offset: Any


@dataclass
class Seen:
    y: Any
    scale: Any


def flat_residual(p, t, y, s):
    return (p[0] * jnp.exp(-p[1] * t) + p[2] - y) * s


def nested_residual(model, t, seen):
    value = model.decay.amplitude * jnp.exp(-model.decay.rate * t) + model.offset["by"]
    return (value - seen.y) * seen.scale["s"]


def both(kernel):
    """Return the same problem with flat and with nested values."""
    zeros = np.zeros(N, int)
    p = asker.Variables([[1.0, 1.0, 0.0]], name="p")
    flat = asker.Factors(flat_residual, p[zeros], data=(T, Y, S), kernel=kernel, name="f")
    start = Model(Decay(np.ones(1), np.ones(1)), {"by": np.zeros(1)})
    q = asker.Variables(start, name="q")
    data = (T, Seen(Y, {"s": S}))
    nested = asker.Factors(nested_residual, q[zeros], data=data, kernel=kernel, name="f")
    return asker.Problem(flat), asker.Problem(nested)


def as_flat(model):
    return np.concatenate([model.decay.amplitude, model.decay.rate, model.offset["by"]])


@pytest.mark.parametrize("kernel", [asker.Cauchy(0.05), None], ids=repr)
def test_nested_values_have_the_same_solution(kernel):
    flat, nested = (asker.solve(p, relative_damping=True) for p in both(kernel))
    assert type(nested["q"]) is Model
    assert type(nested["q"].decay) is Decay
    np.testing.assert_allclose(as_flat(nested["q"]), flat.x, rtol=1e-8)
    np.testing.assert_allclose(nested.cost, flat.cost, rtol=1e-10)
    np.testing.assert_allclose(nested.interval("q"), flat.interval("p"), rtol=1e-6)
    assert nested.x.decay.rate == nested["q"].decay.rate[0]
    again = asker.solve(nested.problem, start=nested)
    assert again.cost <= nested.cost * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:engine xla without a GPU")
def test_nested_values_on_xla():
    flat, nested = (asker.solve(p, asker.IRLS(), engine="xla", relative_damping=True) for p in both(asker.Cauchy(0.05)))
    np.testing.assert_allclose(as_flat(nested["q"]), flat.x, rtol=1e-8)


def test_nested_values_are_copied_and_saved(tmp_path):
    _, nested = both(asker.Cauchy(0.05))
    result = asker.solve(nested)
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        np.testing.assert_array_equal(as_flat(other["q"]), as_flat(result["q"]))
    result.save(tmp_path / "result.npz")
    loaded = asker.Result.load(tmp_path / "result.npz")["q"]  # the types are unknown when it is loaded
    assert loaded["decay"]["rate"] == result["q"].decay.rate
    assert loaded["offset"]["by"] == result["q"].offset["by"]


def test_derivatives_have_the_structure_of_the_values():
    flat, nested = (asker.solve(p, asker.IRLS(), tol=0, relative_damping=True) for p in both(asker.Cauchy(0.05)))
    g = flat.vjp(np.array([[1.0, -2.0, 0.5]]))
    of_nested = nested.vjp({"q": Model(Decay(np.array([1.0]), np.array([-2.0])), {"by": np.array([0.5])})})
    t, seen = of_nested.data["f"]
    np.testing.assert_allclose(t, g.data["f"][0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(seen.scale["s"], g.data["f"][2], rtol=1e-6, atol=1e-9)
    moved = nested.jvp(data=(None, Seen(S, {"s": None})))["q"]
    np.testing.assert_allclose(as_flat(moved), flat.jvp(data=(None, S, None))["p"][0], rtol=1e-6)
    solution = asker.differentiable(nested.problem, wrt=["f.data[1].y"], strategy=asker.IRLS(), start=nested)
    by_y = jax.grad(lambda y: solution(y)["q"].decay.rate[0])(Y)
    expected = flat.vjp(np.array([[0.0, 1.0, 0.0]])).data["f"][1]
    np.testing.assert_allclose(by_y, expected, rtol=1e-4, atol=1e-6)


def off_pose(x, M):
    return (jnp.concatenate([x["pose"].rotation, x["pose"].translation[:, None]], axis=1) * x["scale"] - M).ravel()


def test_leaves_have_manifolds():
    M = np.concatenate([np.eye(3), np.ones((3, 1))], axis=1)[None] * 1.5
    start = {"scale": np.ones(1), "pose": M / 1.4 * np.array([1.4 / 1.5] * 3 + [1.0])}
    x = asker.Variables(start, {"pose": asker.SE3}, name="x")
    result = asker.solve(asker.Problem(asker.Factors(off_pose, x[[0]], data=M, kernel=asker.Quadratic())))
    np.testing.assert_allclose(result["x"]["scale"], 1.5, rtol=1e-6)
    np.testing.assert_allclose(result["x"]["pose"] * 1.5, M, rtol=1e-6, atol=1e-6)


X = {"a": np.zeros(2), "b": {"c": np.zeros((2, 3))}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: asker.Variables({"a": np.zeros(2), "b": np.zeros(3)}), r"\['a'\] has 2, \['b'\] has 3"),
        (lambda: asker.Variables({"a": np.zeros(2), "b": {"c": ["x", "y"]}}), r"\['b'\]\['c'\] holds"),
        (lambda: asker.Variables({"a": np.zeros(2), "b": 3.0}), r"\['b'\]"),
        (lambda: asker.Variables(X, {"d": asker.SO3}), "no field 'd'"),
        (lambda: asker.Variables(X, asker.SO3), "values"),
        (lambda: asker.Variables(X, lower=0.0), "are for Euclidean ones"),
        (lambda: asker.Variables(X).at({"a": np.zeros(2)}), "has the fields a, expected the fields a, b"),
        (lambda: asker.Variables(X).at(np.zeros(2)), "has the type ndarray, expected the fields a, b"),
        (lambda: asker.Factors(len, asker.Variables(np.zeros(1))[[0, 0]], data={"u": np.zeros(2), "v": np.zeros(3)}),
         r"data\['v'\] has shape \(3,\)"),
        (lambda: asker.Factors(len, asker.Variables(np.zeros(1))[[0]], data={"u": np.array([np.nan])}),
         r"data\['u'\] holds NaN or infinity at observation 0"),
        (lambda: both(None)[1].with_data((T, {"y": Y})), r"data\[1\] has the fields y, expected the fields scale, y"),
        (lambda: asker.differentiable(both(asker.Cauchy())[1], wrt=["f.data"]), "f.data\\[0\\] or f.data\\[1\\].y"),
    ],
)  # fmt: skip
def test_errors_name_the_leaf(make, message):
    with pytest.raises(asker.ProblemError, match=message):
        make()


def test_trees_are_taken_apart_and_built_again():
    value = {"b": Decay(1, [2, 3]), "a": Model(4, {"x": 5})}
    tree = tree_of(value)
    assert tree.names("v") == ["v['b'].amplitude", "v['b'].rate", "v['a'].decay", "v['a'].offset['x']"]
    assert tree.leaves(value) == leaves_of(value) == [1, [2, 3], 4, 5]
    assert tree.build(tree.leaves(value)) == value == like(value, leaves_of(value))
    assert mapped(str, (value, 6)) == ({"b": Decay("1", "[2, 3]"), "a": Model("4", {"x": "5"})}, "6")


def curve(x, p):
    return p.amplitude * np.exp(-p.rate[0] * x["t"]) * x["s"]


@pytest.mark.parametrize("xp", [np, jnp])
def test_least_squares_and_curve_fit_accept_nested_values(xp):
    def fun(p):
        return p["decay"].amplitude * xp.exp(-p["decay"].rate[0] * T) + p["offset"] - Y

    x0 = {"decay": Decay(1.0, [1.0]), "offset": 0.0}
    bounds = ({"decay": Decay(0.0, [0.0]), "offset": -np.inf}, np.inf)
    fit = asker.least_squares(fun, x0, bounds=bounds, loss="soft_l1", f_scale=0.05)
    plain = asker.least_squares(
        lambda v: v[0] * xp.exp(-v[1] * T) + v[2] - Y, [1.0, 1.0, 0.0], loss="soft_l1", f_scale=0.05
    )
    np.testing.assert_allclose([fit.x["decay"].amplitude, *fit.x["decay"].rate, fit.x["offset"]], plain.x, rtol=1e-5)
    popt, pcov = asker.curve_fit(curve, {"t": T, "s": S}, Y * S, Decay(1.0, [1.0]), nan_policy="omit")
    expected = asker.curve_fit(lambda t, a, r: a * np.exp(-r * t) * S, T, Y * S, [1.0, 1.0])
    np.testing.assert_allclose([popt.amplitude, *popt.rate], expected[0], rtol=1e-5)
    np.testing.assert_allclose(pcov, expected[1], rtol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: asker.least_squares(len, {"a": "x"}), r"x0\['a'\]"),
        (lambda: asker.least_squares(len, {"a": np.nan}), "x0 holds NaN"),
        (lambda: asker.least_squares(len, {"a": 1.0}, bounds=({"b": 0.0}, 1.0)), r"bounds\[0\] has the fields b"),
        (lambda: asker.least_squares(len, {"a": [1.0]}, bounds=({"a": [0.0, 1.0]}, 1.0)), r"bounds\[0\]\['a'\] has"),
        (lambda: asker.curve_fit(curve, {"t": [np.nan], "s": [1.0]}, [1.0], Decay(1.0, [1.0])), "hold NaN"),
        (lambda: asker.curve_fit(curve, {"t": "x", "s": S}, Y, Decay(1.0, [1.0])), r"xdata\['t'\]"),
        (lambda: asker.least_squares(3, {"a": 1.0}), "fun"),
    ],
)
def test_errors_of_scipy_functions_name_the_leaf(call, message):
    with pytest.raises((asker.ProblemError, ValueError, TypeError), match=message):
        call()
