"""The result type of every `refine`, and the steps they share: choice of method and kernel, and records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import asker
from asker.applications.uncertainty import DataCovariances
from asker.problem.reductions import ALONE, Sums
from asker.statistics.inliers import inlier_radius, radius_of

INFLECTION = asker.SmoothTruncated.unit_inflection
"""The inflection point of the smooth truncated kernel divided by τ; Le and Zach count residuals below it as inliers."""

Say = Callable[[str], None]
"""Receives progress messages."""


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """The result of a `refine`, with records and refined data computed on first access."""

    result: asker.Result
    """The result of the final solve."""
    make_record: Callable[[], dict[str, Any]]
    """Computes `record`."""
    succeeded: bool
    """True if the cost decreased, or the solve converged."""
    make: Callable[[], Any]
    """Computes `refined`."""
    make_covariances: Callable[[], DataCovariances] | None = field(default=None, kw_only=True)
    """Computes `covariances`; None if the application has none."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.result!r})"

    @cached_property
    def record(self) -> dict[str, Any]:
        """The record for `--json`, without the name of the file."""
        return self.make_record()

    @cached_property
    def refined(self) -> Any:
        """The data with the solved variables."""
        return self.make()

    @cached_property
    def covariances(self) -> DataCovariances:
        """Covariances of the refined data."""
        if self.make_covariances is None:
            raise ValueError(f"{type(self).__name__} has no covariances")
        return self.make_covariances()


def kernel_from_keys(keys: dict[str, Any], tau: float = 1.0) -> asker.Kernel | None:
    """Return the kernel specified by the keys of a run, with the default width `tau`; None if it is estimated."""
    name = keys.get("kernel", "smooth-truncated")
    return None if name is None else asker.kernel_named(name, tau if keys["tau"] is None else keys["tau"])


def silent(text: str) -> None:
    """Ignore a progress message."""


def select_strategy(method: str | None, convex: bool) -> tuple[str, asker.Strategy]:
    """Return the name and the strategy of a method; the default is IRLS for a convex kernel, else ASKER."""
    method = ("irls" if convex else "asker") if method is None else method
    if method not in asker.METHODS:
        raise ValueError(f"method must be one of {', '.join(asker.METHODS)}, not {method!r}")
    return method, asker.METHODS[method]()


def solve_succeeded(result: asker.Result) -> bool:
    """Return True if the cost decreased, is zero, or the solve converged or was interrupted."""
    ended = (asker.Status.CONVERGED, asker.Status.INTERRUPTED)
    return result.cost < result.initial_cost or result.cost == 0 or result.status in ended


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Collect the names of the functions that are compiled within the context."""
    from asker.engines.cpu.code_cache import on_compile

    names: list[str] = []
    on_compile.append(names.append)
    try:
        yield names
    finally:
        on_compile.remove(names.append)


@dataclass(frozen=True)
class MethodRequest:
    """The method, kernel and kernel width τ that a user has specified; None for each one not specified."""

    method: str | None
    kernel: str | None
    tau: float | None

    @property
    def estimates_noise(self) -> bool:
        """True if none is specified: the noise, and with it the kernel and its width, are estimated."""
        return self.method is None and self.kernel is None and self.tau is None

    def psi(self, tau: float) -> asker.Kernel | None:
        """Return the kernel, with `tau` as its default width; None if it is to be estimated."""
        if self.estimates_noise:
            return None
        return asker.kernel_named(self.kernel or "smooth-truncated", tau if self.tau is None else self.tau)

    def strategy(self, psi: asker.Kernel | None) -> asker.Strategy | None:
        """Return the strategy of the method, or the default for the kernel; None if the noise is estimated."""
        return None if psi is None else select_strategy(self.method, psi.convex)[1]

    def record(self, result: asker.Result) -> dict[str, Any]:
        """Return the method, kernel and τ for `--json`; of several factor groups, those with the largest τ."""
        assert result.problem is not None
        widest = max((f for f in result.problem.factors), key=lambda f: float(np.max(f.tau)))
        names = {of: name for name, of in asker.KERNELS.items()}
        kernel = names[type(widest.kernel)] if self.estimates_noise else self.kernel or "smooth-truncated"
        method = "asker" if self.estimates_noise else select_strategy(self.method, widest.kernel.convex)[0]
        estimate = {"finds_noise": self.estimates_noise, "doubts": list(result.doubts)}
        return {"method": method, "kernel": kernel, "tau": float(np.max(widest.tau))} | estimate


def inlier_radii(result: asker.Result) -> list[float]:
    """Return the largest ‖r‖ of an inlier of weight 1 for each factor group; infinite if none can be rejected."""
    assert result.problem is not None
    pairs = zip(result.problem.factors, result.noise, strict=True)
    return [float(np.max(radius_of(f, noise), initial=0.0)) for f, noise in pairs]


def finite_or_none(x: float) -> float | None:
    """Return a number for `--json`, which has no infinity."""
    return float(x) if np.isfinite(x) else None


def noise_record(result: asker.Result, sums: Sums = ALONE) -> dict[str, Any]:
    """Return the estimated noise for `--json`, by factor group."""
    each = zip(result.noise.items(), result.residuals, strict=True)
    return {name: _plain_noise(noise, r, sums) for (name, noise), r in each}


def _plain_noise(noise: asker.Noise, r: np.ndarray, sums: Sums) -> dict[str, Any]:
    """Return the record of one factor group; values are None if the noise could not be estimated.

    `border_ratio` is the fraction of the observations with residuals between one and two times the inlier limit.  It is
    close to zero if inliers and outliers are clearly separated.
    """
    limit, norms = inlier_radius(r.shape[1], noise.sigma), np.linalg.norm(r, axis=1)
    near = sums.mean((norms > limit) & (norms <= 2 * limit))
    known = {"sigma": noise.sigma, "uncertainty": noise.uncertainty, "tau": noise.tau}
    known |= {"inlier_limit": limit, "border_ratio": 0.0 if np.isnan(near) else near}
    values = known if noise.is_known else dict.fromkeys(known)
    return values | {"inlier_ratio": noise.inlier_ratio}


def solve_record(result: asker.Result) -> dict[str, Any]:
    """Return the entries of `--json` that every solve has."""
    return {
        "engine": result.engine,
        "linear_solver": result.linear_solver,
        "relative_damping": result.relative_damping,
        "initial_cost": result.initial_cost,
        "cost": result.cost,
        "iterations": result.iterations,
        "seconds": result.seconds["total"],
        "status": result.status.name.lower(),
        "message": result.message,
        "version": asker.__version__,
        "history": [line.as_dict() for line in result.history],
    }
