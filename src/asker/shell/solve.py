"""`asker solve` and `asker info`, for every application."""

from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from asker.applications import application_of, applications
from asker.applications.application import Application
from asker.io.json import write_json
from asker.shell.hosts import Hosts, Place
from asker.shell.options import TAUS, Common, Files, Processes
from asker.shell.signature import Options, checked, refuse_others, with_options
from asker.shell.support import check_outputs, complain, number, write_outputs
from asker.shell.terminal import ProgressLine, print_told

NOT_FOR_REFINE = {"iterations", *(f.name for f in fields(Files))}
FILE_HELP = f"What the applications know: {'; '.join(a.expects for a in applications())}."

Data = Annotated[Path, typer.Argument(metavar="FILE", help=FILE_HELP)]

OPTIONS = Options(Common)
for _application in applications():
    OPTIONS.add(_application.options_class, _application.title)
    if _application.several_processes:
        OPTIONS.add(Processes, _application.title)


@with_options(OPTIONS)
def solve(context: typer.Context, file: Data, **given: Any) -> int:
    """Refine a file or folder: the application is seen from what is in it.  Ctrl-C stops and keeps the best so far."""
    common, processes = checked(Common, given), checked(Processes, given)
    application = application_of(file)
    refuse_others(context, OPTIONS, application.title)
    options: Any = checked(application.options_class, given)
    hosts = Hosts(**asdict(processes))
    common = replace(common, engine=hosts.engine(common.engine))
    application.check(file, common.output, options)
    if not processes.process_id:
        check_outputs(file, *_written(application, common, options))
    with hosts.together(common.quiet, common.engine, application.several_processes) as place:
        return refine(application, file, common, options, place)


def refine(application: Application, file: Path, common: Common, options: Any, place: Place) -> int:
    """Read, refine, tell and write; of several processes each holds a part, the first one prints and writes."""
    with ProgressLine(common.quiet or place.process > 0) as progress:
        progress.say(f"reading {file}")
        data = application.load(file) if place.alone else application.load_part(file, place.process, place.n_processes)
        progress.say(f"preparing {application.counts(data)}")
        asked = {f.name: getattr(common, f.name) for f in fields(Common) if f.name not in NOT_FOR_REFINE}
        iterations = application.iterations if common.iterations is None else common.iterations
        outcome = application.refine(
            data, options, progress.begin, max_iterations=iterations, on_iteration=progress.iteration, **asked
        )
    place.part()
    if place.process > 0:
        return 0
    name = "folder" if file.is_dir() else "file"
    outcome = replace(outcome, record={name: str(file)} | outcome.record)
    print_told([f"{file}: {application.counts(data)}", *application.tell(data, outcome, options)])
    json_writer = partial(write_json, record=outcome.record)
    write_outputs((common.json_file, json_writer), *application.outputs(outcome, options, common.output))
    if iterations and not outcome.fell:
        return complain(f"{file}: the {application.cost_name} did not fall: {outcome.result.status.value}", 1)
    return 0


def _written(application: Application, common: Common, options: Any) -> list[Path | None]:
    """The files that are written after the work."""
    named = [getattr(of, f.name) for of in (common, options) for f in fields(of) if f.metadata.get("writes")]
    return named if application.writes_folder else [*named, common.output]


def info(
    file: Data,
    tau: Annotated[
        float | None, typer.Option(help="Scale of the kernel, as in `asker solve`.", show_default=TAUS)
    ] = None,
) -> int:
    """Describe a file or folder: its size, and how good its start is."""
    if tau is not None:
        number("--tau", tau, positive=True)
    application = application_of(file)
    data = application.load(file)
    print_told([f"{file}: {application.counts(data)}", *application.info(data, tau)])
    return 0
