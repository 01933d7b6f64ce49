"""Bundle adjustment as an application: BAL files and synthetic scenes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

import asker
from asker.applications import point_cloud_plots
from asker.applications.application import Application, Arrays, Runs, Source, Write
from asker.applications.bundle.bal import Bundle, BundlePortion, read_bal, read_bal_portion, write_bal
from asker.applications.bundle.options import CAMERAS, DOFS, Options
from asker.applications.bundle.parallel_reader import is_seekable, read_bal_together
from asker.applications.bundle.problem import BundleProblem, bundle_problem, camera_centres, reprojection_norms
from asker.applications.bundle.refine import BundleOutcome, issues_of, refine
from asker.applications.bundle.sharded_output import part_path, write_part
from asker.applications.bundle.synthetic import KINDS, Scene, make_scene
from asker.applications.bundle.truth_errors import errors
from asker.applications.bundle.uncertainty import data_covariances
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
    percent,
    termination_line,
)
from asker.applications.uncertainty import weak_variables_report
from asker.io.files import beginning
from asker.io.json import write_json
from asker.io.log import devices
from asker.solver.holdout import Prediction, held_out_masks
from asker.solver.result import Result

HEADER = re.compile(rb"\s*\d{1,18}\s+\d{1,18}\s+\d{1,18}(?!\S)")


class BundleAdjustment(Application):
    """Cameras, points and image observations of points."""

    name = "bundle"
    title = "BAL files"
    expects = "a BAL file: text with a header of three integers, also as .gz or .bz2"
    options_class = Options
    has_covariances = True
    several_processes = writes_parts = True
    experiment_title = "Robust bundle adjustment"
    columns = (("camera_error", "camera error %"),)
    truth = "camera_error"

    def owns(self, path: Path) -> bool:
        return path.is_file() and HEADER.match(beginning(path)) is not None

    def load(self, path: Path) -> Bundle:
        return read_bal(path)

    def load_as(self, path: Path, options: Options) -> Bundle:
        bundle = read_bal(path)
        issues_of(bundle, path, options.strict)
        return bundle

    def load_portion(self, path: Path, options: Options, process: int, n_processes: int) -> Any:
        from asker.engines.xla import distributed

        size = path.stat().st_size.to_bytes(8)
        distributed.check_same(size + crc32(beginning(path)).to_bytes(4), "were given different files")
        if is_seekable(path):
            part = read_bal_together(path, process, n_processes, distributed.all_gather)
        else:
            devices.info("%s is compressed: every process reads all of it", path)
            part = read_bal_portion(path, process, n_processes)
        distributed.check_same(part.checksum.to_bytes(4), "were given different files")
        return part

    def in_parts(self, data: BundlePortion) -> BundlePortion:
        return replace(data, in_parts=True)

    def write_part(self, output: Path, data: BundlePortion, process: int, n_processes: int) -> Path:
        path = part_path(output, process, n_processes)
        write_part(path, data, process, n_processes)
        return path

    def write(self, path: Path, data: Bundle) -> None:
        write_bal(path, data)

    def counts(self, data: Any) -> str:
        return counts(data)

    def info(self, data: Bundle, tau: float | None) -> ReportItems:
        tau = 1.0 if tau is None else tau
        track_lengths = count_table(
            ("observations per camera", data.camera_index, data.n_cameras),
            ("observations per point", data.point_index, data.n_points),
        )
        rows, n_undefined = [], 0
        for camera in CAMERAS:
            r, depth = reprojection_norms(data, camera)
            n_undefined = max(n_undefined, int(np.isinf(r).sum()))
            cost = asker.SmoothTruncated(tau).psi(np.minimum(r, 1e150) ** 2).sum()
            near = percent(np.mean(r <= INFLECTION * tau))
            rows.append([f"{camera} camera", f"{cost:.7g}", near, f"{np.median(r):.3g} px"])
        titles = (f"initial values, tau {tau:g} px", "cost", f"within {INFLECTION * tau:.3g} px", "median residual")
        behind = depth <= 0
        n_points = len(np.unique(data.point_index[behind]))
        items: ReportItems = [
            track_lengths,
            Table(titles, rows),
            f"behind their camera initially: {np.count_nonzero(behind)} observations of {n_points} points",
        ]
        if n_undefined:
            items.append(f"not finite initially: {n_undefined} observations; `asker solve` rejects such a file")
        return items

    def refine(self, data: Any, options: Options, say: Any, **common: Any) -> BundleOutcome:
        if isinstance(data, BundlePortion) and data.in_parts and options.strict:
            raise ValueError("--strict checks the whole data set: it cannot be combined with --parts")
        if isinstance(data, BundlePortion) and options.strict:
            issues_of(data, data.path, strict=True)
        chosen = {"camera": options.camera, "dof": options.dof, "gauge": options.gauge}
        return refine(data, **chosen, **common)  # type: ignore[arg-type]

    def iteration_limit(self, options: Options) -> int | None:
        return None  # those of `asker.solve`

    def report(self, data: Any, outcome: Any, options: Options) -> ReportItems:
        r = outcome.record
        inliers = percent(r["initial_inlier_ratio"]), percent(r["inlier_ratio"])
        return [
            f"{method_line(r, 'px')}, {r['camera']} camera, {r['dof']} dof",
            before_and_after(r, [inliers_within(r["inlier_radius"], "px"), *inliers]),
            *issues_report(r["dirt"]),
            *reprojection_report(outcome.errors),
            *noise_report(r, "px"),
            *weak_variables_report(outcome.result, {"cameras": range(r["n_cameras"]), "points": range(r["n_points"])}),
            termination_line(r),
            *compilation_note(r),
        ]

    def outputs(self, outcome: Any, options: Options, output: Path | None) -> list[Write]:
        def write_cloud(path: Path) -> None:
            point_cloud_plots.write_supported(path, outcome.refined, camera_centres(outcome.refined), outcome.inliers)

        return [
            *super().outputs(outcome, options, output),
            (options.ply, write_cloud),
            (options.report, lambda path: write_json(path, _report(outcome))),
        ]

    def hold_out(self, data: Any, keys: dict[str, Any], share: float, seed: int) -> HoldoutSplit:
        whole, keys = start_of(data), DEFAULT_KEYS | keys
        (mask,) = held_out_masks(bundle_problem(whole, dof=keys["dof"]).problem, share, seed)

        def predicted(refined: Bundle) -> Prediction:
            r, depth = reprojection_norms(
                replace(whole, cameras=refined.cameras, points=refined.points), keys["camera"]
            )
            return Prediction(np.where(depth > 0, r, np.inf)[mask])

        training = whole.with_observations(~mask)
        split_data = replace(data, start=training) if isinstance(data, Scene) else training
        return HoldoutSplit(split_data, predicted, "px", whole.n_observations)

    # ---- for experiments

    def sizes(self, data: Any) -> dict[str, Any]:
        b = start_of(data)
        return {"n_cameras": b.n_cameras, "n_points": b.n_points, "n_observations": b.n_observations}

    def problem(self, data: Any, keys: dict[str, Any]) -> BundleProblem:
        keys = DEFAULT_KEYS | keys
        return bundle_problem(start_of(data), kernel_from_keys(keys), keys["camera"], keys["dof"])

    def evaluate(self, data: Any, made: BundleProblem, result: Result, keys: dict[str, Any]) -> dict[str, Any]:
        refined = made.refined(result.values)
        near = float(_within_inflection(refined, keys).mean())
        facts = {"inlier_ratio": result.inlier_ratio, "within_inflection": near}
        if isinstance(data, Scene):
            facts["camera_error"] = errors(refined, data.truth).cameras
        return facts

    def plot_arrays(self, data: Any, made: BundleProblem, result: Result, keys: dict[str, Any]) -> Arrays:
        before, after = start_of(data), made.refined(result.values)
        (radius,), camera = inlier_radii(result), (DEFAULT_KEYS | keys)["camera"]
        return point_cloud_plots.plot_arrays(
            before.point_index,
            point_cloud_plots.Cloud(
                before.points, camera_centres(before), reprojection_norms(before, camera)[0] <= radius
            ),
            point_cloud_plots.Cloud(after.points, camera_centres(after), result.inliers[0]),
            data_covariances(made, result),
        )

    def page(self, runs: Runs) -> dict[str, Any]:
        return point_cloud_plots.page(runs)

    def figures(self, runs: Runs) -> dict[str, Any]:
        return point_cloud_plots.figures(runs)

    sources = (
        Source(
            "bal",
            {"tau": 1.0, "camera": "pixel", "dof": 6},
            place="file",
            choices={"camera": CAMERAS, "dof": DOFS},
        ),
        Source(
            "scene",
            {"shape": "ring", "cameras": 30, "observations": 18_000, "outliers": 0.3, "start_error": 30.0, "seed": 0},
            load=lambda keys: scene_of(keys),
            choices={"shape": KINDS},
            needed_mb=lambda keys: 400 + 1e-3 * keys["observations"],
        ),
    )


DEFAULT_KEYS: dict[str, Any] = {"tau": 1.0, "camera": "pixel", "dof": 6}
"""Defaults of the keys of a BAL file; a plan cannot change them for a scene."""


def counts(bundle: Bundle | BundlePortion) -> str:
    """Return the size of a bundle in words."""
    return f"{bundle.n_cameras} cameras, {bundle.n_points} points, {bundle.n_observations} observations"


def start_of(data: Bundle | Scene) -> Bundle:
    """Return the initial bundle of a scene, or the bundle itself."""
    return data.start if isinstance(data, Scene) else data


def scene_of(keys: dict[str, Any]) -> Scene:
    """Return the synthetic scene that the keys of a plan describe."""
    return make_scene(
        keys["cameras"],
        keys["observations"],
        kind=keys["shape"],
        outlier_ratio=keys["outliers"],
        start_error=keys["start_error"],
        seed=keys["seed"],
    )


def _within_inflection(bundle: Bundle, keys: dict[str, Any]) -> np.ndarray:
    """Return the mask of observations that Le and Zach count as inliers."""
    keys = DEFAULT_KEYS | keys
    return reprojection_norms(bundle, keys["camera"])[0] <= INFLECTION * keys["tau"]


def _report(outcome: BundleOutcome) -> dict[str, Any]:
    """Return the content of `--report`: columns with one entry per camera and per point, in the order of the file."""
    bundle, inliers = outcome.refined, outcome.inliers

    def columns(index: np.ndarray, n: int) -> dict[str, Any]:
        n_inliers = np.bincount(index[inliers], minlength=n)
        return {"n_observations": np.bincount(index, minlength=n), "inliers": n_inliers}

    return {
        "file": outcome.record["file"],
        "inlier_radius": outcome.record["inlier_radius"],
        "standard_errors": outcome.covariances.columns(cameras="centre", points="point"),
        "cameras": columns(bundle.camera_index, bundle.n_cameras),
        "points": columns(bundle.point_index, bundle.n_points),
    }


APPLICATION = BundleAdjustment()
