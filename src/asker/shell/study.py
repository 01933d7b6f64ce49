"""Commands that run many methods on many instances: reproduce, compare, report."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asker.applications import application_of, applications
from asker.applications.application import Application
from asker.shell.options import ITERATIONS, METHODS, TAUS
from asker.shell.signature import Options, checked, given_on_the_command_line, refuse_others, with_options
from asker.shell.support import Quiet, check_outputs, complain, number, one_of, write_outputs
from asker.shell.terminal import PlanBars, print_table
from asker.study import SHIPPED

if TYPE_CHECKING:
    from asker.study.plan import Plan
    from asker.study.summary import Book, Results

Output = Annotated[Path, typer.Option(help="The folder for runs, tables, figures and the page.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Runs at a time.", show_default="one for each core")]
Memory = Annotated[float | None, typer.Option(help="Budget in GB.", show_default="70 % of what is free")]
Figures = Annotated[bool, typer.Option("--figures", help="Also write PNG and PDF figures.")]
Folder = Annotated[Path, typer.Argument(help="What reproduce or compare made.")]
FilesToCompare = Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `asker solve` takes.")]

OPTIONS = Options()
for _application in applications():
    OPTIONS.add(_application.options_class, _application.title, only=_application.sources[0].keys)


def reproduce(
    plan: Annotated[str, typer.Option(help=f"{' or '.join(SHIPPED)}, or a TOML file of your own.")] = "paper",
    output: Output = Path("reproduced"),
    data: Annotated[Path | None, typer.Option(help="A folder of data; ASKER_DATA and the cache come next.")] = None,
    processes: Processes = None,
    memory: Memory = None,
    figures: Figures = False,
    quiet: Quiet = False,
) -> int:
    """Run a plan and make its page.  What is finished is not run again; Ctrl-C stops, the same command goes on."""
    from asker.study.plan import read_plan

    made = read_plan(plan, data)
    return _run(made, output, processes, memory, figures, quiet)


@with_options(OPTIONS)
def compare(
    context: typer.Context,
    files: FilesToCompare,
    methods: Annotated[str, typer.Option(help="The methods, with commas.")] = "irls,gnc,moo,asker",
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Linear solves of each run.", show_default=ITERATIONS)
    ] = None,
    tau: Annotated[float | None, typer.Option(help="Scale of the kernel.", show_default=TAUS)] = None,
    output: Output = Path("compared"),
    best: Annotated[Path | None, typer.Option(help="Write the best result of the one file.")] = None,
    processes: Processes = None,
    memory: Memory = None,
    figures: Figures = False,
    quiet: Quiet = False,
    **given: Any,
) -> int:
    """Compare methods on your own files: a table here, and a page with curves and drawings.

    Each method runs alone: what `asker solve` does before and after, as with the noise of a pose graph, is left out.
    """
    from asker.study.plan import plan_of_files
    from asker.study.runs import solved_again
    from asker.study.summary import read_book

    chosen = methods.split(",")
    for method in chosen:
        one_of("--methods", method, METHODS)
    if len(set(chosen)) < len(chosen):
        raise ValueError("--methods names a method twice")
    found = [application_of(file) for file in files]
    refuse_others(context, OPTIONS, *dict.fromkeys(application.title for application in found))
    for application in found:
        checked(application.options_class, given)
    keys = {name: value for name, value in given.items() if given_on_the_command_line(context, name)}
    if tau is not None:
        keys["tau"] = float(number("--tau", tau, positive=True))
    if best is not None:
        if len(files) > 1:
            raise ValueError("--best needs a single file")
        _check_best(found[0], files[0], best)
    plan = plan_of_files([f.resolve() for f in files], chosen, iterations, keys)
    code = _run(plan, output, processes, memory, figures, quiet)
    if best is not None and code == 0:
        group = read_book(output).groups[0]
        label, record = min(group.of(plan.groups[0].instances[0]).items(), key=lambda item: item[1].cost)
        print(f"The best is {label}, with a cost of {record.cost:.7g}.")
        write_outputs((best, lambda path: found[0].write(path, solved_again(record.run))))
    return code


def report(folder: Folder, figures: Figures = False) -> int:
    """Draw the page anew from recorded runs, without running anything."""
    from asker.study.summary import read_book

    _report(read_book(folder), figures)
    return 0


def _check_best(application: Application, file: Path, best: Path) -> None:
    application.check(file, best, application.options_class())
    if not application.writes_folder:
        check_outputs(file, best)


def _run(plan: "Plan", output: Path, processes: int | None, memory: float | None, figures: bool, quiet: bool) -> int:
    from asker.study.schedule import available_mb, run_all
    from asker.study.summary import read_book, write_index

    if plan.missing:
        print(f"Not at hand, and left out: {', '.join(plan.missing)}. `asker fetch` gets them.")
    output.mkdir(parents=True, exist_ok=True)
    write_index(plan, output)
    budget = 0.7 * available_mb() if memory is None else 1e3 * number("--memory", memory, positive=True)
    with PlanBars(quiet) as progress:
        failed = run_all(plan.runs(), output / "runs", processes or os.cpu_count() or 1, budget, progress.tell)
    book = read_book(output)
    for group in book.groups:
        _print_group(group)
    _report(book, figures)
    for run, why in failed.items():
        complain(f"{run} failed: {why}", 1)
    return 1 if failed else 0


def _report(book: "Book", figures: bool) -> None:
    from asker.study.page import write_page

    write_outputs((book.root / "index.html", lambda path: write_page(path, book)))
    if figures:
        from asker.study.static import write_figures

        written = write_figures(book.root / "figures", book)
        print(f"wrote {len(written)} figures to {book.root / 'figures'}")


def _print_group(group: "Results") -> None:
    from asker.study.summary import cost_rows, ranking, sentence

    print(f"\n{group.title}")
    if group.is_comparison and group.complete():
        rows = [
            [r["method"], str(r["wins"]), *(f"{r[key]:.2f}" for key in ("median", "worst", "seconds"))]
            for r in ranking(group)
        ]
        print_table(["method", "lowest on", "median\nexcess %", "worst\nexcess %", "seconds"], *rows)
        print(sentence(group))
    else:
        rows = [[r["instance"], r["method"], f"{r['cost']:.6g}"] for r in cost_rows(group)]
        print_table(["instance", "method", "cost"], *rows)
