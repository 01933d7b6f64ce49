"""Trials of results: their numbers agree with the definitions, computed here without the package."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import asker
from fault_trials import Trial
from reference_files import difference
from reference_images import numbers_of_result

PSI = {
    asker.Quadratic: lambda v: v / 2,
    asker.Huber: lambda v: np.where(v <= 1, v / 2, np.sqrt(v) - 0.5),
    asker.Cauchy: lambda v: np.log(1 + v) / 2,
    asker.GemanMcClure: lambda v: v / (1 + v) / 2,
    asker.SmoothTruncated: lambda v: np.minimum(v, 1) * (2 - np.minimum(v, 1)) / 4,
    asker.Welsch: lambda v: (1 - np.exp(-v)) / 2,
}
"""ψ of each kernel for τ = 1, as a function of v = u/τ²."""
STRATEGIES = (asker.IRLS, asker.ASKER, asker.GNC)
NEIGHBOUR_STEP = 1e-3
"""Distance, along each axis, of the neighbours with which a converged solution is compared."""
NEIGHBOUR_RTOL = 1e-7
"""Relative decrease of the cost at a neighbour that counts as a fault."""


def product(x: Any, a: Any, y: Any) -> Any:
    return a @ x - y


def verify_results(folder: Path, n: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Solve `n` random problems and verify cost, weights, minimum and the saved result."""
    for k in range(n):
        kernel, strategy = list(PSI)[k % len(PSI)], STRATEGIES[k * len(STRATEGIES) // n]
        fault = _fault(folder / "result.npz", kernel, strategy(), rng)
        yield Trial(f"results, {strategy.__name__}", f"{kernel.__name__}: {fault}" if fault else None)


def _fault(path: Path, kernel: Any, strategy: Any, rng: np.random.Generator) -> str:
    """Return the fault of the result of a random problem; empty if there is none."""
    n_x, n, p = int(rng.integers(1, 4)), 60, int(rng.integers(1, 4))
    index, A = rng.integers(0, n_x, n), rng.normal(size=(n, p, 2))
    truth, start = rng.normal(size=(n_x, 2)), rng.normal(size=(n_x, 2))
    y = np.einsum("npq,nq->np", A, truth[index]) + 0.2 * rng.normal(size=(n, p))
    y[: n // 4] += 5 * rng.normal(size=(n // 4, p))
    tau, weight = float(rng.uniform(0.3, 2)), rng.uniform(0.1, 4, n)
    x = asker.Variables(start, name="x")
    factors = asker.Factors(product, x[index], data=(A, y), weight=weight, kernel=kernel(tau), name="f")
    result = asker.solve(asker.Problem(factors), strategy, max_iterations=200, tol=1e-12, engine="cpu")

    def residuals(values: np.ndarray) -> np.ndarray:
        return np.einsum("npq,nq->np", A, values[index]) - y

    def cost(values: np.ndarray) -> float:
        return float(weight @ PSI[kernel](np.sum(residuals(values) ** 2, axis=1) / tau**2)) * tau**2

    values = result.values[0]
    v = np.sum(residuals(values) ** 2, axis=1) / tau**2
    slope = (PSI[kernel](v + 1e-6) - PSI[kernel](np.maximum(v - 1e-6, 0))) / np.minimum(2e-6, v + 1e-6)
    neighbours = [
        values + sign * NEIGHBOUR_STEP * axis.reshape(values.shape) for axis in np.eye(values.size) for sign in (1, -1)
    ]
    lowest = min(map(cost, neighbours))
    if fault := difference(
        {"cost": result.cost, "initial_cost": result.initial_cost},
        {"cost": cost(values), "initial_cost": cost(start)},
        tolerance=1e-9,
    ):
        return fault
    if not np.allclose(result.residuals[0], r := residuals(values), rtol=0, atol=1e-13 * np.abs(y).max()):
        return f"the residuals are {result.residuals[0]}, not {r}"
    if not np.allclose(result.weights[0], 2 * slope, atol=1e-4):
        return f"the weights are {result.weights[0]}, not {2 * slope}"
    if result.cost > result.initial_cost:
        return f"the cost is {result.cost}, above the initial cost {result.initial_cost}"
    if result.status is asker.Status.CONVERGED and lowest < result.cost * (1 - NEIGHBOUR_RTOL):
        return f"the cost is {result.cost}, and {lowest} at a neighbour of the solution"
    result.save(path)
    return difference(numbers_of_result(asker.Result.load(path), None), numbers_of_result(result, None))
