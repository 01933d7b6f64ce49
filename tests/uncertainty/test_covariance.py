"""Covariances are those of dense matrices, for every kind of problem, gauge and model."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.applications.pose_graph.problem import pose_graph_problem
from asker.kernels.kernels import Cauchy, Huber, Quadratic, SmoothTruncated, Tukey
from asker.uncertainty.covariance import Uncertainty
from asker.uncertainty.information import expected, squared_norms
from synthetic_graphs import circle

# ------------------------------------------------------------------ the oracle


def first_columns(problem):
    free = [v for v in problem.variables if v.is_free]
    return dict(zip(free, np.cumsum([0, *[len(v) * v.manifold.tangent for v in free]]).tolist(), strict=False))


def whole_jacobians(of: Uncertainty):
    """Yield the Jacobian (n, p, N) and the residuals (n, p) of each factor group, in the user's order."""
    first = first_columns(of.problem)
    n_all = sum(len(v) * v.manifold.tangent for v in first)
    for f, lin in zip(of.model.structure.factors, of.model.linear, strict=True):
        J, out = lin.J.reshape(f.n, f.p, f.width), np.zeros((f.n, f.p, n_all))
        for slot, offset in zip(f.free, f.offsets, strict=True):
            v = f.factors.slots[slot].variables
            for q in range(v.manifold.tangent):
                at = first[v] + f.indices[slot] * v.manifold.tangent + q
                out[np.arange(f.n), :, at] += J[:, :, offset + q]
        yield f.unsorted(out), f.unsorted(lin.r)


def dense_covariance(of: Uncertainty, datum=(), sandwich=False):
    """Return A⁻¹BA⁻¹ under the constraints NᵀDx = 0, from the dense matrix; `datum` are indices of unknowns."""
    A, B = 0.0, 0.0
    groups = zip(whole_jacobians(of), of.information, of.result.weights, strict=True)
    for (J, r), part, weight in groups:
        A = A + np.einsum("n,npi,npj->ij", part.alpha, J, J)
        if sandwich:
            g = weight[:, None] * np.einsum("npi,np->ni", J, r)
            B = B + g.T @ g * (J.shape[1] * part.n_counted / part.n_degrees_of_freedom)
        else:
            B = B + np.einsum("n,npi,npj->ij", part.beta, J, J)
    S = np.diag(1 / np.sqrt(np.where(np.diag(A) > 0, np.diag(A), 1.0)))  # scales the diagonal to 1
    sizes, U = np.linalg.eigh(S @ A @ S)
    N = S @ U[:, sizes < 1e-10 * sizes[-1]]
    D = S @ (np.isin(np.arange(len(A)), datum)[:, None] * N if len(datum) else N)
    q = N.shape[1]
    K = S @ np.linalg.inv(np.block([[S @ A @ S, D], [D.T, np.zeros((q, q))]]))[: len(A), : len(A)] @ S
    return K @ B @ K


def assert_blocks(of: Uncertainty, C, sandwich=False):
    first = first_columns(of.problem)
    tol = (1e-6 if sandwich else 1e-7) * np.abs(C).max()  # accuracy of a dense pseudo-inverse with a free gauge
    for v, at in first.items():
        d = v.manifold.tangent
        dense = np.array([C[at + k * d : at + (k + 1) * d, at + k * d : at + (k + 1) * d] for k in range(len(v))])
        assert np.abs(of.covariance(v).blocks - dense).max() <= tol
    (v, a), *_ = first.items()
    *_, (w, b) = first.items()
    d, e = v.manifold.tangent, w.manifold.tangent
    i, j = np.array([1, 0]), np.array([len(w) - 1, 2])
    pairs = [C[a + m * d : a + (m + 1) * d, b + n * e : b + (n + 1) * e] for m, n in zip(i, j, strict=True)]
    assert np.abs(of.covariance(v[i], w[j]).blocks - np.array(pairs)).max() <= tol


# ------------------------------------------------------------------ results


@pytest.fixture(scope="module")
def bundle_result():
    """A scene with a free gauge, cameras on a product manifold, eliminated points and some outliers."""
    scene = make_scene(6, 300, outlier_ratio=0.1, start_error=0.5, seed=1)
    made = bundle_problem(scene.start, SmoothTruncated(2.0), dof=7)
    return made, asker.solve(made.problem, asker.IRLS(), max_iterations=30)


@pytest.fixture(scope="module")
def graph_result():
    """A graph with a fixed first pose and two kinds of edges with different noise and kernels."""
    graph, _ = circle("SE2", n=60, laps=3)
    made = pose_graph_problem(replace(graph, information=np.tile(np.diag([1e4, 1e4, 1e4]), (graph.n_edges, 1, 1))))
    return made, asker.solve(made.problem, asker.IRLS(), max_iterations=50)


@pytest.fixture(scope="module")
def line_result():
    rng = np.random.default_rng(0)
    t, weight = rng.uniform(0, 1, 60), rng.uniform(0.3, 3, 60)
    y = 2 * t + 1 + 0.1 * rng.standard_normal(60) / np.sqrt(weight)
    y[:6] += 3
    x = asker.Variables(np.array([[1.9, 1.1]]), name="x")
    slot = x[np.zeros(60, int)]
    residual = {
        "data": (t, y),
        "weight": weight,
        "jacobian": lambda x, t, y: np.stack([t, np.ones_like(t)], -1)[:, None],
    }

    def solved(kernel):
        factors = asker.Factors(lambda x, t, y: x[:, 0] * t + x[:, 1] - y, slot, kernel=kernel, **residual)
        return asker.solve(asker.Problem(factors), asker.IRLS(), max_iterations=200, tol=1e-14), t, y, weight

    return solved


# ------------------------------------------------------------------ tests


@pytest.mark.parametrize("sandwich", [False, True])
def test_a_bundle_with_a_free_gauge(bundle_result, sandwich):
    made, result = bundle_result
    of = result.uncertainty(datum=made.cameras, sandwich=sandwich)
    assert of.n_gauge == 7
    assert not of.n_undetermined
    assert "7 directions" in of.gauge
    first = first_columns(made.problem)[made.cameras]
    unknowns = first + np.arange(7 * len(made.cameras))
    assert_blocks(of, dense_covariance(of, unknowns, sandwich), sandwich)


def test_the_datum_can_be_chosen(bundle_result):
    made, result = bundle_result
    of = result.uncertainty(datum=made.points[[0, 3, 4, 7]])
    first = first_columns(made.problem)[made.points]
    assert_blocks(of, dense_covariance(of, first + np.array([0, 3, 4, 7])[:, None] * 3 + np.arange(3)))
    assert "relative to 4 points" in of.gauge
    one = result.covariance(made.points, datum=made.points[[0]])  # fixes three of seven directions
    assert one.undetermined[1:].all()
    assert "leave 4 undetermined" in one.gauge


@pytest.mark.parametrize("sandwich", [False, True])
def test_a_graph_with_two_kinds_of_edges(graph_result, sandwich):
    made, result = graph_result
    of = result.uncertainty(sandwich=sandwich)
    assert of.gauge == "all directions are determined, with 1 of 60 poses fixed"
    rows = slice(3, None)
    C = np.zeros((180, 180))
    A, B = 0.0, 0.0
    for (J, r), part, weight in zip(whole_jacobians(of), of.information, result.weights, strict=True):
        g = weight[:, None] * np.einsum("npi,np->ni", J, r)
        A = A + np.einsum("n,npi,npj->ij", part.alpha, J, J)
        plain = np.einsum("n,npi,npj->ij", part.beta, J, J)
        B = B + (g.T @ g * (J.shape[1] * part.n_counted / part.n_degrees_of_freedom) if sandwich else plain)
    inverse = np.linalg.inv(A[rows, rows])
    C[rows, rows] = inverse @ B[rows, rows] @ inverse
    assert_blocks(of, C, sandwich=True)
    assert not of.covariance(made.poses[[0]]).blocks.any()  # it is fixed


def test_a_datum_of_one_pose_fixes_it(graph_result):
    made, result = graph_result
    free = asker.Variables(result[made.poses], asker.SE2, name="poses")
    factors = [
        asker.Factors(f.residual, *(free[s.index] for s in f.slots), data=f.data, kernel=f.kernel, name=f.name)
        for f in made.problem.factors
    ]
    loose = asker.solve(asker.Problem(*factors), asker.IRLS(), max_iterations=0)
    fixed = result.uncertainty(sigma=[1.0, 2.0]).covariance(made.poses).blocks
    relative = loose.uncertainty(datum=free[[0]], sigma=[1.0, 2.0])
    assert relative.n_gauge == 3
    assert np.abs(relative.covariance(free).blocks - fixed).max() < 1e-6 * np.abs(fixed).max()


def test_plain_least_squares_matches_the_textbook_formula(line_result):
    result, t, y, weight = line_result(Quadratic())
    J = np.column_stack([t, np.ones(60)]) * np.sqrt(weight)[:, None]
    r = J @ result.x - y * np.sqrt(weight)
    C = np.linalg.inv(J.T @ J) * (r @ r) / 58
    assert np.allclose(result.covariance("x").blocks[0], C, rtol=1e-9)
    H = J @ np.linalg.inv(J.T @ J) @ J.T
    assert np.allclose(result.leverage[0].used, np.diag(H), atol=1e-12)
    studentised = np.abs(r) / np.sqrt((r @ r) / 58 * (1 - np.diag(H)))
    assert np.allclose(result.leverage[0].studentised, studentised, rtol=1e-9)


def test_a_robust_line_has_the_error_of_its_inliers(line_result):
    result, t, _, weight = line_result(SmoothTruncated(0.5))
    inlier = np.arange(60) >= 6
    J = (np.column_stack([t, np.ones(60)]) * np.sqrt(weight)[:, None])[inlier]
    C = np.linalg.inv(J.T @ J) * 0.1**2
    ours = result.covariance("x", sigma=0.1).blocks[0]
    assert np.allclose(ours, C, rtol=0.1)
    assert np.trace(ours) > np.trace(C)  # a robust estimate is slightly less efficient
    assert result.leverage[0].n_used == pytest.approx(2)
    assert (result.leverage[0].studentised[:6] > 5).all()


@pytest.mark.parametrize("kernel", [SmoothTruncated(3.0), Huber(1.0), Cauchy(2.0), Tukey(4.0), Quadratic()])
@pytest.mark.parametrize("p", [1, 2, 6])
def test_curvature_and_spread_in_gaussian_noise(kernel, p):
    r = np.random.default_rng(0).standard_normal((400_000, p))
    u = (r**2).sum(axis=1)
    omega = kernel.omega(u)
    alpha, beta = expected(kernel, p, np.array([kernel.tau]))
    assert alpha[0] == pytest.approx(np.mean(omega + 2 * u * kernel.domega(u) / p), abs=0.01)
    assert beta[0] == pytest.approx(np.mean(omega**2 * u) / p, abs=0.01)


def test_leverages_add_up_to_the_unknowns(bundle_result, graph_result):
    for _, result in (bundle_result, graph_result):
        of = result.uncertainty()
        assert sum(part.n_used for part in result.leverage) == pytest.approx(of.n_determined)
        for f, part, kept in zip(result.problem.factors, result.leverage, of.information, strict=True):
            assert not part.used[~kept.counted].any()
            assert (part.used < f.residual_size + 1e-9).all()


def test_undetermined_points_are_named_and_have_no_covariance(bundle_result):
    made, _ = bundle_result
    (f,) = made.problem.factors
    once = np.flatnonzero(f.slots[1].index == 5)[1:]
    few = f.taken(~np.isin(np.arange(f.n), once) & (f.slots[1].index != 9))
    result = asker.solve(asker.Problem(few), asker.IRLS(), max_iterations=0)
    covariance = result.covariance(made.points, datum=made.cameras, sigma=0.4)
    assert np.flatnonzero(covariance.undetermined).tolist() == [5, 9]
    assert np.isnan(covariance.blocks[[5, 9]]).all()
    assert np.isfinite(np.delete(covariance.blocks, [5, 9], 0)).all()
    of = result.uncertainty(datum=made.cameras, sigma=0.4)
    assert of.n_undetermined == {"points": 2}
    assert (of.n_single, of.n_gauge) == (1 + 3, 7)


def test_observations_without_expected_curvature_determine_nothing():
    groups = [asker.Variables(np.zeros((1, 1)), name=name) for name in "xz"]
    measured = {
        "data": (np.random.default_rng(0).standard_normal(30),),
        "jacobian": lambda v, y: np.ones((30, 1, 1)),
    }

    def solved(*kernels):
        factors = [
            asker.Factors(lambda v, y: v[:, 0] - y, v[np.zeros(30, int)], kernel=kernel, **measured)
            for v, kernel in zip(groups, kernels, strict=True)
        ]
        return asker.solve(asker.Problem(*factors), asker.IRLS(), max_iterations=0)

    of = solved(Quadratic(), SmoothTruncated(1e-6)).uncertainty(sigma=1.0)
    assert of.n_undetermined == {"z": 1}
    assert of.covariance("x").blocks[0, 0, 0] == pytest.approx(1 / 30, rel=1e-3)
    assert np.isnan(of.covariance("z").blocks).all()
    with pytest.raises(asker.ProblemError, match="nothing supports the result"):
        solved(SmoothTruncated(1e-6), SmoothTruncated(1e-6)).uncertainty(sigma=1.0)


def test_invalid_arguments_raise_an_error(line_result, tmp_path):
    result, *_ = line_result(Quadratic())
    x = result.problem.variables[0]
    result.save(tmp_path / "r.npz")
    with pytest.raises(asker.ProblemError, match="a loaded result has no problem"):
        asker.Result.load(tmp_path / "r.npz").covariance("x")
    with pytest.raises(asker.ProblemError, match="allowed are 0 to 0"):
        result.covariance(x[[1]])
    with pytest.raises(KeyError, match="no group is called 'y'"):
        result.covariance("y")
    with pytest.raises(asker.ProblemError, match="not part of the problem"):
        result.covariance(asker.Variables(np.zeros(2)))
    with pytest.raises(asker.ProblemError, match="sigma has 2 numbers for 1 groups"):
        result.covariance(x, sigma=[1.0, 2.0])
    few = asker.Factors(lambda x, y: x[:, 0] - y, x[[0, 0, 0]], data=np.zeros(3), kernel=Quadratic(),
                        jacobian=lambda x, y: np.ones((3, 1, 2)))  # fmt: skip
    with pytest.raises(asker.ProblemError, match="the noise cannot be estimated: 3 inliers leave 2 degrees"):
        asker.solve(asker.Problem(few)).covariance(x)


def test_squared_norms_include_the_weights(line_result):
    result, *_, weight = line_result(Quadratic())
    assert np.allclose(squared_norms(result)[0], weight * result.residuals[0][:, 0] ** 2)


@pytest.mark.parametrize("smaller", [1e-3, 1e-9])
def test_noise_scales_of_different_orders_of_magnitude(smaller):
    """Rounding does not hide the smaller scale, which alone determines the variance of a variable."""
    x = asker.Variables([0.0, 0.0], name="x")
    at = np.zeros(25, int)
    groups = [
        asker.Factors(lambda x, y: x - y, x[at + k], data=np.zeros(25), kernel=asker.Quadratic(), name=f"group {k}")
        for k in range(2)
    ]
    result = asker.solve(asker.Problem(*groups))
    errors = result.standard_errors("x", sigma=[1.0, smaller])
    np.testing.assert_allclose(errors[:, 0], [0.2, 0.2 * smaller], rtol=1e-6)


def test_a_kernel_that_is_linear_at_all_residuals_gives_no_noise_estimate():
    """A Huber kernel far narrower than the residuals is linear at all of them."""
    x = asker.Variables([0.0], name="x")
    y = np.concatenate([np.linspace(1, 2, 20), -np.linspace(1, 2, 20)])
    factors = asker.Factors(lambda x, y: x - y, x[np.zeros(40, int)], data=y, kernel=Huber(1e-3))
    result = asker.solve(asker.Problem(factors), max_iterations=0)
    with pytest.raises(asker.ProblemError, match="cannot be estimated: the kernel is linear at all residuals"):
        result.interval("x")
    assert result.interval("x", sigma=1.0) > 0
