"""The command that downloads public data sets."""

from pathlib import Path
from typing import Annotated

import typer

from asker.applications.datasets import BAL, DATA_SETS, PAPER, POSE_GRAPHS, STEREO, folders
from asker.applications.datasets import fetch as fetch_one
from asker.cli.checks import Quiet, one_of
from asker.cli.terminal import ProgressLine, print_table
from asker.io.download import Unreachable
from asker.io.files import FileError

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Such as ladybug-49, teddy or intel.")]
Data = Annotated[Path | None, typer.Option(help="A local folder that is searched first.", show_default="ASKER_DATA")]
Mirror = Annotated[
    str | None,
    typer.Option(help="Download from this URL, with the layout of the folder of --data.", show_default="ASKER_MIRROR"),
]


def fetch(
    names: Names = None,
    paper: Annotated[bool, typer.Option("--paper", help="The 20 bundles of the paper.")] = False,
    all_bal: Annotated[bool, typer.Option("--all-bal", help=f"All {len(BAL)} bundles of BAL.")] = False,
    stereo: Annotated[bool, typer.Option("--stereo", help="The stereo pairs.")] = False,
    pose_graphs: Annotated[bool, typer.Option("--pose-graphs", help="The pose graphs.")] = False,
    data: Data = None,
    mirror: Mirror = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the data sets and those available locally.")] = False,
    quiet: Quiet = False,
) -> int:
    """The command `asker fetch`."""
    chosen = [one_of("NAME", name, DATA_SETS) for name in names or []]
    for asked, group in ((paper, PAPER), (all_bal, BAL), (stereo, STEREO), (pose_graphs, POSE_GRAPHS)):
        chosen += group if asked else ()
    if list_only:
        print_list(chosen or list(DATA_SETS), folders(data))
        return 0
    if not chosen:
        groups = "--paper, --all-bal, --stereo or --pose-graphs"
        raise ValueError(f"name a data set, or give {groups}; --list shows all data sets")
    fetch_all(list(dict.fromkeys(chosen)), data, mirror, quiet)
    return 0


def fetch_all(names: list[str], data: Path | None, mirror: str | None, quiet: bool) -> None:
    """Fetch data sets and print their paths; continue after an invalid file, but not without a connection."""
    problems = []
    with ProgressLine(quiet) as progress:
        for name in names:
            progress.begin(name)
            try:
                print(f"{name}: {fetch_one(name, data, progress.say, mirror)}", flush=True)
            except FileError as e:
                problems.append(str(e))
                if isinstance(e, Unreachable):
                    break
    if problems:
        raise ValueError("; ".join(problems))


def print_list(names: list[str], places: dict[str, Path]) -> None:
    rows = []
    for name in names:
        wanted = DATA_SETS[name]
        at_hand = next((place for place, folder in places.items() if wanted.found_in(folder)), "")
        rows.append([name, wanted.size, "yes" if name in PAPER else "", at_hand])
    print_table(["name", "size", "in the paper", "folder"], *rows)
    for place, folder in places.items():
        print(f"{place}: {folder}")
