"""Commands whose options are the fields of dataclasses.

A command takes `**given`.  Its signature, from which typer builds the command line, consists of its own parameters and
of the fields of the dataclasses.  `asker.applications.application.option` describes their metadata.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, TypeVar

import typer

from asker.cli.checks import number, one_of

OURS = ("names", "choices", "check", "writes", "reads", "least", "above")
"""The keys of the metadata that are not passed to typer."""
T = TypeVar("T")


class CommandOptions:
    """The fields of dataclasses that become options of a command; a shared field becomes one option."""

    def __init__(self, *dataclasses: type) -> None:
        self.fields: dict[str, Field[Any]] = {}
        self.owners: dict[str, list[str]] = {}
        for dataclass in dataclasses:
            self.add(dataclass)

    def add(self, dataclass: type, owner: str = "", only: Iterable[str] | None = None) -> None:
        """Add the fields of a dataclass, or those in `only`; `owner` is their heading in the help."""
        for one in fields(dataclass):
            if only is None or one.name in only:
                self.fields.setdefault(one.name, one)
                self.owners.setdefault(one.name, []).append(owner)

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters of the command's signature."""
        return [self._parameter(name, one) for name, one in self.fields.items()]

    def _parameter(self, name: str, one: Field[Any]) -> inspect.Parameter:
        settings = {key: value for key, value in one.metadata.items() if key not in OURS}
        owners = " and ".join(owner for owner in self.owners[name] if owner)
        panel = owners[:1].upper() + owners[1:] or None
        names = [one.metadata["names"]] if "names" in one.metadata else []
        annotation: Any = Annotated[one.type, typer.Option(*names, rich_help_panel=panel, **settings)]  # type: ignore
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_options(options: CommandOptions) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that adds the options to the signature of a command that takes `**given`."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        signature = inspect.Signature([*own, *options.parameters()], return_annotation=int)
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()} | {"return": int}
        return command

    return decorate


def flag(one: Field[Any]) -> str:
    """Return the flag of a field on the command line."""
    return one.metadata.get("names", "--" + one.name.replace("_", "-")).split("/")[0]


def checked(dataclass: type[T], given: dict[str, Any]) -> T:
    """Return the dataclass with the given values; raise a ValueError for values outside their choices or bounds."""
    own = {one.name: given[one.name] for one in fields(dataclass) if one.name in given}  # type: ignore[arg-type]
    for one in fields(dataclass):  # type: ignore[arg-type]
        value, more = own.get(one.name), one.metadata
        if "choices" in more and value is not None:
            one_of(flag(one), value, more["choices"])
        if "check" in more and value is not None:
            more["check"](flag(one), value)
        if ("least" in more or "above" in more) and value is not None:
            check_bound(flag(one), value, more)
    return dataclass(**own)


def check_bound(option: str, value: float, more: Any) -> None:
    """Raise a ValueError for a number below `least`, or not above `above`; only bounds of 0 are supported."""
    assert more.get("least", 0.0) == more.get("above", 0.0) == 0.0, f"{option}: only a bound of 0 is supported"
    number(option, value, positive="above" in more)


def given_on_the_command_line(context: typer.Context, name: str) -> bool:
    """Return True if an option was specified by the user."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_others(context: typer.Context, options: CommandOptions, *titles: str) -> None:
    """Raise a ValueError for a specified option that belongs to other applications than those of the titles."""
    for name, owners in options.owners.items():
        if not {"", *titles} & set(owners) and given_on_the_command_line(context, name):
            theirs = " and ".join(owners)
            raise ValueError(f"{flag(options.fields[name])} is an option for {theirs}, not for {' and '.join(titles)}")
