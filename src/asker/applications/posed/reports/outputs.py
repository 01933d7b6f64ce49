"""The files of a refinement: COLMAP model, `transforms.json`, PLY, report and page."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from asker.applications.colmap.formats.folder import write_model
from asker.applications.colmap.formats.nerfstudio import check_transforms, transforms
from asker.applications.colmap.model import ColmapModel
from asker.applications.colmap.reprojection_error import camera_centres
from asker.applications.posed.posed_images import PosedImages
from asker.applications.posed.refine import PosedOutcome
from asker.applications.posed.reports.page import write_page
from asker.io.folders import make_folder
from asker.io.json import write_json
from asker.io.ply import write_ply

MODEL, TRANSFORMS, PLY, REPORT, PAGE = "sparse/0", "transforms.json", "points.ply", "report.json", "index.html"


def write_outputs(folder: Path, images: Path, outcome: PosedOutcome) -> list[Path]:
    """Write all files of an outcome into a folder and return their paths.

    A result that is refused has no model: only the report and the page are written.

    Parameters
    ----------
    folder
        The output folder.
    images
        The folder of the images, from which the colours of points are taken.
    outcome
        The outcome of `refine`.
    """
    make_folder(folder)
    written = []
    if outcome.accepted:
        model = coloured(outcome.model, images)
        (folder / MODEL).parent.mkdir(exist_ok=True)
        write_model(folder / MODEL, model)
        write_ply(folder / PLY, model.points.xyz, model.points.rgb, camera_centres(model))
        written += [folder / MODEL, folder / PLY]
        if write_nerfstudio(folder / TRANSFORMS, outcome.refined, model):
            written.append(folder / TRANSFORMS)
    write_json(folder / REPORT, outcome.record)
    write_page(folder / PAGE, images, outcome)
    return [*written, folder / REPORT, folder / PAGE]


def write_nerfstudio(path: Path, posed: PosedImages, model: ColmapModel) -> bool:
    """Write `transforms.json` with the names and other entries of the source; return False for other camera models."""
    try:
        check_transforms(model)
    except ValueError:
        return False
    content = transforms(model)
    for frame, name in zip(content["frames"], posed.given_names or posed.names, strict=True):
        frame["file_path"] = name
    write_json(path, posed.other | content)
    return True


def coloured(model: ColmapModel, folder: Path) -> ColmapModel:
    """Return the model with the mean colours of the pixels of each point."""
    from PIL import Image

    o = model.observations()
    total, count = np.zeros((len(model.points), 3)), np.bincount(o.point, minlength=len(model.points))
    for k in np.unique(o.image).tolist():
        of = o.image == k
        with Image.open(folder / model.images.names[k]) as image:
            pixels = np.asarray(image.convert("RGB"))
        xy = np.floor(model.images.xys[o.feature[of]]).astype(int)
        x, y = np.clip(xy[:, 0], 0, pixels.shape[1] - 1), np.clip(xy[:, 1], 0, pixels.shape[0] - 1)
        np.add.at(total, o.point[of], pixels[y, x].astype(float))
    rgb = np.rint(total / np.maximum(count, 1)[:, None]).astype(np.uint8)
    return replace(model, points=replace(model.points, rgb=rgb))
