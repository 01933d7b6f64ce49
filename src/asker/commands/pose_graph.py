"""Commands for pose graphs: what `asker solve` and `asker info` do with a g2o file, and `asker corrupt`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import typer

import asker
from asker import poses
from asker.clock import Clock
from asker.commands.support import (
    Json,
    Seed,
    check_outputs,
    complain,
    failed,
    number,
    one_of,
    solve_record,
    write_outputs,
)
from asker.figures import FORMATS
from asker.io.files import FileError
from asker.io.g2o import PoseGraph, read_g2o, write_g2o
from asker.io.json import read_json, write_json
from asker.problems.false_loops import FalseLoops, add_false_loops
from asker.problems.graph_noise import (
    Round,
    Solved,
    announces_too_much,
    noise_share,
    solve_pose_graph,
)
from asker.problems.graph_refit import Refit, refit
from asker.problems.pose_graph import (
    Robust,
    default_tau,
    inlier_radius,
    residual_norms,
)
from asker.problems.trajectory import By, trajectory_error, true_positions
from asker.terminal import Progress, percent, print_spread, print_table

ENDINGS = (".g2o", ".g2o.gz", ".g2o.bz2")
MATCHES = get_args(By)
NOISES = ("auto", "announced", "estimated")

GraphFile = Annotated[Path, typer.Argument(metavar="FILE", help="A pose graph: .g2o, .g2o.gz or .g2o.bz2.")]
NewGraph = Annotated[Path, typer.Argument(metavar="OUT", help="The g2o file to write; .gz, .bz2 compress.")]


def is_graph(file: Path) -> bool:
    return file.name.lower().endswith(ENDINGS)


@dataclass(frozen=True)
class GraphOptions:
    """What `asker solve` is asked about a pose graph alone."""

    truth: Path | None = None
    truth_by: str = "id"
    robust: str = "loops"
    figure: Path | None = None
    false_loops: Path | None = None
    noise: str = "auto"
    refit: bool = True

    def refuse(self) -> None:
        """For a file that is no pose graph."""
        if self != GraphOptions():
            names = "--truth, --truth-by, --robust, --noise, --no-refit, --figure and --false-loops"
            raise ValueError(f"{names} are for pose graphs (.g2o)")


def solve_graph(
    file: Path,
    kernel: str,
    tau: float | None,
    method: str | None,
    options: GraphOptions,
    json_file: Path | None,
    output: Path | None,
    quiet: bool,
    **settings: Any,
) -> int:
    """Refine the poses of a g2o file; `settings` go to `asker.solve`."""
    one_of("--robust", options.robust, get_args(Robust))
    one_of("--truth-by", options.truth_by, MATCHES)
    one_of("--noise", options.noise, NOISES)
    if output and not is_graph(output):
        raise FileError(output, f"the name must end with {' or '.join(ENDINGS)}")
    if options.figure and options.figure.suffix.lower() not in FORMATS:
        raise FileError(options.figure, f"the name must end with {', '.join(FORMATS)}")
    check_outputs(file, json_file, output, options.figure)
    with Progress(quiet) as progress:
        progress.say(f"reading {file}")
        graph = read_g2o(file)
        tau = default_tau(graph.kind) if tau is None else number("--tau", tau, positive=True)
        psi = asker.kernel_named(kernel, tau, "--kernel")
        plain = psi.convex or options.robust == "none"
        noise = options.noise
        if noise == "auto":
            noise = "announced" if plain or settings["checkpoint"] else "estimated"
        if noise == "estimated" and settings["checkpoint"]:
            raise ValueError("--noise estimated solves several times: it goes without --checkpoint")
        method = ("irls" if plain else "asker") if method is None else method
        strategy = asker.METHODS[one_of("--method", method, asker.METHODS)]()
        checks = Checks(graph, options)
        solve, clock = partial(asker.solve, on_iteration=progress.iteration, **settings), Clock(settings["time_limit"])
        asked: Any = (options.robust, clock.left(), noise)
        found = solve_pose_graph(graph, solve, strategy, partial(asker.kernel_named, kernel), tau, *asked)
        again = None
        if options.refit and not plain and not found.is_cut_short and found.chosen.result.iterations:
            progress.begin("least squares with what was kept")
            again = _refit(found.chosen, partial(solve, checkpoint=None, time_limit=clock.left()))
    refined = again.graph if again else found.chosen.refined
    record = {
        "file": str(file),
        "kind": graph.kind,
        "n_poses": graph.n_poses,
        "n_edges": graph.n_edges,
        "n_loops": graph.n_loops,
        "method": method,
        "kernel": kernel,
        "robust": options.robust,
        "noise": noise,
        "noise_seen": None if plain else noise_share(found.chosen.made, found.chosen.result),
        "compiled": progress.compiled,
        **_search_record(graph, found, tau),
        "refit": again and solve_record(again.result),
        **checks.record(found.chosen, refined),
    }
    _print_run(record)
    write_outputs(
        (json_file, partial(write_json, record=record)),
        (output, partial(write_g2o, graph=refined)),
        (options.figure, partial(_draw, before=graph, after=refined, refused=_refused_loops(found.chosen))),
    )
    if settings["max_iterations"] and all(failed(r.result) for r in found.rounds):
        return complain(f"{file}: the cost did not fall: {found.chosen.result.status.value}", 1)
    return 0


def _refit(searched: Round, solve: Any) -> Refit | None:
    """An interrupt before the first step costs this alone, and not what was found."""
    try:
        return refit(searched.made, searched.result, solve)
    except KeyboardInterrupt:
        return None


def _search_record(graph: PoseGraph, found: Solved, tau: float) -> dict[str, Any]:
    """What `--json` says of the search; of several solves: how they ended, the sums, and each with its history."""
    chosen = found.chosen
    one = {"tau": chosen.share * tau, "noise_share": chosen.share, **solve_record(chosen.result)}
    one["initial_cost"] = _initial_cost(graph, chosen)
    if len(found.rounds) == 1:
        return one
    rounds = [{"noise_share": r.share, "tau": r.share * tau, **solve_record(r.result)} for r in found.rounds]
    sums = {k: sum(r[k] for r in rounds) for k in ("iterations", "seconds")}
    ended = {"status": found.ended.status.name.lower(), "message": found.ended.message}
    return one | sums | ended | {"history": None, "rounds": rounds}


def _initial_cost(graph: PoseGraph, chosen: Round) -> float:
    """Of the graph as it was, with the kernel that was used last."""
    if chosen.made.graph is graph:
        return chosen.result.initial_cost
    u, problem = residual_norms(graph) ** 2, chosen.made.problem
    return sum(f.kernel.psi(u[of]).sum() for f, of in zip(problem.factors, chosen.made.edges.values(), strict=True))


def graph_info(file: Path, tau: float | None) -> None:
    """Describe a g2o file: its size, its edges, and how good its start is, as `asker solve` would judge it."""
    graph = read_g2o(file)
    tau = default_tau(graph.kind) if tau is None else tau
    print(f"{file}: {_counts(graph.kind, graph.n_poses, graph.n_edges, graph.n_loops)}")
    print(f"fixed: {np.count_nonzero(graph.fixed)} poses" + ("" if graph.fixed.any() else "; `asker solve` holds one"))
    if not graph.n_edges:
        return
    print_spread(("edges per pose", np.concatenate([graph.i, graph.j]), graph.n_poses))
    r = residual_norms(graph)
    rows = []
    for name, own, psi in (
        ("odometry", graph.is_odometry, asker.Quadratic(inlier_radius(graph.kind))),
        ("loops", ~graph.is_odometry, asker.SmoothTruncated(tau)),
    ):
        if own.any():
            cost = psi.psi(np.minimum(r[own], 1e150) ** 2).sum()
            inliers = f"{percent(np.mean(r[own] <= psi.inlier_radius))} ({psi.inlier_radius:.3g})"
            rows.append([name, f"{own.sum()}", f"{cost:.7g}", inliers, f"{np.median(r[own]):.3g}"])
    print_table([f"start, tau {tau:.3g}", "edges", "cost", "inliers", "median residual"], *rows)
    if bad := np.count_nonzero(np.isinf(r)):
        print(f"not finite at the start: {bad} edges; `asker solve` refuses such a file")


def corrupt(
    file: GraphFile,
    out: NewGraph,
    outliers: Annotated[float, typer.Option(help="False loops, as a part of the loops that are there.")] = 0.5,
    kind: Annotated[str, typer.Option(help=f"One of: {', '.join(get_args(FalseLoops))}.")] = "random",
    seed: Seed = 1,
    json_file: Json = None,
) -> int:
    """Add false loop closures to a pose graph.  --json says which; `asker solve --false-loops` reads that file."""
    one_of("--kind", kind, get_args(FalseLoops))
    if not is_graph(out):
        raise FileError(out, f"the name must end with {' or '.join(ENDINGS)}")
    check_outputs(file, out, json_file)
    graph, is_false = add_false_loops(read_g2o(file), number("--outliers", outliers), kind, seed)  # type: ignore[arg-type]
    record = {
        "file": str(file),
        "kind": kind,
        "outliers": outliers,
        "seed": seed,
        "n_edges": graph.n_edges,
        "n_loops": graph.n_loops,
        "false_edges": np.flatnonzero(is_false),
        "false_loops": _named(graph, is_false),
    }
    print(f"{file}: {graph.n_loops - is_false.sum()} loops, and {is_false.sum()} false ones added")
    write_outputs((out, partial(write_g2o, graph=graph)), (json_file, partial(write_json, record=record)))
    return 0


class Checks:
    """The truth and the list of false loops, where they are given, and what the result is worth beside them."""

    def __init__(self, graph: PoseGraph, options: GraphOptions):
        self.graph, self.truth, self.is_false = graph, None, None
        if options.truth:
            truth = read_g2o(options.truth, trajectory=True)
            try:
                self.truth = true_positions(graph, truth, options.truth_by)  # type: ignore[arg-type]
            except ValueError as e:
                raise FileError(options.truth, str(e)) from None
            if options.truth_by == "id" and len(self.truth[0]) < graph.n_poses:
                found = f"has {len(self.truth[0])} of the graph's {graph.n_poses} ids"
                raise FileError(options.truth, f"{found}; was it recorded at other times? --truth-by length")
        if options.false_loops:
            self.is_false = _read_false(options.false_loops, graph)

    def error(self, graph: PoseGraph) -> float | None:
        """Absolute trajectory error."""
        if self.truth is None:
            return None
        index, where = self.truth
        return trajectory_error(poses.positions(graph.kind, graph.poses)[index], where)

    def record(self, searched: Round, refined: PoseGraph) -> dict[str, Any]:
        refused = _refused_loops(searched)
        told: dict[str, Any] = {"n_refused_loops": refused.sum(), "refused_loops": _named(self.graph, refused)}
        others = searched.made.refused(searched.result) & self.graph.is_odometry
        told |= {"n_refused_odometry": others.sum(), "refused_odometry": _named(self.graph, others)}
        if self.truth is not None:
            told |= {"initial_trajectory_error": self.error(self.graph), "trajectory_error": self.error(refined)}
        if self.is_false is not None:
            told["n_false_loops"] = self.is_false.sum()
            told["false_loops_kept"] = _named(self.graph, self.is_false & ~refused)
            told["true_loops_refused"] = _named(self.graph, refused & ~self.is_false)
        return told


def _refused_loops(searched: Round) -> np.ndarray:
    """(n_edges,): a mask."""
    return searched.made.refused(searched.result) & ~searched.made.graph.is_odometry


def _named(graph: PoseGraph, mask: np.ndarray) -> np.ndarray:
    """The ids of the ends of some edges, (n, 2)."""
    return np.stack([graph.ids[graph.i[mask]], graph.ids[graph.j[mask]]], axis=1)


def _read_false(path: Path, graph: PoseGraph) -> np.ndarray:
    """The mask of the edges that `asker corrupt --json` has recorded."""
    what = "what `asker corrupt --json` writes"
    record = read_json(path, what)
    try:
        index = np.array(record["false_edges"], int)
        pairs = np.array(record["false_loops"], int).reshape(-1, 2)
    except (ValueError, KeyError, TypeError, OverflowError) as e:
        raise FileError(path, f"this is not {what}") from e
    mask = np.zeros(graph.n_edges, bool)
    fits = index.ndim == 1 and np.all((index >= 0) & (index < graph.n_edges))
    if fits:
        mask[index] = True
    if not fits or not np.array_equal(_named(graph, mask), pairs):
        raise FileError(path, "these false loops are not in this graph")
    return mask


def _draw(path: Path, before: PoseGraph, after: PoseGraph, refused: np.ndarray) -> None:
    from asker.figures import draw_trajectories

    draw_trajectories(path, {"before": before, "after": after}, refused)


def _counts(kind: str, n_poses: int, n_edges: int, n_loops: int) -> str:
    return f"{kind}, {n_poses} poses, {n_edges} edges, {n_loops} of them loops"


def _ended(r: dict[str, Any]) -> str:
    return f"{r['iterations']} iteration{'' if r['iterations'] == 1 else 's'} in {r['seconds']:.3g} s: {r['message']}"


def _print_run(r: dict[str, Any]) -> None:
    print(f"{r['file']}: {_counts(r['kind'], r['n_poses'], r['n_edges'], r['n_loops'])}")
    print(f"{r['method']}, {r['kernel']} kernel on {r['robust']}, tau {r['tau']:.3g}")
    if "rounds" in r:
        print(f"This tau is for {r['noise_share']:.3g} of the announced noise, found in {len(r['rounds'])} rounds.")
    rows = [["cost", f"{r['initial_cost']:.7g}", f"{r['cost']:.7g}"]]
    if "trajectory_error" in r:
        rows.append(["trajectory error", f"{r['initial_trajectory_error']:.4g}", f"{r['trajectory_error']:.4g}"])
    print_table(["", "before", "after"], *rows)
    print(f"{r['n_refused_loops']} of {r['n_loops']} loops refused")
    if r["n_refused_odometry"]:
        print(f"{r['n_refused_odometry']} edges of odometry refused: the graph may fall into pieces")
    if "n_false_loops" in r:
        kept, lost = len(r["false_loops_kept"]), len(r["true_loops_refused"])
        print(f"{r['n_false_loops']} loops are false: {kept} of them kept; {lost} others refused")
    print(_ended(r))
    if r["refit"]:
        print(f"Least squares with what was kept: {_ended(r['refit'])}")
    if r["noise"] == "announced" and r["noise_seen"] is not None and announces_too_much(r["noise_seen"]):
        seen = f"The inliers show {r['noise_seen']:.2g} of the noise that the file announces"
        print(f"{seen}: with --noise estimated, false loops are told apart better.")
    if r["compiled"]:
        print("The time includes compiling, which is done once on this machine.")
