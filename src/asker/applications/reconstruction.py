"""What bundle adjustment and COLMAP models are both asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from asker.applications.application import option
from asker.geometry.gauge import Gauge

GAUGES: tuple[Gauge, ...] = get_args(Gauge)


@dataclass(frozen=True)
class ReconstructionOptions:
    """Of cameras and points."""

    gauge: str = option("free", "fixed: the pose of the first image stays; or free.", choices=GAUGES)
    ply: Path | None = option(None, "Write points and cameras for a viewer.", writes=True)
    estimate_noise: bool = option(False, "Find the noise while solving, and tau with it.", names="--estimate-noise")
