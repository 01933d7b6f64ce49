"""Processor time of the default solve on bundles with few outliers, for which plain IRLS suffices.

    python benchmarks/few_outliers.py [--seeds 3] [--rounds 3]

IRLS uses a Cauchy kernel with twice the true noise, which a user does not know; asker estimates the noise.  The tables
also show the camera error of both, relative to the oracle's.
"""

import argparse
import time
from functools import partial
from statistics import median

import asker
from asker.applications.bundle.problem import bundle_problem, camera_centres
from asker.applications.bundle.synthetic import Scene, make_scene
from asker.geometry.gauge import centres
from families.bundle import camera_error, centres_in_front, oracle
from record import add_record_option, recorded

SIZES = ((20, 1200), (20, 5000), (30, 18_000))  # cameras, observations
USUAL, LARGE = (0.2, 0.5, 1.5), (1.0, 1.5, 3.0)  # noise in px; LARGE is close to the initial residuals
LARGE_SCENE_CASES = (  # outlier ratio, initial error in px, noise levels
    (0.0, 5.0, USUAL),
    (0.0, 60.0, USUAL),
    (0.03, 24.0, USUAL),
    (0.1, 5.0, USUAL),
    (0.1, 60.0, USUAL),
    (0.3, 24.0, USUAL),
    (0.0, 5.0, LARGE),
    (0.03, 5.0, LARGE),
    (0.1, 5.0, LARGE),
)
SMALL_SCENE_CASES = (
    (0.0, 24.0, USUAL),
    (0.03, 24.0, USUAL),
    (0.1, 24.0, USUAL),
    (0.3, 24.0, USUAL),
    (0.0, 5.0, LARGE),
)
KINDS = ("ring", "path")
HEAD = "| outliers | start | noise | IRLS, ms | asker, ms | asker / IRLS | largest | error of IRLS | of asker |"


def solved(scene: Scene, noise: float | None) -> tuple[float, asker.Result]:
    """Return the processor time and the result of a solve; plain IRLS if the noise is given, else the default."""
    problem = bundle_problem(scene.start, noise and asker.Cauchy(2 * noise)).problem
    begin = time.process_time()
    result = asker.solve(problem, noise and asker.IRLS())
    return time.process_time() - begin, result


def compared(scene: Scene, noise: float, rounds: int) -> tuple[float, float, float, float]:
    """Return the shortest times of IRLS and asker over alternating rounds, and their errors relative to the oracle."""
    off = partial(camera_error, truth=camera_centres(scene.truth))
    floor = off(centres(oracle(scene)["cameras"]))
    runs = [(solved(scene, noise), solved(scene, None)) for _ in range(rounds)]
    errors = [off(centres_in_front(scene.start, r["cameras"], r["points"])) / floor for _, r in runs[0]]
    return min(plain[0] for plain, _ in runs), min(ours[0] for _, ours in runs), errors[0], errors[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seeds-from", type=int, default=0, metavar="K", help="add K to each seed")
    parser.add_argument("--rounds", type=int, default=3, help="the shortest time of all rounds is shown")
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        for n_cameras, n in SIZES:
            print(f"{n_cameras} cameras, {n} observations; medians\n")
            print(f"{HEAD}\n|{'---|' * HEAD.count(' | ')}---|")
            for case in LARGE_SCENE_CASES if n > 10_000 else SMALL_SCENE_CASES:
                print(row(n_cameras, n, case, args), flush=True)
            print()


def row(n_cameras: int, n: int, case: tuple[float, float, tuple[float, ...]], args: argparse.Namespace) -> str:
    """Return one line of a table."""
    outliers, start, noises = case
    each = []
    for k in range(args.seeds):
        noise = noises[k % len(noises)]
        options = {"outlier_ratio": outliers, "start_error": start, "kind": KINDS[k % 2]}
        scene = make_scene(n_cameras, n, noise=noise, seed=args.seeds_from + k, **options)
        each.append(compared(scene, noise, args.rounds))
    plain, ours, error_irls, error_asker = (median(column) for column in zip(*each, strict=True))
    ratios = [b / a for a, b, *_ in each]
    return (
        f"| {outliers:.0%} | {start:g} px | {min(noises):g} to {max(noises):g} px | {1e3 * plain:.0f} "
        f"| {1e3 * ours:.0f} | {median(ratios):.1f} | {max(ratios):.1f} | {error_irls:.2f} | {error_asker:.2f} |"
    )


if __name__ == "__main__":
    main()
