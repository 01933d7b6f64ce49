"""`asker solve` and `asker info`, for every application."""

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from asker.applications import application_of, applications
from asker.applications.application import Application, Write
from asker.applications.holdout import holdout_report
from asker.applications.outcome import Outcome
from asker.applications.text_report import ReportItems
from asker.cli.checks import check_outputs, complain, number, write_outputs
from asker.cli.dataclass_options import (
    CommandOptions,
    checked,
    flag,
    given_on_the_command_line,
    refuse_others,
    with_options,
)
from asker.cli.distributed import Hosts, Place
from asker.cli.options import TAUS, Common, Files, Processes, Uncertainty, Validation
from asker.cli.terminal import ProgressLine, print_report
from asker.io.files import FileError
from asker.io.json import write_json
from asker.solver.result import Status

NOT_FOR_REFINE = {"iterations", *(f.name for of in (Files, Validation, Uncertainty) for f in fields(of))}
VALIDATION = tuple(f.name for f in fields(Validation) if f.name != "holdout")
"""The options that require `--holdout`."""
FILE_HELP = f"One of: {'; '.join(a.expects for a in applications())}."

Data = Annotated[Path, typer.Argument(metavar="FILE", help=FILE_HELP)]

OPTIONS = CommandOptions(Common)
for _application in applications():
    OPTIONS.add(_application.options_class, _application.title)
    if _application.several_processes:
        OPTIONS.add(Processes, _application.title)


@with_options(OPTIONS)
def solve(context: typer.Context, file: Data, **given: Any) -> int:
    """The command `asker solve`."""
    common, processes = checked(Common, given), checked(Processes, given)
    application = application_of(file)
    refuse_others(context, OPTIONS, application.title)
    options: Any = checked(application.options_class, given)
    hosts = Hosts(processes.coordinator, processes.num_processes, processes.process_id)
    common = replace(common, engine=hosts.engine(common.engine))
    application.check(file, common.output, options)
    if processes.parts:
        _check_parts(application, common, options)
    if common.covariance is not None:
        _check_covariance(application, common, hosts)
    if common.holdout is not None:
        _check_holdout(application, common, options, hosts)
    elif unused := [name for name in VALIDATION if given_on_the_command_line(context, name)]:
        names = OPTIONS.fields[unused[0]].metadata.get("names", flag(OPTIONS.fields[unused[0]]))
        raise ValueError(f"{names.replace('/', ' or ')} requires --holdout")
    if not processes.process_id:
        read = [file, *application.reads(file), *_marked("reads", options)]
        folder = application.written(common.output) if common.output and application.writes_folder else []
        check_outputs(read, *_written(application, common, options), folder=folder)
    with hosts.together(common.quiet, common.engine, application.several_processes) as place:
        if processes.parts and place.alone:
            raise ValueError("--parts requires several processes")
        return refine(application, file, common, options, place, processes.parts)


def refine(
    application: Application, file: Path, common: Common, options: Any, place: Place, parts: bool = False
) -> int:
    """Read, refine, report and write; of several processes each has a portion, and the first one prints and writes."""
    with ProgressLine(common.quiet or place.process > 0) as progress:
        progress.say(f"reading {file}")
        data = _loaded(application, file, options, place, parts)
        progress.say(f"preparing {application.counts(data)}")
        iterations = application.iteration_limit(options) if common.iterations is None else common.iterations
        asked = {f.name: getattr(common, f.name) for f in fields(Common) if f.name not in NOT_FOR_REFINE}
        asked |= {"max_iterations": iterations, "on_iteration": progress.iteration}

        def call(given: Any) -> Outcome:
            return application.refine(given, options, progress.begin, **asked)

        validation: dict[str, Any] = {}
        whole = data
        if common.holdout is None:
            outcome = call(data)
        else:
            data, outcome, validation = _validated(application, data, common, options, call, progress)
        is_whole = data is whole
    place.part_ways()
    if parts:
        assert common.output is not None
        path = application.write_part(common.output, outcome.refined, place.process, place.n_processes)
        progress.say(f"wrote {path}")
    if place.process > 0:
        return 0
    name = "folder" if file.is_dir() else "file"
    record = {name: str(file)} | outcome.record | validation
    outcome = replace(outcome, make_record=lambda: record)
    writers: list[Write] = [(common.json_file, partial(write_json, record=outcome.record))]
    if is_whole and not parts:
        writers += application.outputs(outcome, options, common.output)
        writers.append((common.covariance, lambda path: outcome.covariances.write(path)))
    try:
        print_report([f"{file}: {application.counts(data)}", *application.report(data, outcome, options)])
        print_report(_general_report(outcome, common, validation, is_whole))
    finally:  # files are written even if printing fails
        write_outputs(*writers)
    if outcome.result.unwritten:
        return complain(f"the checkpoint was not written: {outcome.result.unwritten}", 2)
    if not is_whole and common.again:
        return 130
    if iterations != 0 and not outcome.succeeded:
        return complain(f"{file}: the {application.cost_name} did not decrease: {outcome.result.status.value}", 1)
    return 0


def _loaded(application: Application, file: Path, options: Any, place: Place, parts: bool) -> Any:
    """Return the data, or the portion of one of several processes."""
    if place.alone:
        return application.load_as(file, options)
    data = application.load_portion(file, options, place.process, place.n_processes)
    return application.in_parts(data) if parts else data


def _general_report(outcome: Outcome, common: Common, validation: dict[str, Any], is_whole: bool) -> ReportItems:
    """Return the report on the checkpoint and on held-out observations, which follows that of the application."""
    continued = outcome.result.continued_from
    items: list[Any] = [f"Continued from iteration {continued} of {common.checkpoint}."] if continued else []
    if validation:
        items += holdout_report(validation["holdout"], is_whole)
    if not is_whole and common.again:
        items.append("Interrupted before the solve with all observations: only --json is written.")
    return items


def _validated(
    application: Application,
    data: Any,
    common: Common,
    options: Any,
    call: Callable[[Any], Outcome],
    progress: ProgressLine,
) -> tuple[Any, Outcome, dict[str, Any]]:
    """Refine the training data, evaluate the held-out observations, and refine all data.

    Return the data of the outcome, the outcome, and the record of the held-out observations.
    """
    assert common.holdout is not None
    split = application.hold_out(data, asdict(options), common.holdout, common.holdout_seed)
    progress.begin("without held-out observations")
    outcome = call(split.training)
    scores = split.record(outcome.refined, common.holdout_unit)
    ends = {"iterations": outcome.record["iterations"], "message": outcome.record["message"]}
    validation = {"holdout": {"share": common.holdout, "seed": common.holdout_seed} | scores | ends}
    if not common.again or outcome.result.status is Status.INTERRUPTED:
        return split.training, outcome, validation
    progress.begin("with all observations")
    return data, call(data), validation


def _check_parts(application: Application, common: Common, options: Any) -> None:
    """Raise a ValueError for options that need the whole result in one process, before any computation."""
    if not application.writes_parts:
        raise ValueError(f"--parts is not available for {application.title}")
    if common.output is None:
        raise ValueError("--parts requires --output")
    if any(_marked("writes", options)) or common.covariance is not None:
        raise ValueError("with --parts no process has the whole result: besides --output only --json can be written")


def _check_covariance(application: Application, common: Common, hosts: Hosts) -> None:
    """Raise an error if covariances cannot be computed or written, before any computation."""
    assert common.covariance is not None
    if not application.has_covariances:
        raise ValueError(f"--covariance is not available for {application.title}")
    if hosts.given:
        raise ValueError("--covariance is not available with several processes")
    if common.covariance.suffix != ".npz":
        raise FileError(common.covariance, "the name must end with .npz")


def _check_holdout(application: Application, common: Common, options: Any, hosts: Hosts) -> None:
    """Raise a ValueError for options that contradict --holdout, before any computation."""
    if not application.holds_out:
        raise ValueError(f"--holdout: {application.title} have no observations that can be held out")
    if common.checkpoint is not None and common.again:
        raise ValueError("--holdout solves twice: omit --checkpoint or give --no-again")
    if hosts.given:
        raise ValueError("--holdout is not available with several processes")
    named = [
        path for path in _written(application, common, options) if path not in (common.json_file, common.checkpoint)
    ]
    if not common.again and (common.output or any(named)):
        raise ValueError("with --no-again there is no solve with all observations: only --json can be written")


def _written(application: Application, common: Common, options: Any) -> list[Path | None]:
    """Return the files that are written at the end."""
    named = _marked("writes", common, options)
    return named if application.writes_folder else [*named, common.output]


def _marked(mark: str, *options: Any) -> list[Path | None]:
    """Return the values of the options that are files to read (`reads`) or to write (`writes`)."""
    return [getattr(of, f.name) for of in options for f in fields(of) if f.metadata.get(mark)]


def info(
    file: Data,
    tau: Annotated[
        float | None, typer.Option(help="Width of the kernel, as in `asker solve`.", show_default=TAUS)
    ] = None,
) -> int:
    """The command `asker info`."""
    if tau is not None:
        number("--tau", tau, positive=True)
    application = application_of(file)
    data = application.load(file)
    print_report([f"{file}: {application.counts(data)}", *application.info(data, tau)])
    return 0
