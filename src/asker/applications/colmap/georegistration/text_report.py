"""What a person reads of known positions."""

from typing import Any

from asker.applications.text_report import ReportItems

MOST = 10
"""Names that are printed."""
TITLES = {"priors": "Positions of images", "control": "Positions of control points"}


def known_positions_report(record: dict[str, Any]) -> ReportItems:
    """Of the part of a record that is about known positions; nothing where there were none."""
    told: ReportItems = []
    for kind, title in TITLES.items():
        if kind in record:
            told += _positions_told(title, record[kind])
    points = record.get("control_points", [])
    if points:
        n, refused = sum(p["n_observations"] for p in points), sum(p["n_refused"] for p in points)
        told.append(f"Control points: {len(points)} with {n} observations, of which {refused} are refused.")
        lost = [p["name"] for p in points if p["n_refused"] == p["n_observations"]]
        if lost:
            told.append(f"  No image agrees with {_names(lost)}.")
    return told


def _positions_told(title: str, r: dict[str, Any]) -> ReportItems:
    n, refused = r["n"], r["refused"]
    unit = " m" if r.get("origin") else ""
    told: ReportItems = [f"{title}: {n - len(refused)} of {n} are met, and {len(refused)} refused."]
    if r["sd"] is not None:
        median, largest = (f"{r[key]:.3g}{unit}" for key in ("median_distance", "largest_distance"))
        told.append(f"  Met within {median} (median), {largest} (all); noise {r['sd']:.3g}{unit} in each coordinate.")
    if refused:
        told.append(f"  Refused: {_names(refused)}.")
    if r.get("n_unknown"):
        told.append(f"  {r['n_unknown']} more are of images that this model does not have.")
    if r.get("origin"):
        latitude, longitude, height = r["origin"]
        told.append(
            f"  East, north and up are from latitude {latitude:.8g}, longitude {longitude:.8g}, height {height:.6g} m."
        )
    return [*told, *(f"  Note: {doubt}." for doubt in r["doubts"])]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
