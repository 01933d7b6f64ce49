"""Options of the refinement of posed images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from asker.applications.application import option

IntrinsicsMode = Literal["auto", "fixed", "shared", "focal", "all"]
INTRINSICS_MODES: tuple[IntrinsicsMode, ...] = get_args(IntrinsicsMode)
INTRINSICS_HELP = (
    "fixed; shared: one focal length for all images of a size; focal: those of the given cameras; all: and their "
    "distortions; auto: fixed, or focal if held-out observations are then predicted better."
)
CAMERA_HELP = "Camera of all images, for trajectories: fx,fy,cx,cy or f,cx,cy or MODEL,parameters as in COLMAP."


@dataclass(frozen=True)
class Options:
    """Options of `asker refine-poses`."""

    intrinsics: str = option("auto", INTRINSICS_HELP, choices=INTRINSICS_MODES)
    camera: str | None = option(None, CAMERA_HELP)
    matches: Path | None = option(
        None, "A COLMAP database with matches, taken as they are; pycolmap is then not needed.", reads=True
    )
    database: Path | None = option(
        None, "Cache of features and matches, a COLMAP database.", show_default="database.db in the output folder"
    )
    seed: int = option(0, "Random seed of the choice of held-out observations.", min=0)
    threads: int | None = option(None, "Number of threads of the solver; all cores by default.", min=1)
    time_limit: float | None = option(None, "Time limit in seconds of each bundle adjustment.", least=0.0)
