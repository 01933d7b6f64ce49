"""Options of bundle adjustment."""

from dataclasses import dataclass
from typing import Literal, get_args

from asker.applications.application import option
from asker.applications.reconstruction import ReconstructionOptions

CameraModel = Literal["pixel", "bal"]
Dof = Literal[6, 7, 9]
CAMERAS: tuple[CameraModel, ...] = get_args(CameraModel)
DOFS: tuple[Dof, ...] = get_args(Dof)


@dataclass(frozen=True)
class Options(ReconstructionOptions):
    """Options of `asker solve` for a BAL file."""

    camera: str = option("pixel", "Distortion convention: pixel, or bal as on the BAL page.", choices=CAMERAS)
    dof: int = option(6, "Parameters per camera. 6: pose; 7: and focal length; 9: and distortion.", choices=DOFS)
