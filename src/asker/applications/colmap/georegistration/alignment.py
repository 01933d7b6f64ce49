"""Georegistration: refinement of a model in the frame of known positions of images (GPS) and control points.

Algorithm   (1) transform the solved model by a similarity that fits more than half of the known positions
            (2) add factors of the positions, in units of their standard deviations; pixels and positions are weighted
                by their estimated noise
            (3) solve a few times under Cauchy kernels; re-estimate the noise of the positions after each solve, since
                the model may have been deformed
            (4) solve under the kernels of the model, with truncated kernels of width 5 σ for the positions

A control point without a standard deviation is constant at its known position; its observations are treated like all
others of their image.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import asker
from asker.applications.colmap.constant_parameters import ConstantParameters, constant_parameters
from asker.applications.colmap.georegistration.control_points import (
    ControlIndex,
    matched,
    triangulated,
    with_control,
    without_control,
)
from asker.applications.colmap.georegistration.position_priors import Control, Positions
from asker.applications.colmap.model import ColmapModel, camera_poses
from asker.applications.colmap.problem import ColmapProblem, colmap_problem
from asker.applications.colmap.reprojection_error import camera_centres, reprojection_norms
from asker.geometry.alignment import Fit, robust_similarity
from asker.geometry.gauge import transformed_poses
from asker.geometry.manifolds import Pose
from asker.geometry.rotations import quaternion_from_matrix
from asker.kernels.efficiency import efficient_width
from asker.kernels.kernel import Kernel
from asker.problem.problem import Factors, Problem
from asker.statistics.inliers import inlier_radius
from asker.statistics.noise import TAU_PER_SIGMA
from asker.tracing.array_namespace import Array

N_CAUCHY_SOLVES, CAUCHY_ITERATIONS = 3, 30
"""The number of solves before the last one, and their largest number of iterations."""
CHI3_MEDIAN = 1.538
"""The median norm of three independent standard normal numbers."""
MIN_LINE_DISTANCE = 3.0
"""The smallest RMS distance of positions from their best line, in σ, for which they determine the rotation about it."""
COLLINEAR = "the known positions are collinear: they do not determine the rotation of the model about their line"
FRAME_WORDS = ("images", "points", "rotations", "positions")
"""Words of `hold` that fix the frame of the model."""


@dataclass(frozen=True)
class TargetFrame:
    """The frame of the result, defined by known positions."""

    priors: Positions | None = None
    """KnownPositions positions of images."""
    control: Control | None = None
    """Control points."""

    @property
    def is_known(self) -> bool:
        """True if there are known positions."""
        return self.priors is not None or self.control is not None

    def check(self, model: ColmapModel, hold: Sequence[str | int], gauge: str, checkpoint: Any) -> None:
        """Raise a ValueError for options that contradict known positions, and for fewer than three of these."""
        words = [word for word in hold if not isinstance(word, str) or word.startswith(FRAME_WORDS)]
        if words or gauge == "fixed":
            option = f"hold {words[0]}" if words else "gauge fixed"
            raise ValueError(f"known positions determine the frame: they cannot be combined with {option}")
        if checkpoint is not None:
            raise ValueError("known positions need several solves: they cannot be combined with a checkpoint")
        n = 0 if self.priors is None else int((_images_of(model, self.priors) >= 0).sum())
        n += 0 if self.control is None else int((np.bincount(self.control.index) >= 2).sum())
        if n < 3:
            raise ValueError(f"{n} known positions belong to this model; georegistration needs at least three")


@dataclass(frozen=True, eq=False)
class KnownPositions:
    """KnownPositions positions of images or of control points, with their estimated noise."""

    kind: str
    """`priors` or `control`."""
    index: np.ndarray
    """(n,): the indices of the images, or of the points in the model with control points."""
    positions: Positions
    """The known positions."""
    sds: np.ndarray
    """(n, 3): standard deviations; estimated from the initial errors if unknown."""
    min_noise: float
    """The smallest `noise`: 1 if standard deviations were given."""
    noise: float = 1.0
    """The estimated noise, relative to the standard deviations."""

    def of(self, model: ColmapModel) -> np.ndarray:
        """Return the positions of these images or points in a model, (n, 3)."""
        return (camera_centres(model) if self.kind == "priors" else model.points.xyz)[self.index]

    def norms(self, model: ColmapModel) -> np.ndarray:
        """Return the distances of a model from the known positions, in standard deviations, (n,)."""
        return np.linalg.norm((self.of(model) - self.positions.xyz) / self.sds, axis=1)


class Solved(NamedTuple):
    """The solution of a refinement."""

    made: ColmapProblem
    """The problem, with control points."""
    result: asker.Result
    """The result of the last solve."""
    refined: ColmapModel
    """The refined model, without control points."""
    is_original: np.ndarray
    """The mask of observations of `made` that are not of control points."""
    known: dict[str, Any]
    """The record of known positions for `--json`."""


def georegister(
    model: ColmapModel,
    frame: TargetFrame,
    kernels: dict[str, Kernel],
    sigma: float,
    limits: dict[str, Any],
    **options: Any,
) -> Solved:
    """Refine a solved model in the frame of known positions.

    Parameters
    ----------
    model
        The model, solved without known positions.
    frame
        The known positions.
    kernels
        The kernels of the last solve, by camera model.
    sigma
        The noise of the pixels.
    limits
        Arguments of `asker.solve` for the last solve.
    **options
        Arguments of `colmap_problem`.

    Returns
    -------
    Solved
        The refined model, the last problem and its result, and the record of the known positions.
    """
    original = model
    added = None
    if frame.control is not None:
        model, added = with_control(model, frame.control)
        model = triangulated(model, added)
    fit = _similarity(model, frame, added, scale=not colmap_problem(original, **options).has_scale)  # (1)
    model = in_frame(model, fit)
    constants, known = constant_parameters(model, options.pop("hold", ())), []
    if frame.priors is not None:
        known.append(_known_images(model, frame.priors))
    if frame.control is not None and added is not None:
        model, constants = _at_known_positions(model, frame.control, added, constants)
        known += _uncertain_control(frame.control, added)
    for k in range(N_CAUCHY_SOLVES + 1):
        is_last = k == N_CAUCHY_SOLVES
        made = _problem(model, known, kernels if is_last else None, sigma, hold=constants, **options)  # (2)
        cauchy_limits = {"max_iterations": CAUCHY_ITERATIONS, "on_iteration": limits.get("on_iteration")}
        more = limits if is_last else cauchy_limits
        result = asker.solve(made.problem, asker.IRLS(), relative_damping=made.relative_damping, **more)  # (3), (4)
        model = made.refined(result.values)
        known = [_with_noise(one, model, result, sigma) for one in known]
        if result.status is asker.Status.INTERRUPTED:
            break
    record: dict[str, Any] = {"similarity": {"scale": fit[0], "rotation": fit[1], "translation": fit[2]}}
    record |= {one.kind: _known_record(one, model) for one in known}
    if frame.priors is not None:
        record["priors"] |= {"origin": frame.priors.origin, "n_unknown": len(frame.priors) - len(known[0].index)}
    if added is None:
        return Solved(made, result, model, np.ones(made.model.n_observations, bool), record)
    record["control_points"] = _control_record(model, frame, added, sigma)
    return Solved(made, result, without_control(model, added), ~added.observations(made.model), record)


def in_frame(model: ColmapModel, fit: Fit) -> ColmapModel:
    """Return the model transformed by X -> s R X + t."""
    s, R, t = fit
    poses = transformed_poses(fit, camera_poses(model))
    images = replace(model.images, qvecs=quaternion_from_matrix(poses[:, :, :3]), tvecs=poses[:, :, 3])
    rigs = None if model.rigs is None else replace(model.rigs, tvecs=s * model.rigs.tvecs)
    return replace(model, images=images, points=replace(model.points, xyz=s * model.points.xyz @ R.T + t), rigs=rigs)


def _similarity(model: ColmapModel, frame: TargetFrame, added: ControlIndex | None, scale: bool) -> Fit:
    """Return a robust similarity from the model to the known positions.

    Control points with fewer than two observations are ignored.
    """
    pairs = []
    if frame.priors is not None:
        index = _images_of(model, frame.priors)
        pairs.append((camera_centres(model)[index[index >= 0]], frame.priors.xyz[index >= 0]))
    if frame.control is not None and added is not None:
        has_two = added.n_observations(model) >= 2
        pairs.append((model.points.xyz[added.n_points :][has_two], frame.control.points.xyz[has_two]))
    source, target = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return robust_similarity(source, target, scale)


def _images_of(model: ColmapModel, priors: Positions) -> np.ndarray:
    """Return the index of the image of each position; −1 if the model has no image of that name."""
    index = matched(model.images.names, priors.names)
    if (index < 0).all():
        ours, theirs = model.images.names[0], priors.names[0]
        raise ValueError(
            f"no image name matches: the first one of the model is {ours!r}, that of the positions {theirs!r}"
        )
    return index


def _known_images(model: ColmapModel, priors: Positions) -> KnownPositions:
    index = _images_of(model, priors)
    present = priors.taken(np.flatnonzero(index >= 0))
    has_sds = np.isfinite(present.sds).all(axis=1)
    distances = np.linalg.norm(camera_centres(model)[index[index >= 0]] - present.xyz, axis=1)
    sds = np.where(has_sds[:, None], present.sds, max(float(np.median(distances)) / CHI3_MEDIAN, 1e-9))
    known = KnownPositions("priors", index[index >= 0], present, sds, min_noise=1.0 if has_sds.all() else 0.0)
    return replace(known, noise=max(known.min_noise, float(np.median(known.norms(model))) / CHI3_MEDIAN))


def _at_known_positions(
    model: ColmapModel, control: Control, added: ControlIndex, constants: ConstantParameters
) -> tuple[ColmapModel, ConstantParameters]:
    """Return the model with control points at their known positions, and constant if these are exact.

    Points with a standard deviation and at least two observations keep their triangulated positions.
    """
    xyz, is_constant = model.points.xyz.copy(), constants.points.copy()
    exact = ~np.isfinite(control.points.sds).all(axis=1)
    use_known = exact | (added.n_observations(model) < 2)
    xyz[added.n_points :][use_known] = control.points.xyz[use_known]
    is_constant[added.n_points :] = exact
    return replace(model, points=replace(model.points, xyz=xyz)), replace(constants, points=is_constant)


def _uncertain_control(control: Control, added: ControlIndex) -> list[KnownPositions]:
    """Return the control points with standard deviations; an empty list if there are none."""
    index = np.flatnonzero(np.isfinite(control.points.sds).all(axis=1))
    points = control.points.taken(index)
    return [KnownPositions("control", added.n_points + index, points, points.sds, min_noise=1.0)] if index.size else []


def _problem(
    model: ColmapModel, known: list[KnownPositions], kernels: dict[str, Kernel] | None, sigma: float, **options: Any
) -> ColmapProblem:
    """Return the bundle adjustment with known positions; `kernels` None selects Cauchy kernels."""
    cauchy = asker.Cauchy(efficient_width(2) * sigma)
    made = colmap_problem(model, cauchy, **options)
    chosen = [
        cauchy if kernels is None else kernels.get(f.name, asker.SmoothTruncated(TAU_PER_SIGMA * sigma))
        for f in made.problem.factors
    ]
    factors = made.problem.under(chosen).factors
    more = [_factors(made, one, sigma, use_cauchy=kernels is None) for one in known]
    return replace(made, problem=Problem(*factors, *more), is_georeferenced=True)


def _factors(made: ColmapProblem, known: KnownPositions, sigma: float, use_cauchy: bool) -> Factors:
    """Return the factors of known positions, weighted such that residuals of 1 σ cost as much as those of pixels."""
    kernel = (
        asker.Cauchy(efficient_width(3) * known.noise)
        if use_cauchy
        else asker.SmoothTruncated(TAU_PER_SIGMA * known.noise)
    )
    residual: Any = _scaled_error
    slots = [made.points[known.index]]
    if known.kind == "priors":
        residual, slots = centre_error, [made.poses[made.members.frame[known.index]]]
        if made.sensors is not None:
            residual, slots = _sensor_error, [*slots, made.sensors[made.members.sensor[known.index]]]
    weight = np.full(len(known.index), (sigma / known.noise) ** 2)
    data = known.positions.xyz, known.sds
    return Factors(residual, *slots, data=data, kernel=kernel, weight=weight, name=known.kind)


def _scaled_error(point: Array, xyz: Array, sds: Array) -> Array:
    return (point - xyz) / sds


def centre_error(pose: Pose, xyz: Array, sds: Array) -> Array:
    """Return the error of a camera centre with respect to a known position, in standard deviations."""
    return _scaled_error(-(pose.rotation.T @ pose.translation), xyz, sds)


def _sensor_error(pose: Pose, sensor: Pose, xyz: Array, sds: Array) -> Array:
    offset = sensor.rotation.T @ sensor.translation  # the negative centre of the sensor in its rig
    return _scaled_error(-(pose.rotation.T @ (pose.translation + offset)), xyz, sds)


def _with_noise(known: KnownPositions, model: ColmapModel, result: asker.Result, sigma: float) -> KnownPositions:
    """Return the known positions with their noise estimated from a solution."""
    estimate = result.noise[known.kind]
    noise = (
        estimate.sigma * known.noise / sigma
        if estimate.is_known
        else float(np.median(known.norms(model))) / CHI3_MEDIAN
    )
    return replace(known, noise=max(known.min_noise, noise, 1e-9))


def _known_record(known: KnownPositions, model: ColmapModel) -> dict[str, Any]:
    """Return the record of known positions for `--json`; those beyond the inlier limit are outliers."""
    xyz, names = known.positions.xyz, known.positions.names
    distances = np.linalg.norm(known.of(model) - xyz, axis=1)
    used = known.norms(model) <= inlier_radius(3, known.noise)
    singular_values = np.linalg.svd(xyz[used] - xyz[used].mean(axis=0), compute_uv=False) if used.sum() > 2 else [0, 0]
    line_distance = singular_values[1] / np.sqrt(max(used.sum(), 1))
    return {
        "n": len(names),
        "refused": [names[k] for k in np.flatnonzero(~used)],
        "noise": known.noise,
        "sd": float(np.sqrt(np.mean((known.noise * known.sds[used]) ** 2))) if used.any() else None,
        "median_distance": float(np.median(distances[used])) if used.any() else None,
        "largest_distance": float(distances[used].max()) if used.any() else None,
        "doubts": [COLLINEAR] if line_distance < MIN_LINE_DISTANCE * known.noise * float(np.median(known.sds)) else [],
    }


def _control_record(model: ColmapModel, frame: TargetFrame, added: ControlIndex, sigma: float) -> list[dict[str, Any]]:
    """Return the records of control points: numbers of observations, and mean errors of inliers in pixels."""
    assert frame.control is not None
    point, norms = model.observations().point, reprojection_norms(model)
    limit, records = inlier_radius(2, sigma), []
    for k, name in enumerate(frame.control.points.names):
        r = norms[point == added.n_points + k]
        is_inlier = r <= limit
        mean = float(r[is_inlier].mean()) if is_inlier.any() else None
        n_rejected = int((~is_inlier).sum())
        records.append({"name": name, "n_observations": len(r), "n_refused": n_rejected, "mean_error": mean})
    return records
