"""Text about known positions of images and control points."""

from typing import Any

from asker.applications.text_report import ReportItems

MAX_NAMES = 10
"""The largest number of names to print."""
TITLES = {"priors": "Positions of images", "control": "Positions of control points"}


def known_positions_report(record: dict[str, Any]) -> ReportItems:
    """Return the lines about the known positions in a record; none if there were none."""
    items: ReportItems = []
    for kind, title in TITLES.items():
        if kind in record:
            items += _positions_report(title, record[kind])
    points = record.get("control_points", [])
    if points:
        n, n_rejected = sum(p["n_observations"] for p in points), sum(p["n_refused"] for p in points)
        items.append(f"Control points: {len(points)} with {n} observations, of which {n_rejected} are outliers.")
        lost = [p["name"] for p in points if p["n_refused"] == p["n_observations"]]
        if lost:
            items.append(f"  Without an inlier: {_names(lost)}.")
    return items


def _positions_report(title: str, r: dict[str, Any]) -> ReportItems:
    n, rejected = r["n"], r["refused"]
    unit = " m" if r.get("origin") else ""
    items: ReportItems = [f"{title}: {n - len(rejected)} of {n} are inliers, {len(rejected)} are outliers."]
    if r["sd"] is not None:
        median, largest = (f"{r[key]:.3g}{unit}" for key in ("median_distance", "largest_distance"))
        noise = f"estimated noise {r['sd']:.3g}{unit} in each coordinate"
        items.append(f"  Errors of inliers: median {median}, maximum {largest}; {noise}.")
    if rejected:
        items.append(f"  Outliers: {_names(rejected)}.")
    if r.get("n_unknown"):
        items.append(f"  {r['n_unknown']} positions belong to images that are not in the model.")
    if r.get("origin"):
        latitude, longitude, height = r["origin"]
        origin = f"latitude {latitude:.8g}, longitude {longitude:.8g}, height {height:.6g} m"
        items.append(f"  The origin of the east-north-up frame is {origin}.")
    return [*items, *(f"  Note: {doubt}." for doubt in r["doubts"])]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
