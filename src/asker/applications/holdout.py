"""Hold-out validation of application data: refine without some observations, then predict these."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asker.applications.text_report import ReportItems, Table, percent
from asker.solver.holdout import LIMITS, Prediction


@dataclass(frozen=True, eq=False)
class HoldoutSplit:
    """Data split into training observations and held-out observations."""

    training: Any
    """The data without the held-out observations."""
    predicted: Callable[[Any], Prediction]
    """Returns the prediction errors of refined data at the held-out observations."""
    unit: str
    """The unit of the residuals."""
    n_may: int
    """The number of observations from which the held-out ones were drawn."""

    def record(self, refined: Any, size: float = 1.0) -> dict[str, Any]:
        """Return the record for `--json`; `size` is the residual norm, in units, that scores are relative to."""
        unit = self.unit if size == 1 else f"× {size:g} {self.unit}"
        return {"unit": unit, "n_may": self.n_may} | Prediction(self.predicted(refined).norms / size).as_dict()


def holdout_report(record: dict[str, Any], solved_again: bool) -> ReportItems:
    """Return the lines and the table that describe a hold-out record."""
    unit, n, asked = record["unit"], record["n"], round(record["share"] * record["n_may"])
    rows = [["score, 0 to 1", f"{record['score']:.4f}"]]
    rows += [[name, f"{record[name]:.3g} {unit}"] for name in ("median", "mean")]
    rows += [[f"up to {limit} {unit}", percent(record[f"below_{limit}"])] for limit in LIMITS]
    if record["n_lost"]:
        rows.append(["not predicted (such as points behind a camera)", str(record["n_lost"])])
    items: ReportItems = []
    if n < asked:
        items.append(f"{n} observations were held out instead of {asked}: the variables need the others.")
    if solved_again:
        how = f"{record['iterations']} iterations: {record['message']}"
        items.append(f"Above: solved with all observations.  Below: solved without {n} held-out observations ({how}).")
    return [*items, Table((f"{n} held out", "predicted"), rows)]
