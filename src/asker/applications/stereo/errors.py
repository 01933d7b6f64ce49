"""Errors of a disparity map with respect to true disparities."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asker.applications.stereo.pairs import StereoPair
from asker.problem.problem import ProblemError


@dataclass(frozen=True)
class DisparityErrors:
    """Errors over the pixels with a known true disparity."""

    bad_0_5: float
    """Fraction of the pixels with an error of more than half a pixel."""
    bad_1: float
    """Fraction of the pixels with an error of more than one pixel."""
    bad_2: float
    """Fraction of the pixels with an error of more than two pixels."""
    mean_error: float
    """Mean absolute error, in pixels."""


def disparity_errors(disparity: np.ndarray, truth: np.ndarray, among: np.ndarray | None = None) -> DisparityErrors:
    """Return the errors of a disparity map.

    Parameters
    ----------
    disparity
        Disparity map, (H, W).
    truth
        True disparities, (H, W); NaN if unknown.
    among
        Mask of the pixels to evaluate; all by default.

    Raises
    ------
    ProblemError
        If the shapes differ, or no true disparity is known.
    """
    if disparity.shape != truth.shape:
        raise ProblemError(f"the disparity map has shape {disparity.shape}, the truth {truth.shape}")
    known = np.isfinite(truth) if among is None else np.isfinite(truth) & among
    if not known.any():
        raise ProblemError("the true disparity is unknown at every pixel to evaluate")
    errors = np.abs(disparity - truth)[known]

    def bad(threshold: float) -> float:
        return float(np.mean(~(errors <= threshold)))  # NaN counts as bad

    return DisparityErrors(bad(0.5), bad(1.0), bad(2.0), float(errors.mean()))


def visible(left_truth: np.ndarray, right_truth: np.ndarray) -> np.ndarray:
    """Return the mask of left pixels that are visible on the right: both true disparities agree to within a pixel."""
    if left_truth.shape != right_truth.shape:
        raise ProblemError(f"the true disparities differ in shape: {left_truth.shape} and {right_truth.shape}")
    width = left_truth.shape[1]
    known = np.isfinite(left_truth)
    x = np.arange(width) - np.rint(np.where(known, left_truth, 0.0)).astype(int)
    inside = known & (x >= 0)
    right_disparity = np.take_along_axis(right_truth, np.where(inside, x, 0), axis=1)
    return inside & (np.abs(right_disparity - left_truth) <= 1)


def errors_by_part(disparity: np.ndarray, pair: StereoPair) -> Iterator[tuple[str, DisparityErrors]]:
    """Yield errors over all, the visible and the occluded pixels, as far as the true disparities are known."""
    if pair.left_truth is None:
        return
    known = np.isfinite(pair.left_truth)
    masks = {"": known}
    if pair.right_truth is not None:
        is_visible = visible(pair.left_truth, pair.right_truth)
        masks |= {"_visible": known & is_visible, "_hidden": known & ~is_visible}
    for suffix, mask in masks.items():
        if mask.any():
            yield suffix, disparity_errors(disparity, pair.left_truth, mask)


def error_record(disparity: np.ndarray, winner: np.ndarray, pair: StereoPair) -> dict[str, Any]:
    """Return a record of the errors of a disparity map, and of those of winner-takes-all."""
    record: dict[str, float] = {}
    for prefix, estimate in (("", disparity), ("wta_", winner)):
        for suffix, errors in errors_by_part(estimate, pair):
            record |= {f"{prefix}{key}{suffix}": value for key, value in asdict(errors).items()}
    return record
