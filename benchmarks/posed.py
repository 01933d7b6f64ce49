"""Refinement of approximate camera poses, compared with COLMAP's adjustment and with COLMAP and GLOMAP from scratch.

    python benchmarks/posed.py [--folder shared/data/posed/temple] [--seeds 10] [--synthetic 20] [--record posed]

Real images: 16 photographs with calibrated cameras (templeSparseRing).  Poses are disturbed by rotations and centres of
given rms size, in degrees and in percent of the radius of the ring.  The error is the rms distance of the centres from
the calibrated ones in percent of the radius, after alignment by a similarity.  Features and matches are those of
pycolmap, computed once; its adjustment starts from the same tracks as asker, triangulated with the disturbed poses.
Intrinsics are constant, except in the row "focal", where the focal length is 5 % too large and free.

Synthetic images: errors as those of networks.  The oracle is the adjustment from the true poses with right matches.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications import colmap, posed
from asker.applications.posed.scene import triangulated
from asker.applications.posed.synthetic import PosedScene, centre_error, disturbed, drifting, images_of, make_scene
from record import add_record_option, recorded

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "posed" / "temple"
LEVELS = ((1.0, 2.0), (3.0, 5.0), (6.0, 10.0), (12.0, 20.0))
"""Errors of the start: degrees, and percent of the radius."""
TARGETS = {1.0: 0.13, 3.0: 0.13, 6.0: 0.17, 12.0: 0.2}
FOCAL_TARGET, FOCAL_FACTOR = 0.3, 1.05
SYNTHETIC_TARGET = 1.2


def temple(folder: Path) -> posed.PosedImages:
    """Return the images with their calibrated cameras."""
    rows = [line.split() for line in (folder / "templeSR_par.txt").read_text().splitlines()[1:]]
    numbers = np.array([row[1:] for row in rows], dtype=float)
    K, R = numbers[:, :9].reshape(-1, 3, 3), numbers[:, 9:18].reshape(-1, 3, 3)
    poses = np.concatenate([R, numbers[:, 18:, None]], axis=2)
    params = list(np.stack([K[:, 0, 0], K[:, 1, 1], K[:, 0, 2], K[:, 1, 2]], axis=1))
    sizes = np.tile([640, 480], (len(K), 1))
    return posed.with_cameras([row[0] for row in rows], poses, ["PINHOLE"] * len(K), sizes, params)


def with_focal_factor(images: posed.PosedImages, factor: float) -> posed.PosedImages:
    """Return the images with focal lengths times a factor."""
    params = tuple(p * np.where(np.arange(len(p)) < 2, factor, 1.0) for p in images.cameras.params)
    return replace(images, cameras=replace(images.cameras, params=params))


def pycolmap_adjusted(start: posed.PosedImages, matches: posed.Matches, loss: str, focal: bool) -> posed.PosedImages:
    """Return the result of pycolmap's adjustment from points triangulated with the start."""
    import pycolmap

    model = colmap.to_pycolmap(triangulated(start, matches, posed.join(matches))[0])
    options = pycolmap.BundleAdjustmentOptions()
    options.refine_focal_length, options.refine_extra_params, options.print_summary = focal, False, False
    options.ceres.loss_function_type = getattr(pycolmap.LossFunctionType, loss)
    pycolmap.bundle_adjustment(model, options)
    return posed.from_model(colmap.from_pycolmap(model))


def scratch(name: str, folder: Path, database: Path, truth: posed.PosedImages) -> tuple[float, int]:
    """Return error and number of images of COLMAP ("incremental") or GLOMAP ("global") without initial poses."""
    import pycolmap

    with tempfile.TemporaryDirectory() as output:
        if name == "incremental":
            options = pycolmap.IncrementalPipelineOptions()
            options.ba_refine_focal_length = options.ba_refine_extra_params = False
            models = pycolmap.incremental_mapping(database, folder, output, options)
        else:
            options = pycolmap.GlobalPipelineOptions()
            adjustment = getattr(options.mapper, "bundle_adjustment", None)
            if adjustment is not None:
                adjustment.refine_focal_length = adjustment.refine_extra_params = False
            models = pycolmap.global_mapping(database, folder, output, options)
        if not models:
            return np.nan, 0
        best = posed.from_model(colmap.from_pycolmap(max(models.values(), key=lambda model: model.num_reg_images())))
    index = [truth.names.index(name) for name in best.names]
    return centre_error(best, truth.taken(index)), len(best)


def runs_of(start: posed.PosedImages, matches: posed.Matches, truth: posed.PosedImages, focal: bool) -> dict[str, Any]:
    """Return error, number of images and seconds of each program."""
    mode: Any = "focal" if focal else "auto"
    programs: dict[str, Callable[[], tuple[posed.PosedImages, int]]] = {
        "start": lambda: (start, len(start)),
        "pycolmap, no loss": lambda: (pycolmap_adjusted(start, matches, "TRIVIAL", focal), len(start)),
        "pycolmap, Cauchy": lambda: (pycolmap_adjusted(start, matches, "CAUCHY", focal), len(start)),
        "asker refine-poses": lambda: _refined(start, matches, mode),
    }
    out = {}
    for name, run in programs.items():
        begin = time.perf_counter()
        result, n = run()
        out[name] = centre_error(result, truth), n, time.perf_counter() - begin
    return out


def _refined(start: posed.PosedImages, matches: posed.Matches, mode: Any) -> tuple[posed.PosedImages, int]:
    outcome = posed.refine(start, matches, intrinsics=mode)
    return outcome.refined, len(start) - len(outcome.undetermined) if outcome.accepted else 0


def real_images(folder: Path, n_seeds: int) -> None:
    """Print the comparison on the photographs."""
    truth = temple(folder)
    with tempfile.TemporaryDirectory() as cache:
        database = Path(cache) / "database.db"
        begin = time.perf_counter()
        posed.match_images(folder, truth, posed.select_pairs(truth), database, lambda text: None)
        print(f"Features and matches of {len(truth)} images: {time.perf_counter() - begin:.1f} s.\n")
        matches = posed.read_matches(database, truth.names)
        print("| start | program | median error, % | worst | images | target | reached | seconds, median |")
        print("|---|---|---|---|---|---|---|---|")
        for degrees, percent in LEVELS:
            starts = (disturbed(truth, degrees, percent, seed) for seed in range(n_seeds))
            _print_rows(f"{degrees:g}°, {percent:g} %", TARGETS[degrees], starts, matches, truth, False)
        starts = (with_focal_factor(disturbed(truth, 1.0, 2.0, seed), FOCAL_FACTOR) for seed in range(n_seeds))
        _print_rows("focal 5 %, 1°, 2 %", FOCAL_TARGET, starts, matches, truth, True)
        for name, title in (("incremental", "COLMAP"), ("global", "GLOMAP")):
            begin = time.perf_counter()
            error, n = scratch(name, folder, database, truth)
            print(f"| none | {title} from scratch | {error:.3f} | | {n} | | | {time.perf_counter() - begin:.1f} |")


def _print_rows(
    title: str,
    target: float,
    starts: Iterator[posed.PosedImages],
    matches: posed.Matches,
    truth: posed.PosedImages,
    focal: bool,
) -> None:
    runs = [runs_of(start, matches, truth, focal) for start in starts]
    for name in runs[0]:
        errors, images, seconds = np.array([run[name] for run in runs]).T
        reached = f"{np.count_nonzero(errors <= target)} of {len(errors)}"
        print(
            f"| {title} | {name} | {np.median(errors):.3f} | {errors.max():.3f} | {int(images.min())} "
            f"| {target:g} | {reached} | {np.median(seconds):.1f} |",
            flush=True,
        )


def synthetic_starts(scene: PosedScene, seed: int) -> dict[str, tuple[posed.PosedImages, Any]]:
    """Return starts with errors as those of networks, and the mode of the intrinsics."""
    truth = scene.truth
    rng = np.random.default_rng([11, seed])
    focal = truth.cameras.params[0][0] * (1 + 0.03 * rng.normal(size=len(truth)))
    return {
        "smooth drift, 8°": (drifting(truth, 8.0, 0.0, seed), "fixed"),
        "scale drift, 15 %": (drifting(truth, 2.0, 0.15, seed), "fixed"),
        "focal errors of 3 % per image": (images_of(disturbed(truth, 2.0, 3.0, seed).poses, focal), "focal"),
    }


def oracle(scene: PosedScene, focal: bool) -> float:
    """Return the error of the adjustment from the truth with right matches only."""
    model, _ = triangulated(scene.truth, scene.right, posed.join(scene.right))
    solved = colmap.refine(model, refine="focal" if focal else "poses").model
    return centre_error(posed.from_model(solved), scene.truth)


def synthetic_images(n_scenes: int) -> None:
    """Print the comparison with the oracle on synthetic images."""
    ratios: dict[str, list[float]] = {}
    for seed in range(n_scenes):
        scene = make_scene(n=16, n_points=500, seed=seed)
        spoilt = make_scene(n=16, n_points=700, wrong_tracks=0.3, seed=seed)
        cases: dict[str, tuple[PosedScene, posed.PosedImages, Any]] = {
            name: (scene, *start) for name, start in synthetic_starts(scene, seed).items()
        }
        cases["30 % wrong tracks, 3°, 5 %"] = spoilt, disturbed(spoilt.truth, 3.0, 5.0, seed), "fixed"
        for name, (made, start, mode) in cases.items():
            outcome = posed.refine(start, made.matches, intrinsics=mode)
            best = oracle_of_images(made) if mode == "focal" else oracle(made, False)
            ratios.setdefault(name, []).append(centre_error(outcome.refined, made.truth) / best)
    print(
        f"\n| {n_scenes} synthetic scenes of 16 images | median of error / oracle | worst | up to {SYNTHETIC_TARGET} |"
    )
    print("|---|---|---|---|")
    for name, each in ratios.items():
        share = f"{np.count_nonzero(np.array(each) <= SYNTHETIC_TARGET)} of {len(each)}"
        print(f"| {name} | {np.median(each):.2f} | {max(each):.2f} | {share} |")


def oracle_of_images(scene: PosedScene) -> float:
    """Return the error of the oracle with a free focal length of each image."""
    truth = scene.truth
    jitter = truth.cameras.params[0][0] * (1 + 1e-6 * np.arange(len(truth)))  # one camera for each image
    return oracle(replace(scene, truth=images_of(truth.poses, jitter)), True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--synthetic", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    add_record_option(parser)
    args = parser.parse_args()
    asker.set_threads(args.threads)
    with suppress(ImportError):
        import pycolmap

        pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    with recorded(args.record):
        if args.seeds:
            real_images(args.folder, args.seeds)
        if args.synthetic:
            synthetic_images(args.synthetic)


if __name__ == "__main__":
    main()
