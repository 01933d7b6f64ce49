"""Commands that run many methods on many instances: reproduce, compare, report."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import asker
from asker.commands.support import Quiet, check_outputs, complain, number, one_of, write_outputs
from asker.io.bal import read_bal, write_bal
from asker.io.files import FileError
from asker.study.plan import SHIPPED, Plan, plan_of_files, read_plan
from asker.study.summary import Book, Results, cost_rows, ranking, read_book, sentence, write_index
from asker.terminal import PlanProgress, print_table

Output = Annotated[Path, typer.Option(help="The folder for runs, tables, figures and the page.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Runs at a time.", show_default="one for each core")]
Memory = Annotated[float | None, typer.Option(help="Budget in GB.", show_default="70 % of what is free")]
Figures = Annotated[bool, typer.Option("--figures", help="Also write PNG and PDF figures.")]
Folder = Annotated[Path, typer.Argument(help="What reproduce or compare made.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="BAL files.")]


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
    made = read_plan(plan, data)
    return _run(made, output, processes, memory, figures, quiet)


def compare(
    files: Files,
    methods: Annotated[str, typer.Option(help="The methods, with commas.")] = "irls,gnc,moo,asker",
    iterations: Annotated[int, typer.Option(min=1, help="Linear solves of each run.")] = 100,
    tau: Annotated[float, typer.Option(help="Scale of the kernel in pixels.")] = 1.0,
    camera: Annotated[str, typer.Option(help="How k1, k2 act: pixel, or bal (the BAL page).")] = "pixel",
    output: Output = Path("compared"),
    best: Annotated[Path | None, typer.Option(help="Write the best reconstruction of the one file.")] = None,
    processes: Processes = None,
    memory: Memory = None,
    figures: Figures = False,
    quiet: Quiet = False,
) -> int:
    """Compare methods on your own BAL files: a table here, and a page with curves and point clouds."""
    chosen = methods.split(",")
    for method in chosen:
        one_of("--methods", method, asker.METHODS)
    one_of("--camera", camera, ("pixel", "bal"))
    number("--tau", tau, positive=True)
    for file in files:
        if not file.is_file():
            raise FileError(file, "there is no such file")
    if best is not None:
        if len(files) > 1:
            raise ValueError("--best needs a single file")
        check_outputs(files[0], best)
    if len(set(chosen)) < len(chosen):
        raise ValueError("--methods names a method twice")
    plan = plan_of_files([f.resolve() for f in files], chosen, iterations, {"tau": float(tau), "camera": camera})
    code = _run(plan, output, processes, memory, figures, quiet)
    if best is not None and code == 0:
        group = read_book(output).groups[0]
        label, record = min(group.of(plan.groups[0].instances[0]).items(), key=lambda item: item[1].cost)
        print(f"The best is {label}, with a cost of {record.cost:.7g}.")
        write_outputs(
            (best, lambda path: write_bal(path, _solved_again(files[0], record.run.options, label, iterations)))
        )
    return code


def report(folder: Folder, figures: Figures = False) -> int:
    """Draw the page anew from recorded runs, without running anything."""
    _report(read_book(folder), figures)
    return 0


def _solved_again(file: Path, options: dict[str, Any], method: str, iterations: int) -> Any:
    """The same numbers, so that the runs need not keep whole reconstructions."""
    from asker.problems.bundle import bundle_problem

    made = bundle_problem(read_bal(file), asker.SmoothTruncated(options["tau"]), options["camera"])
    return made.refined(asker.solve(made.problem, asker.METHODS[method](), max_iterations=iterations, tol=0).values)


def _run(plan: Plan, output: Path, processes: int | None, memory: float | None, figures: bool, quiet: bool) -> int:
    from asker.study.schedule import available_mb, run_all

    if plan.missing:
        print(f"Not at hand, and left out: {', '.join(plan.missing)}. `asker fetch` gets them.")
    output.mkdir(parents=True, exist_ok=True)
    write_index(plan, output)
    budget = 0.7 * available_mb() if memory is None else 1e3 * number("--memory", memory, positive=True)
    with PlanProgress(quiet) as progress:
        failed = run_all(plan.runs(), output / "runs", processes or os.cpu_count() or 1, budget, progress.tell)
    book = read_book(output)
    for group in book.groups:
        _print_group(group)
    _report(book, figures)
    for run, why in failed.items():
        complain(f"{run} failed: {why}", 1)
    return 1 if failed else 0


def _report(book: Book, figures: bool) -> None:
    from asker.study.page import write_page

    write_outputs((book.root / "index.html", lambda path: write_page(path, book)))
    if figures:
        from asker.study.static import write_figures

        written = write_figures(book.root / "figures", book)
        print(f"wrote {len(written)} figures to {book.root / 'figures'}")


def _print_group(group: Results) -> None:
    print(f"\n{group.title}")
    if group.kind == "comparison" and group.complete():
        rows = [
            [r["method"], str(r["wins"]), *(f"{r[key]:.2f}" for key in ("median", "worst", "seconds"))]
            for r in ranking(group)
        ]
        print_table(["method", "lowest on", "median\nexcess %", "worst\nexcess %", "seconds"], *rows)
        print(sentence(group))
    else:
        rows = [[r["instance"], r["method"], f"{r['cost']:.6g}"] for r in cost_rows(group)]
        print_table(["instance", "method", "cost"], *rows)
