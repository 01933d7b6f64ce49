"""Agreement between the ranking of results by held-out observations and the ranking by the true error.

    python benchmarks/holdout_agreement.py [--scenes 24] [--seeds-from 0]

Synthetic bundle adjustment problems differ in noise, outliers and initial guess.  A tenth of the observations is held
out; each combination of method, kernel and width is solved on the rest.  Each result has a held-out score, which a user
can compute, and a camera error, which needs the truth.  Two questions are answered: if the camera errors of two results
differ by more than a factor in `ERROR_RATIOS`, how often does the more accurate one have the lower score?  How much
larger than the smallest camera error is that of the result with the lowest score?
"""

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import asker
from asker.applications import bundle
from record import add_record_option, recorded

ERROR_RATIOS = (1.1, 1.5, 3.0)
UNITS = ("1 px", "the noise itself")
"""Residual units of the score.  A user does not know the second one; it shows the benefit of a better unit."""
NOISES, OUTLIERS, STARTS = (0.1, 0.4, 1.0, 3.0), (0.1, 0.3, 0.5, 0.7), (5.0, 25.0, 80.0)
SHAPES, KINDS = ("ring", "path"), ("gross", "near", "grouped")
TAUS = (0.5, 1.0, 2.0, 4.0, 8.0)
METHODS: dict[str, tuple[Callable[[], Any], Callable[[float], asker.Kernel]]] = {
    "irls cauchy": (asker.IRLS, asker.Cauchy),
    "irls huber": (asker.IRLS, asker.Huber),
    "gnc smooth-truncated": (asker.GNC, asker.SmoothTruncated),
    "asker smooth-truncated": (asker.ASKER, asker.SmoothTruncated),
    "asker cauchy": (asker.ASKER, asker.Cauchy),
}


def measured(seed: int) -> tuple[str, dict[str, tuple[float, ...]]]:
    """Return a description of the scene, and for each method and width the scores in each unit and the camera error."""
    rng = np.random.default_rng([7, seed])
    noise, outliers, start = (float(rng.choice(of)) for of in (NOISES, OUTLIERS, STARTS))
    start, shape, kind = max(start, 5 * noise), str(rng.choice(SHAPES)), str(rng.choice(KINDS))
    scene = bundle.make_scene(
        20, 4500, kind=shape, noise=noise, outlier_ratio=outliers, outlier_kind=kind, start_error=start, seed=seed
    )
    results = {}
    for (name, (strategy, kernel)), tau in itertools.product(METHODS.items(), TAUS):
        adjustment = bundle.bundle_problem(scene.start, kernel(tau))
        training, evaluate = asker.holdout(adjustment.problem, 0.1, seed)
        result = asker.solve(training, strategy())
        error = bundle.errors(adjustment.refined(result.values), scene.truth).cameras
        norms = evaluate(result).norms
        scores = [asker.Prediction(norms / unit).score for unit in (1.0, noise)]
        results[f"{name} {tau:g}"] = (*scores, error)
    return f"{shape}, noise {noise:g}, {outliers:.0%} {kind} outliers, start {start:g}, seed {seed}", results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=24)
    parser.add_argument("--seeds-from", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    add_record_option(parser)
    args = parser.parse_args()
    asker.set_threads(args.threads)
    agree: dict[tuple[str, float], list[bool]] = {(unit, clear): [] for unit in UNITS for clear in ERROR_RATIOS}
    regrets: dict[str, list[float]] = {unit: [] for unit in UNITS}
    lines = []
    for seed in range(args.seeds_from, args.seeds_from + args.scenes):
        description, results = measured(seed)
        names, (*scores, error) = list(results), np.array(list(results.values())).T
        a, b = np.triu_indices(len(error), 1)
        lower, higher = np.where(error[a] < error[b], a, b), np.where(error[a] < error[b], b, a)
        for unit, score in zip(UNITS, scores, strict=True):
            for clear in ERROR_RATIOS:
                of = error[higher] > clear * error[lower]
                agree[unit, clear] += (score[lower] < score[higher])[of].tolist()
            regrets[unit].append(error[np.argmin(score)] / error.min())
        chosen = names[int(np.argmin(scores[0]))]
        lines.append(f"| {description} | {chosen} | {names[int(np.argmin(error))]} | {regrets[UNITS[0]][-1]:.2f} |")
        print(lines[-1], flush=True)
    with recorded(args.record):
        print("How often the result with the lower camera error has the lower score, by the ratio of the errors:\n")
        heads = " | ".join(f"more than {100 * (clear - 1):.0f} %" for clear in ERROR_RATIOS)
        print(f"| unit of the score | {heads} |\n|---|---|---|---|")
        for unit in UNITS:
            cells = [f"{np.mean(agree[unit, c]):.1%} of {len(agree[unit, c])}" for c in ERROR_RATIOS]
            print(f"| {unit} | {' | '.join(cells)} |")
        print("\nCamera error of the result with the lowest score, divided by the lowest camera error:\n")
        print("| unit of the score | median | 90 % | most |\n|---|---|---|---|")
        for unit, of in regrets.items():
            print(f"| {unit} | {np.median(of):.2f} | {np.quantile(of, 0.9):.2f} | {max(of):.2f} |")
        print("\n| scene | chosen by the score, 1 px | lowest camera error | times the lowest |\n|---|---|---|---|")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
