"""Contribution of each part of ASKER's default mode.

    python benchmarks/ablation.py [--data FOLDER] [--seeds 3]

The variants differ from the default in one thing each.  BAL: best Ψ of runs of 60 and of 100 iterations.  Made scenes
(rings and paths as in rings.py): in how many runs a variant is within 1 % of the best variant, and the worst run.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import asker
from asker.applications.bundle.bal import read_bal
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from record import add_record_option, recorded
from rings import CASES

VARIANTS = {
    "default": asker.ASKER(),
    "one scale for all, s0 = 5": asker.ASKER(s0=5.0, reach=0.0),
    "s0 = 5": asker.ASKER(s0=5.0),
    "reach = 2": asker.ASKER(reach=2.0),
    "reach = 8": asker.ASKER(reach=8.0),
    "fixed rate (no pace, no last phase)": asker.ASKER(anneal=asker.FixedRate()),
    "no last phase": asker.ASKER(anneal=asker.Paced(last_share=0.0)),
    "last phase gets 20 %": asker.ASKER(anneal=asker.Paced(last_share=0.2)),
    "last phase gets 40 %": asker.ASKER(anneal=asker.Paced(last_share=0.4)),
    "last phase by IRLS": asker.ASKER(last=asker.Triggs(epsilon=1.0)),
    "last phase with epsilon = 0.3": asker.ASKER(last=asker.Triggs(epsilon=0.3)),
    "end = 0.1": asker.ASKER(anneal=asker.Paced(end=0.1)),
    "end = 0.4": asker.ASKER(anneal=asker.Paced(end=0.4)),
    "no step refused": asker.ASKER(anneal=asker.Paced(refuse=float("inf"))),
    "published": asker.ASKER.published(),
}
BAL = ("21-11315", "49-7776", "16-22106")


def run(task: tuple) -> dict[str, tuple[float, float]]:
    if len(task) == 1:
        problem = bundle_problem(read_bal(task[0])).problem
    else:
        kind, start_error, outliers, seed = task
        scene = make_scene(30, 18_000, kind=kind, start_error=start_error, outlier_ratio=outliers, seed=seed)
        problem = bundle_problem(scene.start).problem

    def cost(variant: asker.ASKER, iterations: int) -> float:
        return asker.solve(problem, variant, max_iterations=iterations, tol=0, threads=1).cost

    if len(task) == 1:
        return {name: (cost(v, 60), cost(v, 100)) for name, v in VARIANTS.items()}
    return {name: (0.0, cost(v, 100)) for name, v in VARIANTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASKER_DATA") or here))
    parser.add_argument("--seeds", type=int, default=3)
    add_record_option(parser)
    args = parser.parse_args()
    files = [args.data / "bal" / f"problem-{name}-pre.txt.bz2" for name in BAL]
    real: list[tuple] = [(f,) for f in files if f.exists()]
    made: list[tuple] = [(k, *c, s) for k in ("ring", "path") for c in CASES for s in range(args.seeds)]
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(run, real + made))
    on_real, on_made = results[: len(real)], results[len(real) :]
    names = [name for name, f in zip(BAL, files, strict=True) if f.exists()]
    with recorded(args.record):
        print(f"| variant | {' | '.join(names)} | synthetic scenes: within 1 % | worst |")
        print("|---|" + "---|" * (len(names) + 2))
        for v in VARIANTS:
            cells = [f"{r[v][0]:.1f} / {r[v][1]:.1f}" for r in on_real]
            excess = [r[v][1] / min(c for _, c in r.values()) - 1 for r in on_made]
            cells += [f"{sum(e <= 0.01 for e in excess)} / {len(excess)}", f"+{max(excess, default=0):.1%}"]
            print(f"| {v} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
