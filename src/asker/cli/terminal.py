"""Terminal output: progress lines, tables and reports."""

from collections.abc import Sequence
from typing import Any

from asker.applications.text_report import ReportItems, Table
from asker.solver.progress import ProgressText
from asker.solver.result import Iteration


class ProgressLine:
    """A line on stderr, if that is a terminal, with the current task, compilation or iteration."""

    def __init__(self, quiet: bool):
        from rich.console import Console

        console = Console(stderr=True)
        self.status = None if quiet or not console.is_terminal else console.status("", spinner="line")
        self.task, self.text = "", ProgressText()

    def __enter__(self) -> "ProgressLine":
        from asker.engines.cpu.code_cache import on_compile

        on_compile.append(self.compile)
        if self.status:
            self.status.start()
        return self

    def __exit__(self, *error: object) -> None:
        from asker.engines.cpu.code_cache import on_compile

        on_compile.remove(self.compile)
        if self.status:
            self.status.stop()

    def begin(self, task: str) -> None:
        """Start a task, whose name precedes the following messages."""
        self.task, self.text = f"{task}: ", ProgressText()
        self.say("preparing")

    def say(self, text: str) -> None:
        if self.status:
            from rich.text import Text

            self.status.update(Text(self.task + text, no_wrap=True, overflow="ellipsis"))

    def compile(self, name: str) -> None:
        self.say(f"compiling {name} (once on this machine)")

    def iteration(self, line: Iteration) -> None:
        self.say(f"iteration {line.iteration}  {self.text(line)}")


class PlanBars:
    """Progress bars on stderr, if that is a terminal: one for the plan and one for each active run."""

    def __init__(self, quiet: bool):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self.bars = None if quiet or not console.is_terminal else Progress(*columns, console=console, transient=True)
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> "PlanBars":
        if self.bars:
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars:
            self.bars.stop()

    def tell(self, standing: Any) -> None:
        if not self.bars:
            return
        wanted = {"all runs": (standing.done, standing.total)} | standing.active
        for name in [n for n in self.tasks if n not in wanted]:
            self.bars.remove_task(self.tasks.pop(name))
        for name, (done, total) in wanted.items():
            if name not in self.tasks:
                self.tasks[name] = self.bars.add_task(name, total=total)
            self.bars.update(self.tasks[name], completed=done)


def print_table(header: Sequence[str], *rows: list[str]) -> None:
    """Print a table with the first column left-aligned and the others right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for k, title in enumerate(header):
        table.add_column(title, justify="right" if k else "left")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def print_report(items: ReportItems) -> None:
    """Print the lines and tables of a report."""
    for item in items:
        if isinstance(item, Table):
            print_table(item.header, *item.rows)
        else:
            print(item)
