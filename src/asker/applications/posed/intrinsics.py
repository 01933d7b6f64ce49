"""Choice of the free intrinsics: as requested, or as the data require."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asker.applications.colmap.model import Cameras, n_params
from asker.applications.colmap.options import Refine
from asker.applications.posed.correspondences.matches import Matches
from asker.applications.posed.options import IntrinsicsMode
from asker.applications.posed.posed_images import PosedImages, with_cameras
from asker.applications.posed.settle import Solution, rejoined, solved
from asker.applications.posed.validation import HeldOut, Verdict, compare

DISTORTED = {"SIMPLE_PINHOLE": "SIMPLE_RADIAL", "PINHOLE": "OPENCV"}
"""The camera model with distortion that replaces one without, of which it is the special case of zeros."""
REFINES: dict[IntrinsicsMode, Refine] = {
    "fixed": "poses",
    "auto": "poses",
    "shared": "focal",
    "focal": "focal",
    "all": "all",
}
"""The argument `refine` of `colmap.refine` by mode; "auto" starts with constant intrinsics."""


@dataclass(frozen=True, eq=False)
class IntrinsicsChoice:
    """The solution with the free intrinsics that were chosen."""

    solution: Solution
    refine: Refine
    verdict: Verdict | None
    """The comparison of free with constant focal lengths; None if the mode was requested."""


def with_camera_model(posed: PosedImages, mode: IntrinsicsMode) -> PosedImages:
    """Return the images with the cameras of a mode: shared ones, or ones with distortion."""
    cameras = posed.cameras
    if mode == "all":
        models = tuple(DISTORTED.get(model, model) for model in cameras.models)
        params = tuple(
            np.concatenate([p, np.zeros(n_params(model) - len(p))])
            for model, p in zip(models, cameras.params, strict=True)
        )
        return replace(posed, cameras=replace(cameras, models=models, params=params))
    if mode != "shared":
        return posed
    each = [(cameras.models[k], tuple(cameras.sizes[k].tolist())) for k in posed.of_image]
    merged = {key: [cameras.params[c] for c, k in zip(posed.of_image, each, strict=True) if k == key] for key in each}
    shared = [np.median(merged[key], axis=0) for key in each]
    sizes = np.array([size for _, size in each])
    made = with_cameras(posed.names, posed.poses, [model for model, _ in each], sizes, shared)
    return replace(posed, cameras=made.cameras, of_image=made.of_image)


def choose_intrinsics(
    solution: Solution, held_out: HeldOut, matches: Matches, mode: IntrinsicsMode, **limits: Any
) -> IntrinsicsChoice:
    """Return the solution as it is, or for "auto" with free focal lengths if these predict better.

    Parameters
    ----------
    solution
        The solution without the held-out observations.
    held_out
        The observations that decide.
    matches
        All matches.
    mode
        The requested mode.
    **limits
        Arguments of `asker.solve`.
    """
    if mode != "auto":
        return IntrinsicsChoice(solution, REFINES[mode], None)
    training = matches.taken(held_out.training(matches))
    free = solved(solution.posed, training, rejoined(solution, training), "focal", **limits)
    before, after = (held_out.norms(one.posed, matches) for one in (solution, free))
    verdict = compare(before, after, max(solution.limit, free.limit))
    sensible = all(_positive_focal(free.posed.cameras, k) for k in range(len(free.posed.cameras)))
    if verdict.is_better and sensible:
        return IntrinsicsChoice(free, "focal", verdict)
    return IntrinsicsChoice(solution, "poses", verdict)


def _positive_focal(cameras: Cameras, k: int) -> bool:
    return bool(cameras.params[k][0] > 0)
