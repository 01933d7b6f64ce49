"""Uncertainty of refined data: covariances for files and reports, and tables of weakly determined variables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from asker.applications.text_report import ReportItems, Table
from asker.io.files import FileError, FilePath
from asker.io.npz import write_npz
from asker.problem.by_group import Groups
from asker.problem.variables import ProblemError, Variables
from asker.solver.result import Result
from asker.uncertainty.covariance import Uncertainty
from asker.uncertainty.weak_variables import group_supports
from asker.version import __version__

KIND, FORMAT = "covariances", 1
N_WEAK = 5
REPORT_HELP = "Write inliers and standard errors of every camera and point, or pose."


def with_values(result: Result, values: dict[Variables, Any]) -> Result:
    """Return the result with some values replaced; a change of gauge leaves the residuals unchanged."""
    assert result.problem is not None
    items = [values.get(v, result[v]) for v in result.problem.variables]
    return replace(result, values=Groups(items, result.values.names, result.problem.variables))


@dataclass(frozen=True, eq=False)
class DataCovariances:
    """Covariances of refined data."""

    result: Result
    """The result, with values in the frame of the refined data."""
    make: Callable[[Uncertainty], dict[str, np.ndarray]]
    """Returns arrays by name: `..._covariances` (n, d, d), `..._chances` (n,) and the ids of their rows."""
    datum: Sequence[Variables | str]
    """The groups of variables that define the datum if the gauge is free."""
    names: dict[str, Any] = field(default_factory=dict)
    """Names of the rows, by key, if the rows have names."""

    @cached_property
    def of(self) -> Uncertainty:
        """The uncertainty of the result."""
        return self.result.uncertainty(datum=self.datum)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The covariances and ids by name."""
        return self.make(self.of)

    def errors(self, name: str) -> np.ndarray:
        """Return the standard errors (n,): the square roots of the traces of the covariances `name`."""
        return np.sqrt(
            np.maximum(np.einsum("nqq->n", self.arrays[f"{name}_covariances"]), 0.0)
        )  # rounding may make it negative

    def facts(self) -> dict[str, Any]:
        """Return the gauge, the noise and the number of undetermined directions."""
        sigma = {name: float(x) for name, x in self.of.sigma.items()}
        return {"gauge": self.of.gauge, "sigma": sigma, "undetermined": self.of.n_undetermined} | self.names

    def write(self, path: FilePath) -> None:
        """Write all covariances into one `.npz` file."""
        try:
            tree = {"kind": KIND, "format": FORMAT, "version": __version__} | self.facts()
            arrays = self.arrays
        except ProblemError as error:
            raise FileError(path, f"not written: {error}") from None
        write_npz(path, tree, arrays)

    def columns(self, **names: str) -> dict[str, Any]:
        """Return the entries of a report: `facts` and standard errors by title, or the reason why there are none.

        `by_chance` has the probabilities that the inliers of a variable agree by accident, if they are computed.
        """
        try:
            entries = self.facts() | {title: self.errors(name) for title, name in names.items()}
            chances = {t: self.arrays[f"{of}_chances"] for t, of in names.items() if f"{of}_chances" in self.arrays}
            return entries | ({"by_chance": chances} if chances else {})
        except ProblemError as error:
            return {"none": str(error)}


def centre_covariances(poses: np.ndarray, C: np.ndarray, places: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the covariances (n, 3, 3) of Rᵀ(q − t), from those of steps (δt, δω, …) of poses [R | t].

    `places` are the points q in the camera frame, (n, 3); the default 0 gives the camera centres −Rᵀt.
    """
    R, t = poses[:, :, :3], poses[:, :, 3] - places
    turn = np.cross(np.eye(3)[None], t[:, None]).swapaxes(1, 2)  # with columns e × t: −[t]×
    G = np.concatenate([-R.swapaxes(1, 2), R.swapaxes(1, 2) @ turn], axis=2)
    return G @ C[:, :6, :6] @ G.swapaxes(1, 2)


def weak_variables_report(result: Result, names: dict[str, Sequence[Any]]) -> ReportItems:
    """Return tables of weakly determined variables; `names` has the names of the variables of each group to list."""
    if result.problem is None:
        return []
    try:
        support = group_supports(result)
    except ProblemError:  # the result has no inliers, which its noise and its doubts report
        return []
    items: ReportItems = []
    for v, hold in support.items():
        if v.name in names and (weak := hold.weakest(N_WEAK)).size:
            size = [f"{x:.3g} x" if np.isfinite(x) else "infinite" for x in hold.uncertainty[weak]]
            rows = [[str(names[v.name][k]), f"{hold.n_inliers[k]}", s] for k, s in zip(weak, size, strict=True)]
            title = f"weakly determined {v.name}: {hold.n_weak} of {len(v)}"
            items.append(Table((title, "inliers", "uncertainty\nrelative to median"), rows))
    return items
