"""Data without some of its observations, and what judges a result by those: `asker.holdout` for the data of a room."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asker.applications.text_report import ReportItems, Table, percent
from asker.solver.holdout import LIMITS, Prediction


@dataclass(frozen=True, eq=False)
class HoldoutSplit:
    """Data that some observations were taken from."""

    training: Any
    """The data without them."""
    predicted: Callable[[Any], Prediction]
    """Of refined data: how well it predicts them."""
    unit: str
    """What their residuals are measured in."""
    n_may: int
    """Of how many observations they were drawn."""

    def record(self, refined: Any, size: float = 1.0) -> dict[str, Any]:
        """What `--json` says of it; `size` is how many units a good residual has, about."""
        unit = self.unit if size == 1 else f"× {size:g} {self.unit}"
        return {"unit": unit, "n_may": self.n_may} | Prediction(self.predicted(refined).norms / size).as_dict()


def holdout_report(record: dict[str, Any], solved_again: bool) -> ReportItems:
    """What a person reads of a record."""
    unit, n, asked = record["unit"], record["n"], round(record["share"] * record["n_may"])
    rows = [["score, 0 to 1", f"{record['score']:.4f}"]]
    rows += [[name, f"{record[name]:.3g} {unit}"] for name in ("median", "mean")]
    rows += [[f"up to {limit} {unit}", percent(record[f"below_{limit}"])] for limit in LIMITS]
    if record["n_lost"]:
        rows.append(["lost: behind a camera, say", str(record["n_lost"])])
    told: ReportItems = []
    if n < asked:
        told.append(f"{n} observations were held out, not {asked}: the variables need the others.")
    if solved_again:
        how = f"{record['iterations']} iterations: {record['message']}"
        told.append(f"Above: solved with everything.  Below: solved without {n} observations, which judge it ({how}).")
    return [*told, Table((f"{n} held out", "predicted"), rows)]
