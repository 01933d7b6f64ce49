"""Time and error of derivatives of solutions.

    python benchmarks/derivatives.py [--sizes 1000,10000,100000,1000000] [--rounds 3]

The first table: bundle adjustment with constant focal lengths, 10 % outliers, Cauchy's kernel and a weak prior on the
points; the time of one iteration of the solve, of the first gradient of a result (Newton steps to the minimum,
factorisation, and conjugate gradients), and of a further gradient with other cotangents.  Compilation is excluded.

The second table: a robust fit of a curve with 3 parameters to N points, differentiated with respect to all points; the
relative error of the gradient against central differences of whole solves, and the time of a solve with its gradient.
Beside it the implicit adjoint of optimistix, if that is installed, and the gradient with ΣωJᵀJ in place of the Hessian.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.derivatives.implicit import ImplicitDerivatives
from asker.engines.linearised import linear_model
from record import add_record_option, recorded

N_POINTS, TAU = 1000, 0.1
CAMERAS = {1000: 6, 10_000: 20, 100_000: 60, 1_000_000: 300}


def off(x, mean):
    return x - mean


def bundle(n: int) -> asker.Problem:
    """Return a bundle adjustment with n observations, two fixed cameras and a weak prior on the points."""
    cameras = CAMERAS.get(n, max(6, int(n**0.5 / 4)))
    scene = make_scene(cameras, n, outlier_ratio=0.1, start_error=1.0)
    problem = bundle_problem(scene.start, asker.Cauchy(1.0), gauge="fixed").problem
    problem = problem.with_fixed("cameras", np.arange(cameras) < 2)
    points = next(v for v in problem.variables if v.name == "points")
    weight = np.full(len(points), 0.1)
    prior = asker.Factors(off, points[...], data=points.rows, kernel=asker.Quadratic(), weight=weight, name="prior")
    return asker.Problem(*problem.factors, prior)


def seconds(function: Callable[[], object], rounds: int) -> float:
    """Return the shortest time of a call."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def costs(sizes: list[int], rounds: int) -> None:
    print("| observations | unknowns | iteration | first gradient | further gradient | in iterations |")
    print("|--:|--:|--:|--:|--:|--:|")
    rng = np.random.default_rng(0)
    for n in sizes:
        problem = bundle(n)
        result = asker.solve(problem, asker.IRLS(), tol=1e-12, max_iterations=300)
        iteration = float(np.median(np.diff([h.seconds for h in result.history[2:]])))
        cotangents = {"points": rng.normal(size=result["points"].shape)}
        derivatives = ImplicitDerivatives(result)
        derivatives.vjp(cotangents)  # compiles
        first = seconds(lambda: ImplicitDerivatives(result).vjp(cotangents), rounds)  # noqa: B023
        further = seconds(lambda: derivatives.vjp(cotangents), rounds)  # noqa: B023
        milliseconds = " | ".join(f"{1e3 * t:.3g} ms" for t in (iteration, first, further))
        ratios = f"{first / iteration:.0f} and {further / iteration:.0f}"
        print(f"| {n} | {problem.n_unknowns} | {milliseconds} | {ratios} |", flush=True)


def curve(x, t, y):
    return x[0] * jnp.exp(-x[1] * t) + x[2] - y


def curve_fit(outliers: float) -> tuple[asker.Problem, np.ndarray, np.ndarray]:
    """Return the fit of a curve, its points, and the truth."""
    rng, truth = np.random.default_rng(0), np.array([2.0, 1.5, 0.5])
    t = rng.uniform(0, 3, N_POINTS)
    y = truth[0] * np.exp(-truth[1] * t) + truth[2] + rng.normal(0, 0.1, N_POINTS)
    bad = rng.random(N_POINTS) < outliers
    y[bad] += rng.uniform(-1, 1, bad.sum())
    x = asker.Variables(truth[None], name="x")
    f = asker.Factors(curve, x[np.zeros(N_POINTS, int)], data=(t, y), kernel=asker.Cauchy(TAU), name="f")
    return asker.Problem(f), t, y


def errors(outliers: float, rounds: int) -> None:
    problem, t, y = curve_fit(outliers)
    solution = asker.differentiable(problem, wrt=["f.data[1]"], strategy=asker.IRLS())
    with jax.enable_x64(True):
        ours = jax.jit(jax.grad(lambda y: solution(y)["x"][0, 1]))
        direction = np.random.default_rng(1).normal(size=N_POINTS) * 0.01
        h = 1e-2
        rate = [float(solution(y + s * h * direction)["x"][0, 1]) for s in (1, -1, 2, -2)]
        expected = (8 * (rate[0] - rate[1]) - (rate[2] - rate[3])) / (12 * h)

        def row(name: str, gradient: np.ndarray, duration: str) -> None:
            error = abs(float(gradient @ direction) / expected - 1)
            print(f"| {outliers:.0%} | {name} | {error:.1e} | {duration} |", flush=True)

        gradient = np.asarray(ours(y))
        row("asker", gradient, f"{1e3 * seconds(lambda: ours(y + 1e-9 * np.random.rand()), rounds):.1f} ms")
        row("with ΣωJᵀJ alone", without_curvature(problem), "")
        if peer := optimistix_gradient(t):
            row(
                "optimistix",
                np.asarray(peer(y)),
                f"{1e3 * seconds(lambda: peer(y).block_until_ready(), rounds):.1f} ms",
            )


def without_curvature(problem: asker.Problem) -> np.ndarray:
    """Return the gradient with the Gauss-Newton matrix of the weighted residuals in place of the Hessian."""
    result = asker.solve(problem, asker.IRLS(), tol=1e-12)
    derivatives = ImplicitDerivatives(result)
    system = derivatives.system
    inverse = linear_model("cpu", problem, system.theta).inverse([f.a for f in system.factors])
    (v,) = problem.variables
    lam = inverse.solve({v: np.array([[[0.0], [1.0], [0.0]]])})[v][:, :, 0]
    _, observed = system.factors[0].pullback({v: -lam})
    return observed.data[1]


def optimistix_gradient(t: np.ndarray) -> Callable[[np.ndarray], jax.Array] | None:
    """Return the gradient by the implicit adjoint of optimistix; None if it is not installed."""
    try:
        import optimistix as optx
    except ImportError:
        return None

    def residuals(x, y):
        r = curve(x, t, y)
        u = (r / TAU) ** 2
        return r * jnp.sqrt(jnp.log1p(u) / u)

    def rate(y):
        start = jnp.array([2.0, 1.5, 0.5])
        solver = optx.LevenbergMarquardt(rtol=1e-10, atol=1e-12)
        return optx.least_squares(residuals, solver, start, y, adjoint=optx.ImplicitAdjoint(), max_steps=500).value[1]

    return jax.jit(jax.grad(rate))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--rounds", type=int, default=3)
    add_record_option(parser)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    with recorded(args.record):
        costs([int(n) for n in args.sizes.split(",") if n], args.rounds)
        print("\n| outliers | gradient | relative error | solve and gradient |\n|--:|---|--:|--:|")
        for outliers in (0.0, 0.2, 0.4):
            errors(outliers, args.rounds)


if __name__ == "__main__":
    main()
