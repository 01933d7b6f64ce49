"""Figure of the start page: IRLS ends in a poor local minimum, ASKER does not.

    python docs/images/why.py

Left: the line of the README.  Right: the scene of the tutorial.  Writes why.png next to this file.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene

STYLES = {"irls": ("#d55e00", "--"), "gnc": ("#8a8a8a", "-."), "moo": ("#009e73", ":"), "asker": ("#0072b2", "-")}


def off_the_line(line, x, y):
    return line[0] * x + line[1] - y


def draw_line(ax) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, 400)
    y = 0.8 * x - 1.0 + rng.normal(0, 0.05, 400)
    y[:280] = rng.uniform(-8, 8, 280)
    line = asker.Variables([[-1.5, 5.0]], name="line")
    kernel = asker.SmoothTruncated(0.2)
    problem = asker.Problem(asker.Factors(off_the_line, line[np.zeros(400, int)], data=(x, y), kernel=kernel))
    ax.plot(x, y, ".", markersize=2.5, color="#777777")
    for method in ("irls", "asker"):
        slope, intercept = asker.solve(problem, asker.METHODS[method]())[line][0]
        color, style = STYLES[method]
        ax.axline((0, intercept), slope=slope, color=color, linestyle=style, linewidth=2, label=method)
    ax.set(xlim=(-5, 5), ylim=(-8.3, 8.3), title="A line, 70 % outliers", xlabel="x", ylabel="y")
    ax.legend(loc="upper left")


def draw_costs(ax) -> None:
    scene = make_scene(20, 6000, outlier_ratio=0.3, start_error=30)
    bundle = bundle_problem(scene.start, asker.SmoothTruncated(1.0))
    for method, (color, style) in STYLES.items():
        result = asker.solve(bundle.problem, asker.METHODS[method](), tol=0)
        best = [line.best_cost for line in result.history]
        ax.plot(best, color=color, linestyle=style, linewidth=2, label=method)
    ax.set(title="Bundle adjustment, 30 % outliers", xlabel="iteration", ylabel="lowest cost Ψ so far")
    ax.set_ylim(0, None)
    ax.legend(loc="lower left")


def main() -> None:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_line(left)
    draw_costs(right)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
