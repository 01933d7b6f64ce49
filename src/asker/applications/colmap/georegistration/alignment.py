"""A model in the frame of known positions: of images (GPS) and of control points.

Algorithm   (1) a similarity that fits more than half of the known positions takes the solved model there
            (2) factors of the positions are added, each in units of its standard deviation; pixels and deviations
                weigh by their noise
            (3) a few descents under Cauchy kernels, between which the noise of the positions is estimated anew: the
                model may have been bent
            (4) a last descent under the kernels of the model, and a truncated one as wide as 5 of that noise

A control point without a deviation is held where it is known to be; its observations are as others of its image.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import asker
from asker.applications.colmap.constant_parameters import Held, held_of
from asker.applications.colmap.georegistration.control_points import (
    Added,
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
from asker.geometry.rotations import quaternion_from_matrix
from asker.kernels.efficiency import efficient_width
from asker.kernels.kernel import Kernel
from asker.problem.problem import Factors, Problem
from asker.statistics.inliers import inlier_radius
from asker.statistics.scale import REACH

ROUNDS, STEPS = 3, 30
"""Descents before the last one, and their iterations."""
MIDDLE = 1.538
"""The median of ‖r‖ where each of its three numbers has noise 1."""
LINE = 3.0
"""Positions that scatter about a line by less than so many σ do not say how the whole is turned about it."""
ON_A_LINE = "the known positions lie on a line: how the model is turned about it is not known from them"
HOLDS = ("images", "points", "rotations", "positions")
"""Words of `hold` that say where the whole is."""


@dataclass(frozen=True)
class Frame:
    """Where the whole is to be."""

    priors: Positions | None = None
    """Of images."""
    control: Control | None = None

    @property
    def is_known(self) -> bool:
        return self.priors is not None or self.control is not None

    def check(self, model: ColmapModel, hold: Sequence[str | int], gauge: str, checkpoint: Any) -> None:
        """Refuse what says otherwise where the whole is, and positions that do not say it."""
        words = [word for word in hold if not isinstance(word, str) or word.startswith(HOLDS)]
        if words or gauge == "fixed":
            said = f"hold {words[0]}" if words else "gauge fixed"
            raise ValueError(f"known positions move the whole: they do not go with {said}")
        if checkpoint is not None:
            raise ValueError("known positions take several solves: they do not go with a checkpoint")
        n = 0 if self.priors is None else int((_images_of(model, self.priors) >= 0).sum())
        n += 0 if self.control is None else int((np.bincount(self.control.index) >= 2).sum())
        if n < 3:
            raise ValueError(f"{n} known positions are of this model; a frame needs three or more")


@dataclass(frozen=True, eq=False)
class Known:
    """Known positions of images, or of control points."""

    kind: str
    """`priors` or `control`"""
    index: np.ndarray
    """Which images, or which points of the model with the control points."""
    positions: Positions
    sds: np.ndarray
    """(n, 3): of the positions; where none were given, what the positions show at first."""
    least: float
    """Of the noise, in deviations: 1 where deviations were given."""
    noise: float = 1.0
    """In deviations."""

    def of(self, model: ColmapModel) -> np.ndarray:
        """Where a model has them, (n, 3)."""
        return (camera_centres(model) if self.kind == "priors" else model.points.xyz)[self.index]

    def norms(self, model: ColmapModel) -> np.ndarray:
        """(n,): how far they are off, in deviations."""
        return np.linalg.norm((self.of(model) - self.positions.xyz) / self.sds, axis=1)


class Solved(NamedTuple):
    """What a solve ends with."""

    made: ColmapProblem
    """With the control points."""
    result: asker.Result
    refined: ColmapModel
    """Without them."""
    is_own: np.ndarray
    """Which observations of `made` are the model's own: a mask."""
    known: dict[str, Any]
    """What `--json` says of known positions."""


def anchored(
    model: ColmapModel, frame: Frame, kernels: dict[str, Kernel], sigma: float, limits: dict[str, Any], **asked: Any
) -> Solved:
    """A solved model in the frame of known positions.

    kernels  of the last descent, by camera model
    sigma    the noise of pixels
    limits   of the last descent
    asked    what goes to `colmap_problem`
    """
    own = model
    added = None
    if frame.control is not None:
        model, added = with_control(model, frame.control)
        model = triangulated(model, added)
    fit = _similarity(model, frame, added, scale=not colmap_problem(own, **asked).has_scale)  # (1)
    model = in_frame(model, fit)
    held, known = held_of(model, asked.pop("hold", ())), []
    if frame.priors is not None:
        known.append(_priors(model, frame.priors))
    if frame.control is not None and added is not None:
        model, held = _placed(model, frame.control, added, held)
        known += _free_control(frame.control, added)
    for k in range(ROUNDS + 1):
        made = _problem(model, known, kernels if k == ROUNDS else None, sigma, hold=held, **asked)  # (2)
        more = limits if k == ROUNDS else {"max_iterations": STEPS, "on_iteration": limits.get("on_iteration")}
        result = asker.solve(made.problem, asker.IRLS(), relative_damping=made.relative_damping, **more)  # (3), (4)
        model = made.refined(result.values)
        known = [_estimated(one, model, result, sigma) for one in known]
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
    """The model after X -> s R X + t."""
    s, R, t = fit
    poses = transformed_poses(fit, camera_poses(model))
    images = replace(model.images, qvecs=quaternion_from_matrix(poses[:, :, :3]), tvecs=poses[:, :, 3])
    rigs = None if model.rigs is None else replace(model.rigs, tvecs=s * model.rigs.tvecs)
    return replace(model, images=images, points=replace(model.points, xyz=s * model.points.xyz @ R.T + t), rigs=rigs)


def _similarity(model: ColmapModel, frame: Frame, added: Added | None, scale: bool) -> Fit:
    """From the model to the known positions: of images, and of control points that two images show."""
    pairs = []
    if frame.priors is not None:
        index = _images_of(model, frame.priors)
        pairs.append((camera_centres(model)[index[index >= 0]], frame.priors.xyz[index >= 0]))
    if frame.control is not None and added is not None:
        seen = added.n_seen(model) >= 2
        pairs.append((model.points.xyz[added.n_points :][seen], frame.control.points.xyz[seen]))
    source, target = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return robust_similarity(source, target, scale)


def _images_of(model: ColmapModel, priors: Positions) -> np.ndarray:
    """Which images the positions are of; −1 where the model has none of that name."""
    index = matched(model.images.names, priors.names)
    if (index < 0).all():
        ours, theirs = model.images.names[0], priors.names[0]
        raise ValueError(f"no known position is of an image of this model, as {ours!r}; the first is of {theirs!r}")
    return index


def _priors(model: ColmapModel, priors: Positions) -> Known:
    index = _images_of(model, priors)
    own = priors.taken(np.flatnonzero(index >= 0))
    given = np.isfinite(own.sds).all(axis=1)
    off = np.linalg.norm(camera_centres(model)[index[index >= 0]] - own.xyz, axis=1)
    sds = np.where(given[:, None], own.sds, max(float(np.median(off)) / MIDDLE, 1e-9))
    known = Known("priors", index[index >= 0], own, sds, least=1.0 if given.all() else 0.0)
    return replace(known, noise=max(known.least, float(np.median(known.norms(model))) / MIDDLE))


def _placed(model: ColmapModel, control: Control, added: Added, held: Held) -> tuple[ColmapModel, Held]:
    """With control points where they are known to be, and held; those with a deviation stay where two see them."""
    xyz, points = model.points.xyz.copy(), held.points.copy()
    exact = ~np.isfinite(control.points.sds).all(axis=1)
    there = exact | (added.n_seen(model) < 2)
    xyz[added.n_points :][there] = control.points.xyz[there]
    points[added.n_points :] = exact
    return replace(model, points=replace(model.points, xyz=xyz)), replace(held, points=points)


def _free_control(control: Control, added: Added) -> list[Known]:
    """The control points that have deviations, if there are any."""
    free = np.flatnonzero(np.isfinite(control.points.sds).all(axis=1))
    own = control.points.taken(free)
    return [Known("control", added.n_points + free, own, own.sds, least=1.0)] if free.size else []


def _problem(
    model: ColmapModel, known: list[Known], kernels: dict[str, Kernel] | None, sigma: float, **asked: Any
) -> ColmapProblem:
    """The bundle adjustment with the known positions; all under Cauchy kernels where none are given."""
    wide = asker.Cauchy(efficient_width(2) * sigma)
    made = colmap_problem(model, wide, **asked)
    own = [
        wide if kernels is None else kernels.get(f.name, asker.SmoothTruncated(REACH * sigma))
        for f in made.problem.factors
    ]
    factors = made.problem.under(own).factors
    more = [_factors(made, one, sigma, wide=kernels is None) for one in known]
    return replace(made, problem=Problem(*factors, *more), is_anchored=True)


def _factors(made: ColmapProblem, known: Known, sigma: float, wide: bool) -> Factors:
    """Positions in deviations; a deviation of 1 noise counts as much as a pixel of 1 noise."""
    kernel = asker.Cauchy(efficient_width(3) * known.noise) if wide else asker.SmoothTruncated(REACH * known.noise)
    residual: Any = _off
    slots = [made.points[known.index]]
    if known.kind == "priors":
        residual, slots = centre_off, [made.poses[made.members.frame[known.index]]]
        if made.sensors is not None:
            residual, slots = _sensor_off, [*slots, made.sensors[made.members.sensor[known.index]]]
    weight = np.full(len(known.index), (sigma / known.noise) ** 2)
    data = known.positions.xyz, known.sds
    return Factors(residual, *slots, data=data, kernel=kernel, weight=weight, name=known.kind)


def _off(point, xyz, sds):
    return (point - xyz) / sds


def centre_off(pose, xyz, sds):
    """How far the centre of a pose is from a known position, in deviations."""
    return _off(-(pose.rotation.T @ pose.translation), xyz, sds)


def _sensor_off(pose, sensor, xyz, sds):
    at = sensor.rotation.T @ sensor.translation  # less the place of the sensor in its rig
    return _off(-(pose.rotation.T @ (pose.translation + at)), xyz, sds)


def _estimated(known: Known, model: ColmapModel, result: asker.Result, sigma: float) -> Known:
    """With the noise that a solution shows."""
    found = result.noise[known.kind]
    noise = found.sigma * known.noise / sigma if found.is_known else float(np.median(known.norms(model))) / MIDDLE
    return replace(known, noise=max(known.least, noise, 1e-9))


def _known_record(known: Known, model: ColmapModel) -> dict[str, Any]:
    """What `--json` says of known positions; those beyond the limit of inliers are refused."""
    own, names = known.positions, known.positions.names
    off = np.linalg.norm(known.of(model) - own.xyz, axis=1)
    used = known.norms(model) <= inlier_radius(3, known.noise)
    flat = np.linalg.svd(own.xyz[used] - own.xyz[used].mean(axis=0), compute_uv=False) if used.sum() > 2 else [0, 0]
    spread = flat[1] / np.sqrt(max(used.sum(), 1))
    return {
        "n": len(names),
        "refused": [names[k] for k in np.flatnonzero(~used)],
        "noise": known.noise,
        "sd": float(np.sqrt(np.mean((known.noise * known.sds[used]) ** 2))) if used.any() else None,
        "median_distance": float(np.median(off[used])) if used.any() else None,
        "largest_distance": float(off[used].max()) if used.any() else None,
        "doubts": [ON_A_LINE] if spread < LINE * known.noise * float(np.median(known.sds)) else [],
    }


def _control_record(model: ColmapModel, frame: Frame, added: Added, sigma: float) -> list[dict[str, Any]]:
    """Of each control point: its observations, and the errors in pixels of those that agree."""
    assert frame.control is not None
    seen, norms = model.observations(), reprojection_norms(model)
    limit, told = inlier_radius(2, sigma), []
    for k, name in enumerate(frame.control.points.names):
        own = norms[seen.point == added.n_points + k]
        good = own <= limit
        mean = float(own[good].mean()) if good.any() else None
        told.append({"name": name, "n_observations": len(own), "n_refused": int((~good).sum()), "mean_error": mean})
    return told
