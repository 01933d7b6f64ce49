"""COLMAP models as an application."""

import os
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications import point_cloud_plots
from asker.applications.application import Application, Arrays, Runs, Source, Write
from asker.applications.colmap.formats.folder import FILES, FORMS, PARTS, check_target, read_model, write_model
from asker.applications.colmap.formats.nerfstudio import check_transforms, write_transforms
from asker.applications.colmap.georegistration.position_priors import read_control, read_positions
from asker.applications.colmap.georegistration.text_report import known_positions_report
from asker.applications.colmap.inliers import InlierTable
from asker.applications.colmap.model import NO_POINT, ColmapModel
from asker.applications.colmap.options import REFINES, Options
from asker.applications.colmap.problem import ColmapProblem, colmap_problem
from asker.applications.colmap.refine import ColmapOutcome, issues_of, per_observation, refine
from asker.applications.colmap.reprojection_error import camera_centres, reprojection_norms
from asker.applications.colmap.rigs import members
from asker.applications.colmap.uncertainty import data_covariances
from asker.applications.holdout import HoldoutSplit
from asker.applications.outcome import INFLECTION, inlier_radii, kernel_from_keys
from asker.applications.reconstruction import issues_report, reprojection_report
from asker.applications.text_report import (
    ReportItems,
    Table,
    before_and_after,
    compilation_note,
    count_table,
    inliers_within,
    method_line,
    noise_report,
    number_of,
    percent,
    termination_line,
)
from asker.applications.uncertainty import weak_variables_report
from asker.io.files import FileError
from asker.io.json import write_json
from asker.io.ply import write_ply
from asker.solver.holdout import Prediction, held_out_masks
from asker.solver.result import Result

N_WORST = 5
MAX_DROPPED_RATIO = 0.1
"""The fraction of observations that `--drop-outliers` may remove without a warning."""
COLMAP_MAX_ERROR = 4.0
"""COLMAP's default limit of reprojection errors, in pixels."""


class ColmapModels(Application):
    """COLMAP models: cameras, images and points."""

    name = "colmap"
    title = "COLMAP models"
    expects = "a COLMAP model: a folder with cameras, images and points3D, as .bin or .txt"
    options_class = Options
    has_covariances = several_processes = True
    reads_folder = writes_folder = True
    experiment_title = "COLMAP models"
    sources = (
        Source(
            "colmap",
            {"tau": 1.0, "refine": "poses"},
            place="folder",
            choices={"refine": REFINES},
            needed_mb=lambda keys: 400 + 25e-6 * sum(f.stat().st_size for f in Path(keys["folder"]).iterdir()),
        ),
    )

    def owns(self, path: Path) -> bool:
        return any((path / f"{part}{suffix}").is_file() for part in PARTS for suffix in FORMS)

    def reads(self, path: Path) -> list[Path]:
        return [path / name for name in FILES]

    def written(self, output: Path) -> list[Path]:
        return [output, *self.reads(output)]

    def load(self, path: Path) -> ColmapModel:
        return read_model(path)

    def load_as(self, path: Path, options: Options) -> ColmapModel:
        model = read_model(path)
        issues_of(model, path, options.strict)
        return model

    def write(self, path: Path, data: ColmapModel) -> None:
        write_model(path, data)

    def counts(self, data: ColmapModel) -> str:
        n = {"image": len(data.images), "camera": len(data.cameras), "point": len(data.points)}
        sizes = ", ".join(number_of(k, what) for what, k in n.items())
        return f"{sizes}, {data.n_observations} observations{_rig_counts(data)}"

    def info(self, data: ColmapModel, tau: float | None) -> ReportItems:
        tau = 1.0 if tau is None else tau
        kinds = Counter(data.cameras.models)
        models = f"camera models: {', '.join(f'{n} {name}' for name, n in kinds.items()) or 'none'}"
        if not data.n_observations:
            return [models, "there are no observations"]
        o = data.observations()
        tracks = count_table(
            ("observations per image", o.image, len(data.images)),
            ("observations per point", o.point, len(data.points)),
        )
        r = reprojection_norms(data)
        cost = asker.SmoothTruncated(tau).psi(np.minimum(r, 1e150) ** 2).sum()
        titles = (f"initial values, tau {tau:g} px", "cost", f"within {INFLECTION * tau:.3g} px", "median residual")
        row = ["", f"{cost:.7g}", percent(np.mean(r <= INFLECTION * tau)), f"{np.median(r):.3g} px"]
        not_visible = np.isinf(r)
        n_points = len(np.unique(o.point[not_visible]))
        count = f"{not_visible.sum()} observations of {n_points} points"
        return [models, tracks, Table(titles, [row]), f"behind their camera initially, counted as outliers: {count}"]

    def check(self, path: Path, output: Path | None, options: Options) -> None:
        if options.drop_outliers and output is None:
            raise ValueError("--drop-outliers changes the written model: give --output as well")
        if options.max_error is not None and not options.drop_outliers:
            raise ValueError("--max-error requires --drop-outliers")
        if options.min_angle and not options.drop_outliers:
            raise ValueError("--min-angle requires --drop-outliers")
        if output is not None:
            if os.path.realpath(output) == os.path.realpath(path):
                raise FileError(output, "this folder is named twice on the command line")
            check_target(output)

    def refine(self, data: ColmapModel, options: Options, say: Any, **common: Any) -> ColmapOutcome:
        names = ("refine", "gauge", "principal_point", "refine_rigs", "retriangulate", "max_error", "min_angle")
        chosen: Any = {name: getattr(options, name) for name in names} | {"hold": options.hold or ()}
        if options.transforms is not None:
            check_transforms(data)
        if options.priors is not None:
            chosen["priors"] = read_positions(options.priors)
        if options.control is not None:
            chosen["control"] = read_control(options.control, data.images.names)
        return refine(data, **chosen, **common)

    def iteration_limit(self, options: Options) -> int | None:
        return None  # those of `asker.solve`

    def report(self, data: ColmapModel, outcome: Any, options: Options) -> ReportItems:
        r, images = outcome.record, outcome.images
        settings = f"refine {r['refine']}{' and rigs' * r['refine_rigs']}, gauge {r['gauge']}"
        inliers = percent(r["initial_inlier_ratio"]), percent(r["inlier_ratio"])
        rows = []
        for k in images.worst(N_WORST):
            n = images.n_observations[k]
            ratios = percent(images.before[k] / n), percent(images.after[k] / n)
            rows.append([_printable(data.images.names[k]), f"{n}", *ratios])
        return [
            f"{method_line(r, 'px')}, {settings}",
            *([f"constant: {' '.join(map(str, r['hold']))}"] if r["hold"] else []),
            before_and_after(r, [inliers_within(r["inlier_radius"], "px"), *inliers]),
            *issues_report(r["dirt"]),
            *reprojection_report(outcome.errors),
            Table(("worst images", "observations", "inliers\nbefore", "inliers\nafter"), rows),
            *noise_report(r, "px"),
            *weak_variables_report(outcome.result, _names(data)),
            *known_positions_report(r["known_positions"]),
            termination_line(r),
            *compilation_note(r),
            *(_dropped_report(outcome) if options.drop_outliers else []),
        ]

    def outputs(self, outcome: Any, options: Options, output: Path | None) -> list[Write]:
        written = outcome.clean if options.drop_outliers else outcome.refined
        return [
            (output, partial(write_model, model=written)),
            (options.ply, partial(_write_cloud, model=written)),
            (options.transforms, partial(write_transforms, model=written)),
            (options.report, lambda path: write_json(path, _report(outcome))),
        ]

    def hold_out(self, data: ColmapModel, keys: dict[str, Any], share: float, seed: int) -> HoldoutSplit:
        made, mask = colmap_problem(data, refine=keys["refine"]), np.zeros(data.n_observations, bool)
        for index, held_out in zip(made.observations, held_out_masks(made.problem, share, seed), strict=True):
            mask[index] = held_out
        point_ids = data.images.point_ids.copy()
        point_ids[data.observations().feature[mask]] = NO_POINT  # the features remain, without a point

        def predicted(refined: ColmapModel) -> Prediction:
            images = replace(refined.images, point_ids=data.images.point_ids)
            return Prediction(reprojection_norms(replace(refined, images=images))[mask])

        training = replace(data, images=replace(data.images, point_ids=point_ids))
        return HoldoutSplit(training, predicted, "px", data.n_observations)

    # ---- for experiments

    def sizes(self, data: ColmapModel) -> dict[str, Any]:
        sizes = {"n_images": len(data.images), "n_cameras": len(data.cameras), "n_points": len(data.points)}
        return sizes | {"n_observations": data.n_observations}

    def problem(self, data: ColmapModel, keys: dict[str, Any]) -> ColmapProblem:
        return colmap_problem(data, kernel_from_keys(keys), keys["refine"])

    def relative_damping(self, made: ColmapProblem) -> bool:
        return made.relative_damping

    def evaluate(self, data: ColmapModel, made: ColmapProblem, result: Result, keys: dict[str, Any]) -> dict[str, Any]:
        near = reprojection_norms(made.refined(result.values)) <= INFLECTION * keys["tau"]
        return {"inlier_ratio": result.inlier_ratio, "within_inflection": float(near.mean())}

    def plot_arrays(self, data: ColmapModel, made: ColmapProblem, result: Result, keys: dict[str, Any]) -> Arrays:
        refined = made.refined(result.values)
        radii = per_observation(made, inlier_radii(result))
        inliers = (reprojection_norms(data) <= radii, per_observation(made, result.inliers))
        before, after = (
            point_cloud_plots.Cloud(m.points.xyz, camera_centres(m), mask)
            for m, mask in zip((data, refined), inliers, strict=True)
        )
        return point_cloud_plots.plot_arrays(
            data.observations().point, before, after, data_covariances(made, result, refined)
        )

    def page(self, runs: Runs) -> dict[str, Any]:
        return point_cloud_plots.page(runs)

    def figures(self, runs: Runs) -> dict[str, Any]:
        return point_cloud_plots.figures(runs)


def _rig_counts(model: ColmapModel) -> str:
    """Return the numbers of frames and rigs of a model with frames of several images."""
    if model.rigs is None or len(model.rigs.frames) == len(model.images):
        return ""
    return f"; {len(model.rigs.frames)} frames of {number_of(len(model.rigs), 'rig')}"


def _dropped_report(outcome: ColmapOutcome) -> ReportItems:
    """Return the size of the model after `--drop-outliers`, with a warning above `MAX_DROPPED_RATIO`."""
    clean, n, r = outcome.clean, outcome.refined.n_observations, outcome.record
    limit = r["inlier_radius"] if outcome.max_error is None else outcome.max_error
    items: ReportItems = [
        f"without outliers (errors above {limit:.3g} px): "
        f"{clean.n_observations} observations of {len(clean.points)} points remain"
    ]
    ratio = 1 - clean.n_observations / n
    if ratio <= MAX_DROPPED_RATIO:
        return items
    items.append(f"Warning: --drop-outliers removes {percent(ratio)} of the observations, more than a tenth.")
    default = f"{COLMAP_MAX_ERROR:g}, COLMAP's default, removes {percent(outcome.dropped_ratio(COLMAP_MAX_ERROR))}"
    hint = f" ({default})" if limit < COLMAP_MAX_ERROR else ""
    items.append(f"  To keep more, give a larger --max-error in pixels{hint}; to keep all, omit --drop-outliers.")
    return items


def _printable(name: str) -> str:
    """Return a file name with characters that cannot be printed escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def _names(model: ColmapModel) -> dict[str, Any]:
    """Return the names of frames, which are those of their first images, and of points."""
    first = np.unique(members(model).frame, return_index=True)[1]
    names = [_printable(model.images.names[image]) for image in first]
    return {"poses": names, "points": model.points.ids.tolist()}


def _report(outcome: ColmapOutcome) -> dict[str, Any]:
    """Return the content of `--report`: columns with one entry per image and per point."""

    def columns(table: InlierTable) -> dict[str, Any]:
        counts = {"n_observations": table.n_observations}
        return {"id": table.ids, **counts, "inliers_before": table.before, "inliers_after": table.after}

    model = outcome.refined
    return {
        "folder": outcome.record["folder"],
        "inlier_radius": outcome.record["inlier_radius"],
        "standard_errors": outcome.covariances.columns(images="centre", points="point"),
        "images": {"name": model.images.names, **columns(outcome.images)},
        "points": {**columns(outcome.points), "mean_error": model.points.errors},
    }


def _write_cloud(path: Path, model: ColmapModel) -> None:
    """Write a PLY file with points in their colours, and cameras in red."""
    write_ply(path, model.points.xyz, model.points.rgb, camera_centres(model))


APPLICATION = ColmapModels()
