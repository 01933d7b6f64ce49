"""Time to a target: seconds until the cost is within 1 % of the best, for made scenes of the public BAL sizes.

    python benchmarks/target.py [--scenes ladybug-1723,venice-1778,final-4585,final-13682] [--engine xla|cpu]

A scene has as many cameras and observations as the file that it is named after, and its mean length of tracks; where
its cameras look is made up (`asker.applications.bundle.synthetic`).  `least squares` and `robust` (ASKER's default
mode, τ = 1) each run twice: cold, with compiling, and warm.  The best cost is the lowest of a method's own run.
Reading, making and laying out are not counted; `laid out` says how long the last takes.
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
WITHIN = 1.01


def engine_of(name: str, problem: asker.Problem) -> Any:
    if name == "xla":
        return XlaEngine(problem)
    from asker.engines.cpu.engine import CpuEngine

    return CpuEngine(problem)


def seconds_to_target(engine: Any, strategy: asker.Strategy, iterations: int) -> tuple[float, int, float]:
    """Seconds, iterations, and the best cost."""
    start = engine.start()
    begin = time.perf_counter()
    state = strategy.init(engine, start, iterations)
    curve = [(0.0, state.cost)]
    for _ in range(iterations):
        state = strategy.step(engine, state)
        curve.append((time.perf_counter() - begin, state.cost))
    best = min(cost for _, cost in curve)
    reached = next(k for k, (_, cost) in enumerate(curve) if cost <= WITHIN * best)
    return curve[reached][0], reached, best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", default="ladybug-1723,venice-1778")
    parser.add_argument("--engine", default="xla", choices=["xla", "cpu"])
    parser.add_argument("--iterations", type=int, default=60)
    add_record_option(parser)
    given = parser.parse_args()
    with recorded(given.record):
        print("| scene | observations | method | solver | laid out, s | cold, s | warm, s | iterations | best cost |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for name in given.scenes.split(","):
            problem = bundle_problem(make_scene(**SCENES[name]).start).problem
            begin = time.perf_counter()
            robust = engine_of(given.engine, problem)
            laid_out = time.perf_counter() - begin
            for method, strategy in METHODS.items():
                plain = method == "least squares"
                engine = robust.under([Quadratic()] * len(problem.factors)) if plain else robust
                cold, _, _ = seconds_to_target(engine, strategy, given.iterations)
                warm, reached, best = seconds_to_target(engine, strategy, given.iterations)
                row = (name, problem.n_residuals, method, engine.linear_solver, f"{laid_out:.1f}")
                print(
                    "|",
                    " | ".join(map(str, (*row, f"{cold:.2f}", f"{warm:.2f}", reached, f"{best:.6g}"))),
                    "|",
                    flush=True,
                )


if __name__ == "__main__":
    main()
