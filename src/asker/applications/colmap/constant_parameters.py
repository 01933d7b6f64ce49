"""Constant parameters of a model, selected by words such as `images=left/*`, `points`, `cameras=3` or `k2`.

    images=NAME       the pose of an image; in a rig, of its whole frame
    cameras=ID        all parameters of a camera
    points, points=ID
    rotations         of all frames, so that only their positions change
    positions         of all frames, so that only their rotations change
    focal, principal-point, distortion, or the name of a parameter such as k1: of all cameras

A name or id may be a pattern with * and ?, and @FILE names a file with one name or id in each line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from asker.applications.colmap.cameras import parts_of
from asker.applications.colmap.model import CAMERA_MODELS, ColmapModel
from asker.geometry.manifolds import SE3, exp_so3
from asker.io.files import FileError, read_text_bytes
from asker.tracing.array_namespace import Array, namespace

RECORD_KINDS = ("images", "cameras", "points")
"""Kinds of records that can be selected by name or id."""
MOTIONS = ("rotations", "positions")
PARAMETERS = frozenset(name for model in CAMERA_MODELS for name in CAMERA_MODELS[model].split())
PARTS = frozenset(part for model in CAMERA_MODELS for part in parts_of(model))


class ConstantRotations(type(SE3)):  # type: ignore[misc]
    """Poses [R | t] with constant rotation: (R, t) ⊞ δ = (R, t + δ)."""

    tangent = 3

    def retract(self, x: Array, delta: Array) -> Array:
        return namespace(x).concatenate([x[:9], x[9:] + delta])


class ConstantPositions(type(SE3)):  # type: ignore[misc]
    """Poses [R | t] with constant centre −Rᵀt: (R, t) ⊞ δ = (exp(δ) R, exp(δ) t)."""

    tangent = 3

    def retract(self, x: Array, delta: Array) -> Array:
        turn = exp_so3(delta)
        return namespace(x).concatenate([(turn @ x[:9].reshape(3, 3)).reshape(9), turn @ x[9:]])


@dataclass(frozen=True, eq=False)
class ConstantParameters:
    """The parameters of a model that are constant during a solve."""

    images: np.ndarray
    """(n_images,): the mask of images with constant poses."""
    cameras: np.ndarray
    """(n_cameras,): the mask of cameras with constant parameters."""
    points: np.ndarray
    """(n_points,): the mask of constant points."""
    parameters: frozenset[str] = frozenset()
    """Names or kinds of parameters that are constant in all cameras."""
    motion: str = ""
    """One of `MOTIONS`, which is constant in all frames, or an empty string."""

    def manifold(self) -> Any:
        """Return the manifold of the poses."""
        return {"rotations": ConstantRotations(), "positions": ConstantPositions()}.get(self.motion, SE3)


def constant_parameters(model: ColmapModel, hold: Sequence[str | int]) -> ConstantParameters:
    """Return the constant parameters that words select.

    Parameters
    ----------
    model
        A COLMAP model.
    hold
        Words as described above; a number is the id of an image.

    Raises
    ------
    ValueError
        If a word is unknown or matches nothing.
    """
    names = {
        "images": list(model.images.names),
        "cameras": list(map(str, model.cameras.ids.tolist())),
        "points": list(map(str, model.points.ids.tolist())),
    }
    masks = {what: np.zeros(len(each), dtype=bool) for what, each in names.items()}
    parameters, motions = set(), set()
    for word in hold:
        if not isinstance(word, str):
            at = np.flatnonzero(model.images.ids == word)
            if not at.size:
                raise ValueError(f"hold: there is no image {word}")
            masks["images"][at] = True
            continue
        what, _, which = word.partition("=")
        if what in RECORD_KINDS:
            masks[what] |= _matching(names[what], which or "*", what)
        elif not which and what in MOTIONS:
            motions.add(what)
        elif not which and what in PARAMETERS | PARTS:
            parameters.add(what)
        else:
            words = ", ".join((*RECORD_KINDS, *MOTIONS, *sorted(PARTS)))
            raise ValueError(f"hold: {word!r} is not known; expected {words}, or the name of a parameter such as k1")
    if len(motions) > 1:
        return ConstantParameters(masks["images"] | True, masks["cameras"], masks["points"], frozenset(parameters))
    return ConstantParameters(**masks, parameters=frozenset(parameters), motion="".join(motions))


def _matching(names: list[str], which: str, what: str) -> np.ndarray:
    """Return the mask of names that a name, a pattern or @FILE selects."""
    if which.startswith("@"):
        mask = np.zeros(len(names), dtype=bool)
        text = read_text_bytes(which[1:]).decode(errors="replace")
        for line, pattern in enumerate(text.splitlines(), 1):
            if pattern.strip():
                one = _matched(names, pattern.strip())
                if not one.any():
                    raise FileError(which[1:], f"none of the {what} matches {pattern.strip()!r}", line)
                mask |= one
        return mask
    mask = _matched(names, which)
    if names and not mask.any():
        raise ValueError(f"hold: none of the {what} matches {which!r}")
    return mask


def _matched(names: list[str], pattern: str) -> np.ndarray:
    """Return the mask of names equal to the pattern; if there are none, of those that match it."""
    equal = np.array([name == pattern for name in names], dtype=bool)
    return equal if equal.any() else np.array([fnmatchcase(name, pattern) for name in names], dtype=bool)
