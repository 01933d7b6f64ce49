"""Does the ranking by held-out observations agree with the ranking by the truth?

    python benchmarks/agreement.py [--scenes 24] [--seeds-from 0]

Made scenes of bundle adjustment, with other noise, outliers and starts in each; a tenth of the observations is held
out, and methods, kernels and widths are solved on the rest.  Each result has a held-out score, which a user sees, and a
camera error, which a user does not.  Asked are: of two results whose camera errors differ by more than `CLEAR`, how
often has the one with the lower error the lower score; and how much worse than the best result by the truth is the one
that the score chooses.
"""

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import asker
from asker.applications import bundle
from record import add_record_option, recorded

CLEAR = (1.1, 1.5, 3.0)
NOISES, OUTLIERS, STARTS = (0.1, 0.4, 1.0, 3.0), (0.1, 0.3, 0.5, 0.7), (5.0, 25.0, 80.0)
TAUS = (0.5, 1.0, 2.0, 4.0, 8.0)
HOW: dict[str, tuple[Callable[[], Any], Callable[[float], asker.Kernel]]] = {
    "irls cauchy": (asker.IRLS, asker.Cauchy),
    "irls huber": (asker.IRLS, asker.Huber),
    "gnc smooth-truncated": (asker.GNC, asker.SmoothTruncated),
    "asker smooth-truncated": (asker.ASKER, asker.SmoothTruncated),
    "asker cauchy": (asker.ASKER, asker.Cauchy),
}


def measured(seed: int) -> tuple[str, dict[str, tuple[float, float]]]:
    """A scene in words; of each method and width the held-out score and the camera error."""
    rng = np.random.default_rng([7, seed])
    noise, outliers, start = (float(rng.choice(of)) for of in (NOISES, OUTLIERS, STARTS))
    scene = bundle.make_scene(
        15, 4500, kind="ring", noise=noise, outlier_ratio=outliers, start_error=max(start, 5 * noise), seed=seed
    )
    found = {}
    for (name, (strategy, kernel)), tau in itertools.product(HOW.items(), TAUS):
        made = bundle.bundle_problem(scene.start, kernel(tau))
        training, judge = asker.holdout(made.problem, 0.1, seed)
        result = asker.solve(training, strategy())
        error = bundle.errors(made.refined(result.values), scene.truth).cameras
        found[f"{name} {tau:g}"] = (judge(result).score, error)
    return f"noise {noise:g}, outliers {outliers:.0%}, start {start:g}, seed {seed}", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=24)
    parser.add_argument("--seeds-from", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    add_record_option(parser)
    args = parser.parse_args()
    asker.set_threads(args.threads)
    agree: dict[float, list[float]] = {clear: [] for clear in CLEAR}
    lines, regrets = [], []
    for seed in range(args.seeds_from, args.seeds_from + args.scenes):
        told, found = measured(seed)
        score, error = np.array(list(found.values())).T
        a, b = np.triu_indices(len(score), 1)
        lower, higher = np.where(error[a] < error[b], a, b), np.where(error[a] < error[b], b, a)
        for clear in CLEAR:
            of = error[higher] > clear * error[lower]
            agree[clear] += (score[lower] < score[higher])[of].tolist()
        chosen, best = int(np.argmin(score)), int(np.argmin(error))
        names = list(found)
        regrets.append(error[chosen] / error[best])
        lines.append(f"| {told} | {names[chosen]} | {names[best]} | {regrets[-1]:.2f} |")
        print(lines[-1], flush=True)
    with recorded(args.record):
        print("| camera errors differ by more than | pairs | the score agrees |\n| --- | --- | --- |")
        for clear, said in agree.items():
            print(f"| {100 * (clear - 1):.0f} % | {len(said)} | {np.mean(said):.1%} |")
        times = [np.median(regrets), np.quantile(regrets, 0.9), max(regrets)]
        print("\nCamera error of the result that the score chooses, in times the lowest one: ", end="")
        print("{:.2f} in the median, {:.2f} at the 90 % quantile, {:.2f} at most.\n".format(*times))
        print("| scene | chosen by the score | lowest camera error | times the lowest |\n| --- | --- | --- | --- |")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
