"""What every `refine` returns, and the steps that they share: names of methods and kernels, counting compilations."""

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
"""The inflection point of the smooth truncated kernel, over τ: what Le and Zach count as inliers lies within it."""

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """What a `refine` ends with."""

    result: asker.Result
    """Of the solve that counts."""
    make_record: Callable[[], dict[str, Any]]
    """Makes `record`."""
    succeeded: bool
    """Whether the cost fell, or there was nothing to gain."""
    make: Callable[[], Any]
    """Makes `refined`."""
    make_covariances: Callable[[], DataCovariances] | None = field(default=None, kw_only=True)
    """Compute `covariances`; None if the application has none."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.result!r})"

    @cached_property
    def record(self) -> dict[str, Any]:
        """What `--json` writes, beside the name of the file; made when it is asked for."""
        return self.make_record()

    @cached_property
    def refined(self) -> Any:
        """The data with the solved variables; made when it is asked for."""
        return self.make()

    @cached_property
    def covariances(self) -> DataCovariances:
        """Covariances of the refined data."""
        if self.make_covariances is None:
            raise ValueError(f"{type(self).__name__} has no covariances")
        return self.make_covariances()


def kernel_from_keys(keys: dict[str, Any], tau: float = 1.0) -> asker.Kernel:
    """The kernel that the keys of a study's run ask for; `tau` where they name none."""
    return asker.kernel_named(keys.get("kernel", "smooth-truncated"), tau if keys["tau"] is None else keys["tau"])


def silent(text: str) -> None:
    """Says nothing of what is being done."""


def select_strategy(method: str | None, plain: bool) -> tuple[str, asker.Strategy]:
    """A method's name and strategy: ASKER when none is named, or IRLS where there is nothing to refuse (`plain`)."""
    method = ("irls" if plain else "asker") if method is None else method
    if method not in asker.METHODS:
        raise ValueError(f"method must be one of {', '.join(asker.METHODS)}, not {method!r}")
    return method, asker.METHODS[method]()


def solve_succeeded(result: asker.Result) -> bool:
    """Whether something was gained, or there was nothing to gain."""
    fine = (asker.Status.CONVERGED, asker.Status.INTERRUPTED)
    return result.cost < result.initial_cost or result.cost == 0 or result.status in fine


@contextmanager
def compilations() -> Iterator[list[str]]:
    """The kernels that are compiled meanwhile, by name."""
    from asker.engines.cpu.code_cache import on_compile

    names: list[str] = []
    on_compile.append(names.append)
    try:
        yield names
    finally:
        on_compile.remove(names.append)


@dataclass(frozen=True)
class MethodRequest:
    """What a user has asked for: a method, a kernel and its width; or nothing of that."""

    method: str | None
    kernel: str | None
    tau: float | None

    @property
    def finds_noise(self) -> bool:
        """Whether nothing was given, so that the noise is found while solving, and kernel and width with it."""
        return self.method is None and self.kernel is None and self.tau is None

    def psi(self, tau: float) -> asker.Kernel | None:
        """The kernel, of this width when no other was given; None where it is to be found."""
        if self.finds_noise:
            return None
        return asker.kernel_named(self.kernel or "smooth-truncated", tau if self.tau is None else self.tau)

    def strategy(self, psi: asker.Kernel | None) -> asker.Strategy | None:
        """The method's, or that which suits the kernel; None where several ways are tried."""
        return None if psi is None else select_strategy(self.method, psi.convex)[1]

    def record(self, result: asker.Result) -> dict[str, Any]:
        """What `--json` says of method and kernel: those that were used; of several factor groups the widest."""
        assert result.problem is not None
        widest = max((f for f in result.problem.factors), key=lambda f: float(np.max(f.tau)))
        names = {of: name for name, of in asker.KERNELS.items()}
        kernel = names[type(widest.kernel)] if self.finds_noise else self.kernel or "smooth-truncated"
        method = "asker" if self.finds_noise else select_strategy(self.method, widest.kernel.convex)[0]
        found = {"finds_noise": self.finds_noise, "doubts": list(result.doubts)}
        return {"method": method, "kernel": kernel, "tau": float(np.max(widest.tau))} | found


def inlier_radii(result: asker.Result) -> list[float]:
    """Return the largest ‖r‖ of an inlier of weight 1, for each factor group; infinite where nothing is rejected."""
    assert result.problem is not None
    pairs = zip(result.problem.factors, result.noise, strict=True)
    return [float(np.max(radius_of(f, noise), initial=0.0)) for f, noise in pairs]


def finite_or_none(x: float) -> float | None:
    """Return a number for `--json`, which has no infinity."""
    return float(x) if np.isfinite(x) else None


def noise_record(result: asker.Result, sums: Sums = ALONE) -> dict[str, Any]:
    """What `--json` says of the noise, by factor group."""
    each = zip(result.noise.items(), result.residuals, strict=True)
    return {name: _plain_noise(noise, r, sums) for (name, noise), r in each}


def _plain_noise(noise: asker.Noise, r: np.ndarray, sums: Sums) -> dict[str, Any]:
    """What cannot be told is None.

    border_ratio  the part of the observations that lie beyond the limit of inliers, but not beyond twice that: next to
                  none where inliers and outliers are two kinds of things
    """
    limit, norms = inlier_radius(r.shape[1], noise.sigma), np.linalg.norm(r, axis=1)
    near = sums.mean((norms > limit) & (norms <= 2 * limit))
    known = {"sigma": noise.sigma, "uncertainty": noise.uncertainty, "tau": noise.tau}
    known |= {"inlier_limit": limit, "border_ratio": 0.0 if np.isnan(near) else near}
    told = known if noise.is_known else dict.fromkeys(known)
    return told | {"inlier_ratio": noise.inlier_ratio}


def solve_record(result: asker.Result) -> dict[str, Any]:
    """What `--json` says of every solve."""
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
