"""The HTML page of a refinement: cameras in 3-D, images with reprojections, the match graph and the table."""

import base64
import html
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from asker.applications.posed.image_table import Part, projections
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.refine import PosedOutcome
from asker.applications.posed.scene import points_of
from asker.io.files import write_whole
from asker.io.json import plain

TEMPLATE = Path(__file__).with_name("page.html")
N_IMAGES, N_FEATURES, N_POINTS = 24, 120, 5000
"""The largest numbers of images on the page, of features of each, and of points in 3-D."""
WIDTH = 480
"""Pixels of an image on the page."""
FRUSTUM_SIZE = 0.15
"""Depth of a frustum relative to the median distance of a camera from the middle of all."""


def write_page(path: Path, folder: Path, outcome: PosedOutcome) -> None:
    """Write the page of an outcome; it loads nothing from the network."""
    from plotly.offline import get_plotlyjs

    data = {
        "verdict": ("Accepted: " if outcome.accepted else "Refused: ") + outcome.reason,
        "accepted": outcome.accepted,
        "record": {key: value for key, value in outcome.record.items() if key != "images"},
        "table": outcome.images.record(),
        "cameras": _cameras(outcome),
        "graph": _graph(outcome),
        "pictures": _pictures(folder, outcome),
    }
    text = json.dumps(plain(data), allow_nan=False).replace("<", "\\u003c")
    template = TEMPLATE.read_text(encoding="utf-8")
    page = template.replace("/*PLOTLY*/", get_plotlyjs().replace("</script", "<\\/script"), 1)
    page = page.replace("{{TITLE}}", html.escape(f"{len(outcome.start)} images"), 1).replace("{{DATA}}", text, 1)
    with write_whole(path) as file:
        file.write(page.encode())


def _solved(outcome: PosedOutcome) -> PosedImages:
    """Return the images with the solved poses, also if the result is refused."""
    poses = outcome.start.poses.copy()
    for part in outcome.parts:
        poses[part.images] = part.posed.poses
    made = outcome.start
    return PosedImages(made.names, poses, made.cameras, made.of_image)


def _cameras(outcome: PosedOutcome) -> dict[str, Any]:
    """Return the lines of the frusta before and after, and some points."""
    start, end = outcome.start, _solved(outcome)
    spread = np.linalg.norm(start.centres - np.median(start.centres, axis=0), axis=1)
    size = FRUSTUM_SIZE * (float(np.median(spread)) or 1.0)
    xyz = outcome.model.points.xyz
    if len(xyz) > 2:
        middle = np.median(xyz, axis=0)
        distance = np.linalg.norm(xyz - middle, axis=1)
        xyz = xyz[distance <= 5 * np.median(distance)]
    xyz = xyz[np.linspace(0, len(xyz) - 1, min(len(xyz), N_POINTS)).astype(int)] if len(xyz) else xyz
    return {
        "before": _frusta(start, size),
        "after": _frusta(end, size),
        "points": np.round(xyz, 5).T,
        "names": start.names,
    }


def _frusta(posed: PosedImages, size: float) -> list[list[float | None]]:
    """Return x, y and z of the edges of all frusta; None ends a line."""
    out: list[list[float | None]] = [[], [], []]
    for k, centre in enumerate(posed.centres):
        width, height = posed.sizes[k]
        uv = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=float)
        rays = np.nan_to_num(posed.rays(np.full(4, k), uv), nan=0.0) @ posed.poses[k, :, :3]
        corners = centre + size * rays
        for axis in range(3):
            c, p = float(centre[axis]), corners[:, axis].tolist()
            out[axis] += [c, p[0], p[1], c, p[2], p[3], c, None, p[0], p[3], None, p[1], p[2], None]
    return out


def _graph(outcome: PosedOutcome) -> dict[str, Any]:
    """Return the match graph, drawn at the positions of the cameras in their plane of largest extent."""
    centres = outcome.start.centres - outcome.start.centres.mean(axis=0)
    flat = centres @ np.linalg.svd(centres, full_matrices=False)[2][:2].T
    m = outcome.matches
    used = m.counts > 0
    inside = np.zeros(len(m.pairs))
    for part in outcome.parts:
        kept = part.features[part.matches.features[_consistent(part)]]
        pair = m.of_feature[kept]
        for k in np.flatnonzero(used):
            inside[k] += np.count_nonzero((np.sort(pair, axis=1) == np.sort(m.pairs[k])).all(axis=1))
    return {
        "x": flat[:, 0],
        "y": flat[:, 1] if flat.shape[1] > 1 else np.zeros(len(flat)),
        "names": outcome.start.names,
        "pairs": m.pairs[used],
        "counts": m.counts[used],
        "consistent": inside[used],
    }


def _consistent(part: Part) -> np.ndarray:
    """Return the mask of the matches that join inliers of one track."""
    tracks = part.solution.tracks
    track = np.full(len(part.matches.xys), -1)
    track[tracks.feature[part.solution.inliers]] = tracks.point[part.solution.inliers]
    a, b = track[part.matches.features].T
    return (a == b) & (a >= 0)


def _pictures(folder: Path, outcome: PosedOutcome) -> list[dict[str, Any]]:
    """Return the images that were shifted most, with features and their projections before and after."""
    shown = []
    rank = np.argsort(-np.nan_to_num(outcome.images.shift, nan=-1.0), kind="stable")[:N_IMAGES]
    for part in outcome.parts:
        tracks = part.solution.tracks
        image = part.matches.of_feature[tracks.feature]
        given = outcome.start.taken(part.images)
        before = points_of(given, part.matches, tracks)
        for k in np.flatnonzero(np.isin(part.images, rank)).tolist():
            of = np.flatnonzero((image == k) & part.solution.inliers)
            of = of[np.linspace(0, len(of) - 1, min(len(of), N_FEATURES)).astype(int)] if len(of) else of
            point, uv = tracks.point[of], part.matches.xys[tracks.feature[of]]
            lines = [uv, projections(given, k, before[point]), projections(part.posed, k, part.xyz[point])]
            name, (width, height) = given.names[k], given.sizes[k].tolist()
            shown.append(
                {
                    "name": name,
                    "jpeg": _jpeg(folder / name),
                    "width": width,
                    "height": height,
                    "features": np.round(np.concatenate(lines, axis=1), 2),
                }
            )
    return sorted(shown, key=lambda one: one["name"])


def _jpeg(path: Path) -> str:
    """Return a small copy of an image for a page."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB")
        small.thumbnail((WIDTH, 4 * WIDTH))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
