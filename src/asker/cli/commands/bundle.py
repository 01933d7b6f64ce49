"""`asker generate` and `asker join`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from asker.applications.bundle import sharded_output
from asker.applications.bundle.application import counts
from asker.applications.bundle.bal import write_bal
from asker.applications.bundle.synthetic import KINDS, make_scene
from asker.cli.checks import Seed, check_outputs, one_of, write_outputs

NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The BAL file to write; .gz, .bz2 compress.")]
Outliers = Annotated[float, typer.Option(help="Fraction of the observations that are gross errors.")]
StartError = Annotated[float, typer.Option(help="Median residual of the inliers at the initial guess, in pixels.")]


def join(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The BAL file that was solved.")],
    output: Annotated[
        Path, typer.Argument(help="The --output of that solve: the file to write, in the folder of its parts.")
    ],
) -> int:
    """The command `asker join`."""
    check_outputs(file, output)
    for path in sharded_output.join(file, output):
        print(f"joined {path}")
    print(f"wrote {output}")
    return 0


def generate(
    file: NewFile,
    cameras: Annotated[int, typer.Option(help="Number of cameras.")] = 30,
    observations: Annotated[
        int | None, typer.Option(help="Number of observations.", show_default="600 per camera")
    ] = None,
    kind: Annotated[str, typer.Option(help="ring: around one object; path: along a closed curve.")] = "ring",
    noise: Annotated[float, typer.Option(help="Standard deviation of a pixel coordinate.")] = 0.4,
    outliers: Outliers = 0.2,
    outlier_size: Annotated[float, typer.Option(help="The largest gross error, in pixels.")] = 150.0,
    start_error: StartError = 5.0,
    seed: Seed = 0,
    truth: Annotated[Path | None, typer.Option(help="Write the true cameras and points here.")] = None,
) -> int:
    """The command `asker generate`."""
    one_of("--kind", kind, KINDS)
    check_outputs(None, file, truth)
    scene = make_scene(
        cameras,
        observations,
        kind=kind,
        noise=noise,
        outlier_ratio=outliers,
        outlier_size=outlier_size,
        start_error=start_error,
        seed=seed,
    )
    start = scene.start
    print(f"{counts(start)}, {np.count_nonzero(scene.outliers)} of them outliers")
    write_outputs((file, partial(write_bal, bundle=start)), (truth, partial(write_bal, bundle=scene.truth)))
    return 0
