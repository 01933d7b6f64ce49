"""What can be asked of the refinement of a COLMAP model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from asker.applications.application import option
from asker.applications.reconstruction import ReconstructionOptions

Refine = Literal["poses", "focal", "all"]
REFINES: tuple[Refine, ...] = get_args(Refine)
HOLD_HELP = "What stays: images=NAME, cameras=ID, points, rotations, positions, principal-point, k1, ...; repeatable."


@dataclass(frozen=True)
class Options(ReconstructionOptions):
    """Of `asker solve` for a COLMAP model."""

    refine: str = option("poses", "What moves beside points: poses, focal lengths too, or all.", choices=REFINES)
    principal_point: bool = option(False, "With --refine all: principal points move too.", names="--principal-point")
    refine_rigs: bool = option(False, "The poses of cameras in their rigs move too.", names="--refine-rigs")
    hold: list[str] | None = option(None, HOLD_HELP, metavar="WHAT")
    retriangulate: bool = option(False, "Find points again from their observations first.", names="--retriangulate")
    priors: Path | None = option(None, "Known positions of images: name,x,y,z[,deviations].", reads=True)
    control: Path | None = option(None, "Control points: name,x,y,z[,deviations] and image,name,u,v.", reads=True)
    drop_outliers: bool = option(False, "Leave outliers out of the written model.", names="--drop-outliers")
    max_error: float | None = option(
        None, "With --drop-outliers: pixels, the largest error that stays.", show_default="by the noise", above=0.0
    )
    min_angle: float = option(
        0.0, "With --drop-outliers: degrees, the smallest angle of a point that stays.", least=0.0
    )
    transforms: Path | None = option(None, "Write transforms.json, for nerfstudio.", writes=True)
