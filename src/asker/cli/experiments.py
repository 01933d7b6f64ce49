"""The commands `asker reproduce`, `asker compare` and `asker report`: several methods on several instances."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asker.applications import application_of, applications
from asker.applications.application import Application
from asker.cli.checks import Quiet, check_outputs, complain, number, one_of, write_outputs
from asker.cli.dataclass_options import CommandOptions, checked, given_on_the_command_line, refuse_others, with_options
from asker.cli.options import Compared, check_kernel
from asker.cli.terminal import PlanBars, print_table
from asker.experiments import SHIPPED
from asker.io.files import FileError
from asker.io.folders import alone_in, make_folder

if TYPE_CHECKING:
    from asker.experiments.plan import ComparisonRequest, Plan
    from asker.experiments.summary import Book, Results

Output = Annotated[Path, typer.Option(help="The folder for runs, tables, figures and the page.")]
AtATime = Annotated[int | None, typer.Option(min=1, help="Number of parallel runs.", show_default="number of cores")]
Memory = Annotated[float | None, typer.Option(help="Budget in GB.", show_default="70 % of the free memory")]
Figures = Annotated[bool, typer.Option("--figures", help="Also write PNG and PDF figures.")]
Folder = Annotated[Path, typer.Argument(help="The output folder of `asker reproduce` or `asker compare`.")]
FilesToCompare = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files or folders as for `asker solve`.")]

OPTIONS = CommandOptions(Compared)
for _application in applications():
    OPTIONS.add(_application.options_class, _application.title, only=_application.sources[0].keys)


def reproduce(
    plan: Annotated[str, typer.Option(help=f"{' or '.join(SHIPPED)}, or a TOML file of your own.")] = "paper",
    output: Output = Path("reproduced"),
    data: Annotated[Path | None, typer.Option(help="A folder of data, before ASKER_DATA and the cache.")] = None,
    processes: AtATime = None,
    memory: Memory = None,
    figures: Figures = False,
    quiet: Quiet = False,
) -> int:
    """The command `asker reproduce`."""
    from asker.experiments.plan_reader import read_plan

    made = read_plan(plan, data)
    with _at_work(made, output, [] if plan in SHIPPED else [Path(plan)]):
        return _run(made, output, processes, memory, figures, quiet)


@with_options(OPTIONS)
def compare(
    context: typer.Context,
    files: FilesToCompare,
    output: Output = Path("compared"),
    best: Annotated[Path | None, typer.Option(help="Write the best result of a single file.")] = None,
    processes: AtATime = None,
    memory: Memory = None,
    figures: Figures = False,
    quiet: Quiet = False,
    **given: Any,
) -> int:
    """The command `asker compare`."""
    from asker.experiments.plan import check_default, plan_of_files
    from asker.experiments.runs import solved_again
    from asker.experiments.summary import read_book

    request = _request(checked(Compared, given))
    found = [application_of(file) for file in files]
    refuse_others(context, OPTIONS, *dict.fromkeys(application.title for application in found))
    for application in found:
        checked(application.options_class, given)
        if request.holdout is not None and not application.holds_out:
            raise ValueError(f"--holdout: {application.title} have no observations that can be held out")
        check_default(request.methods, application, request.holdout is not None)
    common = {one.name for one in fields(Compared)}
    keys = {
        name: value for name, value in given.items() if name not in common and given_on_the_command_line(context, name)
    }
    if best is not None:
        if len(files) > 1:
            raise ValueError("--best needs a single file")
        _check_best(found[0], files[0], best, output)
    plan = plan_of_files([f.resolve() for f in files], request, keys)
    with _at_work(plan, output):
        code = _run(plan, output, processes, memory, figures, quiet)
        if best is not None and code == 0:
            group = read_book(output).groups[0]
            key, noun = group.measure.key, group.measure.noun
            label, record = min(group.of(plan.groups[0].instances[0]).items(), key=lambda item: item[1].result[key])
            print(f"The best is {label}, with a {noun} of {record.result[key]:.7g}.")
            write_outputs((best, lambda path: found[0].write(path, solved_again(record.run))))
    return code


def _request(given: Compared) -> "ComparisonRequest":
    """Return the checked request; costs under different kernels cannot be compared without held-out observations."""
    from asker.experiments.plan import METHOD_NAMES, ComparisonRequest

    methods = [name.strip() for name in given.methods.split(",")]
    kernels: list[str | None] = (
        [None] if given.kernels is None else [name.strip() for name in re.split(r",(?! *[a-z]+=)", given.kernels)]
    )
    taus: list[float | None] = [None] if given.tau is None else [_width(text) for text in given.tau.split(",")]
    for method in methods:
        one_of("--methods", method, METHOD_NAMES)
    for kernel in filter(None, kernels):
        check_kernel("--kernels", kernel)
    for option, named in (("--methods", methods), ("--kernels", kernels), ("--tau", taus)):
        if len(set(named)) < len(named):
            raise ValueError(f"{option} has one value twice")
    if given.holdout is None and len(kernels) * len(taus) > 1:
        raise ValueError("costs under different kernels or widths cannot be compared: specify --holdout as well")
    if given.holdout is None:
        return ComparisonRequest(methods, kernels, taus, given.iterations)
    unit = None if given.holdout_unit == 1 else given.holdout_unit
    return ComparisonRequest(methods, kernels, taus, given.iterations, given.holdout, given.holdout_seed, unit)


def _width(text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        raise ValueError(f"--tau is {text!r}, expected numbers separated by commas") from None
    return number("--tau", given, positive=True)


def report(folder: Folder, figures: Figures = False) -> int:
    """The command `asker report`."""
    from asker.experiments.summary import read_book

    _report(read_book(folder), figures)
    return 0


def _check_best(application: Application, file: Path, best: Path, output: Path) -> None:
    application.check(file, best, application.options_class())
    taken = [file, *application.reads(file), *_written(output)]
    if application.writes_folder:
        check_outputs(taken, folder=application.written(best))
    else:
        check_outputs(taken, best)


def _written(output: Path) -> list[Path]:
    """Return the files in the output folder other than the runs."""
    return [output / "plan.json", output / "index.html"]


@contextmanager
def _at_work(plan: "Plan", output: Path, read: Collection[Path] = ()) -> Iterator[None]:
    """Create and lock the output folder of a plan, check its paths, and remove interrupted runs."""
    from asker.experiments.instances import places_of
    from asker.experiments.runs import clear

    make_folder(output)
    read = {*read, *(path for run in plan.runs() for path in places_of(run.kind, run.options))}
    if os.path.realpath(output) in map(os.path.realpath, read):
        raise FileError(output, "this folder is named twice: its data are read, so the output needs another folder")
    check_outputs(read, *_written(output))
    with alone_in(output) as alone:
        if alone:
            clear(output / "runs")
        yield


def _run(plan: "Plan", output: Path, processes: int | None, memory: float | None, figures: bool, quiet: bool) -> int:
    from asker.experiments.process_pool import available_mb, run_all
    from asker.experiments.summary import read_book, telling_damage, write_index

    if plan.missing:
        print(f"Omitted, since not available: {', '.join(plan.missing)}. `asker fetch` downloads them.")
    write_index(plan, output)
    budget = 0.7 * available_mb() if memory is None else 1e3 * number("--memory", memory, positive=True)
    with PlanBars(quiet) as progress:
        failed = run_all(plan.runs(), output / "runs", processes or os.cpu_count() or 1, budget, progress.tell)
    write_index(plan, output, failed)
    for run, why in failed.items():
        complain(f"{run} failed: {why}", 1)
    if len(failed) == len(plan.runs()):
        return 1
    book = read_book(output)
    with telling_damage(book):
        for group in book.groups:
            _print_group(group)
    _report(book, figures)
    return 1 if failed else 0


def _report(book: "Book", figures: bool) -> None:
    from asker.experiments.html_report import write_page
    from asker.experiments.summary import telling_damage

    with telling_damage(book):
        write_outputs((book.root / "index.html", lambda path: write_page(path, book)))
        if figures:
            from asker.experiments.paper_figures import write_figures

            written = write_figures(book.root / "figures", book)
            print(f"wrote {len(written)} figures to {book.root / 'figures'}")


def _print_group(group: "Results") -> None:
    from asker.experiments.summary import COST, cost_rows, ranking, sentence

    print(f"\n{group.title}")
    if group.is_comparison and group.complete():
        of, typical = group.measure.noun, group.measure != COST
        titles = ["method", *([f"median\n{of}"] if typical else []), "lowest on", "median\nexcess %", "worst\nexcess %"]
        rows = []
        for r in ranking(group):
            first = [f"{r['typical']:.4g}"] if typical else []
            rows.append(
                [r["method"], *first, str(r["wins"]), *(f"{r[key]:.2f}" for key in ("median", "worst", "seconds"))]
            )
        print_table([*titles, "seconds"], *rows)
        print(sentence(group))
    else:
        rows = [[r["instance"], r["method"], f"{r['cost']:.6g}"] for r in cost_rows(group)]
        print_table(["instance", "method", "cost"], *rows)
