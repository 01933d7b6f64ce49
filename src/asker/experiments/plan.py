"""Plans of experiments: instances, methods with settings, iterations, repeats.

`asker.experiments.plan_reader` reads a plan from a TOML file; `plan_of_files` makes that of `asker compare`.
"""

import hashlib
import itertools
import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from asker.applications import application_of
from asker.applications.application import Application, Source
from asker.io.files import FileError, open_regular
from asker.strategies import METHODS
from asker.version import __version__

DEFAULT_METHOD = "default"
"""The method that estimates the noise scale, for problems without a kernel."""
METHOD_NAMES = (DEFAULT_METHOD, *METHODS)
"""The names of methods in plans and in `asker compare`."""
MAY_LACK = ("kernel", "tau", "holdout", "holdout_seed", "holdout_unit")
"""The fields of a run that are part of the name of its folder only if they are specified."""
LONGEST = 100  # characters of an instance's name in the name of a folder


@dataclass(frozen=True)
class Run:
    """The specification of one run, which determines its numbers."""

    instance: str
    kind: str
    options: dict[str, Any]
    method: str
    settings: dict[str, Any]
    iterations: int | None
    """The maximum number of iterations; None for the default of `asker.solve`."""
    repeat: int = 0
    content: str = ""
    """A digest of the data, which distinguishes them from later versions at the same path."""
    kernel: str | None = None
    """The name of the kernel for `asker.kernel_named`; smooth truncated by default."""
    tau: float | None = None
    """The width of the kernel; that of the options by default."""
    holdout: float | None = None
    """The fraction of the observations that is held out for validation."""
    holdout_seed: int | None = None
    holdout_unit: float | None = None

    @property
    def estimates_noise(self) -> bool:
        """True if the noise scale is estimated, and with it the kernel and its width."""
        return self.method == DEFAULT_METHOD

    @property
    def kernel_name(self) -> str:
        """The name of the kernel, if it is not estimated."""
        return self.keys.get("kernel", "smooth-truncated")

    @property
    def keys(self) -> dict[str, Any]:
        """The options for the application, with the kernel and τ of this run; the kernel None if it is estimated."""
        if self.estimates_noise:
            return self.options | {"kernel": None}
        return self.options | {k: v for k, v in (("kernel", self.kernel), ("tau", self.tau)) if v is not None}

    @property
    def folder(self) -> str:
        """The name of the folder; equal runs of two plans share it, but not those of two versions of asker."""
        given = {k: v for k, v in asdict(self).items() if v is not None or k not in MAY_LACK}
        text = json.dumps(given | {"instance": "", "version": __version__}, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{re.sub(r'[^A-Za-z0-9.-]+', '_', self.instance)[:LONGEST]}-{self.method}-{digest}"


@dataclass(frozen=True)
class Group:
    """One comparison: every method on every instance."""

    title: str
    kind: str
    """"comparison" ranks methods; "study" shows the effect of a setting."""
    instances: tuple[str, ...]
    labels: tuple[str, ...]
    runs: dict[tuple[str, str], tuple[Run, ...]]
    """The runs of each instance and label, one for each repeat."""
    text: str = ""


@dataclass(frozen=True)
class Plan:
    """All runs of an experiment, in groups."""

    title: str
    groups: tuple[Group, ...]
    missing: tuple[str, ...] = ()
    """Data sets that are not available and therefore omitted."""

    def runs(self) -> list[Run]:
        """Return all distinct runs."""
        every = [run for g in self.groups for runs in g.runs.values() for run in runs]
        return list({run.folder: run for run in every}.values())


@dataclass(frozen=True)
class ComparisonRequest:
    """The request of `asker compare`: each method with each kernel and each τ."""

    methods: list[str]
    """Names of methods; the default method runs once, whatever the kernels and τ."""
    kernels: list[str | None] = field(default_factory=lambda: [None])
    taus: list[float | None] = field(default_factory=lambda: [None])
    iterations: int | None = None
    """The maximum number of iterations of each run; None for the application's default."""
    holdout: float | None = None
    holdout_seed: int | None = None
    holdout_unit: float | None = None

    def labelled(self) -> dict[str, tuple[str, str | None, float | None]]:
        """Return method, kernel and τ of each combination, by a label that lists what differs."""
        made: dict[str, tuple[str, str | None, float | None]] = {}
        for method, kernel, tau in itertools.product(self.methods, self.kernels, self.taus):
            if method == DEFAULT_METHOD:
                made[method] = (method, None, None)
                continue
            words = [
                method,
                kernel or "" if len(self.kernels) > 1 else "",
                f"tau {tau:g}" if len(self.taus) > 1 else "",
            ]
            made[" ".join(word for word in words if word)] = (method, kernel, tau)
        return made


def check_default(methods: list[str], application: Application, has_score: bool) -> None:
    """Raise a ValueError if the default method is not available, or would be compared by costs instead of a score."""
    if DEFAULT_METHOD not in methods:
        return
    if not application.estimates_noise:
        raise ValueError(f"the method {DEFAULT_METHOD} is not available for {application.title}")
    if len(methods) > 1 and not has_score:
        reason = "estimates the kernel, and costs under different kernels cannot be compared"
        raise ValueError(f"the method {DEFAULT_METHOD} {reason}: specify --holdout, or holdout in a plan")


def plan_of_files(files: list[Path], request: ComparisonRequest, options: dict[str, Any]) -> Plan:
    """Return the plan of a comparison of methods on files and folders, with a group for each application.

    `options` are keys of instances; each is passed to the applications that have it, the others have the defaults of
    `asker solve`.
    """
    names = [f.name.split(".")[0] for f in files]
    names = [n if names.count(n) == 1 else f"{n} ({k + 1})" for k, n in enumerate(names)]
    by_application: dict[Application, dict[str, Path]] = {}
    for name, file in zip(names, files, strict=True):
        by_application.setdefault(application_of(file), {})[name] = file
    labelled = request.labelled()
    more = {name: getattr(request, name) for name in ("holdout", "holdout_seed", "holdout_unit")}
    groups = []
    for application, of in by_application.items():
        source = application.sources[0]
        defaults = {f.name: f.default for f in fields(application.options_class)}
        keys = source.keys | {k: v for k, v in (defaults | options).items() if k in source.keys}
        n = application.iterations if request.iterations is None else request.iterations
        runs: dict[tuple[str, str], tuple[Run, ...]] = {}
        for name, file in of.items():
            place, content = path_option(source, file), content_of(file)
            for label, (method, kernel, tau) in labelled.items():
                limit = request.iterations if method == DEFAULT_METHOD else n
                run = Run(name, source.kind, place | keys, method, {}, limit, 0, content, kernel, tau, **more)  # type: ignore[arg-type]
                runs[name, label] = (run,)
        groups.append(Group(application.experiment_title, "comparison", tuple(of), tuple(labelled), runs))
    return Plan("Comparison", tuple(groups))


def path_option(source: Source, path: Path) -> dict[str, str]:
    """Return the option of an instance that holds the path of its data."""
    assert source.place is not None
    return {source.place: str(path)}


def content_of(path: Path) -> str:
    """Return a digest of the size and of both ends of every file, which detects changed data."""
    digest = hashlib.sha256()
    try:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.is_file():
                with open_regular(file) as bytes_of:
                    size = bytes_of.seek(0, 2)
                    bytes_of.seek(0)
                    digest.update(os.fsencode(file.name) + f" {size} ".encode() + bytes_of.read(1 << 16))
                    bytes_of.seek(max(0, size - (1 << 16)))
                    digest.update(bytes_of.read(1 << 16))
    except OSError as error:
        raise FileError(error.filename or path, f"cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:16]
