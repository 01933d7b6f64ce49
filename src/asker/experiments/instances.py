"""Instances of experiments: the sources of every application, and the paper's robust mean."""

from functools import cache
from pathlib import Path
from typing import Any

from asker.applications import applications
from asker.applications.application import Application, Source
from asker.experiments.robust_mean import MEAN


@cache
def sources() -> dict[str, tuple[Application, Source]]:
    """Return all sources by the `kind` of a plan, each with its application."""
    return {source.kind: (one, source) for one in (*applications(), MEAN) for source in one.sources}


def application_of_kind(kind: str) -> Application:
    return sources()[kind][0]


def load(kind: str, options: dict[str, Any]) -> Any:
    """Return the data of an instance."""
    application, source = sources()[kind]
    if source.load is not None:
        return source.load(options)
    assert source.place is not None
    return application.load(Path(options[source.place]))


def places_of(kind: str, options: dict[str, Any]) -> list[Path]:
    """Return the file or folder that `load` reads, followed by all files in it."""
    application, source = sources()[kind]
    if source.place is None:
        return []
    place = Path(options[source.place])
    return [place, *application.reads(place)]
