"""Run asker on one scene: `irls` with the Huber kernel, like the peers, or `asker` with the smooth truncated kernel.

The report has two additional entries: `behind`, the number of observations behind their camera at the initial guess,
and `in_front`, the costs without them.
"""

import itertools
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import load, memory_mb, parser, peak_mb, report

import asker
from asker.applications.bundle.bal import Bundle
from asker.applications.bundle.problem import bundle_problem, reprojection_norms
from asker.applications.bundle.synthetic import make_scene

KERNELS = {"irls": ("huber", asker.Huber(1.0)), "asker": ("smooth truncated", asker.SmoothTruncated(1.0))}


@dataclass
class Watched:
    """Strategy that records the engine's timers after every step of another strategy."""

    strategy: Any
    clocks: list[dict[str, float]] = field(default_factory=list)

    def init(self, *args):
        return self.strategy.init(*args)

    def step(self, engine, state):
        state = self.strategy.step(engine, state)
        self.clocks.append(dict(engine.seconds, wall=time.perf_counter(), cpu=time.process_time()))
        return state

    def medians(self) -> dict[str, float]:
        """Return the median seconds per step of each timer, over the steps with derivatives except the first."""
        steps = [{k: b[k] - a[k] for k in b} for a, b in itertools.pairwise(self.clocks)]
        full = [step for step in steps if step["linearise"] > 0] or steps
        return {k: statistics.median(step[k] for step in full) for k in full[0]}

    @property
    def cores(self) -> float:
        first, last = self.clocks[0], self.clocks[-1]
        return (last["cpu"] - first["cpu"]) / (last["wall"] - first["wall"])


def solve(bundle: Bundle, args: Any, max_iterations: int) -> tuple[asker.Result, Watched]:
    watched = Watched(asker.METHODS[args.method]())
    dof = 9 if args.free_intrinsics else 6
    problem = bundle_problem(bundle, KERNELS[args.method][1], camera="bal", dof=dof).problem
    return asker.solve(problem, watched, max_iterations=max_iterations, tol=0, threads=args.threads), watched


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--method", choices=KERNELS, default="irls")
    p.add_argument("--free-intrinsics", action="store_true")
    args = p.parse_args()
    bundle = Bundle(*load(args.scene))
    solve(make_scene(8, 400, seed=0).start, args, 2)  # compiles
    before = memory_mb()
    result, watched = solve(bundle, args, args.iterations)
    peak = peak_mb()
    split = watched.medians()
    split.pop("cpu")
    seconds = split.pop("wall")
    norms, depths = reprojection_norms(bundle, "bal")
    front = depths > 0
    report(
        before,
        peak_mb=peak,
        name=f"asker {args.method}",
        version=asker.__version__,
        kernel=KERNELS[args.method][0],
        iterations=result.iterations,
        accepted=sum(line.accepted for line in result.history[1:]),
        seconds_per_iteration=seconds,
        split={k: v for k, v in split.items() if v > 0},
        cores=watched.cores,
        initial_cost=result.initial_cost,
        final_cost=result.cost,
        initial_quadratic=float(norms @ norms / 2),
        behind=int(np.count_nonzero(~front)),
        in_front={
            "initial_cost": float(KERNELS[args.method][1].psi(norms[front] ** 2).sum()),
            "initial_quadratic": float(norms[front] @ norms[front] / 2),
        },
        notes="",
    )


if __name__ == "__main__":
    main()
