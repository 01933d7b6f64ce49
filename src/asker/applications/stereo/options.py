"""Options for dense stereo."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from asker.applications.application import option

Cost = Literal["zncc", "census", "absolute"]
Start = Literal["constant", "wta", "random"]
COSTS: tuple[Cost, ...] = get_args(Cost)
STARTS: tuple[Start, ...] = get_args(Start)


@dataclass(frozen=True)
class EnergyOptions:
    """Options of the energy."""

    max_disparity: int | None = option(
        None, "The largest disparity, in pixels.", min=2, show_default="an eighth of the width"
    )
    start: str = option("constant", f"Initial disparities: {', '.join(STARTS)}.", choices=STARTS)
    cost: str = option("zncc", f"Matching cost: {', '.join(COSTS)}.", choices=COSTS)
    window: int = option(7, "Side of the matching window, odd.")
    n_minima: int = option(2, "Number of matching minima per pixel that become data terms.", names="--minima")
    eta: float = option(4.0, "Weight of the data terms.", least=0.0)
    seed: int = option(0, "The same seed gives the same data.", min=0)


@dataclass(frozen=True)
class Options(EnergyOptions):
    """Options of `asker solve` for a stereo pair, and of `asker stereo`."""

    pfm: Path | None = option(None, "Write the disparities also as PFM.", writes=True)
    picture: Path | None = option(None, "Write the disparities as a coloured PNG.", writes=True)
