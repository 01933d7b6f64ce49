"""Time to target: seconds until the cost is within 1 % of the best, on synthetic scenes with the sizes of BAL files.

    python benchmarks/time_to_target.py [--scenes ladybug-1723,venice-1778,final-4585,final-13682] [--engine xla|cpu]

A scene has the cameras, observations and mean track length of the BAL file that it is named after; its geometry is
synthetic (`asker.applications.bundle.synthetic`).  `least squares` and `robust` (ASKER's default mode, τ = 1) each run
twice: cold, including compilation, and warm.  The best cost is the lowest of the same run.  Generating the scene and
analysing its structure are not included; `laid out` is the time of the latter.
"""

import argparse
import time
from typing import Any

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.engines.xla.engine import XlaEngine
from asker.kernels.kernels import Quadratic
from record import add_record_option, recorded

SCENES: dict[str, dict[str, Any]] = {
    "ladybug-1723": {"n_cameras": 1723, "n_observations": 678_718, "kind": "path", "mean_track": 4.34},
    "venice-1778": {"n_cameras": 1778, "n_observations": 5_001_946, "kind": "ring", "mean_track": 5.03},
    "final-4585": {"n_cameras": 4585, "n_observations": 9_125_125, "kind": "ring", "mean_track": 6.89},
    "final-13682": {"n_cameras": 13_682, "n_observations": 28_987_644, "kind": "path", "mean_track": 6.51},
}
METHODS = {"least squares": asker.IRLS(), "robust": asker.ASKER()}
TARGET_RATIO = 1.01
"""Target cost divided by the best cost."""


def engine_of(name: str, problem: asker.Problem) -> Any:
    """Return the engine `xla` or `cpu` for a problem."""
    if name == "xla":
        return XlaEngine(problem)
    from asker.engines.cpu.engine import CpuEngine

    return CpuEngine(problem)


def seconds_to_target(engine: Any, strategy: asker.Strategy, iterations: int) -> tuple[float, int, float]:
    """Return the seconds and iterations to the target, and the best cost."""
    start = engine.start()
    begin = time.perf_counter()
    state = strategy.init(engine, start, iterations)
    curve = [(0.0, state.cost)]
    for _ in range(iterations):
        state = strategy.step(engine, state)
        curve.append((time.perf_counter() - begin, state.cost))
    best = min(cost for _, cost in curve)
    reached = next(k for k, (_, cost) in enumerate(curve) if cost <= TARGET_RATIO * best)
    return curve[reached][0], reached, best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", default="ladybug-1723,venice-1778")
    parser.add_argument("--engine", default="xla", choices=["xla", "cpu"])
    parser.add_argument("--iterations", type=int, default=60)
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        print("| scene | observations | method | solver | laid out, s | cold, s | warm, s | iterations | best cost |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for name in args.scenes.split(","):
            problem = bundle_problem(make_scene(**SCENES[name]).start).problem
            begin = time.perf_counter()
            robust = engine_of(args.engine, problem)
            laid_out = time.perf_counter() - begin
            for method, strategy in METHODS.items():
                plain = method == "least squares"
                engine = robust.under([Quadratic()] * len(problem.factors)) if plain else robust
                cold, _, _ = seconds_to_target(engine, strategy, args.iterations)
                warm, reached, best = seconds_to_target(engine, strategy, args.iterations)
                row = (name, problem.n_residuals, method, engine.linear_solver, f"{laid_out:.1f}")
                print(
                    "|",
                    " | ".join(map(str, (*row, f"{cold:.2f}", f"{warm:.2f}", reached, f"{best:.6g}"))),
                    "|",
                    flush=True,
                )


if __name__ == "__main__":
    main()
