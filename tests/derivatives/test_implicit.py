"""Derivatives of solutions, compared with central differences of whole solves."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asker
from implicit_oracle import difference, flat
from small_problems import curve

TOL = 1e-6
KERNELS = [
    asker.Quadratic(), asker.SmoothTruncated(), asker.Huber(), asker.PseudoHuber(), asker.Cauchy(),
    asker.GemanMcClure(), asker.Welsch(), asker.Tukey(), asker.TruncatedQuadratic(), asker.Barron(alpha=-0.5),
    asker.Barron(alpha=1.5),
]  # fmt: skip


def close(a, b, tol=TOL):
    a, b = flat(a), flat(b)
    np.testing.assert_allclose(a, b, atol=tol * np.abs(b).max(), rtol=0)


def curve_data(n=24, seed=0):
    rng = np.random.default_rng(seed)
    truth, t = np.array([1.3, 0.8, 0.6]), rng.uniform(0, 3, n)
    y = np.stack([truth[0] * np.exp(-truth[1] * t) + truth[2], np.sin(truth[1] * t) * truth[2] + truth[0]], axis=1)
    y += rng.normal(0, 0.05, y.shape)
    y[:4] += rng.uniform(-3, 3, (4, 2))
    return truth, t, y


def curve_problem(kernel, t, y, weight, truth):
    x = asker.Variables(truth[None], name="x")
    factors = asker.Factors(curve, x[np.zeros(len(t), int)], data=(t, y), kernel=kernel, weight=weight, name="curve")
    return asker.Problem(factors)


def long_except(chosen, everything):
    """Return parameters of which all that are not chosen have the marker `long`, since programs compile for seconds."""
    return [x if x in chosen else pytest.param(x, marks=pytest.mark.long) for x in everything]


@pytest.mark.parametrize("kernel", long_except([asker.Huber(), asker.SmoothTruncated()], KERNELS), ids=repr)
def test_derivatives_by_data_weight_and_width(kernel):
    """One direction in all parameters at once; vjp and jvp are transposed to each other in every direction."""
    rng, (truth, t, y) = np.random.default_rng(1), curve_data()
    weight = rng.uniform(0.5, 2.0, len(t))
    dt, dy, dw, dtau = rng.normal(0, 0.1, len(t)), rng.normal(size=y.shape), rng.normal(0, 0.2, len(t)), 0.3
    kernel = replace(kernel, tau=0.4)

    def problem_at(s):
        return curve_problem(replace(kernel, tau=0.4 + s * dtau), t + s * dt, y + s * dy, weight + s * dw, truth)

    result = asker.solve(problem_at(0.0), asker.IRLS(), tol=0)
    moved = result.jvp(data=(dt, dy), weight=dw, tau=dtau)
    close(moved["x"], difference(problem_at, result))
    cotangent = rng.normal(size=(1, 3))
    g = result.vjp({"x": cotangent})
    back = (g.data[0][0] * dt).sum() + (g.data[0][1] * dy).sum() + (g.weight[0] * dw).sum() + g.tau[0] * dtau
    np.testing.assert_allclose(back, (cotangent * moved["x"]).sum(), rtol=1e-9)


def off_row(x, y):
    return jnp.asarray(x) - y


def off_matrix(R, M):
    return (R - M).ravel()


def off_similarity(x, s, M):
    return jnp.concatenate([(x.scale * x.rotation - M[:, :3]).ravel() * s, x.translation * x.scale - M[:, 3]])


def off_plane(x, y):
    return jnp.concatenate([x.rotation @ y[:2] - x.translation, jnp.stack([x.angle - y[2]])])


def off_pose(T, M):
    return off_matrix(jnp.concatenate([T.rotation, T.translation[:, None] ** 3 / 9], axis=1), M)


def off_pair(x, d, y):
    return jnp.concatenate([x[0] ** 2 - d, off_plane(x[1], y)])


def noisy(rng, values, sigma=0.2):
    return values + rng.normal(0, sigma, values.shape)


def rotations(rng, n):
    from scipy.spatial.transform import Rotation

    return Rotation.random(n, random_state=rng).as_matrix()


def each_manifold(rng):
    """Return a residual, values and data for each manifold."""
    R, n = rotations(rng, 3), 3
    poses = np.concatenate([R, rng.normal(size=(n, 3, 1))], axis=2)
    scales = rng.uniform(0.5, 2, (n, 1, 1))
    similar = np.concatenate([scales * R, rng.normal(size=(n, 3, 1))], axis=2)
    unit = rng.normal(size=(n, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    number = rng.uniform(1, 2, (n, 2))
    s = rng.uniform(0.5, 1.5, 2 * n)

    def twice(x):
        return noisy(rng, np.concatenate([x, x]))

    single = {
        "numbers": (asker.Euclidean(()), off_row, number[:, 0], (twice(number[:, 0]),)),
        "Sim3": (asker.Sim3, off_similarity, similar, (s, twice(similar))),
        "SO3": (asker.SO3, off_matrix, R, (twice(R),)),
        "SE2": (asker.SE2, off_plane, unit, (twice(unit),)),
        "sphere": (asker.Sphere(3), off_row, unit, (twice(unit),)),
        "SE3": (asker.SE3, off_pose, poses, (twice(poses),)),
    }
    pair = asker.Product(asker.Euclidean(2), asker.SE2)
    return single | {"product": (pair, off_pair, (number, unit), (twice(number), twice(unit)))}


@pytest.mark.parametrize("which", long_except(["SO3"], each_manifold(np.random.default_rng(0))))
def test_derivatives_on_every_manifold(which):
    rng = np.random.default_rng(2)
    manifold, residual, values, data = each_manifold(rng)[which]
    tangents = tuple(rng.normal(size=d.shape) for d in data)

    def problem_at(s):
        x = asker.Variables(values, manifold, name="x")
        moved = tuple(d + s * t for d, t in zip(data, tangents, strict=True))
        index = np.tile(np.arange(3), 2)
        return asker.Problem(asker.Factors(residual, x[index], data=moved, kernel=asker.Cauchy(0.7), name="f"))

    result = asker.solve(problem_at(0.0), asker.IRLS(), tol=0)
    moved = result.jvp(data={"f": tangents})
    close(moved["x"], difference(problem_at, result))
    cotangent = jax.tree.map(lambda x: rng.normal(size=x.shape), result["x"])
    g = result.vjp({"x": cotangent})
    back = sum((a * b).sum() for a, b in zip(g.data["f"], tangents, strict=True))
    np.testing.assert_allclose(back, flat(cotangent) @ flat(moved["x"]), rtol=1e-8)


def reprojected(pose, X, uv):
    p = pose.rotation @ X + pose.translation
    return p[:2] / p[2] - uv


def scene(rng):
    """Return a function of a parameter: a bundle adjustment with fixed cameras, priors and outliers."""
    n_cameras, n_points = 4, 12
    R = rotations(rng, n_cameras)
    R[:] = np.eye(3)
    centre = rng.normal(0, 0.3, (n_cameras, 3, 1))
    poses = np.concatenate([R, centre], axis=2)
    X = rng.uniform(-1, 1, (n_points, 3)) + np.array([0, 0, 5])
    i, j = (a.ravel() for a in np.meshgrid(np.arange(n_cameras), np.arange(n_points), indexing="ij"))
    p = X[j] + poses[i, :, 3]
    uv = noisy(rng, p[:, :2] / p[:, 2:], 0.01)
    uv[::9] += 0.2
    mean = noisy(rng, X, 0.1)
    duv, dmean = rng.normal(0, 0.1, uv.shape), rng.normal(size=mean.shape)
    weight, dweight = rng.uniform(0.5, 1.5, len(i)), rng.normal(0, 0.1, len(i))
    dfixed = rng.normal(0, 1.0, (2, 3, 4))
    dfixed[:, :, :3] = np.cross(np.eye(3), rng.normal(0, 0.3, (2, 1, 3)))  # skew: tangential at the identity

    def problem_at(s):
        from scipy.spatial.transform import Rotation

        now = poses.copy()
        skew = dfixed[:, :, :3]
        omega = np.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], axis=1)
        now[:2, :, :3] = Rotation.from_rotvec(s * omega).as_matrix()
        now[:2, :, 3] += s * dfixed[:, :, 3]
        cameras = asker.Variables(now, asker.SE3, fixed=np.arange(n_cameras) < 2, name="cameras")
        points = asker.Variables(X, name="points")
        seen = asker.Factors(reprojected, cameras[i], points[j], data=uv + s * duv, weight=weight + s * dweight,
                             kernel=asker.SmoothTruncated(0.06), name="seen")  # fmt: skip
        prior = asker.Factors(off_row, points[...], data=mean + s * dmean, kernel=asker.Huber(0.5),
                              weight=np.full(n_points, 0.01), name="prior")  # fmt: skip
        return asker.Problem(seen, prior)

    tangent = {
        "data": {"seen": duv, "prior": dmean},
        "weight": {"seen": dweight},
        "fixed": {"cameras": np.concatenate([dfixed, np.zeros((2, 3, 4))])},
    }
    return problem_at, tangent


@pytest.mark.parametrize("engine", ["cpu", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore:engine xla without a GPU")
def test_derivatives_with_elimination_priors_weights_and_fixed_variables(engine):
    rng = np.random.default_rng(3)
    problem_at, tangent = scene(rng)
    result = asker.solve(problem_at(0.0), asker.IRLS(), tol=0, engine=engine)
    moved = result.jvp(**tangent)
    if engine == "cpu":
        close(list(moved), difference(problem_at, result, h=2e-5), 1e-5)
    cotangents = {name: rng.normal(size=result[name].shape) for name in ("cameras", "points")}
    g = result.vjp(cotangents)
    back = (g.data["seen"][0] * tangent["data"]["seen"]).sum() + (g.data["prior"][0] * tangent["data"]["prior"]).sum()
    back += (g.weight["seen"] * tangent["weight"]["seen"]).sum()
    back += (g.fixed["cameras"] * tangent["fixed"]["cameras"]).sum()
    np.testing.assert_allclose(back, sum((cotangents[k] * moved[k]).sum() for k in cotangents), rtol=1e-8)


def test_a_coordinate_at_an_active_bound_is_constant():
    truth, t, y = curve_data()
    dy = np.random.default_rng(4).normal(size=y.shape)

    def problem_at(s):
        x = asker.Variables(truth[None], name="x", upper=[[1.2, np.inf, np.inf]], unit=[[1.0, 0.5, 2.0]])
        f = asker.Factors(curve, x[np.zeros(len(t), int)], data=(t, y + s * dy), kernel=asker.Cauchy(0.3))
        return asker.Problem(f)

    truth = np.minimum(truth, 1.2)
    result = asker.solve(problem_at(0.0), asker.IRLS(), tol=0)
    assert result.x[0] == 1.2
    moved = result.jvp(data=(None, dy))["x"]
    assert moved[0, 0] == 0
    close(moved, difference(problem_at, result))


def offset(x, d):
    return x - d


def numbers_problem(d, kernel=None, **options):
    x = asker.Variables(np.zeros(1), name="x", **options)
    return asker.Problem(asker.Factors(offset, x[np.zeros(len(d), int)], data=d, kernel=kernel, name="offset"))


def test_no_derivative_where_a_bound_is_active_without_a_gradient():
    result = asker.solve(numbers_problem(np.array([-1.0, 0.0, 1.0]), asker.Quadratic(), lower=0.0), asker.IRLS(), tol=0)
    with pytest.raises(asker.ProblemError, match="at its bound with a gradient of 0"):
        result.vjp(np.ones(1))


def test_no_derivative_at_a_maximum_of_the_cost():
    """Two clusters: the cost of their middle is stationary, and a maximum."""
    d = np.array([-1.0, -1.0, 1.0, 1.0])
    result = asker.solve(numbers_problem(d, asker.GemanMcClure(0.5)), asker.IRLS(), tol=0)
    assert result.x == 0
    with pytest.raises(asker.ProblemError, match="no strict minimum"):
        result.vjp(np.ones(1))


def step_between(a, b, d):
    return b - a - d


def test_the_gauge_is_named_and_functions_without_it_have_derivatives():
    x = asker.Variables(np.zeros(3), name="x")
    d = np.array([1.0, 2.0, 2.5])
    f = asker.Factors(step_between, x[[0, 1, 0]], x[[1, 2, 2]], data=d, kernel=asker.Quadratic())
    result = asker.solve(asker.Problem(f), asker.IRLS(), tol=0)
    with pytest.raises(asker.ProblemError, match=r"1 direction in which x move together \(the gauge\)"):
        result.vjp(np.array([1.0, 0.0, 0.0]))
    with pytest.raises(asker.ProblemError, match="gauge"):
        result.jvp(data=np.ones(3))
    g = result.vjp(np.array([-1.0, 1.0, 0.0]))  # x1 − x0 = (2 d0 − d1 + d2) / 3
    np.testing.assert_allclose(g.data[0][0], [2 / 3, -1 / 3, 1 / 3], rtol=1e-10)


def test_undetermined_variables_are_named():
    x = asker.Variables(np.zeros(2), name="x")
    f = asker.Factors(offset, x[[0, 0, 1]], data=np.array([0.1, 0.3, 9.0]), kernel=asker.Tukey(1.0))
    result = asker.solve(asker.Problem(f), asker.IRLS(), tol=0)
    with pytest.raises(asker.ProblemError, match=r"do not determine x\[1\]"):
        result.vjp(np.ones(2))
    g = result.vjp(np.array([1.0, 0.0]))
    np.testing.assert_allclose(g.data[0][0], [0.5, 0.5, 0.0], rtol=1e-8)
    moved = result.jvp(data=np.array([1.0, 0.0, 0.0]))["x"]
    np.testing.assert_allclose(moved, [0.5, np.nan], rtol=1e-8)


def test_estimated_noise_is_rejected_and_constant_noise_is_not():
    rng = np.random.default_rng(0)
    d = rng.normal(3, 0.1, 60) + 5 * (np.arange(60) < 6)
    result = asker.solve(numbers_problem(d))
    with pytest.raises(asker.ProblemError, match="noise scales were estimated"):
        result.vjp(np.ones(1))
    again = asker.solve(result.problem, asker.IRLS(), start=result)
    g = again.vjp(np.ones(1)).data[0][0]
    np.testing.assert_allclose(g.sum(), 1.0, rtol=1e-9)  # the solution moves with the data
    np.testing.assert_allclose(g[:6], 0.0, atol=1e-6)


def test_unfinished_solves_numpy_residuals_and_wrong_shapes_are_named():
    truth, t, y = curve_data()
    problem = curve_problem(asker.Cauchy(0.3), t, y, None, truth + 0.5)
    with pytest.raises(asker.ProblemError, match="its gradient is not 0"):
        asker.solve(problem, asker.IRLS(), max_iterations=1).vjp(np.ones((1, 3)))
    result = asker.solve(problem, asker.IRLS())
    for what, call in {
        "the cotangent of x has shape": lambda: result.vjp(np.ones(3)),
        "no group is called 'z'": lambda: result.vjp({"z": np.ones((1, 3))}),
        r"tangent of data\[1\] has shape": lambda: result.jvp(data=(None, t)),
        "tangent of weight has shape": lambda: result.jvp(weight=2.0),
        "the tangent of free variables": lambda: result.jvp(fixed=np.ones((1, 3))),
        "the tangent of the data has 3 arrays": lambda: result.jvp(data=(t, y, y)),
    }.items():
        with pytest.raises(asker.ProblemError, match=what):
            call()
    x = asker.Variables(np.zeros(1))
    f = asker.Factors(lambda x, d: x - d, x[np.zeros(24, int)], data=t, kernel=asker.Huber(),
                      jacobian=lambda x, d: np.ones((24, 1)))  # fmt: skip
    with pytest.raises(asker.ProblemError, match="NumPy functions, whose second derivatives are unknown"):
        asker.solve(asker.Problem(f)).vjp(np.ones(1))


def test_observations_of_weight_0_have_the_derivative_of_their_weight_only():
    d, w = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.0])
    x = asker.Variables(np.zeros(1), name="x")
    f = asker.Factors(offset, x[np.zeros(3, int)], data=d, weight=w, kernel=asker.Quadratic())
    g = asker.solve(asker.Problem(f), asker.IRLS(), tol=0).vjp(np.ones(1))
    np.testing.assert_allclose(g.data[0][0], [0.5, 0.5, 0.0], rtol=1e-10)
    np.testing.assert_allclose(g.weight[0], (d - 0.5) / 2, rtol=1e-10)  # of a weighted mean


def off_long(x, A, b):
    return A * x - b


def test_residuals_of_many_numbers_have_derivatives():
    """The minimum of Σ‖Aₖx − bₖ‖² is x = Σ A·b / Σ A·A."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(2, 3, 400))
    x = asker.Variables(np.zeros(1), name="x")
    f = asker.Factors(off_long, x[[0, 0, 0]], data=(A, b), kernel=asker.Quadratic(), name="f")
    with pytest.warns(UserWarning, match="not compiled"):
        g = asker.solve(asker.Problem(f), asker.IRLS(), tol=0).vjp(np.ones(1)).data["f"]
    np.testing.assert_allclose(g[1], A / (A * A).sum(), rtol=1e-9)
    np.testing.assert_allclose(g[0], (b - 2 * A * (A * b).sum() / (A * A).sum()) / (A * A).sum(), rtol=1e-9)
