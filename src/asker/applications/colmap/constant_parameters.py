"""What of a model is held: words such as `images=left/*`, `points`, `cameras=3`, `rotations` or `k2`.

    images=NAME       the pose; in a rig that of the whole frame
    cameras=ID        all parameters
    points, points=ID
    rotations         of all frames: their positions move alone
    positions         of all frames: they turn where they are
    focal, principal-point, distortion, or the name of a parameter such as k1: of all cameras

A name or id may be a pattern with * and ?, and @FILE has one name or id in each line.
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

SOME = ("images", "cameras", "points")
"""What is held by name or id."""
MOTIONS = ("rotations", "positions")
PARAMETERS = frozenset(name for model in CAMERA_MODELS for name in CAMERA_MODELS[model].split())
PARTS = frozenset(part for model in CAMERA_MODELS for part in parts_of(model))


class HeldRotations(type(SE3)):  # type: ignore[misc]
    """Poses [R | t] that keep their rotation: (R, t) ⊞ δ = (R, t + δ)."""

    tangent = 3

    def retract(self, x: Array, delta: Array) -> Array:
        return namespace(x).concatenate([x[:9], x[9:] + delta])


class HeldPositions(type(SE3)):  # type: ignore[misc]
    """Poses [R | t] whose centre −Rᵀt stays: (R, t) ⊞ δ = (exp(δ) R, exp(δ) t)."""

    tangent = 3

    def retract(self, x: Array, delta: Array) -> Array:
        turn = exp_so3(delta)
        return namespace(x).concatenate([(turn @ x[:9].reshape(3, 3)).reshape(9), turn @ x[9:]])


@dataclass(frozen=True, eq=False)
class Held:
    """What does not move."""

    images: np.ndarray
    """(n_images,): a mask, as the next two."""
    cameras: np.ndarray
    points: np.ndarray
    parameters: frozenset[str] = frozenset()
    """Of all cameras: names of parameters and of parts."""
    motion: str = ""
    """One of `MOTIONS`, or nothing."""

    def manifold(self) -> Any:
        """How poses move."""
        return {"rotations": HeldRotations(), "positions": HeldPositions()}.get(self.motion, SE3)


def held_of(model: ColmapModel, hold: Sequence[str | int]) -> Held:
    """What the words ask for; a number is the id of an image.  A `ValueError` names one that fits nothing."""
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
                raise ValueError(f"there is no image {word} to hold")
            masks["images"][at] = True
            continue
        what, _, which = word.partition("=")
        if what in SOME:
            masks[what] |= _matching(names[what], which or "*", what)
        elif not which and what in MOTIONS:
            motions.add(what)
        elif not which and what in PARAMETERS | PARTS:
            parameters.add(what)
        else:
            raise ValueError(f"hold: {word!r} is not known; {', '.join((*SOME, *MOTIONS, *sorted(PARTS)))}, or as k1")
    if len(motions) > 1:
        return Held(masks["images"] | True, masks["cameras"], masks["points"], frozenset(parameters))
    return Held(**masks, parameters=frozenset(parameters), motion="".join(motions))


def _matching(names: list[str], which: str, what: str) -> np.ndarray:
    """A mask of the names that are meant."""
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
    """The name itself, or those that fit the pattern."""
    same = np.array([name == pattern for name in names], dtype=bool)
    return same if same.any() else np.array([fnmatchcase(name, pattern) for name in names], dtype=bool)
