"""What can be asked of bundle adjustment."""

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
    """Of `asker solve` for a BAL file."""

    camera: str = option("pixel", "How k1, k2 act: pixel, or bal (the BAL page).", choices=CAMERAS)
    dof: int = option(6, "6: poses, 7: and focal lengths, 9: and distortions.", choices=DOFS)
