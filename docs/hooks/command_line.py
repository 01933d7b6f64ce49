"""Reference page of the command line, generated from the commands."""

from typing import Any

INTRODUCTION = """# Command line

    asker COMMAND ...

`asker --version` prints the version; `asker COMMAND --help` prints the text of this page.  Exit codes: 0 usable
result, 1 failed solve, 2 invalid input, 130 interrupted before there was a result.  Results are printed to standard
output, progress and errors to standard error.

"""


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    from asker.cli.app import COMMANDS, command_named

    text = INTRODUCTION + "\n".join(section(name, command_named(name)) for name in COMMANDS)
    files.append(File.generated(config, "reference/command-line.md", content=text))
    return files


def section(name: str, command: Any) -> str:
    """Return usage, help, and a table of arguments and options of a command."""
    context = command.make_context(name, [], resilient_parsing=True)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join(["asker", name, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    rows = [(_argument(p), p.help) for p in arguments]
    rows += [_option(p, context) for p in sorted(options, key=lambda p: _panel(p) or "")]
    table = "\n".join(f"| `{left}` | {_cell(right)} |" for left, right in rows)
    return f"## asker {name}\n\n    {usage}\n\n{command.help or ''}\n\n| | |\n|---|---|\n{table}\n"


def _panel(option: Any) -> str | None:
    """Return the application of an option; None if the option applies to every file."""
    return getattr(option, "rich_help_panel", None)


def _option(option: Any, context: Any) -> tuple[str, str]:
    left, right = option.get_help_record(context)
    return left, f"{_panel(option)}: {right}" if _panel(option) else right


def _argument(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("[", "\\[")
