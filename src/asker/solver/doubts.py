"""Typed doubts about a result, and alternative solutions."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from asker.problem.by_group import Groups
from asker.statistics.noise import Noise


class DoubtKind(Enum):
    """Kind of a doubt; the value describes it in general."""

    AMBIGUOUS = "the data do not exclude another solution"
    UNDETERMINED = "the data do not determine some of the unknowns"
    SCALE_UNKNOWN = "a noise scale cannot be estimated"
    SCALE_VARIES = "blocks of a group contradict a common noise scale"
    FEW_OBSERVATIONS = "few observations are redundant"
    UNVERIFIED = "variables have no redundant inlier"
    MINORITY = "a minority of the observations supports the solution"
    EXACT_MINORITY = "a minority of the observations fits exactly"
    ROUNDED = "rounding of the data hides their noise"
    DUPLICATES = "observations are exact copies of others"
    DEGENERATE = "the residuals hardly depend on the data"
    AT_BOUND = "parameters are at a bound"
    NOT_CONVERGED = "the result need not be a minimum"
    OTHER = "another reason"


class Doubt(str):
    """A reason not to rely on a result: one sentence, with its kind and its numbers as attributes."""

    AMBIGUOUS: ClassVar = DoubtKind.AMBIGUOUS
    UNDETERMINED: ClassVar = DoubtKind.UNDETERMINED
    SCALE_UNKNOWN: ClassVar = DoubtKind.SCALE_UNKNOWN
    SCALE_VARIES: ClassVar = DoubtKind.SCALE_VARIES
    FEW_OBSERVATIONS: ClassVar = DoubtKind.FEW_OBSERVATIONS
    UNVERIFIED: ClassVar = DoubtKind.UNVERIFIED
    MINORITY: ClassVar = DoubtKind.MINORITY
    EXACT_MINORITY: ClassVar = DoubtKind.EXACT_MINORITY
    ROUNDED: ClassVar = DoubtKind.ROUNDED
    DUPLICATES: ClassVar = DoubtKind.DUPLICATES
    DEGENERATE: ClassVar = DoubtKind.DEGENERATE
    AT_BOUND: ClassVar = DoubtKind.AT_BOUND
    NOT_CONVERGED: ClassVar = DoubtKind.NOT_CONVERGED
    OTHER: ClassVar = DoubtKind.OTHER

    kind: DoubtKind
    """Kind of the doubt."""
    numbers: Mapping[str, Any]
    """Numbers behind the sentence, by name."""

    def __new__(cls, text: str, kind: DoubtKind = DoubtKind.OTHER, **numbers: Any) -> "Doubt":
        doubt = super().__new__(cls, text)
        doubt.kind, doubt.numbers = kind, MappingProxyType(numbers)
        return doubt

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (str(self), self.kind, dict(self.numbers))


def _restored(text: str, kind: DoubtKind, numbers: dict[str, Any]) -> Doubt:
    return Doubt(text, kind, **numbers)


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another solution that the data do not exclude."""

    values: Groups[Any]
    """Variables, as in `Result.values`."""
    noise: Groups[Noise]
    """Noise of each factor group."""
    inliers: Groups[np.ndarray]
    """Masks of the inliers of each factor group."""
    evidence_difference: float
    """Evidence minus that of the result, in nats."""
    deciding: Groups[np.ndarray]
    """Numbers of the observations of each factor group that are inliers of only one of both solutions."""
    source: str
    """Generator that proposed it."""

    def __getitem__(self, variables: Any) -> Any:
        return self.values[variables]

    def __repr__(self) -> str:
        n = sum(len(x) for x in self.deciding)
        return f"Alternative({self.evidence_difference:+.1f} nats, {n} observations decide, {self.source})"
