"""`asker refine-poses`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from asker.applications.colmap.formats.folder import check_target
from asker.applications.posed.correspondences.features import match_images
from asker.applications.posed.correspondences.matches import Matches, read_matches
from asker.applications.posed.correspondences.pairs import select_pairs
from asker.applications.posed.formats.detection import read_poses
from asker.applications.posed.formats.folder import assigned, list_images
from asker.applications.posed.formats.trajectories import parse_intrinsics
from asker.applications.posed.options import Options
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.refine import refine
from asker.applications.posed.reports.outputs import MODEL, write_outputs
from asker.applications.posed.reports.text_report import outcome_report
from asker.applications.text_report import number_of
from asker.cli.checks import Quiet, complain
from asker.cli.dataclass_options import CommandOptions, checked, with_options
from asker.cli.terminal import ProgressLine, print_report
from asker.io.files import FileError
from asker.io.folders import make_folder

OPTIONS = CommandOptions(Options)
DATABASE = "database.db"
POSES_HELP = (
    "A COLMAP model with or without points, nerfstudio's transforms.json, arrays as networks give them (.npz), or a "
    "TUM or KITTI trajectory."
)

Images = Annotated[Path, typer.Argument(metavar="IMAGES", help="The folder of the images.")]
Poses = Annotated[Path, typer.Argument(metavar="POSES", help=POSES_HELP)]
Output = Annotated[Path, typer.Option(help="The folder for the model, transforms.json, PLY, report and page.")]


@with_options(OPTIONS)
def refine_poses(images: Images, poses: Poses, output: Output, quiet: Quiet = False, **given: Any) -> int:
    """The command `asker refine-poses`."""
    options = checked(Options, given)
    if output.exists() and not output.is_dir():
        raise FileError(output, "this is a file, but the output is a folder")
    if output.resolve() in (images.resolve(), poses.resolve()):
        raise FileError(output, "this path is named twice: the output must differ from all inputs")
    if (output / MODEL).exists():
        check_target(output / MODEL)
    camera = None if options.camera is None else parse_camera(options.camera)
    limits: Any = {"threads": options.threads, "time_limit": options.time_limit}
    with ProgressLine(quiet) as progress:
        progress.say(f"reading {poses}")
        files = list_images(images)
        posed, messages = assigned(files, read_poses(poses, list(files.names), camera))
        matches = found_matches(images, posed, options, output, progress)
        progress.begin("refining")
        asked: Any = {"intrinsics": options.intrinsics, "seed": options.seed, "say": progress.say}
        outcome = refine(posed, matches, **asked, on_iteration=progress.iteration, **limits)
        record = {"images_folder": str(images), "poses": str(poses), "issues": messages} | outcome.record
        outcome = replace(outcome, record=record)
        progress.begin("writing")
        written = write_outputs(output, images, outcome)
    cameras = number_of(len(posed.cameras), "camera")
    print_report(
        [f"{images}, {poses}: {number_of(len(posed), 'image')}, {cameras}", *(f"Note: {m}." for m in messages)]
    )
    print_report(outcome_report(outcome))
    for path in written:
        print(f"wrote {path}")
    if not outcome.accepted:
        return complain(f"{poses}: the result is refused and no model was written: {outcome.reason}", 1)
    return 0


def parse_camera(text: str) -> Any:
    """Return the camera of `--camera`."""
    try:
        return parse_intrinsics(text)
    except ValueError as error:
        raise ValueError(f"--camera: {error}") from None


def found_matches(images: Path, posed: PosedImages, options: Options, output: Path, progress: ProgressLine) -> Matches:
    """Return the matches of the user, or those that pycolmap finds and a database keeps."""
    if options.matches is not None:
        return read_matches(options.matches, posed.names)
    if options.database is None:
        make_folder(output)
    database = options.database or output / DATABASE
    match_images(images, posed, select_pairs(posed), database, progress.say)
    return read_matches(database, posed.names)
