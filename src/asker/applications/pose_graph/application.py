"""Pose graphs as an application of the command line and of experiments."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import asker
from asker.applications.application import Application, Arrays, Runs, Source, Write
from asker.applications.holdout import HoldoutSplit
from asker.applications.outcome import kernel_from_keys
from asker.applications.pose_graph import draw
from asker.applications.pose_graph.formats.detection import is_graph, read_graph
from asker.applications.pose_graph.formats.g2o import write_g2o
from asker.applications.pose_graph.formats.trajectories import KITTI, TUM, read_trajectory, write_trajectory
from asker.applications.pose_graph.graph import PoseGraph
from asker.applications.pose_graph.loops.false_loops import read_false_loops
from asker.applications.pose_graph.loops.noise_scale import overstates_noise
from asker.applications.pose_graph.options import ROBUST, Options
from asker.applications.pose_graph.problem import (
    PoseGraphProblem,
    default_tau,
    measured_norms,
    pose_graph_problem,
    residual_norms,
)
from asker.applications.pose_graph.refine import GraphOutcome, Truth, refine
from asker.applications.pose_graph.true_trajectory import true_positions
from asker.applications.pose_graph.uncertainty import draw_ellipses
from asker.applications.text_report import (
    ReportItems,
    Table,
    before_and_after,
    compilation_note,
    count_table,
    percent,
    termination_line,
)
from asker.applications.uncertainty import weak_variables_report
from asker.io.figures import FORMATS
from asker.io.files import FileError
from asker.io.json import write_json
from asker.solver.holdout import Prediction, held_out_masks
from asker.solver.result import Result

EXTENSIONS = (".g2o", ".g2o.gz", ".g2o.bz2")
MAX_LISTED_MEASUREMENTS = 10  # rejected measurements per line; `--json` lists all


class PoseGraphs(Application):
    """Poses and relative measurements between them, some of which are outliers."""

    name = "pose_graph"
    title = "pose graphs"
    expects = "a pose graph: g2o or TORO text of lines VERTEX… and EDGE…, also as .gz or .bz2, or Open3D's JSON"
    endings = (*EXTENSIONS, TUM, KITTI)
    options_class = Options
    estimates_noise = False
    has_covariances = several_processes = True
    tau = "for graphs 5.83 (SE2), 7.1 (SE3)"
    experiment_title = "pose graphs"
    columns = (("n_refused_loops", "loops rejected"),)
    sources = (Source("g2o", {"tau": None, "robust": "loops"}, place="file", choices={"robust": ROBUST}),)

    def owns(self, path: Path) -> bool:
        return path.is_file() and is_graph(path)

    def load(self, path: Path) -> PoseGraph:
        return read_graph(path)

    def load_as(self, path: Path, options: Options) -> PoseGraph:
        return read_graph(path, options.information, options.strict)  # type: ignore[arg-type]

    def write(self, path: Path, data: PoseGraph) -> None:
        is_graph = path.name.lower().endswith(EXTENSIONS)
        (write_g2o if is_graph else write_trajectory)(path, data)

    def counts(self, data: PoseGraph) -> str:
        others = [f"{len(data.landmarks)} landmarks"] if len(data.landmarks) else []
        others += [f"{len(m)} {tag}" for tag, m in data.measured.items()]
        edges = f"{data.kind}, {data.n_poses} poses, {data.n_edges} edges, {data.n_loops} of them loops"
        return ", ".join([edges, *others])

    def info(self, data: PoseGraph, tau: float | None) -> ReportItems:
        tau = default_tau(data.kind) if tau is None else tau
        gauge = "" if data.fixed.any() or data.has_priors else "; `asker solve` fixes one"
        fixed = f"fixed: {np.count_nonzero(data.fixed)} poses{gauge}"
        if not data.n_edges + data.n_measured:
            return [*repaired(data), fixed]
        made = pose_graph_problem(data, asker.SmoothTruncated(tau))
        r = residual_norms(data) if data.n_edges else np.zeros(0)
        norms = [r[index] for index in made.edges.values()] + list(measured_norms(data).values())
        rows = []
        for group, group_norms in zip(made.problem.factors, norms, strict=True):
            psi = group.kernel
            cost = psi.psi(np.minimum(group_norms, 1e150) ** 2).sum()
            inliers = f"{percent(np.mean(group_norms <= psi.inlier_radius))} ({psi.inlier_radius:.3g})"
            rows.append([group.name, f"{len(group_norms)}", f"{cost:.7g}", inliers, f"{np.median(group_norms):.3g}"])
        start = Table((f"start, tau {tau:.3g}", "edges", "cost", "within", "median residual"), rows)
        items: ReportItems = [
            *repaired(data),
            fixed,
            count_table(("edges per pose", np.concatenate([data.i, data.j]), data.n_poses)),
            start,
        ]
        if bad := sum(np.count_nonzero(np.isinf(group_norms)) for group_norms in norms):
            items.append(f"not finite at the start: {bad} edges; `asker solve` rejects such a file")
        return items

    def check(self, path: Path, output: Path | None, options: Options) -> None:
        check_name(output, (*EXTENSIONS, TUM, KITTI))
        for image in (options.figure, options.ellipses):
            if image and image.suffix.lower() not in FORMATS:
                raise FileError(image, f"the name must end with {', '.join(FORMATS)}")

    def refine(self, data: PoseGraph, options: Options, say: Any, **common: Any) -> GraphOutcome:
        return refine(
            data,
            robust=options.robust,  # type: ignore[arg-type]
            noise=options.noise,  # type: ignore[arg-type]
            refit=options.refit,
            truth=read_truth(data, options) if options.truth else None,
            is_false=read_false_loops(options.false_loops, data) if options.false_loops else None,
            say=say,
            **common,
        )

    def iteration_limit(self, options: Any) -> int | None:
        return None  # the default of `asker.solve`

    def report(self, data: PoseGraph, outcome: Any, options: Options) -> ReportItems:
        r = outcome.record
        items: ReportItems = [*repaired(data), *_method_lines(r)]
        rows = []
        if "trajectory_error" in r:
            title = f"trajectory error ({draw.UNITS[data.kind]})"
            rows.append([title, f"{r['initial_trajectory_error']:.4g}", f"{r['trajectory_error']:.4g}"])
        items.append(before_and_after(r, *rows))
        if r["n_loops"] or not r["measured"]:
            loops = {"n": r["n_loops"], "n_refused": r["n_refused_loops"], "refused": r["refused_loops"]}
            items.append(rejection_line("loops", loops))
        items += [rejection_line(tag, record) for tag, record in r["measured"].items()]
        if r["n_refused_odometry"]:
            items.append(f"{r['n_refused_odometry']} odometry edges rejected: the graph may be disconnected")
        if "n_false_loops" in r:
            accepted, lost = len(r["false_loops_kept"]), len(r["true_loops_refused"])
            items.append(f"{r['n_false_loops']} loops are false: {accepted} of them accepted; {lost} others rejected")
        items.append(termination_line(r))
        if r["refit"]:
            items.append(f"Least squares on the inliers: {termination_line(r['refit'])}")
        if r["noise"] == "announced" and r["noise_seen"] is not None and overstates_noise(r["noise_seen"]):
            scale = f"The noise of the inliers is {r['noise_seen']:.2g} of that stated in the file"
            items.append(f"{scale}: use --noise estimated to detect false loops more reliably.")
        return [
            *items,
            *weak_variables_report(outcome.covariances.result, _names(outcome.refined)),
            *compilation_note(r),
        ]

    def outputs(self, outcome: Any, options: Options, output: Path | None) -> list[Write]:
        graphs = {"before": outcome.start, "after": outcome.refined}
        figure = partial(draw.draw_trajectories, graphs=graphs, rejected=outcome.rejected, truth=outcome.truth)
        ellipses = partial(draw_ellipses, graph=outcome.refined, sure=outcome.covariances)
        return [
            *super().outputs(outcome, options, output),
            (options.figure, figure),
            (options.report, lambda path: write_json(path, _report(outcome))),
            (options.ellipses, ellipses),
        ]

    def hold_out(self, data: PoseGraph, keys: dict[str, Any], share: float, seed: int) -> HoldoutSplit:
        """Hold out loop closures only: without an odometry edge, its poses would be undetermined."""
        if not data.n_loops:
            raise ValueError("a pose graph without loop closures has no observations for --holdout")
        made = pose_graph_problem(data)
        among = [np.full(group.n, group.name == "loops") for group in made.problem.factors]
        mask = made.per_edge(held_out_masks(made.problem, share, seed, among))

        def predicted(refined: PoseGraph) -> Prediction:
            return Prediction(residual_norms(replace(data, poses=refined.poses).with_edges(mask)))

        return HoldoutSplit(data.with_edges(~mask), predicted, "σ", data.n_loops)

    # ---- for experiments

    def sizes(self, data: PoseGraph) -> dict[str, Any]:
        n = data.n_edges + data.n_measured
        return {"n_poses": data.n_poses, "n_edges": data.n_edges, "n_observations": n}

    def problem(self, data: PoseGraph, keys: dict[str, Any]) -> PoseGraphProblem:
        return pose_graph_problem(data, kernel_from_keys(keys, default_tau(data.kind)), keys["robust"])

    def evaluate(self, data: PoseGraph, made: PoseGraphProblem, result: Result, keys: dict[str, Any]) -> dict[str, Any]:
        rejected = made.rejected(result) & ~data.is_odometry
        within = float(np.mean(np.concatenate(tuple(result.within_inflection))))
        facts = {"inlier_ratio": result.inlier_ratio, "within_inflection": within}
        return facts | {"n_refused_loops": int(rejected.sum())}

    def plot_arrays(self, data: PoseGraph, made: PoseGraphProblem, result: Result, keys: dict[str, Any]) -> Arrays:
        return draw.plot_arrays(data, made.refined(result.values), made.rejected(result))

    def page(self, runs: Runs) -> dict[str, Any]:
        return draw.page(runs)

    def figures(self, runs: Runs) -> dict[str, Callable[[Path], None]]:
        return draw.figures(runs)


def _method_lines(r: dict[str, Any]) -> list[str]:
    """Return lines on the method and the kernel, or on the estimated noise, and on overstated noise."""
    noise = f"{r['noise_share']:.0%} of that noise"
    if r["finds_noise"]:
        lines = [f"estimated noise, robust kernel on {r['robust']}{' edges' * (r['robust'] == 'all')}"]
    else:
        lines, noise = (
            [f"{r['method']}, {r['kernel']} kernel on {r['robust']}, tau {r['tau']:.3g}"],
            f"tau is for {noise}",
        )
    if r["noise_share"] < 1:
        lines.append(f"The edges have less noise than their information matrices state: {noise}.")
    return lines


def repaired(graph: PoseGraph) -> list[str]:
    """Return a line on the issues repaired in the file, or nothing if there were none."""
    return [f"Repaired: {'; '.join(graph.repairs)}."] if graph.repairs else []


def rejection_line(tag: str, record: dict[str, Any]) -> str:
    """Return a line on the rejected measurements of a tag, with the ids of the first few."""
    names = [" ".join(map(str, ids)) for ids in record["refused"][:MAX_LISTED_MEASUREMENTS].tolist()]
    names += ["…"] if record["n_refused"] > MAX_LISTED_MEASUREMENTS else []
    return f"{record['n_refused']} of {record['n']} {tag} rejected" + (f": {', '.join(names)}" if names else "")


def check_name(output: Path | None, endings: tuple[str, ...] = EXTENSIONS) -> None:
    """Raise a `FileError` if the name of an output file has no supported extension."""
    if output and not output.name.lower().endswith(endings):
        raise FileError(output, f"the name must end with {' or '.join(endings)}")


def read_truth(graph: PoseGraph, options: Options) -> Truth:
    """Return the true positions of the graph's poses, read from the file of the option `--truth`."""
    path = options.truth
    assert path is not None
    truth = read_trajectory(path, graph.kind, graph.ids if options.truth_by == "id" else None)
    try:
        matched = true_positions(graph, truth, options.truth_by)  # type: ignore[arg-type]
    except ValueError as e:
        raise FileError(path, str(e)) from None
    if options.truth_by == "id" and len(matched[0]) < graph.n_poses:
        n = f"has {len(matched[0])} of the graph's {graph.n_poses} ids"
        raise FileError(path, f"{n}; if it was recorded at other times, use --truth-by length")
    return matched


def _names(graph: PoseGraph) -> dict[str, Any]:
    """Return the ids of poses and landmarks, by the names of their variables."""
    return {"poses": graph.ids.tolist(), "landmarks": graph.landmarks.ids.tolist()}


def _report(outcome: GraphOutcome) -> dict[str, Any]:
    """Return the content of `--report`: columns with one entry per pose and per landmark."""
    graph = outcome.refined
    ends, rejected = np.stack([graph.i, graph.j]), outcome.rejected
    n_edges, n_rejected = (
        np.bincount(ends[:, chosen].ravel(), minlength=graph.n_poses) for chosen in (slice(None), rejected)
    )
    names = {"poses": "position", "rotations": "rotation"} | (
        {"landmarks": "landmark"} if len(graph.landmarks.ids) else {}
    )
    return {
        "file": outcome.record["file"],
        "standard_errors": outcome.covariances.columns(**names),
        "poses": {"id": graph.ids, "n_edges": n_edges, "refused_loops": n_rejected},
        "landmarks": {"id": graph.landmarks.ids},
    }


APPLICATION = PoseGraphs()
