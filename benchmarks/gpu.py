"""ASKER on an accelerator: time per iteration, its split, and memory.

    python benchmarks/gpu.py [--scene 356|13682|small|plane-10000|torus3D|...|all] [--iterations N] [--json FILE]
    python benchmarks/gpu.py --engine cpu --linear-solver cg ...     the same scene and method on the CPU

`356` and `13682` are the numbers of cameras of synthetic scenes.  `plane-N` is a synthetic pose graph with N poses (a
walk in a square of side √N, see `interval_coverage.synthetic_graph`); `torus3D` is the public graph with 50 % false
loops. Sparse Cholesky needs llvmlite in addition to jax, numpy and scipy.  The floor is the time to read and write the
data of an iteration once at the bandwidth of `--bandwidth`; conjugate gradients add twice the coupling blocks per
product. `--kernels` runs five more iterations and lists the GPU kernels by time.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.applications.pose_graph.formats.detection import read_graph
from asker.applications.pose_graph.loops.false_loops import add_false_loops
from asker.applications.pose_graph.problem import pose_graph_problem
from asker.engines.solvers import CG
from asker.engines.xla.engine import XlaEngine
from asker.engines.xla.schur_pattern import n_pairs
from interval_coverage import synthetic_graph
from record import add_record_option, recorded

SCENES: dict[str, dict[str, Any]] = {
    "small": {"n_cameras": 30, "n_observations": 18_000, "kind": "ring"},
    "356": {"n_cameras": 356, "n_observations": 1_100_000, "kind": "ring"},
    "13682": {"n_cameras": 13_682, "n_observations": 26_000_000, "kind": "path", "mean_track": 5.8},
}
GRAPHS = ("plane-10000", "plane-1000000", "torus3D")
WARM_UP = 3  # untimed iterations for compilation


def problem_of(name: str) -> asker.Problem:
    """Return the problem of a scene or graph by its name."""
    if name in SCENES:
        return bundle_problem(make_scene(**SCENES[name]).start).problem
    if name == "torus3D":
        graph = read_graph(Path(os.environ.get("ASKER_DATA", "../shared/data")) / "g2o" / "torus3D.g2o.bz2")
        return pose_graph_problem(add_false_loops(graph, 0.5, seed=1)[0]).problem
    n = int(name.partition("-")[2])
    return pose_graph_problem(synthetic_graph(np.random.default_rng(0), n, span=int(np.sqrt(n)) // 2)[0]).problem


def floor_bytes(engine: XlaEngine, cg_steps: float) -> float:
    """Return the least memory traffic of one iteration: J, r and Y written and read once, per-residual numbers."""
    total = 0.0
    d = engine.functions.assembly.d
    for f in engine.structure.factors:
        numbers = 2 * f.p * (f.width + 1) + 2 * d * f.kept_width + 20 + 2 * cg_steps * d * f.kept_width
        total += f.n * (8 * numbers + 4 * len(f.factors.slots) * 4)
    if engine.linear_solver != "cg":
        fronts = engine.functions.system.fronts
        matrix = engine.structure.n_kept**2 if fronts is None else fronts.numbers
        total += 8 * 3 * matrix + n_pairs(engine.layout) * (8 + 2 * 8 * d * 6 / 8)
    return total / engine.mesh.size


def memory() -> dict[str, float]:
    stats = jax.local_devices()[0].memory_stats() or {}
    return {f"{name}_gb": stats[name] / 1e9 for name in ("peak_bytes_in_use", "bytes_in_use") if name in stats}


def run(
    name: str, engine_name: str, threads: int, iterations: int, solver: Any, bandwidth: float, kernels: bool = False
) -> dict[str, Any]:
    begin = time.perf_counter()
    problem = problem_of(name)
    seconds_problem = time.perf_counter() - begin
    counts = ", ".join(f"{len(v)} {v.name}" for v in problem.variables)
    print(f"\n{name}: {counts}, {problem.n_residuals} observations (generated in {seconds_problem:.1f} s)", flush=True)
    begin = time.perf_counter()
    engine: Any = XlaEngine(problem, solver) if engine_name == "xla" else cpu_engine(problem, solver)
    prepare = time.perf_counter() - begin
    plan = engine.plan if engine_name == "xla" else f"cpu, {engine.linear_solver}"
    print(plan, f"(prepared in {prepare:.1f} s)", flush=True)
    strategy = asker.ASKER()
    begin = time.perf_counter()
    state = strategy.init(engine, engine.start(), iterations + WARM_UP)
    costs, marks, splits, steps = [state.cost], [], [], []
    for _ in range(iterations + WARM_UP):
        state = strategy.step(engine, state)
        costs.append(state.cost)
        marks.append(time.perf_counter() - begin)
        splits.append(dict(engine.seconds))
        steps.append(engine.cg_steps if engine_name == "xla" else 0)
    took = np.diff(marks)[WARM_UP - 1 :]
    split = {stage: (splits[-1][stage] - splits[WARM_UP - 1][stage]) / iterations * 1e3 for stage in splits[-1]}
    per_solve = (steps[-1] - steps[WARM_UP - 1]) / iterations
    moved = floor_bytes(engine, per_solve) if engine_name == "xla" else float("nan")
    record = {
        "scene": name,
        "device": jax.devices()[0].device_kind if engine_name == "xla" else f"{threads} threads",
        "n_variables": {v.name: len(v) for v in problem.variables},
        "n_observations": problem.n_residuals,
        "linear_solver": engine.linear_solver,
        "cg_steps_per_iteration": per_solve,
        "ms_per_iteration": {f.__name__: float(f(took) * 1e3) for f in (np.median, np.mean, np.max)},
        "split_ms": split,
        "first_iteration_s": marks[0],
        "all_iterations_s": marks[-1],
        "prepare_s": prepare,
        "floor_ms": moved / bandwidth * 1e3,
        "floor_gb": moved / 1e9,
        "memory": memory() if engine_name == "xla" else {},
        "plan": plan,
        "costs": costs,
    }
    show(record)
    if kernels:
        show_kernels(engine)
    return record


def show_kernels(engine: XlaEngine, n: int = 5, most: int = 25) -> None:
    """Print the GPU kernels of `n` iterations, the most expensive first."""
    strategy = asker.ASKER()
    state = strategy.init(engine, engine.start(), 100)
    for _ in range(WARM_UP):
        state = strategy.step(engine, state)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(n):
                state = strategy.step(engine, state)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = [p for p in jax.profiler.ProfileData.from_file(str(file)).planes if "GPU" in p.name]
    took: dict[str, list[float]] = {}
    for event in (e for plane in planes for line in plane.lines if "Stream" in line.name for e in line.events):
        took.setdefault(event.name, []).append(event.duration_ns / 1e6)
    total, calls = sum(map(sum, took.values())) / n, sum(map(len, took.values())) / n
    print(f"\nkernels: {total:.2f} ms an iteration, {calls:.0f} calls")
    for name, times in sorted(took.items(), key=lambda pair: -sum(pair[1]))[:most]:
        print(f"{sum(times) / n:8.3f} ms {len(times) / n:7.1f} times  {name[:80]}")


def cpu_engine(problem: asker.Problem, solver: Any) -> Any:
    from asker.engines.cpu.engine import CpuEngine

    return CpuEngine(problem, solver)


def show(r: dict[str, Any]) -> None:
    times, split = r["ms_per_iteration"], r["split_ms"]
    rows = [(f"ms per iteration, {name}", value) for name, value in times.items()]
    rows += [(f"  {stage}", milliseconds) for stage, milliseconds in split.items()]
    rows += [("floor, ms", r["floor_ms"]), ("moved at the least, GB", r["floor_gb"])]
    rows += [("CG steps per iteration", r["cg_steps_per_iteration"]), ("first iteration, s", r["first_iteration_s"])]
    rows += [("all iterations, s", r["all_iterations_s"])]
    rows += [(what.replace("_", " "), value) for what, value in r["memory"].items()]
    print("\n| what | |\n|---|---|")
    for what, value in rows:
        print(f"| {what.strip()} | {value:.3f} |")
    print(f"\non: {r['device']}\ncost:", " ".join(f"{c:.6g}" for c in r["costs"]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scene", default="356", choices=[*SCENES, *GRAPHS, "all"])
    parser.add_argument("--engine", default="xla", choices=["xla", "cpu"])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--linear-solver",
        default="auto",
        help="name of a linear solver, or `power` for CG with a power-series preconditioner",
    )
    parser.add_argument(
        "--bandwidth", type=float, default=4.3e12, help="memory bandwidth of the device in bytes per second"
    )
    parser.add_argument("--threads", type=int, default=2, help="number of threads of the CPU engine")
    parser.add_argument("--kernels", action="store_true", help="list the GPU kernels of an iteration")
    parser.add_argument("--json", default=None)
    add_record_option(parser)
    args = parser.parse_args()
    if args.engine == "cpu":
        asker.set_threads(args.threads)
    solver = CG(order=2) if args.linear_solver == "power" else args.linear_solver
    names = ["356", "13682"] if args.scene == "all" else [args.scene]
    records = []
    with recorded(args.record):
        for name in names:
            settings = args.threads, args.iterations, solver, args.bandwidth, args.kernels
            records.append(run(name, args.engine, *settings))
            if args.json:
                with open(args.json, "w") as file:
                    json.dump(records, file, indent=1)


if __name__ == "__main__":
    main()
