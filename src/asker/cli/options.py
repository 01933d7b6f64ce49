"""The options of `asker solve` and `asker compare` that all applications share."""

from dataclasses import dataclass
from pathlib import Path

import asker
from asker._solve import ENGINES
from asker.applications import applications
from asker.applications.application import Application, option
from asker.kernels.registry import KERNELS, kernel_named

LINEAR_SOLVERS = ("auto", "dense-cholesky", "sparse-cholesky", "cg")

METHOD_HELP = f"One of: {', '.join(asker.METHODS)}."
KERNEL_DEFAULT = "estimated with the noise; smooth-truncated if --tau or --method is given"
KERNEL_HELP = f"One of: {', '.join(KERNELS)}; with parameters as in barron:alpha=-2."
TAU_HELP = (
    "Width of the kernel, in pixels, degrees or standard deviations. Reported inliers do not depend on it: their "
    "residuals are below the 99.9 % quantile for the estimated noise sigma (3.7 sigma of pixels)."
)
TAUS = "; ".join(sorted({application.tau for application in applications()}))  # the general default comes first
ITERATIONS_HELP = "Maximum number of linear solves; pose graphs: per round."
ITERATIONS = "; ".join(
    ["100", *(f"for {a.title} {a.iterations}" for a in applications() if a.iterations != Application.iterations)]
)
ENGINE_HELP = f"One of: {', '.join(ENGINES)}; xla is for GPUs and clusters."
HOLDOUT_HELP = "Solve without a share of the observations, such as 0.1, and report how well they are predicted."
RANKED_HELP = "Rank the methods by how well they predict a held-out share of the observations, such as 0.1."
SEED_HELP = "Random seed of the choice of held-out observations."
UNIT_HELP = (
    "Typical inlier residual in px, degrees or standard deviations; held-out errors are capped at 4 times this value."
)
THREADS_HELP = "Number of threads; all cores by default."
METHODS_HELP = (
    f"Names separated by commas: default, {', '.join(asker.METHODS)}. `default` estimates the noise, as `asker solve` "
    "does without --method, --kernel and --tau; to compare it with other methods, give --holdout."
)


def check_kernel(option: str, text: str) -> None:
    """Raise a ValueError for an unknown kernel or parameter."""
    kernel_named(text, option=option)


@dataclass(frozen=True)
class Method:
    """Options of the method and the kernel."""

    method: str | None = option(
        None, METHOD_HELP, show_default="asker; irls for a convex kernel", choices=tuple(asker.METHODS)
    )
    tau: float | None = option(None, TAU_HELP, show_default=TAUS, above=0.0)
    kernel: str | None = option(None, KERNEL_HELP, check=check_kernel, show_default=KERNEL_DEFAULT)


@dataclass(frozen=True)
class Limits:
    """Options of the termination of a solve."""

    iterations: int | None = option(None, ITERATIONS_HELP, min=0, show_default=ITERATIONS)
    tol: float = option(1e-9, "Stop when the relative decrease of the cost is smaller.", least=0.0)
    time_limit: float | None = option(None, "Time limit in seconds.", least=0.0)


@dataclass(frozen=True)
class Means:
    """Options of the computation."""

    linear_solver: str = option("auto", f"One of: {', '.join(LINEAR_SOLVERS)}.", choices=LINEAR_SOLVERS)
    threads: int | None = option(None, THREADS_HELP, min=1)


@dataclass(frozen=True)
class Files:
    """Options of the output."""

    json_file: Path | None = option(None, "Write the run as JSON.", names="--json", writes=True)
    output: Path | None = option(None, "Write the refined data in the format of the input.")
    quiet: bool = option(False, "No progress line.", names="--quiet")


@dataclass(frozen=True)
class Uncertainty:
    """Options of uncertainties."""

    covariance: Path | None = option(None, "Write covariances of the refined data as .npz.", writes=True)


def check_share(option: str, share: float) -> None:
    """Raise a ValueError unless the share is between 0 and 1."""
    if not 0 < share < 1:
        raise ValueError(f"{option} must lie strictly between 0 and 1, as 0.1 does, got {share:g}")


@dataclass(frozen=True)
class Validation:
    """Options of the validation by held-out observations."""

    holdout: float | None = option(None, HOLDOUT_HELP, metavar="SHARE", check=check_share)
    holdout_seed: int = option(0, SEED_HELP, min=0)
    holdout_unit: float = option(1.0, UNIT_HELP, above=0.0)
    again: bool = option(True, "With --holdout: solve again with all observations.", names="--again/--no-again")


@dataclass(frozen=True)
class Common(Validation, Uncertainty, Files, Means, Limits, Method):
    """Options of `asker solve` for all data."""

    engine: str = option("auto", ENGINE_HELP, choices=ENGINES)
    checkpoint: Path | None = option(
        None, "Write the state of the run here regularly; continue from this file if it exists.", writes=True
    )
    every: int = option(10, "Number of iterations between checkpoints.", min=1)


@dataclass(frozen=True)
class Compared:
    """Options of `asker compare` for all data; values in lists are separated by commas."""

    methods: str = option("irls,gnc,moo,asker", METHODS_HELP)
    kernels: str | None = option(None, "Kernels; several need --holdout.", show_default="smooth-truncated")
    tau: str | None = option(None, "Kernel widths; several need --holdout.", show_default=TAUS)
    iterations: int | None = option(None, "Maximum number of linear solves per run.", min=1, show_default=ITERATIONS)
    holdout: float | None = option(None, RANKED_HELP, metavar="SHARE", check=check_share)
    holdout_seed: int = option(0, SEED_HELP, min=0)
    holdout_unit: float = option(1.0, UNIT_HELP, above=0.0)


@dataclass(frozen=True)
class Processes:
    """Options of a run with several processes."""

    coordinator: str | None = option(None, "Address of process 0; not needed in a Slurm job.", metavar="HOST:PORT")
    num_processes: int | None = option(None, "Number of processes.", min=1)
    process_id: int | None = option(None, "Index of this process, from 0.", min=0)
    parts: bool = option(False, "Each process writes a part of --output; `asker join` joins them.", names="--parts")
