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
UNITS = ("1 px", "the noise itself")
"""The second one is not known to a user; it says what a better unit would give."""
NOISES, OUTLIERS, STARTS = (0.1, 0.4, 1.0, 3.0), (0.1, 0.3, 0.5, 0.7), (5.0, 25.0, 80.0)
SHAPES, KINDS = ("ring", "path"), ("gross", "near", "grouped")
TAUS = (0.5, 1.0, 2.0, 4.0, 8.0)
HOW: dict[str, tuple[Callable[[], Any], Callable[[float], asker.Kernel]]] = {
    "irls cauchy": (asker.IRLS, asker.Cauchy),
    "irls huber": (asker.IRLS, asker.Huber),
    "gnc smooth-truncated": (asker.GNC, asker.SmoothTruncated),
    "asker smooth-truncated": (asker.ASKER, asker.SmoothTruncated),
    "asker cauchy": (asker.ASKER, asker.Cauchy),
}


def measured(seed: int) -> tuple[str, dict[str, tuple[float, ...]]]:
    """A scene in words; of each method and width the held-out scores, with each unit, and the camera error."""
    rng = np.random.default_rng([7, seed])
    noise, outliers, start = (float(rng.choice(of)) for of in (NOISES, OUTLIERS, STARTS))
    start, shape, kind = max(start, 5 * noise), str(rng.choice(SHAPES)), str(rng.choice(KINDS))
    scene = bundle.make_scene(
        20, 4500, kind=shape, noise=noise, outlier_ratio=outliers, outlier_kind=kind, start_error=start, seed=seed
    )
    found = {}
    for (name, (strategy, kernel)), tau in itertools.product(HOW.items(), TAUS):
        made = bundle.bundle_problem(scene.start, kernel(tau))
        training, judge = asker.holdout(made.problem, 0.1, seed)
        result = asker.solve(training, strategy())
        error = bundle.errors(made.refined(result.values), scene.truth).cameras
        norms = judge(result).norms
        scores = [asker.Prediction(norms / unit).score for unit in (1.0, noise)]
        found[f"{name} {tau:g}"] = (*scores, error)
    return f"{shape}, noise {noise:g}, {outliers:.0%} {kind} outliers, start {start:g}, seed {seed}", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=24)
    parser.add_argument("--seeds-from", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    add_record_option(parser)
    args = parser.parse_args()
    asker.set_threads(args.threads)
    agree: dict[tuple[str, float], list[bool]] = {(unit, clear): [] for unit in UNITS for clear in CLEAR}
    regrets: dict[str, list[float]] = {unit: [] for unit in UNITS}
    lines = []
    for seed in range(args.seeds_from, args.seeds_from + args.scenes):
        told, found = measured(seed)
        names, (*scores, error) = list(found), np.array(list(found.values())).T
        a, b = np.triu_indices(len(error), 1)
        lower, higher = np.where(error[a] < error[b], a, b), np.where(error[a] < error[b], b, a)
        for unit, score in zip(UNITS, scores, strict=True):
            for clear in CLEAR:
                of = error[higher] > clear * error[lower]
                agree[unit, clear] += (score[lower] < score[higher])[of].tolist()
            regrets[unit].append(error[np.argmin(score)] / error.min())
        chosen = names[int(np.argmin(scores[0]))]
        lines.append(f"| {told} | {chosen} | {names[int(np.argmin(error))]} | {regrets[UNITS[0]][-1]:.2f} |")
        print(lines[-1], flush=True)
    with recorded(args.record):
        print("How often the lower camera error has the lower score, by how clearly the errors differ:\n")
        heads = " | ".join(f"more than {100 * (clear - 1):.0f} %" for clear in CLEAR)
        print(f"| unit of the score | {heads} |\n|---|---|---|---|")
        for unit in UNITS:
            cells = [f"{np.mean(agree[unit, c]):.1%} of {len(agree[unit, c])}" for c in CLEAR]
            print(f"| {unit} | {' | '.join(cells)} |")
        print("\nThe camera error of the result that the score chooses, in times the lowest one:\n")
        print("| unit of the score | median | 90 % | most |\n|---|---|---|---|")
        for unit, of in regrets.items():
            print(f"| {unit} | {np.median(of):.2f} | {np.quantile(of, 0.9):.2f} | {max(of):.2f} |")
        print("\n| scene | chosen by the score, 1 px | lowest camera error | times the lowest |\n|---|---|---|---|")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
