"""Options for pose graphs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from asker.applications.application import option
from asker.applications.pose_graph.formats.file_issues import INFORMATION
from asker.applications.uncertainty import REPORT_HELP
from asker.io.file_issues import STRICT_HELP

Robust = Literal["loops", "all", "none"]
TruthMatching = Literal["id", "length"]
Noise = Literal["auto", "announced", "estimated"]
ROBUST: tuple[Robust, ...] = get_args(Robust)
TRUTH_MATCHINGS: tuple[TruthMatching, ...] = get_args(TruthMatching)
NOISE_MODES: tuple[Noise, ...] = get_args(Noise)
INFORMATION_HELP = f"Treatment of negative eigenvalues: {', '.join(INFORMATION)}."
NOISE_HELP = f"{', '.join(NOISE_MODES)} noise; auto: estimated if loops can be rejected."


@dataclass(frozen=True)
class Options:
    """Options of `asker solve` for a pose graph."""

    truth: Path | None = option(None, "The true poses, for the trajectory error.", reads=True)
    truth_by: str = option("id", f"Match poses and truth by {' or '.join(TRUTH_MATCHINGS)}.", choices=TRUTH_MATCHINGS)
    robust: str = option("loops", "Edges with a robust kernel: loops, all or none.", choices=ROBUST)
    noise: str = option("auto", NOISE_HELP, choices=NOISE_MODES)
    refit: bool = option(True, "End with least squares on the inliers.", names="--refit/--no-refit")
    information: str = option("nearest", INFORMATION_HELP, choices=INFORMATION)
    strict: bool = option(False, STRICT_HELP, names="--strict")
    figure: Path | None = option(None, "Draw the trajectory before and after.", writes=True)
    report: Path | None = option(None, REPORT_HELP, writes=True)
    ellipses: Path | None = option(None, "Draw the 95 % ellipses of positions.", writes=True)
    false_loops: Path | None = option(None, "The file of `asker corrupt --json`.", reads=True)
