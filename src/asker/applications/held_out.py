"""Data without some of its observations, and what judges a result by those: `asker.holdout` for the data of a room."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asker.applications.told import Table, percent
from asker.holdout import LIMITS, Prediction


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Data that some observations were taken from."""

    training: Any
    """The data without them."""
    predicted: Callable[[Any], Prediction]
    """Of refined data: how well it predicts them."""
    unit: str
    """What their residuals are measured in."""

    def record(self, refined: Any, size: float = 1.0) -> dict[str, Any]:
        """What `--json` says of it; `size` is how many units a good residual has, about."""
        unit = self.unit if size == 1 else f"× {size:g} {self.unit}"
        return {"unit": unit} | Prediction(self.predicted(refined).norms / size).as_dict()


def held_out_table(record: dict[str, Any]) -> Table:
    """What a person reads of a record."""
    unit = record["unit"]
    rows = [["score", f"{record['score']:.4f}"]]
    rows += [[name, f"{record[name]:.3g} {unit}"] for name in ("median", "mean")]
    rows += [[f"up to {limit} {unit}", percent(record[f"below_{limit}"])] for limit in LIMITS]
    if record["n_lost"]:
        rows.append(["without a residual", str(record["n_lost"])])
    return Table((f"{record['n']} held out", "predicted"), rows)
