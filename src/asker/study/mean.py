"""The robust mean of numbers on a line: many local minima, and a kernel that hides them (the paper's Figure 1)."""

import numpy as np

from asker.kernels import Scaled, SmoothTruncated
from asker.problem import Factors, Problem, Variables

KERNEL = SmoothTruncated(tau=0.5)
WIDER = 25.0


def values(seed: int) -> np.ndarray:
    """Sixty values around 3, and forty outliers between −10 and 4, some of them in clumps."""
    rng = np.random.default_rng(seed)
    clumps = [rng.normal(m, 0.2, 8) for m in (-8.0, -5.0, -2.5)]
    return np.concatenate([rng.normal(3.0, 0.2, 60), *clumps, rng.uniform(-10, 4, 16)])


def mean_problem(start: float, seed: int) -> tuple[Problem, Variables]:
    given = values(seed)
    x = Variables(np.array([start]), name="mean")

    def difference(x, y):
        return x - y

    return Problem(Factors(difference, x[np.zeros(len(given), dtype=int)], data=given, kernel=KERNEL)), x


def landscape(seed: int) -> dict[str, np.ndarray]:
    """The cost over the mean, under the kernel and under one that is much wider; each over its largest."""
    x = np.linspace(-11, 6, 400)
    squares = (x[:, None] - values(seed)) ** 2
    costs = {"target": KERNEL.psi(squares).sum(axis=1), "scaled": Scaled(KERNEL, WIDER).psi(squares).sum(axis=1)}
    return {"x": x} | {name: cost / cost.max() for name, cost in costs.items()}
