"""Dense stereo: teddy, cones and tsukuba.

The error is the share of the visible pixels whose disparity error exceeds 1.  Matching uses the full_pair images; the
energy covers a region with many depth discontinuities.  (Tsukuba has no true disparities for the right image: all
pixels with a true disparity count.)

There is no oracle in the sense of the other families: no inliers are known, and the energy is not the model of the
images.  Instead, `oracle` is the error of plain IRLS with the default kernels, started at the true disparities (unknown
ones are copied from the nearest known).  A lower energy can have more bad pixels, and another model fewer; a ratio
below 1 is therefore possible.

The peers, OpenCV's semi-global matching and winner-takes-all matching, have no scale parameter.
"""

from functools import cache
from typing import Any

import numpy as np

import asker
from asker.applications.stereo.errors import disparity_errors, visible
from asker.applications.stereo.matching import Matching, Minima, match
from asker.applications.stereo.pairs import StereoPair, read_folder
from asker.applications.stereo.problem import energy
from families.data_and_peers import data_folder
from families.family import Condition, Instance

PAIRS: dict[str, tuple[int, float, slice, slice]] = {
    "teddy": (59, 4.0, slice(150, 250), slice(150, 280)),
    "cones": (59, 4.0, slice(150, 250), slice(150, 280)),
    "tsukuba": (15, 16.0, slice(100, 200), slice(140, 270)),
}
"""Largest disparity, unit of the true disparities, and the rows and columns of the region."""
STARTS = ("constant", "wta")
SGBM_SMOOTHNESS = 8 * 3**2, 32 * 3**2  # P1 and P2 as OpenCV's documentation advises, for 3 × 3 blocks and grey images


class StereoFamily:
    name = "stereo"
    n_oracles = 0
    sweep = (0.5, 1.0, 2.0)
    methods = ("irls-huber", "irls-cauchy", "irls-gm", "irls", "mhq", "gnc", "moo", "asker", "asker-cauchy")

    def cases(self, quick: bool) -> list[tuple[Condition, int]]:
        available = [name for name in PAIRS if (data_folder() / "stereo" / name / "disp2.png").exists()]
        if len(available) < len(PAIRS):
            n_missing = len(PAIRS) - len(available)
            print(
                f"stereo: {n_missing} of {len(PAIRS)} pairs are skipped, they do not exist; ASKER_DATA sets the folder"
            )
        starts = STARTS[:1] if quick else STARTS
        return [({"pair": name, "start": start}, 0) for name in available[: 1 if quick else None] for start in starts]

    def make(self, condition: Condition, seed: int) -> Instance:
        name = condition["pair"]
        minima, truth, counted = region_of(name)

        def bad(disparity: np.ndarray) -> float:
            return disparity_errors(disparity, truth, counted).bad_1

        def problem(kernel: asker.Kernel | None) -> asker.Problem:
            start = condition["start"]
            return energy(minima, PAIRS[name][0], start, data_kernel=kernel, smoothness_kernel=kernel).problem

        peers: dict[str, Any] = {"winner takes all": lambda _: bad(minima.winner)}
        if (semi_global := sgbm(name)) is not None:
            peers["OpenCV SGBM"] = lambda _: bad(semi_global)
        return Instance(
            problem=problem,
            error=lambda result: bad(result["disparity"].reshape(truth.shape)),
            oracle=oracle(name),
            number=1.0,
            peers=peers,
            without_number=frozenset(peers),
        )


FAMILY = StereoFamily()


@cache
def full_pair(name: str) -> StereoPair:
    return read_folder(data_folder() / "stereo" / name, PAIRS[name][1])


@cache
def region_of(name: str) -> tuple[Minima, np.ndarray, np.ndarray]:
    """Return the matching minima, the true disparities and the mask of the evaluated pixels in the region."""
    pair, (largest, _, *part) = full_pair(name), PAIRS[name]
    assert pair.left_truth is not None
    counted = np.isfinite(pair.left_truth)
    if pair.right_truth is not None:
        counted &= visible(pair.left_truth, pair.right_truth)
    minima, k = match(pair.left, pair.right, Matching(largest)), tuple(part)
    return Minima(minima.disparity[k], minima.winner[k]), pair.left_truth[k], counted[k]


@cache
def oracle(name: str) -> float:
    """Return the error of plain IRLS from the truth, see above."""
    from scipy.ndimage import distance_transform_edt

    minima, truth, counted = region_of(name)
    nearest = distance_transform_edt(~np.isfinite(truth), return_distances=False, return_indices=True)
    stereo_problem = energy(minima, PAIRS[name][0], truth[tuple(nearest)])
    refined = stereo_problem.refined(asker.solve(stereo_problem.problem, asker.IRLS()).values)
    return disparity_errors(refined, truth, counted).bad_1


@cache
def sgbm(name: str) -> np.ndarray | None:
    """Return the region of OpenCV's semi-global matching of the whole images; None if OpenCV is not installed."""
    try:
        import cv2
    except ImportError:
        return None
    pair, (largest, _, *part) = full_pair(name), PAIRS[name]
    P1, P2 = SGBM_SMOOTHNESS
    n = 16 * (1 + largest // 16)  # a multiple of 16
    matcher = cv2.StereoSGBM_create(minDisparity=0, numDisparities=n, blockSize=3, P1=P1, P2=P2)
    left, right = (np.rint(image).astype(np.uint8) for image in (pair.left, pair.right))
    disparity = matcher.compute(left, right) / 16.0
    return np.where(disparity < 0, np.nan, disparity)[tuple(part)]
