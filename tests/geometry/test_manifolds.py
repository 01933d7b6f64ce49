"""Laws that hold for every manifold; to test a new manifold, list it in MANIFOLDS."""

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import asker
from asker.applications.colmap.constant_parameters import ConstantPositions, ConstantRotations
from asker.engines.xla.scalar_program import retraction
from asker.geometry.lie import exp_so3, log_se2, log_se3, log_sim3, log_so3
from asker.geometry.manifolds import SE2, SE3, SO3, Euclidean, Pose, Product, Sim3, Similarity, Sphere
from asker.problem.variables import ProblemError, Variables
from asker.tracing.array_namespace import float64

pytestmark = pytest.mark.slow

N = 6


def rotations(rng, n=N):
    return Rotation.from_quat(rng.normal(size=(n, 4))).as_matrix()


def poses(rng, n=N):
    return np.concatenate([rotations(rng, n), rng.normal(size=(n, 3, 1))], axis=2)


def similarities(rng, n=N):
    scale = np.exp(np.abs(rng.normal(size=(n, 1, 1))) / 2)
    return np.concatenate([scale * rotations(rng, n), rng.normal(size=(n, 3, 1))], axis=2)


def is_similarity(T):
    is_rotation(T[:, :, :3] / np.linalg.norm(T[:, :1, :3], axis=2, keepdims=True))


def unit_vectors(dim):
    def draw(rng, n=N):
        x = rng.normal(size=(n, dim))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        x[:3] = 0.0
        x[0, 0], x[1, 0], x[2, -1] = 1.0, -1.0, -1.0  # where a basis of the tangent plane may be discontinuous
        return x

    return draw


def normal(*shape):
    return lambda rng, n=N: rng.normal(size=(n, *shape))


def is_rotation(R):
    np.testing.assert_allclose(R @ np.swapaxes(R, -1, -2), np.broadcast_to(np.eye(3), R.shape), atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(R), 1, rtol=1e-13)


def is_unit(x):
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-15)


def anything(values):
    assert np.isfinite(values).all()


# manifold, function that draws N values, check that values are on the manifold
MANIFOLDS = [
    (Euclidean(()), normal(), anything),
    (Euclidean(3), normal(3), anything),
    (Euclidean((2, 3)), normal(2, 3), anything),
    (SO3, rotations, is_rotation),
    (SE3, poses, lambda T: is_rotation(T[:, :, :3])),
    (ConstantRotations(), poses, lambda T: is_rotation(T[:, :, :3])),
    (ConstantPositions(), poses, lambda T: is_rotation(T[:, :, :3])),
    (Sim3, similarities, is_similarity),
    (SE2, normal(3), anything),
    (Sphere(3), unit_vectors(3), is_unit),
    (Sphere(5), unit_vectors(5), is_unit),
    (
        Product(SE3, Euclidean(3)),
        lambda rng: (poses(rng), rng.normal(size=(N, 3))),
        lambda parts: is_rotation(parts[0][:, :, :3]),
    ),
    (
        Product(Sphere(3), Product(SO3, Euclidean(()))),
        lambda rng: (unit_vectors(3)(rng), (rotations(rng), rng.normal(size=N))),
        lambda parts: is_rotation(parts[1][0]),
    ),
]
LENGTHS = [
    1e-300,
    1e-12,
    0.99e-4,
    1.01e-4,
    0.3,
    np.pi,
    2 * np.pi,
    50.0,
]  # 1e-4 separates Taylor series from closed forms

EVERY_MANIFOLD = pytest.mark.parametrize(
    ("manifold", "draw", "check"), [pytest.param(*m, id=repr(m[0])) for m in MANIFOLDS]
)
EVERY_LENGTH = pytest.mark.parametrize("length", LENGTHS)


def steps(manifold, length, rng):
    d = rng.normal(size=(N, manifold.tangent))
    return length * d / np.linalg.norm(d, axis=1, keepdims=True)


def moved(manifold, rows, deltas):
    return np.array([manifold.retract(x, d) for x, d in zip(rows, deltas, strict=True)])


@EVERY_MANIFOLD
def test_unpack_is_the_inverse_of_pack(manifold, draw, check):
    values = draw(np.random.default_rng(0))
    rows = manifold.pack(values)
    assert rows.shape == (N, manifold.ambient)
    back = manifold.unpack(rows)
    check(back)
    same(back, values, rounding(manifold))


def rounding(manifold):
    """Return the rounding error of pack and unpack: scale and rotation of a similarity are stored separately."""
    return 5e-16 if manifold is Sim3 else 0.0


def same(one, other, rtol):
    if isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            same(a, b, rtol)
    else:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=0)


@EVERY_MANIFOLD
def test_the_view_is_one_of_the_values(manifold, draw, check):
    values = draw(np.random.default_rng(1))
    row = manifold.pack(values)[2]

    def one(values):
        return tuple(map(one, values)) if isinstance(values, tuple) else values[2]

    def as_value(view):
        if isinstance(view, Similarity):
            return np.column_stack([view.scale * view.rotation, view.translation])
        if isinstance(view, Pose):
            return np.column_stack([view.rotation, view.translation])
        return tuple(map(as_value, view)) if isinstance(view, tuple) else view

    same(as_value(manifold.view(row)), one(values), rounding(manifold))


@EVERY_MANIFOLD
def test_a_zero_step_changes_nothing(manifold, draw, check):
    rows = manifold.pack(draw(np.random.default_rng(2)))
    stayed = moved(manifold, rows, np.zeros((N, manifold.tangent)))
    np.testing.assert_allclose(stayed, rows, rtol=0, atol=2e-16)


@EVERY_MANIFOLD
@EVERY_LENGTH
def test_a_step_stays_on_the_manifold(manifold, draw, check, length):
    rng = np.random.default_rng(3)
    rows = manifold.pack(draw(rng))
    check(manifold.unpack(moved(manifold, rows, steps(manifold, length, rng))))


@EVERY_MANIFOLD
def test_the_derivative_of_retract_has_full_rank(manifold, draw, check):
    """The derivative at δ = 0 has rank `tangent`, and that of JAX agrees with finite differences."""
    import jax

    rows, h = manifold.pack(draw(np.random.default_rng(4))), 1e-6
    zeros = np.zeros((N, manifold.tangent))
    with float64():
        J = np.asarray(jax.jit(jax.vmap(jax.jacfwd(manifold.retract, argnums=1)))(rows, zeros))
    assert J.shape == (N, manifold.ambient, manifold.tangent)
    assert np.all(np.linalg.svd(J, compute_uv=False)[:, -1] > 0.5)
    for k in range(manifold.tangent):
        step = zeros + h * np.eye(manifold.tangent)[k]
        slope = (moved(manifold, rows, step) - moved(manifold, rows, -step)) / (2 * h)
        np.testing.assert_allclose(J[:, :, k], slope, atol=1e-9)


@EVERY_MANIFOLD
def test_retract_under_jax_agrees_with_numpy(manifold, draw, check):
    import jax

    rng = np.random.default_rng(5)
    rows = np.tile(manifold.pack(draw(rng)), (len(LENGTHS), 1))
    delta = np.concatenate([steps(manifold, length, rng) for length in LENGTHS])
    with float64():
        traced = np.asarray(jax.jit(jax.vmap(manifold.retract))(rows, delta))
    np.testing.assert_allclose(traced, moved(manifold, rows, delta), rtol=1e-13, atol=2e-13)


@EVERY_LENGTH
def test_steps_of_rotations_agree_with_scipy(length):
    rng = np.random.default_rng(6)
    R, omega = rotations(rng), steps(SO3, length, rng)
    turn = Rotation.from_rotvec(omega).as_matrix()
    np.testing.assert_allclose([exp_so3(w) for w in omega], turn, atol=3e-15 * max(1.0, length))
    turned = SO3.unpack(moved(SO3, SO3.pack(R), omega))
    np.testing.assert_allclose(turned, turn @ R, atol=5e-15 * max(1.0, length))


@EVERY_LENGTH
def test_steps_of_poses_add_translations_and_multiply_rotations_from_the_left(length):
    rng = np.random.default_rng(7)
    T, delta = poses(rng), steps(SE3, length, rng)
    after = SE3.unpack(moved(SE3, SE3.pack(T), delta))
    np.testing.assert_array_equal(after[:, :, 3], T[:, :, 3] + delta[:, :3])
    turn = Rotation.from_rotvec(delta[:, 3:]).as_matrix()
    np.testing.assert_allclose(after[:, :, :3], turn @ T[:, :, :3], atol=5e-15 * max(1.0, length))


@EVERY_LENGTH
def test_steps_of_poses_in_the_plane_are_in_the_frame_of_the_pose(length):
    rng = np.random.default_rng(11)
    x, delta = rng.normal(size=(N, 3)), steps(SE2, length, rng)
    after = moved(SE2, x, delta)
    turn = Rotation.from_euler("z", x[:, 2:]).as_matrix()[:, :2, :2]
    shift = np.einsum("nij,nj->ni", turn, delta[:, :2])
    np.testing.assert_allclose(after[:, :2], x[:, :2] + shift, atol=1e-14 * max(1.0, length))
    np.testing.assert_array_equal(after[:, 2], x[:, 2] + delta[:, 2])


ANGLES = [0.0, 1e-300, 1e-12, 0.99e-5, 2.01e-5, 0.0099, 0.0101, 0.3, 2.0, 3.1, np.pi - 1e-7, np.pi]


@pytest.mark.parametrize("angle", ANGLES)
def test_the_logarithm_undoes_the_exponential(angle):
    omega = steps(SO3, angle, np.random.default_rng(12))
    omega[:3] = angle * np.eye(3)  # each row of the outer product of the quaternion
    for w in omega:
        back = log_so3(exp_so3(w))
        np.testing.assert_allclose(min(back, -back, key=lambda v: v @ -w) if angle == np.pi else back, w, atol=2e-14)


@pytest.mark.parametrize("angle", ANGLES[:-1])
def test_the_logarithm_of_a_pose_undoes_the_exponential_of_its_twist(angle):
    from scipy.linalg import expm

    rng = np.random.default_rng(13)
    for w in steps(SO3, angle, rng):
        rho, twist = rng.normal(size=3), np.zeros((4, 4))
        twist[:3, :3], twist[:3, 3] = np.cross(w, np.eye(3)).T, rho
        T = expm(twist)
        np.testing.assert_allclose(log_se3(T[:3, :3], T[:3, 3]), [*rho, *w], atol=1e-13)
        flat = np.array([[0, -angle, rho[0]], [angle, 0, rho[1]], [0, 0, 0]])
        np.testing.assert_allclose(log_se2(expm(flat)[:2, 2], np.float64(angle)), [*rho[:2], angle], atol=1e-13)


SIGMAS = [0.0, 1e-300, -1e-9, 0.05, -0.0999, 0.1001, 0.7, -2.0]


@pytest.mark.parametrize("angle", ANGLES[:-1])
def test_the_logarithm_of_a_similarity_undoes_the_exponential_of_its_twist(angle):
    from scipy.linalg import expm

    rng = np.random.default_rng(15)
    for sigma in SIGMAS:
        w, rho, twist = steps(SO3, angle, rng)[0], rng.normal(size=3), np.zeros((4, 4))
        twist[:3, :3], twist[:3, 3] = np.cross(w, np.eye(3)).T + sigma * np.eye(3), rho
        T = expm(twist)
        log = log_sim3(T[:3, :3] / np.exp(sigma), T[:3, 3], np.exp(sigma))
        np.testing.assert_allclose(log, [*rho, *w, sigma], atol=3e-12)


def moved_log_sim3(x, delta):
    return log_sim3(*Sim3.view(Sim3.retract(x, delta)))


def moved_log_se3(x, delta):
    return log_se3(*SE3.view(SE3.retract(x, delta)))


SLOPE = {f: jax.jit(jax.vmap(jax.jacfwd(f, argnums=1))) for f in (moved_log_sim3, moved_log_se3)}


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.0101, 0.0999, 2.0])
def test_the_logarithm_of_a_similarity_has_the_derivative_of_finite_differences(angle):
    rng, h = np.random.default_rng(16), 1e-5
    T = np.concatenate([similarities(rng), np.tile(np.eye(3, 4), (2, 1, 1))])
    turn = np.array([exp_so3(w) for w in steps(SO3, angle, rng)] + [np.eye(3), exp_so3(np.array([angle, 0, 0]))])
    T[:, :, :3] = turn * np.cbrt(np.linalg.det(T[:, :, :3]))[:, None, None]
    rows = Sim3.pack(T)
    with float64():
        J = np.asarray(SLOPE[moved_log_sim3](rows, np.zeros((len(T), 7))))
    for k, step in enumerate(h * np.eye(7)):
        slope = [(moved_log_sim3(x, step) - moved_log_sim3(x, -step)) / (2 * h) for x in rows]
        np.testing.assert_allclose(J[:, :, k], slope, atol=2e-7)


def test_the_logarithm_of_a_similarity_is_that_of_gtsam():
    gtsam = pytest.importorskip("gtsam")
    for T in similarities(np.random.default_rng(17), 20):
        scale = np.cbrt(np.linalg.det(T[:, :3]))
        other = gtsam.Similarity3(gtsam.Rot3(T[:, :3] / scale), T[:, 3] / scale, scale)  # s (R X + t)
        w, rho, sigma = np.split(gtsam.Similarity3.Logmap(other), [3, 6])
        log = log_sim3(T[:, :3] / scale, T[:, 3], scale)
        np.testing.assert_allclose(log, [*rho, *w, *sigma], atol=1e-9)


@pytest.mark.parametrize("angle", ANGLES[:-2])
def test_the_logarithm_has_the_derivative_of_finite_differences(angle):
    rng, h = np.random.default_rng(14), 1e-6
    T = SE3.pack(poses(rng))
    T[:, :9] = np.array([exp_so3(w).ravel() for w in steps(SO3, angle, rng)])
    with float64():
        J = np.asarray(SLOPE[moved_log_se3](T, np.zeros((N, 6))))
    for k, step in enumerate(h * np.eye(6)):
        slope = [(moved_log_se3(x, step) - moved_log_se3(x, -step)) / (2 * h) for x in T]
        np.testing.assert_allclose(J[:, :, k], slope, atol=2e-8)


@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("length", [1e-12, 0.99e-4, 1.01e-4, 0.3, 3.0, np.pi])
def test_unit_vectors_follow_great_circles(dim, length):
    rng = np.random.default_rng(8)
    sphere = Sphere(dim)
    x, delta = unit_vectors(dim)(rng), steps(sphere, length, rng)
    y = moved(sphere, x, delta)
    chord = np.linalg.norm(y - x, axis=1)
    np.testing.assert_allclose(chord, 2 * np.sin(length / 2), rtol=1e-9, atol=1e-15)
    halfway = moved(sphere, x, delta / 2)  # in the plane of x and y, in the middle
    np.testing.assert_allclose(np.einsum("nd,nd->n", halfway, x), np.cos(length / 2), atol=1e-14)
    np.testing.assert_allclose(np.einsum("nd,nd->n", halfway, y), np.cos(length / 2), atol=1e-14)


def broken(values, at):
    values = values.copy()
    values[at] = values[at] * 1.001
    return values


rng = np.random.default_rng(9)
MIRRORED = rotations(rng)
MIRRORED[4, 0] *= -1
NOT_A_NUMBER = poses(rng)
NOT_A_NUMBER[2, 1, 3] = np.nan

# invalid values of a manifold, and words of the error message
BAD = [
    (Euclidean(3), np.zeros((5, 4)), r"shape \(5, 4\), expected \(n, 3\)"),
    (Euclidean(3), np.zeros(3), r"shape \(3,\), expected \(n, 3\)"),
    (Euclidean(()), 3.0, "shape"),
    (Euclidean(3), [["a", "b", "c"]], "expected numbers"),
    (Euclidean(2), [[1.0, 2.0], [3.0]], "shape"),
    (Euclidean(2), np.ones((3, 2)) * 1j, "complex"),
    (Euclidean(2), np.array([[0, 1], [np.inf, 0]]), "index 1"),
    (SO3, rotations(rng)[:, :2], r"expected \(n, 3, 3\)"),
    (SO3, broken(rotations(rng), 3), "rotation at index 3"),
    (SO3, MIRRORED, "rotation at index 4"),
    (SE3, poses(rng)[:, :, :3], r"expected \(n, 3, 4\)"),
    (SE3, broken(poses(rng), 5), "rotation at index 5"),
    (SE3, NOT_A_NUMBER, "index 2"),
    (SE2, np.zeros((5, 2)), r"shape \(5, 2\), expected \(n, 3\)"),
    (Sphere(3), broken(unit_vectors(3)(rng), 4), "unit vector at index 4"),
    (Sphere(3), unit_vectors(4)(rng), r"expected \(n, 3\)"),
    (Product(SE3, Euclidean(3)), (poses(rng),), "1 parts, expected 2"),
    (Product(SE3, Euclidean(3)), (broken(poses(rng), 1), np.zeros((N, 3))), "rotation at index 1"),
    (Product(SE3, Euclidean(3)), (poses(rng), np.zeros((N, 2))), r"expected \(n, 3\)"),
    (Product(SE3, Euclidean(3)), (poses(rng), np.zeros((N + 1, 3))), r"\[6, 7\]"),
    (Product(SE3, Euclidean(3)), 3.0, "parts"),
]


@pytest.mark.parametrize(("manifold", "values", "words"), BAD, ids=[f"{m}: {words}" for m, _, words in BAD])
def test_invalid_values_are_rejected_with_the_name_of_the_variables(manifold, values, words):
    with pytest.raises(ProblemError, match=f"^landmarks: .*{words}"):
        Variables(values, manifold, name="landmarks")


@EVERY_MANIFOLD
def test_groups_without_variables_are_accepted(manifold, draw, check):
    def none(values):
        return tuple(map(none, values)) if isinstance(values, tuple) else values[:0]

    variables = Variables(none(draw(np.random.default_rng(10))), manifold)
    assert len(variables) == 0
    assert not variables.is_free


@EVERY_MANIFOLD
def test_products_mix_units(manifold, draw, check):
    assert Variables(draw(np.random.default_rng(11)), manifold).mixes_units == isinstance(manifold, Product)


@pytest.mark.parametrize("mixed", [False, True])
def test_damping_is_relative_where_a_manifold_mixes_units(mixed):
    manifold = type("Own", (Euclidean,), {"mixes_units": mixed})(2)
    x = Variables(np.zeros((1, 2)), manifold)
    factors = asker.Factors(lambda x, d: x - d, x[np.zeros(3, int)], data=np.ones((3, 2)), kernel=asker.Quadratic())
    assert asker.solve(asker.Problem(factors), engine="cpu").relative_damping is mixed


def test_a_pose_in_the_plane_has_rotation_translation_and_angle():
    x = np.array([1.0, 2.0, 0.3])
    pose = SE2.view(x)
    c, s = np.cos(0.3), np.sin(0.3)
    np.testing.assert_allclose(pose.rotation, [[c, -s], [s, c]])
    np.testing.assert_array_equal(pose.translation, [1.0, 2.0])
    assert pose.angle == 0.3
    moved = SE2.view(SE2.retract(x, np.array([1.0, 0.0, 0.0])))
    np.testing.assert_allclose(moved.translation, pose.translation + pose.rotation @ [1.0, 0.0])
    for at in (pose, jax.numpy.asarray(pose)):  # arithmetic acts on x, y, θ
        np.testing.assert_allclose(at[:2] - np.ones(2), [0.0, 1.0])
        np.testing.assert_allclose(2 * at - at, x, rtol=1e-6)
        assert [float(v) for v in at] == pytest.approx(x.tolist(), rel=1e-6)


@pytest.mark.parametrize("manifold", [SO3, SE3, SE2])
def test_messages_have_no_private_names(manifold):
    assert repr(manifold) in ("SO3", "SE3", "SE2")


class Doubled(Euclidean):
    """Euclidean vectors with another retraction."""

    def retract(self, x, delta):
        return x + 2 * delta


BOUNDED = Variables(np.zeros((N, 2)), lower=-0.1, upper=0.2).manifold
OTHERS = [(BOUNDED, lambda rng: np.zeros((N, 2)), anything), (Doubled(3), normal(3), anything)]


@pytest.mark.parametrize(("manifold", "draw", "check"), [pytest.param(*m, id=repr(m[0])) for m in MANIFOLDS + OTHERS])
def test_the_batched_retraction_of_xla_agrees_with_retract(manifold, draw, check):
    rng = np.random.default_rng(0)
    rows, deltas = manifold.pack(draw(rng)), steps(manifold, 0.3, rng)
    with float64():
        retracted = np.asarray(retraction(manifold)(rows, deltas))
    np.testing.assert_allclose(retracted, moved(manifold, rows, deltas), rtol=1e-13, atol=1e-13)


def test_the_scale_of_a_similarity_remains_positive():
    T = np.concatenate([np.eye(3), np.ones((3, 1))], axis=1)[None]
    shrunk = np.stack([asker.Sim3.retract(x, np.r_[np.zeros(6), -1e4]) for x in asker.Sim3.pack(T)])
    assert shrunk[0, 12] > 0
    np.testing.assert_allclose(asker.Sim3.pack(asker.Sim3.unpack(shrunk)), shrunk)
