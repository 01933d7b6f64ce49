"""Figure of the README: unknown noise, no settings.

    python docs/images/unknown.py

Left: the circle of examples/unknown_noise.py.  Right: bundle adjustment with four noise levels, which no method knows,
with the scenes of the benchmarks.  Writes unknown.png next to this file.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "examples"), str(ROOT / "benchmarks")]

import asker  # noqa: E402
from families.bundle import FAMILY  # noqa: E402
from unknown_noise import START, TRUTH, by_asker, by_scipy, simulate  # noqa: E402

NOISES = (0.1, 0.3, 1.0, 3.0)
STYLES = {
    "oracle": ("#444444", "--"),
    "asker, no settings": ("#0072b2", "-"),
    "IRLS, Cauchy kernel of 1 px": ("#d55e00", "-."),
    "ASKER, 1 px as in the paper": ("#009e73", ":"),
    "SciPy, Cauchy loss": ("#d55e00", "-."),
}


def draw_circle(ax) -> None:
    points, is_inlier = simulate(0.3, seed=1)
    circles = {
        "oracle": by_scipy(points[is_inlier], "linear", TRUTH),
        "asker, no settings": by_asker(points),
        "SciPy, Cauchy loss": by_scipy(points, "cauchy"),
    }
    ax.plot(*points.T, ".", markersize=3, color="#999999")
    ax.plot(*START[:2], "x", color="black", label="start")
    t = np.linspace(0, 2 * np.pi, 200)
    for name, (x, y, r) in circles.items():
        color, style = STYLES[name]
        ax.plot(x + r * np.cos(t), y + r * np.sin(t), color=color, linestyle=style, linewidth=2, label=name)
    ax.set(title="A circle, 60 % outliers", xlim=(-5, 60), ylim=(-5, 58), aspect="equal")
    ax.legend(loc="upper right", fontsize=8)


def draw_noises(ax) -> None:
    """Plot camera errors against the noise: 40 % outliers, an initial guess with an error of 24 px."""
    rows: dict[str, list[float]] = {}
    for noise in NOISES:
        condition = {"kind": "ring", "outlier_kind": "gross", "noise": noise, "start_error": 24.0, "outlier_ratio": 0.4}
        instance = FAMILY.make(condition, 1)
        results = {
            "asker, no settings": asker.solve(instance.problem(None)),
            "IRLS, Cauchy kernel of 1 px": asker.solve(instance.problem(asker.Cauchy(1.0)), asker.IRLS()),
            "ASKER, 1 px as in the paper": asker.solve(instance.problem(asker.SmoothTruncated(1.0)), asker.ASKER()),
        }
        errors = {"oracle": instance.oracle} | {name: instance.error(result) for name, result in results.items()}
        for name, error in errors.items():
            rows.setdefault(name, []).append(error)
    for name, row in rows.items():
        color, style = STYLES[name]
        ax.loglog(NOISES, row, color=color, linestyle=style, marker="o", markersize=4, linewidth=2, label=name)
        print(f"{name:30}" + "".join(f"{x:10.2g}" for x in row))
    ax.set(title="Bundle adjustment, 40 % outliers", xlabel="noise in pixels (unknown to all methods)")
    ax.set_ylabel("camera error")
    ax.legend(loc="upper left", fontsize=8)


def main() -> None:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_circle(left)
    draw_noises(right)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
