"""Options of the refinement of a COLMAP model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from asker.applications.application import option
from asker.applications.reconstruction import ReconstructionOptions

Refine = Literal["poses", "focal", "all"]
REFINES: tuple[Refine, ...] = get_args(Refine)
HOLD_HELP = (
    "Constant parameters: images=NAME, cameras=ID, points, rotations, positions, principal-point, k1, ...; repeatable."
)


@dataclass(frozen=True)
class Options(ReconstructionOptions):
    """Options of `asker solve` for a COLMAP model."""

    refine: str = option("poses", "Free parameters besides points: poses, also focal lengths, or all.", choices=REFINES)
    principal_point: bool = option(
        False, "With --refine all: refine principal points as well.", names="--principal-point"
    )
    refine_rigs: bool = option(False, "Refine the poses of cameras within their rigs.", names="--refine-rigs")
    hold: list[str] | None = option(None, HOLD_HELP, metavar="WHAT")
    retriangulate: bool = option(
        False, "Triangulate the points from their observations first.", names="--retriangulate"
    )
    priors: Path | None = option(None, "Known positions of images: name,x,y,z[,deviations].", reads=True)
    control: Path | None = option(None, "Control points: name,x,y,z[,deviations] and image,name,u,v.", reads=True)
    drop_outliers: bool = option(False, "Write the model without outliers.", names="--drop-outliers")
    max_error: float | None = option(
        None, "With --drop-outliers: the largest error to keep, in pixels.", show_default="from the noise", above=0.0
    )
    min_angle: float = option(
        0.0, "With --drop-outliers: the smallest triangulation angle to keep, in degrees.", least=0.0
    )
    transforms: Path | None = option(None, "Write transforms.json, for nerfstudio.", writes=True)
