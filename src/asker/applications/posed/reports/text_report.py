"""The printed report of a refinement."""

from typing import Any

import numpy as np

from asker.applications.posed.refine import PosedOutcome
from asker.applications.text_report import ReportItems, Table, percent

N_ROWS = 8
"""The largest number of images in the table; the most moved ones are shown."""


def outcome_report(outcome: PosedOutcome) -> ReportItems:
    """Return the lines and the table that describe an outcome."""
    r = outcome.record
    counts = f"{r['n_observations']} observations of {r['n_points']} points"
    items: ReportItems = [
        f"{r['n_matches']} matches of {r['n_pairs']} pairs of images; {counts} in the model",
        f"start: {r['start']}; inliers ({r['inlier_limit']:.2g} px): {percent(r['inlier_ratio'])}",
        _intrinsics_line(r),
        _table(outcome),
    ]
    if len(outcome.parts) > 1:
        sizes = " and ".join(str(len(part.images)) for part in outcome.parts)
        items.append(f"Sets of {sizes} images are not connected; each is aligned with its start on its own.")
    if r["undetermined"]:
        names = ", ".join(r["undetermined"])
        items.append(f"The data do not determine {len(r['undetermined'])} images, whose poses are unchanged: {names}")
    if r["has_prior"]:
        centre, rotation = r["start_errors"].values()
        errors = f"estimated as {centre:.2g} (centres) and {rotation:.2g}°"
        items.append(f"The matches leave poses open: the given poses were used as a prior, with errors {errors}.")
    if r["weak"]:
        items.append(f"Centres that the data determine less accurately than the given poses: {', '.join(r['weak'])}")
    items.append(f"{'Accepted' if outcome.accepted else 'REFUSED'}: {outcome.reason}.")
    items.append(f"{r['seconds']:.3g} s without features and matches")
    return items


def _intrinsics_line(r: dict[str, Any]) -> str:
    free = {"poses": "constant", "focal": "free focal lengths", "all": "free focal lengths and distortions"}
    chosen = free[r["intrinsics"]["free"]]
    if "free_focal_lengths" not in r["intrinsics"]:
        return f"intrinsics: {chosen}"
    v = r["intrinsics"]["free_focal_lengths"]
    return f"intrinsics: {chosen} (free focal lengths predict {v['n_better']} of {v['n']} observations better)"


def _table(outcome: PosedOutcome) -> Table:
    t = outcome.images
    order = np.argsort(-np.nan_to_num(t.shift, nan=-1.0), kind="stable")[:N_ROWS]
    rows = []
    for k in order.tolist():
        name = t.names[k] if t.determined[k] else f"{t.names[k]} (kept)"
        counts = f"{t.n_observations[k]}", f"{t.before[k]}", f"{t.after[k]}"
        moved = f"{t.moved[k]:.2g}", f"{t.centre_error[k]:.1g}", f"{t.turned[k]:.2g}", f"{t.rotation_error[k]:.1g}"
        rows.append([name, *counts, f"{t.shift[k]:.3g}", *moved])
    title = "image" if len(order) == len(t.names) else f"{len(order)} most shifted"
    header = "seen", "inliers\nbefore", "inliers\nafter", "shift\npx", "moved", "±", "turned\n°", "±"
    return Table((title, *header), rows)
