"""The robust mean of numbers: a cost with many local minima, and a wider kernel without (the paper's Figure 1)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.application import Application, Runs, Source
from asker.io.figures import figure, style
from asker.kernels.kernel import Scaled
from asker.kernels.kernels import SmoothTruncated
from asker.problem.by_group import Groups
from asker.problem.problem import Factors, Problem, Variables
from asker.solver.result import Result
from asker.tracing.array_namespace import Array

KERNEL = SmoothTruncated(tau=0.5)
WIDER = 25.0


def values(seed: int) -> np.ndarray:
    """Return 60 values around 3 and 40 outliers between −10 and 4, some of them in clusters."""
    rng = np.random.default_rng(seed)
    clumps = [rng.normal(m, 0.2, 8) for m in (-8.0, -5.0, -2.5)]
    return np.concatenate([rng.normal(3.0, 0.2, 60), *clumps, rng.uniform(-10, 4, 16)])


@dataclass(frozen=True, eq=False)
class MeanProblem:
    """The problem and its variable."""

    problem: Problem
    mean: Variables

    def refined(self, values: Groups[Any]) -> float:
        return float(values[self.mean][0])


def mean_problem(start: float, seed: int) -> MeanProblem:
    given = values(seed)
    x = Variables(np.array([start]), name="mean")

    def difference(x: Array, y: Array) -> Array:
        return x - y

    factors = Factors(difference, x[np.zeros(len(given), dtype=int)], data=given, kernel=KERNEL)
    return MeanProblem(Problem(factors), x)


def landscape(seed: int) -> dict[str, np.ndarray]:
    """Return the cost over the mean for the kernel and for a much wider one, divided by its maximum."""
    x = np.linspace(-11, 6, 400)
    squares = (x[:, None] - values(seed)) ** 2
    costs = {"target": KERNEL.psi(squares).sum(axis=1), "scaled": Scaled(KERNEL, WIDER).psi(squares).sum(axis=1)}
    return {"x": x} | {name: cost / cost.max() for name, cost in costs.items()}


class RobustMean(Application):
    """An application for plans only; its data are synthetic."""

    name = "mean"
    title = "robust means"
    estimates_noise = False
    columns = (("mean", "mean"),)
    plots_filter = False
    plots_parameter_studies = True
    sources = (
        Source("mean", {"start": -8.0, "seed": 0}, load=lambda keys: keys["seed"], needed_mb=lambda keys: 300.0),
    )

    def sizes(self, data: int) -> dict[str, Any]:
        return {"n_observations": len(values(data))}

    def problem(self, data: int, keys: dict[str, Any]) -> MeanProblem:
        return mean_problem(keys["start"], data)

    def evaluate(self, data: int, made: MeanProblem, result: Result, keys: dict[str, Any]) -> dict[str, Any]:
        return {"mean": made.refined(result.values)}

    def page(self, runs: Runs) -> dict[str, Any]:
        """Return the cost landscape of the first instance and the estimates of the methods."""
        first = next(iter(runs.values()))
        found = [{"label": label, "mean": run.result["mean"]} for label, run in first.items()]
        seed = next(iter(first.values())).options["seed"]
        return {"mean": {name: x.tolist() for name, x in landscape(seed).items()} | {"found": found}}

    def figures(self, runs: Runs) -> dict[str, Callable[[Path], None]]:
        return {"landscape": lambda path: draw_landscape(path, runs)}


def draw_landscape(path: Path, runs: Runs) -> None:
    """Draw the cost over the mean for the kernel and for a wider one, and the estimates of the methods."""
    with figure(path, 6, 3.4) as drawn:
        ax = drawn.subplots()
        instance, of_instance = next(iter(runs.items()))
        curves = landscape(next(iter(of_instance.values())).options["seed"])
        for k, (key, name) in enumerate((("target", "target kernel"), ("scaled", f"{WIDER:g} times as wide"))):
            ax.plot(curves["x"], curves[key], label=name, **style(k))
        for k, (label, run) in enumerate(of_instance.items()):
            ax.axvline(run.result["mean"], label=f"{label}: {run.result['mean']:.2f}", **style(k + 2))
        ax.set_title(instance, fontsize=10)
        ax.set_xlabel("mean")
        ax.set_ylabel("cost / largest")
        ax.legend(fontsize=8)


MEAN = RobustMean()
