"""Problems: rejected input, laws of the solve loop, and laws of weights, widths and order."""

import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise

import jax
import numpy as np
import pytest

import asker
from asker import (
    Cauchy,
    Factors,
    Huber,
    Problem,
    ProblemError,
    PseudoHuber,
    Quadratic,
    Scaled,
    SmoothTruncated,
    Status,
    Variables,
)
from asker.statistics.inliers import inlier_radius

# ------------------------------------------------------------------ rejected input


def points(n=4, **options):
    return Variables(np.zeros((n, 2)), **{"name": "points"} | options)


def offset(x, d):
    return x - d


def called_back(x, d):
    """Function that JAX can evaluate, but not differentiate."""
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) - d


@jax.custom_vjp
def backwards_only(x, d):
    return x - d


backwards_only.defvjp(lambda x, d: (x - d, None), lambda _, r: (r, -r))

I = np.arange(4)
D = np.zeros((4, 2))


def changed(array, at, value):
    array = np.array(array, dtype=float)
    array[at] = value
    return array


def factors(residual=offset, index=I, data=D, **options):
    return Factors(residual, points()[index], data=data, **options)


def solvable(residual=offset, **options):
    return Problem(factors(residual, **options))


def batched(jacobian, residual=lambda x, d: x - d):
    return solvable(residual, jacobian=jacobian, name="batched")


EYE = np.broadcast_to(np.eye(2), (4, 2, 2))
LONG = np.zeros((3, 2))

# function that raises, and words of the error message, which name the array
BAD = [
    (lambda: Variables(3.0, name="points"), r"points: values .*shape \(\)"),
    (lambda: Variables([[1.0, 2.0], [3.0]], name="points"), "points: values"),
    (lambda: Variables([["a"]], name="points"), "points: values .*expected numbers"),
    (lambda: Variables([[1j]], name="points"), "points: values .*complex"),
    (lambda: Variables(None, name="points"), "points: values"),
    (lambda: Variables(changed(D, 2, np.nan), name="points"), "points: values .*NaN.* index 2"),
    (lambda: Variables([1.0, np.inf]), "variables: values .*index 1"),
    (lambda: points(fixed=np.ones(3, bool)), r"points: fixed .*\(3,\)"),
    (lambda: points(fixed=[0, 1, 1, 0]), "points: fixed .*int.* mask"),
    (lambda: Factors(offset, data=D), "offset: needs at least one"),
    (lambda: Factors(offset, points(), data=D), "offset: argument 0 is Variables"),
    (lambda: Factors(offset, points()[I], D), "offset: argument 1 is ndarray"),
    (lambda: factors(index=I + 1), r"offset: the index of argument 0 \(points\) is 4 at observation 3"),
    (lambda: factors(index=I - 1), "argument 0 .* is -1 at observation 0"),
    (lambda: factors(index=I * 1.0), "argument 0 .* integers, not float64"),
    (lambda: factors(index=I > 1), r"index of argument 0 \(points\) has shape \(2,\), data\[0\] has shape \(4, 2\)"),
    (lambda: factors(index=np.ones(3, bool)), r"points: the mask has shape \(3,\), expected \(4,\)"),
    (lambda: factors(index=D > 0), r"points: the mask has shape \(4, 2\), expected \(4,\)"),
    (lambda: factors(index=slice(1, None)), r"argument 0 \(points\) has shape \(3,\), data\[0\] has shape \(4, 2\)"),
    (
        lambda: factors(index=(slice(None), 0)),
        r"points: the index is \(slice.*, 0\), expected numbers",
    ),
    (lambda: factors(index=None), "points: the index is None"),
    (lambda: factors(index=[[0], [1, 2]]), "points: the index is no array"),
    (lambda: factors(index=I[None]), r"argument 0 .* 1-D .*\(1, 4\)"),
    (lambda: factors(index=2), "argument 0 .* 1-D"),
    (lambda: Factors(offset, points()[I], points()[I[:3]], data=D), r"index of argument 1 \(points\) has shape \(3,\)"),
    (lambda: factors(data=D[:3]), r"index of argument 0 \(points\) has shape \(4,\), data\[0\] has shape \(3, 2\)"),
    (lambda: factors(index=I[:3]), r"index of argument 0 \(points\) has shape \(3,\), data\[0\] has shape \(4, 2\)"),
    (
        lambda: Problem(Factors(lambda x, d: x[0] - d, Variables([0.0, 1.0], name="line")[I[:2] * 0], data=D[:2, 0])),
        r"fails on line \(\), data\[0\] \(\): .*line are single numbers: for vectors the start is \(n, d\)",
    ),
    (lambda: factors(data=[D, D]), r"offset: data is a list of 2, expected 4; pass arrays as a tuple"),
    (lambda: factors(data=(D, 1.0)), r"data\[1\] has shape \(\)"),
    (lambda: factors(data=(D, changed(D, 3, np.nan))), r"data\[1\] .*NaN.* observation 3"),
    (lambda: factors(data=np.full((4, 2), "a")), r"data\[0\] holds <U1"),
    (lambda: factors(data=D * 1j), r"data\[0\] holds complex"),
    (lambda: factors(data=[[1.0], [2.0, 3.0]]), r"data\[0\]"),
    (lambda: factors(weight=np.ones(3)), r"offset: weight has shape \(3,\)"),
    (lambda: factors(weight=changed(np.ones(4), 2, -1)), "weight is negative at index 2"),
    (lambda: factors(weight=changed(np.ones(4), 1, np.nan)), "weight .*NaN.* observation 1"),
    (lambda: factors(weight=["a"] * 4), "weight holds"),
    (lambda: factors(tau=np.ones(5)), r"tau has shape \(5,\)"),
    (lambda: factors(tau=changed(np.ones(4), 0, 0.0)), "tau must be positive"),
    (lambda: factors(kernel=Huber(np.ones(4))), r"tau is an array; Factors\(tau=...\)"),
    (lambda: Huber(np.float32(-1)), "tau must be positive"),
    (lambda: Huber(None), "tau must be positive, finite and a number, not None"),
    (lambda: factors(linear=True), "linear=True is for factors with `jacobian`"),
    (lambda: Huber("1"), "tau must be positive, finite and a number, not '1'"),
    (lambda: solvable(lambda x, d: np.sin(x)), "TracerArray.*use jax.numpy"),
    (lambda: solvable(lambda x, d: x if x[0] > 0 else d), "TracerBool.*use jnp.where"),
    (lambda: solvable(called_back, name="outside"), "outside: JAX cannot differentiate .*allback.*`jacobian`$"),
    (lambda: solvable(lambda x, d: "no"), "does not return an array of numbers$"),
    (
        lambda: asker.solve(solvable(lambda x, d: x[2] - d[0]), max_iterations=1),
        r"<lambda>: the function reads index 2 of an axis of size 2; .* points \(2,\), data\[0\] \(2,\)",
    ),
    (
        lambda: asker.solve(solvable(lambda x, d: x[2] - d[0]), max_iterations=1, engine="xla"),
        r"<lambda>: the function reads index 2 of an axis of size 2; .* points \(2,\), data\[0\] \(2,\)",
    ),
    (lambda: asker.solve(factors()), r"is Factors, expected asker.Problem\(factors\)"),
    (lambda: asker.solve(solvable(), "asker"), r"strategy is 'asker', expected an object such as asker.ASKER\(\)"),
    (lambda: asker.solve(solvable(), asker.ASKER), "strategy is the class ASKER, expected an object"),
    (lambda: factors(tau=-np.ones(4)), "tau must be positive"),
    (lambda: factors(kernel=Huber(0.0)), "tau must be positive"),
    (lambda: factors(kernel=Huber(np.inf)), "tau must be .*finite"),
    (lambda: factors(kernel=Huber(np.nan)), "tau must be .*finite"),
    (lambda: factors(kernel=Scaled(Huber(1.0), -2.0)), "scale must be positive"),
    (lambda: factors(kernel=Huber), "kernel is .*Huber"),
    (lambda: factors(kernel="huber"), "kernel is 'huber'"),
    (lambda: Problem(), "at least one group of factors"),
    (lambda: Problem([factors()]), "argument 0 .* list"),
    (lambda: solvable(lambda x: x), "residual function fails on points .*data.*TypeError"),
    (lambda: solvable(lambda x, d: x @ np.eye(3) - d, name="product"), "product: .*fails on points"),
    (lambda: solvable(lambda x, d: d.missing, name="lookup"), "lookup: .*AttributeError"),
    (lambda: solvable(lambda x, d: [x, d]), "returns list"),
    (lambda: solvable(lambda x, d: x[:, None] - d), r"shape \(2, 2\)"),
    (lambda: solvable(lambda x, d: x[:0]), r"shape \(0,\)"),
    (lambda: solvable(lambda x, d: (x - d).astype(int)), "returns int"),
    (lambda: solvable(lambda x, d: (x - d) * 1j), "returns complex"),
    (lambda: batched(lambda x, d: (EYE, EYE)), "batched: jacobian returns 2 arrays for 1"),
    (lambda: batched(lambda x, d: EYE[:3]), r"jacobian\[0\] has shape \(3, 2, 2\), expected \(4, 2, 2\)"),
    (lambda: batched(lambda x, d: np.zeros((4, 3, 2))), r"jacobian\[0\] has shape \(4, 3, 2\)"),
    (lambda: batched(lambda x, d: np.zeros((2, 4, 2))), r"jacobian\[0\] has shape \(2, 4, 2\)"),
    (lambda: batched(lambda x, d: x.missing), "batched: the jacobian function fails .*AttributeError"),
    (lambda: batched(lambda x, d: EYE, lambda x, d: x.missing), "batched: the residual function fails"),
    (lambda: batched(lambda x, d: EYE, lambda x, d: LONG), r"batched residual has shape \(3, 2\)"),
    (lambda: batched(lambda x, d: EYE, lambda x, d: (x - d)[:, None]), r"residual has shape \(4, 1, 2\), expected"),
    (lambda: batched(lambda x, d: EYE, lambda x, d: x + 1j), "batched residual is complex"),
    (lambda: batched(lambda x, d: EYE, lambda x, d: "no"), "batched residual is an array of <U2"),
    (lambda: batched(lambda x, d: EYE * 1j), r"jacobian\[0\] is complex"),
    (lambda: Problem(Factors(offset, points(fixed=True)[I], data=D)), "every variable is fixed"),
    (lambda: Problem(Factors(offset, points(0)[I[:0]], data=D[:0])), "every variable is fixed"),
    (lambda: Problem(factors(index=I[:0], data=D[:0])), "no observations"),
]


@pytest.mark.parametrize(("build", "words"), BAD, ids=[words for _, words in BAD])
def test_invalid_input_is_rejected_by_name(build, words):
    if "reads index" in words and tuple(map(int, version("jax").split(".")[:2])) < (0, 9):
        pytest.skip("before 0.9, JAX reads the nearest element silently")
    with pytest.raises(ValueError, match=words):
        build()


def test_valid_input_is_accepted():
    """Valid variants of the invalid input above."""
    assert solvable().n_residuals == 4
    assert solvable(index=I.astype(np.uint8)).n_residuals == 4
    assert solvable(index=list(I)).n_residuals == 4
    assert solvable(lambda x, d: backwards_only(x, d)).n_residuals == 4
    assert solvable(data=D.astype(np.float32)).n_residuals == 4
    assert solvable(lambda x, d, k, m: x - d, data=(D, I, I > 2)).factors[0].residual_size == 2
    assert solvable(lambda x, d: x[0] - d[0]).factors[0].residual_size == 1
    assert solvable(kernel=Scaled(Scaled(Huber(0.5), 2.0), 3.0)).factors[0].kernel == Huber(3.0)
    assert batched(lambda x, d: EYE).factors[0].residual_size == 2
    assert batched(lambda x, d: EYE[:, :1], lambda x, d: x[:, 0] - d[:, 0]).factors[0].residual_size == 1
    assert batched(lambda x, d: EYE[:, 0], lambda x, d: x[:, 0] - d[:, 0]).factors[0].residual_size == 1


def test_arrays_of_the_user_are_copied():
    arrays = {"values": np.zeros((4, 2)), "fixed": np.zeros(4, bool), "index": I.copy(), "data": D.copy()}
    arrays |= {"more": np.arange(4), "weight": np.ones(4), "tau": np.ones(4), "later": D + 1}
    x = Variables(arrays["values"], fixed=arrays["fixed"], name="x")
    f = Factors(
        lambda x, d, k: x - d, x[arrays["index"]], data=(arrays["data"], arrays["more"]), kernel=Huber(),
        weight=arrays["weight"], tau=arrays["tau"],
    )  # fmt: skip
    later = f.with_data((arrays["later"], arrays["more"]))
    before = [asker.solve(Problem(g))["x"] for g in (f, later)]
    for array in arrays.values():
        array[:] = 1 if array.dtype == bool else array[::-1].copy() + 3
    np.testing.assert_array_equal([asker.solve(Problem(g))["x"] for g in (f, later)], before)
    assert not x.rows.any()


@pytest.mark.parametrize(
    "index", [slice(1, None), slice(None, None, 2), slice(None, -1), slice(None), ..., I == 2, [0, 3], range(1, 4), []]
)
def test_slots_are_indexed_like_arrays(index):
    np.testing.assert_array_equal(points()[index].index, I[index])
    if not np.size(I[index]):
        return
    result = asker.solve(Problem(factors(index=index, data=D[index] + 1.0, kernel=Quadratic())))
    expected = np.zeros((4, 2))
    expected[index] = 1.0
    np.testing.assert_allclose(result["points"], expected, atol=1e-9)
    np.testing.assert_allclose(result.standard_errors(result.problem.variables[0][index], sigma=1.0), 1.0)


def test_variables_are_not_iterable():
    """Every index is valid, so an iteration would never end."""
    with pytest.raises(TypeError, match="not iterable"):
        list(points())


# ------------------------------------------------------------------ a small problem: positions from distances


def distance(place, anchor, d):
    """Nonlinear residual that is a number."""
    import jax.numpy as jnp

    return jnp.sqrt((place - anchor) @ (place - anchor)) - d


def distances(places, anchors, d):
    return np.linalg.norm(places - anchors, axis=1) - d


def distance_slopes(places, anchors, d):
    direction = (places - anchors) / np.linalg.norm(places - anchors, axis=1)[:, None]
    return direction[:, None], -direction[:, None]


@dataclass
class Places:
    """Distances between places and anchors, a third of which are outliers."""

    n_places: int = 3
    n_anchors: int = 12
    n: int = 60
    seed: int = 0

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.anchors = rng.uniform(-5, 5, (self.n_anchors, 2))
        self.truth = rng.uniform(-3, 3, (self.n_places, 2))
        self.start = self.truth + rng.normal(0, 0.5, self.truth.shape)
        self.i = rng.integers(0, self.n_places, self.n)
        self.j = rng.integers(0, self.n_anchors, self.n)
        self.d = distances(self.truth[self.i], self.anchors[self.j], rng.normal(0, 0.05, self.n))
        self.d[::3] += rng.uniform(1, 4, len(self.d[::3]))

    def problem(self, order=slice(None), fixed=False, free_anchors=False, traced=True, kernel=None, **options):
        self.places = Variables(self.start, fixed=fixed, name="places")
        still = np.arange(self.n_anchors) < 3 if free_anchors else True
        self.anchor_variables = Variables(self.anchors, fixed=still, name="anchors")
        i, j, d = self.i[order], self.j[order], self.d[order]
        if not traced:
            options["jacobian"] = distance_slopes
        residual = distance if traced else distances
        kernel = Cauchy(0.3) if kernel is None else kernel
        return Problem(Factors(residual, self.places[i], self.anchor_variables[j], data=d, kernel=kernel, **options))


def residuals_at(setup, result):
    return distances(result[setup.places][setup.i], result[setup.anchor_variables][setup.j], setup.d)


def costs(result):
    return np.array([line.cost for line in result.history])


# ------------------------------------------------------------------ the result


@pytest.mark.parametrize(
    ("options", "has_kernel"), [({}, False), ({"kernel": SmoothTruncated(2.0)}, True), ({"tau": np.ones(4)}, True)]
)
def test_the_text_of_a_problem_names_a_kernel_only_if_one_is_specified(options, has_kernel):
    problem = Problem(Factors(offset, points()[I], data=(D,), **options))
    kernels = [name for name in asker.KERNELS if asker.KERNELS[name].__name__ in str(problem)]
    assert kernels == ["smooth-truncated"] * has_kernel
    assert ("kernel and noise scale" in str(problem)) != has_kernel


@pytest.mark.parametrize("options", [{}, {"free_anchors": True}], ids=str)
def test_the_result_describes_the_best_point(options):
    setup = Places()
    kernel, weight = SmoothTruncated(0.4), np.random.default_rng(1).uniform(0.2, 3, setup.n)
    result = asker.solve(setup.problem(kernel=kernel, weight=weight, **options))
    r = residuals_at(setup, result)
    np.testing.assert_allclose(result.residuals[0][:, 0], r, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(result.weights[0], kernel.omega(r**2), rtol=1e-8, atol=1e-10)
    largest = inlier_radius(1, result.noise[0].sigma)
    np.testing.assert_array_equal(result.inliers[0], np.sqrt(weight) * np.abs(r) <= largest)
    np.testing.assert_array_equal(result.within_inflection[0], np.abs(r) <= 0.4 / np.sqrt(3))
    assert result.cost == pytest.approx(weight @ kernel.psi(r**2), rel=1e-10)
    assert result.cost == costs(result).min() == result.history[-1].best_cost
    assert result.initial_cost == result.history[0].cost
    assert result.inlier_ratio == result.inliers[0].mean()
    assert result.cost < result.initial_cost
    assert result[setup.places].shape == setup.start.shape
    assert [line.iteration for line in result.history] == list(range(result.iterations + 1))
    assert result.status.value in repr(result)


@pytest.mark.parametrize(
    ("kernel", "loss"), [(Quadratic(0.3), "linear"), (Huber(0.3), "huber"), (PseudoHuber(0.3), "soft_l1")]
)
def test_the_minimum_agrees_with_scipy(kernel, loss):
    from scipy.optimize import least_squares

    setup = Places()
    result = asker.solve(setup.problem(kernel=kernel), tol=1e-14)

    def every(x):
        return distances(x.reshape(-1, 2)[setup.i], setup.anchors[setup.j], setup.d)

    best = least_squares(every, setup.start.ravel(), loss=loss, f_scale=0.3, xtol=1e-12, ftol=1e-12, gtol=1e-12)
    assert result.cost == pytest.approx(best.cost, rel=1e-8)
    np.testing.assert_allclose(result[setup.places].ravel(), best.x, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"free_anchors": True}], ids=str)
def test_a_jacobian_of_the_user_agrees_with_that_of_jax(options):
    setup = Places()
    by_jax = asker.solve(setup.problem(**options), max_iterations=15)
    by_hand = asker.solve(setup.problem(traced=False, **options), max_iterations=15)
    np.testing.assert_allclose(costs(by_hand), costs(by_jax), rtol=1e-9)


# ------------------------------------------------------------------ termination


def test_ctrl_c_returns_the_best_point():
    def press(line):
        if line.iteration == 3:
            raise KeyboardInterrupt

    setup = Places()
    result = asker.solve(setup.problem(), on_iteration=press)
    assert result.status is Status.INTERRUPTED
    assert result.iterations == 3
    assert result.cost == costs(result).min() < result.initial_cost
    psi = Cauchy(0.3).psi(residuals_at(setup, result) ** 2)
    assert result.cost == pytest.approx(psi.sum(), rel=1e-10)


def test_ctrl_c_at_the_start_returns_the_start():
    def press(line):
        raise KeyboardInterrupt

    setup = Places()
    result = asker.solve(setup.problem(), on_iteration=press)
    assert result.status is Status.INTERRUPTED
    np.testing.assert_array_equal(result[setup.places], setup.start)


@pytest.mark.parametrize("stop_at", [0, 2])
def test_the_callback_stops_the_loop(stop_at):
    seen = []

    def stop(line):
        seen.append(line)
        return line.iteration == stop_at

    result = asker.solve(Places().problem(), on_iteration=stop)
    assert result.status is Status.STOPPED
    assert result.iterations == stop_at
    assert seen == result.history


@pytest.mark.parametrize("returned", [1, 0.5, "stop", np.ones(2)], ids=str)
def test_a_callback_that_returns_neither_true_nor_false_is_rejected(returned):
    with pytest.raises(ProblemError, match=r"on_iteration returned .* expected True to stop, False or None"):
        asker.solve(Places().problem(), on_iteration=lambda line: returned)


@pytest.mark.parametrize("which", ["residual", "jacobian"])
def test_batched_functions_are_checked_at_every_call(which):
    """Arrays (p, n) in place of (n, p) raise an error also during a solve."""
    calls = []

    def changing(function):
        def changed(*arguments):
            calls.append(1)
            r = function(*arguments)
            return r if len(calls) < 3 else np.moveaxis(r, 0, -1)

        return changed

    functions = {"residual": lambda x, d: x - d, "jacobian": lambda x, d: np.broadcast_to(np.eye(2), (5, 2, 2))}
    functions[which] = changing(functions[which])
    x = Variables(np.zeros((5, 2)))
    problem = Problem(Factors(functions["residual"], x[np.arange(5)], data=np.ones((5, 2)),
                              jacobian=functions["jacobian"], kernel=Huber()))  # fmt: skip
    with pytest.raises(ProblemError, match=r"has shape \(2, (2, )?5\), expected \(5, 2"):
        asker.solve(problem, tol=0, max_iterations=5)


def test_the_time_limit_ends_the_loop():
    result = asker.solve(Places().problem(), time_limit=0.0, tol=0)
    assert result.status is Status.TIME_LIMIT
    assert result.iterations == 1


def test_the_number_of_iterations_is_limited():
    result = asker.solve(Places().problem(), max_iterations=3, tol=0)
    assert result.status is Status.MAX_ITERATIONS
    assert result.iterations == 3


def test_no_iterations_return_the_start():
    setup = Places()
    result = asker.solve(setup.problem(), max_iterations=0)
    assert result.status is Status.MAX_ITERATIONS
    assert result.cost == result.initial_cost
    assert result.iterations == 0
    np.testing.assert_array_equal(result[setup.places], setup.start)
    with pytest.raises(ValueError, match="max_iterations"):
        asker.solve(setup.problem(), max_iterations=-1)


class Wandering:
    """Strategy that returns to the start with every second step."""

    def init(self, engine, start, *more):
        self.first = asker.IRLS().init(engine, start, *more)
        return self.first

    def step(self, engine, state):
        return asker.IRLS().step(engine, state) if state is self.first else self.first


def test_the_best_point_is_returned_not_the_last():
    setup = Places()
    result = asker.solve(setup.problem(), Wandering(), max_iterations=4, tol=0)
    assert result.history[-1].cost == result.initial_cost
    assert result.cost == costs(result).min() < result.initial_cost
    psi = Cauchy(0.3).psi(residuals_at(setup, result) ** 2)
    assert result.cost == pytest.approx(psi.sum(), rel=1e-10)


def test_the_last_decrease_before_convergence_is_small():
    result = asker.solve(Places().problem(), tol=1e-5)
    before, last = costs(result)[-2:]
    assert result.status is Status.CONVERGED
    assert before - last <= 1e-5 * before


# ------------------------------------------------------------------ laws of weights, scales and order


def test_fixed_variables_do_not_move_at_all():
    setup = Places(n_places=6)
    fixed = np.arange(6) % 2 == 0
    result = asker.solve(setup.problem(fixed=fixed, free_anchors=True))
    places, anchors = result[setup.places], result[setup.anchor_variables]
    np.testing.assert_array_equal(places[fixed], setup.start[fixed])
    np.testing.assert_array_equal(anchors[:3], setup.anchors[:3])
    assert (places[~fixed] != setup.start[~fixed]).all()
    assert (anchors[3:] != setup.anchors[3:]).any()


def test_fixed_unit_vectors_do_not_move_at_all():
    """A step of 0 on the sphere ends with a division, which could round."""
    rng = np.random.default_rng(4)
    start = rng.normal(size=(40, 3))
    start /= np.linalg.norm(start, axis=1)[:, None]
    fixed = np.arange(40) < 30
    x = Variables(start, asker.Sphere(3), fixed=fixed)
    problem = Problem(Factors(offset, x[np.arange(40)], data=rng.normal(size=(40, 3)), kernel=Quadratic()))
    moved = asker.solve(problem)[x]
    np.testing.assert_array_equal(moved[fixed], start[fixed])
    assert (moved[~fixed] != start[~fixed]).all()


def test_a_weight_of_n_is_equivalent_to_n_observations():
    setup = Places()
    times = np.random.default_rng(2).integers(0, 4, setup.n)
    weighted = asker.solve(setup.problem(weight=times), max_iterations=10, tol=0, strategy=asker.IRLS())
    listed = asker.solve(
        setup.problem(order=np.repeat(np.arange(setup.n), times)), max_iterations=10, tol=0, strategy=asker.IRLS()
    )
    np.testing.assert_allclose(costs(weighted), costs(listed), rtol=1e-9)
    np.testing.assert_allclose(
        weighted.values[weighted.problem.variables[0]], listed.values[listed.problem.variables[0]]
    )


def test_a_width_per_observation_is_equivalent_to_a_kernel_per_observation():
    setup = Places()
    tau = np.where(np.arange(setup.n) < 20, 0.1, 0.7)
    together = asker.solve(setup.problem(tau=tau), max_iterations=10, tol=0)
    places, anchors = Variables(setup.start), Variables(setup.anchors, fixed=True)

    def some(chosen, kernel):
        i, j, d = setup.i[chosen], setup.j[chosen], setup.d[chosen]
        return Factors(distance, places[i], anchors[j], data=d, kernel=kernel)

    apart = Problem(some(tau == 0.1, Cauchy(0.1)), some(tau == 0.7, Cauchy(0.7)))
    separate = asker.solve(apart, max_iterations=10, tol=0)
    np.testing.assert_allclose(costs(together), costs(separate), rtol=1e-9)
    np.testing.assert_array_equal(together.inliers[0][:20], separate.inliers[0])
    np.testing.assert_array_equal(together.inliers[0][20:], separate.inliers[1])


@pytest.mark.parametrize("options", [{}, {"free_anchors": True}], ids=str)
def test_results_are_in_the_order_of_the_observations_which_has_no_influence(options):
    setup = Places()
    order = np.random.default_rng(3).permutation(setup.n)
    tau, weight = np.linspace(0.1, 1, setup.n), np.linspace(0.5, 2, setup.n)
    original = asker.solve(setup.problem(tau=tau, weight=weight, **options), max_iterations=8)
    shuffled = setup.problem(order, tau=tau[order], weight=weight[order], **options)
    shuffled = asker.solve(shuffled, max_iterations=8)
    np.testing.assert_allclose(costs(shuffled), costs(original), rtol=1e-8)
    for name in ("residuals", "weights", "inliers"):
        ours, expected = getattr(shuffled, name)[0], getattr(original, name)[0][order]
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-7)


def test_a_factor_group_may_be_empty():
    setup = Places()
    problem = setup.problem()
    none = Factors(offset, setup.places[I[:0]], data=D[:0])
    alone, with_none = (asker.solve(Problem(*problem.factors, *more), max_iterations=5) for more in ([], [none]))
    np.testing.assert_array_equal(costs(alone), costs(with_none))
    assert with_none.residuals[1].shape == (0, 2)


@pytest.mark.parametrize("linear_solver", ["dense-cholesky", "sparse-cholesky"])
def test_a_factor_group_of_eliminated_variables_may_be_empty(linear_solver):
    many, few, none = (
        Variables(np.zeros((9, 2)), name="many"),
        Variables(np.zeros((2, 2)), name="few"),
        np.zeros(0, int),
    )
    i = np.arange(9)
    tied = Factors(lambda a, b, d: a - b - d, many[i], few[i % 2], data=np.ones((9, 2)), kernel=Quadratic())
    prior = Factors(offset, few[[0, 1]], data=np.zeros((2, 2)))
    empty = Factors(lambda a, b, d: a + b - d, many[none], few[none], data=np.zeros((0, 2)))
    problem = Problem(tied, prior, empty)
    result = asker.solve(problem, asker.IRLS(), eliminate=many, linear_solver=linear_solver)
    assert result.cost < 1e-12 * result.initial_cost


# ------------------------------------------------------------------ residuals that are not finite


def logarithm(x, d):
    import jax.numpy as jnp

    return jnp.log(x) - d


def test_a_start_that_is_not_finite_is_rejected_with_the_observation():
    """The observation is numbered in the user's order, even if that of the engine differs."""
    values = np.ones(10)
    values[3] = -1.0
    x = Variables(values, name="x")
    problem = Problem(Factors(logarithm, x[np.arange(10)[::-1]], data=np.zeros(10)))
    with pytest.raises(ProblemError, match="logarithm: the residual of observation 6 is not finite"):
        asker.solve(problem)


def test_a_start_that_overflows_is_rejected():
    x = Variables(np.full((1, 2), 1e200))
    with pytest.raises(ProblemError, match="overflows"):
        asker.solve(Problem(Factors(offset, x[[0]], data=np.zeros((1, 2)))))


def root(x, d):
    import jax.numpy as jnp

    return jnp.sqrt(x) - d


@pytest.mark.parametrize("solver", ["dense-cholesky", "reference"])
def test_a_trial_that_is_not_finite_is_rejected(solver):
    """The full step from 1 leads to −3, where the square root is NaN."""
    x = Variables([1.0])
    problem = Problem(Factors(root, x[[0]], data=np.array([-1.0]), kernel=Quadratic()))
    result = asker.solve(problem, linear_solver=solver)
    rejected = [line for line in result.history if not line.accepted]
    assert rejected
    assert rejected[0].iteration == 1
    assert np.isfinite(costs(result)).all()
    assert all(after.cost <= before.cost for before, after in pairwise(result.history))
    assert 0 <= result[x][0] < 1
    assert result.cost < result.initial_cost


# ------------------------------------------------------------------ miscellaneous


def test_importing_asker_loads_nothing_heavy():
    code = "import sys, asker; asker.solve; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"jax", "llvmlite", "scipy", "matplotlib", "rich", "typer"} & set(loaded)


def test_one_weight_for_all():
    np.testing.assert_array_equal(factors(weight=2.0).weight, np.full(4, 2.0))


def test_an_empty_group_has_a_fingerprint():
    v = points()
    none = np.zeros(0, int)
    some, empty = Factors(offset, v[I], data=D), Factors(offset, v[none], data=D[:0], name="empty")
    assert Problem(some, empty).fingerprint() != Problem(some).fingerprint()
