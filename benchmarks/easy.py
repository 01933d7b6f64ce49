"""What nothing given costs where plain IRLS would do: scenes of three sizes with few outliers, processor times.

    python benchmarks/easy.py [--seeds 3] [--rounds 3]

IRLS has a Cauchy kernel of twice the true noise, which nobody knows; asker has nothing.  The camera error of each is
beside it, in times the oracle's.
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
USUAL, LARGE = (0.2, 0.5, 1.5), (1.0, 1.5, 3.0)  # noises in px: in the second the start is nearly as good as the noise
CASES = (  # share of outliers, start in px, noises
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
SMALL = (
    (0.0, 24.0, USUAL),
    (0.03, 24.0, USUAL),
    (0.1, 24.0, USUAL),
    (0.3, 24.0, USUAL),
    (0.0, 5.0, LARGE),
)  # small scenes
KINDS = ("ring", "path")
HEAD = "| outliers | start | noise | IRLS, ms | asker, ms | asker / IRLS | largest | error of IRLS | of asker |"


def solved(scene: Scene, noise: float | None) -> tuple[float, asker.Result]:
    """The processor time of a solve, and what it gives; with a noise: by plain IRLS."""
    problem = bundle_problem(scene.start, noise and asker.Cauchy(2 * noise)).problem
    begin = time.process_time()
    result = asker.solve(problem, noise and asker.IRLS())
    return time.process_time() - begin, result


def compared(scene: Scene, noise: float, rounds: int) -> tuple[float, float, float, float]:
    """The shortest times of IRLS and asker, in turns, and the errors."""
    off = partial(camera_error, truth=camera_centres(scene.truth))
    floor = off(centres(oracle(scene)["cameras"]))
    runs = [(solved(scene, noise), solved(scene, None)) for _ in range(rounds)]
    errors = [off(centres_in_front(scene.start, r["cameras"], r["points"])) / floor for _, r in runs[0]]
    return min(plain[0] for plain, _ in runs), min(ours[0] for _, ours in runs), errors[0], errors[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seeds-from", type=int, default=0, metavar="K", help="other seeds: K is added to each")
    parser.add_argument("--rounds", type=int, default=3, help="of each the shortest time counts")
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record):
        for n_cameras, n in SIZES:
            print(f"{n_cameras} cameras, {n} observations; medians\n")
            print(f"{HEAD}\n|{'---|' * HEAD.count(' | ')}---|")
            for case in CASES if n > 10_000 else SMALL:
                print(row(n_cameras, n, case, args), flush=True)
            print()


def row(n_cameras: int, n: int, case: tuple[float, float, tuple[float, ...]], args: argparse.Namespace) -> str:
    """One line of a table."""
    outliers, start, noises = case
    each = []
    for k in range(args.seeds):
        noise, how = noises[k % len(noises)], {"outlier_ratio": outliers, "start_error": start, "kind": KINDS[k % 2]}
        scene = make_scene(n_cameras, n, noise=noise, seed=args.seeds_from + k, **how)
        each.append(compared(scene, noise, args.rounds))
    plain, ours, before, now = (median(column) for column in zip(*each, strict=True))
    ratios = [b / a for a, b, *_ in each]
    return (
        f"| {outliers:.0%} | {start:g} px | {min(noises):g} to {max(noises):g} px | {1e3 * plain:.0f} "
        f"| {1e3 * ours:.0f} | {median(ratios):.1f} | {max(ratios):.1f} | {before:.2f} | {now:.2f} |"
    )


if __name__ == "__main__":
    main()
