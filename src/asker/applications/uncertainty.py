"""How sure refined data is: covariances for files and reports, and a table of what hangs on too little."""

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
    """The same result with some values replaced: a gauge that was moved changes no residual."""
    assert result.problem is not None
    items = [values.get(v, result[v]) for v in result.problem.variables]
    return replace(result, values=Groups(items, result.values.names, result.problem.variables))


@dataclass(frozen=True, eq=False)
class DataCovariances:
    """Covariances of refined data."""

    result: Result
    """With values in the frame of the refined data."""
    make: Callable[[Uncertainty], dict[str, np.ndarray]]
    """Arrays of the room: `..._covariances` (n, d, d), `..._chances` (n,), and what numbers their rows."""
    datum: Sequence[Variables | str]
    """The groups of variables relative to which all is taken where the gauge is free."""
    names: dict[str, Any] = field(default_factory=dict)
    """Of rows, where they have names."""

    @cached_property
    def of(self) -> Uncertainty:
        return self.result.uncertainty(datum=self.datum)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        return self.make(self.of)

    def errors(self, name: str) -> np.ndarray:
        """Standard errors (n,): the roots of the traces of the covariances of this name."""
        return np.sqrt(np.maximum(np.einsum("nqq->n", self.arrays[f"{name}_covariances"]), 0.0))  # 0, but for rounding

    def facts(self) -> dict[str, Any]:
        """What the numbers mean."""
        sigma = {name: float(x) for name, x in self.of.sigma.items()}
        return {"gauge": self.of.gauge, "sigma": sigma, "undetermined": self.of.n_undetermined} | self.names

    def write(self, path: FilePath) -> None:
        """Everything, as one `.npz` file."""
        try:
            tree = {"kind": KIND, "format": FORMAT, "version": __version__} | self.facts()
            arrays = self.arrays
        except ProblemError as error:
            raise FileError(path, f"not written: {error}") from None
        write_npz(path, tree, arrays)

    def columns(self, **names: str) -> dict[str, Any]:
        """For a report: the facts, and standard errors by what they are of; or why there are none.

        With `chances` comes how likely it is that what holds each of them agrees by chance.
        """
        try:
            found = self.facts() | {title: self.errors(name) for title, name in names.items()}
            chances = {t: self.arrays[f"{of}_chances"] for t, of in names.items() if f"{of}_chances" in self.arrays}
            return found | ({"by_chance": chances} if chances else {})
        except ProblemError as error:
            return {"none": str(error)}


def centre_covariances(poses: np.ndarray, C: np.ndarray, places: np.ndarray | float = 0.0) -> np.ndarray:
    """(n, 3, 3) of Rᵀ(q − t), from covariances of steps (δt, δω, …) of poses [R | t]; `places` are q, (n, 3)."""
    R, t = poses[:, :, :3], poses[:, :, 3] - places
    turn = np.cross(np.eye(3)[None], t[:, None]).swapaxes(1, 2)  # with columns e × t: −[t]×
    G = np.concatenate([-R.swapaxes(1, 2), R.swapaxes(1, 2) @ turn], axis=2)
    return G @ C[:, :6, :6] @ G.swapaxes(1, 2)


def weak_variables_report(result: Result, names: dict[str, Sequence[Any]]) -> ReportItems:
    """Tables of variables that hang on too little, by the name of their group; `names` of single ones are shown."""
    if result.problem is None:
        return []
    try:
        of = group_supports(result)
    except ProblemError:  # nothing supports the result, which its noise and its doubts tell
        return []
    told: ReportItems = []
    for v, hold in of.items():
        if v.name in names and (weak := hold.weakest(N_WEAK)).size:
            size = [f"{x:.3g} x" if np.isfinite(x) else "open" for x in hold.uncertainty[weak]]
            rows = [[str(names[v.name][k]), f"{hold.n_inliers[k]}", s] for k, s in zip(weak, size, strict=True)]
            title = f"weak {v.name}: {hold.n_weak} of {len(v)}"
            told.append(Table((title, "inliers", "uncertainty\nbeside the median"), rows))
    return told
