"""What can be asked of a pose graph."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from asker.applications.application import option
from asker.applications.pose_graph.formats.file_issues import INFORMATION
from asker.applications.uncertainty import REPORT_HELP
from asker.io.file_issues import STRICT_HELP

Robust = Literal["loops", "all", "none"]
By = Literal["id", "length"]
Noise = Literal["auto", "announced", "estimated"]
ROBUST: tuple[Robust, ...] = get_args(Robust)
MATCHES: tuple[By, ...] = get_args(By)
NOISES: tuple[Noise, ...] = get_args(Noise)
INFORMATION_HELP = f"Of matrices with negative eigenvalues: {', '.join(INFORMATION)}."
NOISE_HELP = f"{', '.join(NOISES)}; auto: estimated where loops can be refused."


@dataclass(frozen=True)
class Options:
    """Of `asker solve` for a pose graph."""

    truth: Path | None = option(None, "The true poses, for the trajectory error.", reads=True)
    truth_by: str = option("id", f"Poses and truth match by {' or '.join(MATCHES)}.", choices=MATCHES)
    robust: str = option("loops", "The kernel acts on loops, all or none.", choices=ROBUST)
    noise: str = option("auto", NOISE_HELP, choices=NOISES)
    refit: bool = option(True, "End with least squares on what is kept.", names="--refit/--no-refit")
    information: str = option("nearest", INFORMATION_HELP, choices=INFORMATION)
    strict: bool = option(False, STRICT_HELP, names="--strict")
    figure: Path | None = option(None, "Draw the trajectory before and after.", writes=True)
    report: Path | None = option(None, REPORT_HELP, writes=True)
    ellipses: Path | None = option(None, "Draw the 95 % ellipses of positions.", writes=True)
    false_loops: Path | None = option(None, "What `asker corrupt --json` wrote.", reads=True)
