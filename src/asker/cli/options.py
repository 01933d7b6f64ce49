"""The options of `asker solve` that are for every application."""

from dataclasses import dataclass
from pathlib import Path

import asker
from asker._solve import ENGINES
from asker.applications import applications
from asker.applications.application import Application, option
from asker.kernels.registry import KERNELS, kernel_named

LINEAR_SOLVERS = ("auto", "dense-cholesky", "sparse-cholesky", "cg")

METHOD_HELP = f"One of: {', '.join(asker.METHODS)}."
KERNEL_DEFAULT = "found with the noise; smooth-truncated where that is given"
KERNEL_HELP = f"One of: {', '.join(KERNELS)}; with parameters as in barron:alpha=-2."
TAU_HELP = (
    "Width of the kernel, in pixels, degrees or standard deviations. Inliers are counted by the noise sigma that the "
    "residuals show, up to what one inlier in 1000 exceeds (3.7 sigma of pixels)."
)
TAUS = "; ".join(sorted({application.tau for application in applications()}))  # what is for all comes first
ITERATIONS_HELP = "At most so many linear solves; graphs: in each round."
ITERATIONS = "; ".join(
    ["100", *(f"for {a.title} {a.iterations}" for a in applications() if a.iterations != Application.iterations)]
)
ENGINE_HELP = f"One of: {', '.join(ENGINES)}; xla is for GPUs and clusters."
HOLDOUT_HELP = "Solve without a share of the observations, 0.1 say, and tell how well they are predicted."
RANKED_HELP = "Rank by a share of the observations, 0.1 say, that no method sees."
SEED_HELP = "The same seed holds out the same observations."
UNIT_HELP = (
    "About the size of a good residual, in px, degrees or standard deviations: held-out ones count up to 4 of it."
)
THREADS_HELP = "All cores when not given."


def check_kernel(option: str, text: str) -> None:
    """Refuse a kernel that is not known, or parameters that it does not have."""
    kernel_named(text, option=option)


@dataclass(frozen=True)
class Method:
    """What is minimised, and by which method."""

    method: str | None = option(
        None, METHOD_HELP, show_default="asker; irls for a convex kernel", choices=tuple(asker.METHODS)
    )
    tau: float | None = option(None, TAU_HELP, show_default=TAUS, above=0.0)
    kernel: str | None = option(None, KERNEL_HELP, check=check_kernel, show_default=KERNEL_DEFAULT)


@dataclass(frozen=True)
class Limits:
    """How long a solve goes on."""

    iterations: int | None = option(None, ITERATIONS_HELP, min=0, show_default=ITERATIONS)
    tol: float = option(1e-9, "Stop when a step lowers the cost by a smaller part.", least=0.0)
    time_limit: float | None = option(None, "Stop after so many seconds.", least=0.0)


@dataclass(frozen=True)
class Means:
    """What it is computed with."""

    linear_solver: str = option("auto", f"One of: {', '.join(LINEAR_SOLVERS)}.", choices=LINEAR_SOLVERS)
    threads: int | None = option(None, THREADS_HELP, min=1)


@dataclass(frozen=True)
class Files:
    """What is written, and what is shown."""

    json_file: Path | None = option(None, "Write the run as JSON.", names="--json", writes=True)
    output: Path | None = option(None, "Write the refined data, in the format that was read.")
    quiet: bool = option(False, "No progress line.", names="--quiet")


@dataclass(frozen=True)
class Sureness:
    """How sure the result is."""

    covariance: Path | None = option(None, "Write covariances of what was refined, as .npz.", writes=True)


def check_share(option: str, share: float) -> None:
    """Refuse what is no part of a whole."""
    if not 0 < share < 1:
        raise ValueError(f"{option} must lie strictly between 0 and 1, as 0.1 does, got {share:g}")


@dataclass(frozen=True)
class Judging:
    """What a result is judged by where the truth is not known."""

    holdout: float | None = option(None, HOLDOUT_HELP, metavar="SHARE", check=check_share)
    holdout_seed: int = option(0, SEED_HELP, min=0)
    holdout_unit: float = option(1.0, UNIT_HELP, above=0.0)
    again: bool = option(True, "With --holdout: then solve with everything.", names="--again/--no-again")


@dataclass(frozen=True)
class Common(Judging, Sureness, Files, Means, Limits, Method):
    """What `asker solve` is asked whatever the data."""

    engine: str = option("auto", ENGINE_HELP, choices=ENGINES)
    checkpoint: Path | None = option(
        None, "Write the run here now and then; continue from it if it is there.", writes=True
    )
    every: int = option(10, "Iterations from one checkpoint to the next.", min=1)


@dataclass(frozen=True)
class Compared:
    """What `asker compare` runs, whatever the data; lists have commas."""

    methods: str = option("irls,gnc,moo,asker", "The methods, with commas.")
    kernels: str | None = option(None, "Kernels; several need --holdout.", show_default="smooth-truncated")
    tau: str | None = option(None, "Width of the kernel; several need --holdout.", show_default=TAUS)
    iterations: int | None = option(None, "Linear solves of each run.", min=1, show_default=ITERATIONS)
    holdout: float | None = option(None, RANKED_HELP, metavar="SHARE", check=check_share)
    holdout_seed: int = option(0, SEED_HELP, min=0)
    holdout_unit: float = option(1.0, UNIT_HELP, above=0.0)


@dataclass(frozen=True)
class Processes:
    """Who takes part in the run."""

    coordinator: str | None = option(None, "Where process 0 listens; not needed in a Slurm job.", metavar="HOST:PORT")
    num_processes: int | None = option(None, "How many processes take part.", min=1)
    process_id: int | None = option(None, "Which of them this is, from 0.", min=0)
    parts: bool = option(False, "Each process writes a part of --output; `asker join` joins them.", names="--parts")
