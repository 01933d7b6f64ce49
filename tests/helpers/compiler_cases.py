"""JAX functions with which the compiler is tested.

Each case is a function f(x, y, i, m) of one observation: x (3,), y (3, 3), integers i (2,), booleans m (2,).
A new rule for a primitive is tested by adding a function that uses it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from asker.engines.cpu.compiler import Argument
from asker.geometry.lie import exp_so3
from asker.geometry.manifolds import SE3, Sphere

ARGUMENTS = [
    Argument("gathered", (3,)),
    Argument("each", (3, 3)),
    Argument("each", (2,), "int64"),
    Argument("each", (2,), "bool"),
]
N = 7
rng = np.random.default_rng(0)
X = rng.normal(size=(4, 3))
INDEX = rng.integers(0, 4, N).astype(np.int32)
Y = rng.normal(size=(N, 3, 3))
Y[3] = np.eye(3)  # ties and exact zeros
WHOLE = rng.integers(-4, 9, (N, 2))
TRUTH = rng.random((N, 2)) < 0.5
TABLE = np.arange(12.0).reshape(4, 3)  # a constant of the functions
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def joined(*parts):
    return jnp.concatenate([jnp.ravel(jnp.asarray(part)) for part in parts])


# ------------------------------------------------------------------ arithmetic and elementary functions


@case
def arithmetic(x, y, i, m):
    return joined(x[0] - 2.0, 3.0 - x[1], -x[2] * y[0, 0], x[0] / y[1, 1], 2.0 / x[1], x[2] / -4.0)


@case
def signs_and_common_factors(x, y, i, m):
    a, b, c = x
    sums = joined(a * b + a * c, -a * b - a * c, a * b * b - c * b, a - a, b + b)
    return joined(sums, -(a - b) * -(c - a), a * -b / -c)


@case
def powers(x, y, i, m):
    z = jnp.abs(x) + 0.1
    return joined(x**2, x**3, x**-1, x**-4, x**0, z**0.5, z**-1.5, 2.0**x, z ** jnp.abs(y[0]), z ** i[0])


@case
def long_products(x, y, i, m):
    z = jnp.tanh(x)
    squared = lax.fori_loop(0, 40, lambda k, a: a * a, 1 - 1e-12 * z[0])
    return joined(z**40 + z**39, squared + z)


@case
def exponentials(x, y, i, m):
    z = x * x + 0.2
    return joined(jnp.exp(x), jnp.exp2(x), jnp.expm1(x), jnp.log(z), jnp.log1p(z), jnp.log2(z), jax.nn.sigmoid(x))


@case
def roots(x, y, i, m):
    z = x * x + 0.2
    return joined(jnp.sqrt(z), lax.rsqrt(z), jnp.cbrt(x), lax.square(x), jnp.hypot(x, y[0]))


@case
def trigonometry(x, y, i, m):
    z = jnp.tanh(x) * 0.9
    by_angle = joined(jnp.sin(x), jnp.cos(x), jnp.tan(x))
    return joined(by_angle, jnp.arcsin(z), jnp.arccos(z), jnp.arctan(x), jnp.arctan2(x, y[0]))


@case
def hyperbolic(x, y, i, m):
    z = jnp.tanh(y[0]) * 0.9
    return joined(jnp.sinh(x), jnp.cosh(x), z, jnp.arcsinh(x), jnp.arccosh(2 + x * x), jnp.arctanh(z))


@case
def error_functions(x, y, i, m):
    return joined(lax.erf(x), lax.erfc(x), jax.nn.softplus(x), jax.nn.gelu(x, approximate=False))


@case
def rounding(x, y, i, m):
    z = joined(x * 3, jnp.round(x * 2) / 2, jnp.array([0.5, 1.5, -2.5]))
    return joined(jnp.round(z), lax.round(z), jnp.floor(z), jnp.ceil(z), jnp.trunc(z)) + z.sum()


@case
def remainders(x, y, i, m):
    return joined(jnp.fmod(x * 5, 1.5), jnp.mod(x * 5, 1.5), jnp.mod(x, y[1] + 0.3))


@case
def largest_and_smallest(x, y, i, m):
    pairs = joined(jnp.maximum(x, y[0]), jnp.minimum(x, 0.1), jnp.clip(x, -0.5, 0.5), lax.clamp(-1.0, y[1], 0.2))
    return joined(pairs, x.max(), y.min(), jnp.max(y @ x), jnp.prod(x))


@case
def signs(x, y, i, m):
    return joined(jnp.abs(x), jnp.sign(x) * y[0], jnp.sign(y[1] * 0), jax.nn.relu(x), jax.nn.leaky_relu(x))


# ------------------------------------------------------------------ selection, integers, booleans


@case
def where(x, y, i, m):
    inner = jnp.where(x > 0, x * y[0], jnp.where(y[1] < x, 2.0, x**3))
    return joined(inner, jnp.where(m[0], x, y[2]), jnp.where(m[1] & (x[0] > y[0, 0]), 1.0, -x))


@case
def guarded_where(x, y, i, m):
    t = x @ x
    safe = jnp.where(t > 0.5, t, 1.0)
    return jnp.where(t > 0.5, jnp.sin(jnp.sqrt(safe)) / safe, 1 - t / 6)


@case
def select_many(x, y, i, m):
    which = jnp.clip(i[0], 0, 2).astype(jnp.int32)
    return lax.select_n(which, x[0] * 2, x[1] ** 2, jnp.sin(x[2]))


@case
def comparisons(x, y, i, m):
    z = jnp.stack([x < y[0], x <= y[0], x > y[0], x >= y[0], x == x, x != y[0]])
    return z.astype(float).sum(axis=0) * x + jnp.any(z) * 1.0 + jnp.all(z) * 2.0


@case
def truth_values(x, y, i, m):
    a, b = m
    z = jnp.stack([a & b, a | b, a ^ b, ~a, jnp.logical_and(a, x[0] > 0), jnp.logical_not(b)])
    return jnp.where(z, x[0], y[0, 0]) + m.sum() + jnp.where(m.any(), 1.0, 0.0)


@case
def whole_numbers(x, y, i, m):
    a, b = i
    plain = joined(x[0] * a, i.sum(), (a * b - 3) / 2, jnp.abs(a) * x[2], jnp.maximum(a, 2), -b * x[0])
    return joined(plain, jnp.where(a > b, x[1], x[2]), jnp.sign(b) * x[0], (a == 3) * x[0], (a % 3) * x[1])


@case
def bits(x, y, i, m):
    a, b = i
    return joined((a & 3) * x[0], (a | 4) * x[1], (a ^ b) * x[2], ~b * x[0])


@case
def conversions(x, y, i, m):
    whole = joined((x * 3).astype(int).astype(float), i.astype(float), m.astype(float), (x > 0).astype(int))
    return joined(whole, (x - y[0]).astype(bool) * x, m.astype(int) * y[0, :2], x.astype(np.float64))


# ------------------------------------------------------------------ data movement


@case
def static_indexing(x, y, i, m):
    return joined(x[1:], x[::-1], x[-1], y[1], y[-1, ::2], y[:, 1], y[None, 0, 1], y[..., 2], y.ravel()[3:8:2])


@case
def constant_gather(x, y, i, m):
    picked = y[np.array([2, 0, 0]), np.array([1, 1, -1])]
    return joined(x[np.array([2, 2, 0])], picked, y[np.array([1, 0])], jnp.take(x, np.array([1, 0])))


@case
def mask_gather(x, y, i, m):
    return joined(x[np.array([True, False, True])], y[np.eye(3, dtype=bool)], y[np.triu_indices(3, 1)])


@case
def computed_constant_gather(x, y, i, m):
    return x[jnp.arange(6) // 2] + jnp.sort(jnp.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0])) * x[0]


@case
def gather_out_of_bounds(x, y, i, m):
    far = jnp.array([0, 7, 2])
    return joined(
        x.at[far].get(mode="clip"), x.at[far].get(mode="fill", fill_value=-2.5), jnp.take(x, far, mode="wrap")
    )


@case
def scatter_set(x, y, i, m):
    z = jnp.zeros(5).at[1:4].set(x).at[0].set(y[0, 0]).at[-1].set(2.0)
    return joined(z, y.at[1].set(x), x.at[np.array([0, 2])].set(y[0, :2]))


@case
def scatter_add(x, y, i, m):
    z = jnp.ones(4).at[np.array([1, 1, 3])].add(x).at[2].add(y[1, 1])
    return joined(z, y.at[:, 0].add(x), x.at[np.array([2, 0])].add(-y[0, :2] * 2))


@case
def scatter_out_of_bounds(x, y, i, m):
    far = np.array([0, 9, 2])
    return joined(x.at[far].set(y[0], mode="drop"), x.at[far].add(y[1], mode="drop"))


@case
def joining(x, y, i, m):
    stacked = joined(jnp.stack([x, y[0]], axis=1), jnp.hstack([x, 1.0, y[1]]), jnp.vstack([x, y[:1]]))
    return joined(stacked, jnp.tile(x, 2), jnp.repeat(x, 2), jnp.append(x, 3.0))


@case
def shifting(x, y, i, m):
    return joined(jnp.pad(x, (1, 2), constant_values=4.0), jnp.roll(x, 1), jnp.flip(y, 0), jnp.pad(y[:2], 1))


@case
def reshaping(x, y, i, m):
    wide = joined(y.T, jnp.swapaxes(y, 0, 1) * x, jnp.broadcast_to(x, (2, 3)), jnp.expand_dims(x, 1) + y)
    return joined(wide, y.reshape(9, 1), jnp.squeeze(x[None]), *jnp.split(x, [1]), jnp.moveaxis(y[None], 0, 2))


@case
def sorting(x, y, i, m):
    z = x + jnp.arange(3.0) * 1e-3
    both = lax.sort((jnp.round(y[0, :2]), x[:2]), num_keys=1)
    return joined(jnp.sort(z), jnp.sort(y[:2], axis=0)[0], z[:2][jnp.argsort(y[0, :2])], *both)


@case
def computed_gather(x, y, i, m):
    inside = jnp.abs(i) % 3
    clipped = x.at[i].get(mode="clip")
    return joined(
        x[inside],
        y[inside[0], inside[1]],
        y[:, inside[0]],
        clipped,
        y[0].at[i].get(mode="fill", fill_value=0.0),
    )


@case
def computed_scatter_add(x, y, i, m):
    inside = jnp.abs(i) % 3
    return joined(x.at[inside].add(y[0, :2]), y.at[inside[0]].add(x), x.at[i].add(2 * x[:2]))


@case
def computed_scatter(x, y, i, m):
    inside = jnp.abs(i[:1]) % 3
    return joined(x.at[inside].set(y[0, :1]), y.at[inside[0]].set(x), y.at[:, inside[0]].set(x), x.at[i[:1]].set(x[:1]))


@case
def computed_slices(x, y, i, m):
    block = lax.dynamic_slice(y, (i[0], 0), (2, 3))
    return joined(lax.dynamic_slice(x, (i[1],), (2,)), block, lax.dynamic_update_slice(y, x[None], (i[0], 0)))


@case
def dynamic_slices(x, y, i, m):
    start = jnp.int64(1)
    moved = lax.dynamic_update_slice(y, x[None], (start, 0))
    return joined(lax.dynamic_slice(x, (start,), (2,)), moved, lax.dynamic_index_in_dim(y, 2, 0))


@case
def constants(x, y, i, m):
    inverse = jnp.linalg.inv(np.diag([1.0, 2.0, 4.0, 8.0])).sum(axis=0)
    folded = jnp.asarray(TABLE) @ jnp.array([1.0, -1.0, 0.5]) / 3 + inverse
    return joined(TABLE @ x, folded * x[0], jnp.zeros(2), jnp.full(2, 7.0) * 0.5, np.float32(0.1) * x)


# ------------------------------------------------------------------ sums and products


@case
def sums(x, y, i, m):
    along = joined(y.sum(axis=0), y.mean(axis=1), y.prod(axis=0), y.max(axis=1), y.min(axis=(0, 1)))
    return joined(along, y.sum(), jnp.trace(y), jnp.var(x), x[:0].sum(), jnp.logaddexp(x, y[0]))


@case
def running_sums(x, y, i, m):
    return joined(jnp.cumsum(x), jnp.cumsum(y, axis=1), lax.cumsum(x, reverse=True), jnp.diff(y[0]))


@case
def running_products(x, y, i, m):
    return joined(jnp.cumprod(x), jnp.cumprod(y, axis=1))


@case
def reinterpreted_bits(x, y, i, m):
    whole = lax.bitcast_convert_type(x, jnp.int64) & ~0xFFFF
    return joined(x, lax.stop_gradient(lax.bitcast_convert_type(whole, jnp.float64)))


@case
def products(x, y, i, m):
    matrices = joined(y @ x, x @ y, y @ y.T, x @ y @ x)
    return joined(matrices, jnp.outer(x, y[0]), jnp.dot(x, x), jnp.cross(x, y[0]), jnp.kron(x, x[:2]))


@case
def batched_products(x, y, i, m):
    stack = jnp.stack([y, y.T + 1, y * x])
    two = joined(jnp.einsum("bij,bj->bi", stack, y), jnp.einsum("bij,bkj->ik", stack, stack), jnp.einsum("ii->i", y))
    return joined(two, jnp.tensordot(stack, x, axes=([1], [0])), jnp.vdot(x, y[2]))


@case
def norms(x, y, i, m):
    return joined(jnp.linalg.norm(x), jnp.linalg.norm(y), jnp.linalg.norm(x - y[0], ord=1), jnp.linalg.norm(y, axis=1))


@case
def determinant(x, y, i, m):
    return jnp.dot(y[0], jnp.cross(y[1], y[2])) + 2 * jnp.linalg.det(y) + jnp.linalg.det(y[:2, :2] + x[0])


@case
def small_systems(x, y, i, m):
    z = y[:2, :2] + 3 * jnp.eye(2)[jnp.array([1, 0])]  # requires pivoting
    return joined(jnp.linalg.solve(z, x[:2]), jnp.linalg.inv(z)[0], jnp.linalg.slogdet(z)[1])


@case
def triangles(x, y, i, m):
    z = y + 3 * jnp.eye(3)
    left = lax.linalg.triangular_solve(z, x[:, None], left_side=True, lower=True)
    right = lax.linalg.triangular_solve(z, x[None], left_side=False, lower=True)
    upper = lax.linalg.triangular_solve(z, x[:, None], left_side=True, transpose_a=True, unit_diagonal=True)
    return joined(left, right, upper, jnp.linalg.cholesky(y[:2] @ y[:2].T + jnp.eye(2))[1])


@case
def a_single_number(x, y, i, m):
    return x @ x


# ------------------------------------------------------------------ geometry


@case
def quaternion_rotation(x, y, i, m):
    q = jnp.array([1.0, 0, 0, 0]) + 0.3 * joined(x[0], y[0])
    q = q / jnp.linalg.norm(q)
    w, v = q[0], q[1:]
    return x + 2 * jnp.cross(v, jnp.cross(v, x) + w * x)


@case
def rodrigues(x, y, i, m):
    return joined(exp_so3(x) @ y[0], exp_so3(1e-6 * x) @ y[1], exp_so3(jnp.zeros(3) * x) @ y[2])


@case
def pose_steps(x, y, i, m):
    return SE3.retract(joined(jnp.eye(3), x), joined(y[0], 0.1 * x))


@case
def sphere_steps(x, y, i, m):
    return Sphere(3).retract(x / jnp.linalg.norm(x), 0.3 * y[0, :2])


@case
def projection(x, y, i, m):
    P = exp_so3(y[0]) @ x + y[1] + jnp.array([0.0, 0, 9])
    p = -P[:2] / P[2]
    rho = p @ p
    return 500 * (1 + 0.1 * rho + 0.02 * rho * rho) * p


# ------------------------------------------------------------------ calls, branches, loops


@case
def nested_calls(x, y, i, m):
    @jax.jit
    def outer(z):
        return jax.jit(lambda a: jnp.sin(a) * z[0])(z) + jax.checkpoint(jnp.cos)(z)

    return outer(x) + jax.vmap(lambda row: row @ x)(y)


@jax.custom_jvp
def half_slope(x):
    return x**3


half_slope.defjvp(lambda at, by: (at[0] ** 3, 1.5 * at[0] ** 2 * by[0]))


@case
def custom_slope(x, y, i, m):
    return half_slope(x) * y[0] + lax.stop_gradient(y[1] * x)


@case
def branches(x, y, i, m):
    one = lax.cond(x[0] > 0, lambda z: (jnp.sin(z), z[0]), lambda z: (z * y[0], z[2]), x)
    two = lax.switch(i[0], [jnp.sin, jnp.cos, lambda z: z * x[0]], y[1])
    always = lax.cond(np.bool_(True), lambda z: 2 * z, lambda z: 3 * z, x)
    return joined(*one, two, always)


@case
def loops(x, y, i, m):
    def step(carry, row):
        carry = jnp.sin(carry) + row * x[0]
        return carry, carry.sum()

    last, all_sums = lax.scan(step, x, y)
    _, backwards = lax.scan(step, x, y, reverse=True)
    newton = lax.fori_loop(0, 4, lambda k, z: 0.5 * (z + (2 + x[1] ** 2) / z), 1.5)
    indexed = lax.fori_loop(0, 3, lambda k, z: z + y[k] * (k + 1), jnp.zeros(3))
    return joined(last, all_sums, backwards, newton, indexed)


@case
def derivatives_inside(x, y, i, m):
    return jax.grad(lambda z: jnp.sin(z @ y @ z))(x) + jax.jvp(jnp.cos, (x,), (y[0],))[1]


# ------------------------------------------------------------------ values and derivatives to compare


def flattened(function, i, m):
    """Return the function of one vector (12,)."""
    return lambda z: joined(function(z[:3], z[3:].reshape(3, 3), i, m))


ACROSS = np.linspace(0.5, 2.0, 12)


def printed(function):
    """Return a function of the value and of Jacobian-vector products in both modes: its small output compiles fast."""

    def one(x, y, i, m):
        flat, z = flattened(function, i, m), joined(x, y)
        value, J, K = flat(z), jax.jacfwd(flat)(z), jax.jacrev(flat)(z)
        return (value, J @ ACROSS, np.linspace(0.5, 2.0, len(value)) @ K), ()

    return one
