"""The page of the command line, from the commands themselves."""

from typing import Any

from mkdocs.structure.files import File, Files

INTRODUCTION = """# Command line

    asker COMMAND ...

`asker --version` prints the version; `asker COMMAND --help` prints what stands here.  Exit codes: 0 a usable
result, 1 a solve that failed, 2 bad input, 130 interrupted before there was a result.  Results go to standard
output; the progress line and the one line of an error go to standard error.

"""


def on_files(files: Files, *, config: Any) -> Files:
    import typer

    from asker.cli import app

    commands: Any = typer.main.get_command(app)
    text = INTRODUCTION + "\n".join(section(name, command) for name, command in commands.commands.items())
    files.append(File.generated(config, "reference/command-line.md", content=text))
    return files


def section(name: str, command: Any) -> str:
    """Usage, help, and a table of the options."""
    arguments = [p for p in command.params if not _is_option(p)]
    options = [p for p in command.params if _is_option(p)]
    usage = " ".join(["asker", name, *(_name(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    rows = [f"| `{_name(p)}` | {_cell(p.help)} |" for p in arguments]
    rows += [f"| `{_name(p)}` | {_cell(p.help)}{_default(p)} |" for p in options]
    head = "| | |\n|---|---|\n"
    return f"## asker {name}\n\n    {usage}\n\n{command.help or ''}\n\n{head}" + "\n".join(rows) + "\n"


def _is_option(parameter: Any) -> bool:
    return parameter.param_type_name == "option"


def _name(parameter: Any) -> str:
    if not _is_option(parameter):
        return parameter.metavar or parameter.name.upper()
    return parameter.opts[0] if parameter.is_flag else f"{parameter.opts[0]} {parameter.type.name.upper()}"


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return f" Default: {_cell(parameter.show_default)}."
    if parameter.is_flag or parameter.default is None:
        return ""
    return f" Default: `{parameter.default}`."


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
