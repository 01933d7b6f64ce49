"""Rotation averaging as an application of the command line and of experiments."""

from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications.application import Application, Source
from asker.applications.holdout import HoldoutSplit
from asker.applications.outcome import Outcome, kernel_from_keys
from asker.applications.rotation_averaging import files, problem
from asker.applications.rotation_averaging.files import RelativeRotations, Rotations
from asker.applications.rotation_averaging.problem import TAU, AveragingProblem, averaging_problem
from asker.applications.text_report import (
    ReportItems,
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
from asker.solver.holdout import Prediction, held_out_masks
from asker.solver.result import Result


class RotationAveraging(Application):
    """Relative rotations, some of which are outliers, from which absolute ones are estimated."""

    name = "rotation_averaging"
    title = "relative rotations"
    expects = "relative rotations: lines of two names and nine numbers, also as .gz or .bz2"
    tau = f"for rotations {TAU:g} degrees"
    has_covariances = True
    experiment_title = "Rotation averaging"
    columns = (("median_error", "median error, degrees"),)
    truth = "median_error"
    sources = (
        Source("rotations", {"tau": TAU}, place="file"),
        Source(
            "made rotations",
            {"tau": TAU, "n": 60, "pairs": 900, "noise": 1.5, "outliers": 0.2, "seed": 0},
            load=lambda k: problem.make_rotations(k["n"], k["pairs"], k["noise"], k["outliers"], k["seed"]),
        ),
    )

    def owns(self, path: Path) -> bool:
        if not path.is_file():
            return False
        first = [words for _, words in files.lines(beginning(path))[:1]]
        return any(files.is_a_pair(words) and not words[0].startswith("EDGE_") for words in first)  # of a pose graph

    def load(self, path: Path) -> RelativeRotations:
        return files.read_rotations(path)

    def write(self, path: Path, data: Rotations) -> None:
        files.write_rotations(path, data)

    def counts(self, data: RelativeRotations) -> str:
        return f"{len(data.names)} rotations, {len(data.i)} pairs"

    def info(self, data: RelativeRotations, tau: float | None) -> ReportItems:
        start = asker.solve(averaging_problem(data, asker.SmoothTruncated(tau or TAU)).problem, max_iterations=0)
        norms, radius = np.linalg.norm(start.residuals[0], axis=1), asker.SmoothTruncated(tau or TAU).inlier_radius
        near = f"{percent(np.mean(norms <= radius))} within {radius:.3g} degrees"
        residuals = f"{near}, median residual {np.median(norms):.3g} degrees"
        pairs = count_table(("pairs per rotation", np.concatenate([data.i, data.j]), len(data.names)))
        return [pairs, f"start along a spanning tree, tau {tau or TAU:g}: cost {start.cost:.7g}, {residuals}"]

    def refine(self, data: RelativeRotations, options: Any, say: Any, **common: Any) -> Outcome:
        return problem.refine(data, **common)

    def iteration_limit(self, options: Any) -> int | None:
        return None  # the default of `asker.solve`

    def report(self, data: RelativeRotations, outcome: Outcome, options: Any) -> ReportItems:
        r = outcome.record
        return [
            method_line(r, "degrees"),
            before_and_after(r),
            f"{inliers_within(r['inlier_radius'], 'degrees')} {percent(r['inlier_ratio'])}",
            *noise_report(r, "degrees"),
            *weak_variables_report(outcome.result, {"rotations": data.names}),
            termination_line(r),
            *compilation_note(r),
        ]

    def hold_out(self, data: RelativeRotations, keys: dict[str, Any], share: float, seed: int) -> HoldoutSplit:
        (mask,) = held_out_masks(averaging_problem(data).problem, share, seed)
        training = data.with_pairs(~mask)

        def predicted(refined: Rotations) -> Prediction:
            return Prediction(problem.residual_norms(data.with_pairs(mask), refined.matrices))

        return HoldoutSplit(training, predicted, "degrees", len(data.i))

    def sizes(self, data: RelativeRotations) -> dict[str, Any]:
        return {"n_rotations": len(data.names), "n_observations": len(data.i)}

    def problem(self, data: RelativeRotations, keys: dict[str, Any]) -> AveragingProblem:
        return averaging_problem(data, kernel_from_keys(keys))

    def evaluate(
        self, data: RelativeRotations, made: AveragingProblem, result: Result, keys: dict[str, Any]
    ) -> dict[str, Any]:
        within = float(np.mean(result.within_inflection[0]))
        facts = {"inlier_ratio": result.inlier_ratio, "within_inflection": within}
        if data.truth is not None:
            errors = problem.angle_errors(made.refined(result.values).matrices, data.truth)
            facts["median_error"] = float(np.median(errors))
        return facts


APPLICATION = RotationAveraging()
