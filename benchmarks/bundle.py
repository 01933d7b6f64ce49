"""Bundle adjustment with asker, Ceres, GTSAM and SciPy: time per iteration and peak memory.

    python benchmarks/bundle.py [--instances ladybug-49,93,356] [--peers ceres,ceres-free,gtsam,scipy] [--json OUT.json]
    python benchmarks/bundle.py --quick     self-check on a tiny scene: all peers run and start at the same cost

Each solver runs in a separate process (benchmarks/peers), one at a time, with the same scene, threads and iterations. A
peer with several linear solvers runs with each; the table shows the fastest and the notes name it.  With `--rounds`,
rounds alternate between the solvers and the table shows the fastest run of each.  The peers are installed in the
virtual environment `benchmarks/.venv-peers`, created on the first run; `ASKER_PEERS_PYTHON` names another interpreter.

The time is the median over the iterations that evaluate derivatives, without the first one.  Peak memory includes the
libraries, `+ MB` does not.  The time split of Ceres is a mean per call, the first one included; its `solve` comprises
assembly and factorisation.  asker evaluates derivatives during assembly.
asker's `irls` minimises the Huber kernel (1 pixel) like the peers; `asker` minimises the smooth truncated kernel.
In rows marked `free`, f, k1 and k2 of every camera are unknowns too.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import add_record_option, recorded

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
SCENES = HERE.parent / "runs" / "bundle"
ENVIRONMENT = HERE / ".venv-peers"
MAX_CAMERAS_ALL_SOLVERS = 400  # largest scene on which every linear solver of Ceres is timed; above, dense LAPACK only
COST_RTOL = 1e-9  # relative difference up to which two initial costs count as equal


@dataclass(frozen=True)
class Instance:
    """A BAL file, or a synthetic ring of cameras that is generated once."""

    n_cameras: int
    n_observations: int
    file: str | None = None
    peers: tuple[str, ...] = ("ceres", "ceres-free", "gtsam")
    iterations: int | None = None
    """Upper limit on `--iterations`."""


INSTANCES = {
    "quick": Instance(8, 2_000, peers=("ceres", "ceres-free", "gtsam", "scipy")),
    "ladybug-49": Instance(49, 31_843, "problem-49-7776-pre.txt.bz2", ("ceres", "ceres-free", "gtsam", "scipy")),
    "trafalgar-21": Instance(21, 36_455, "problem-21-11315-pre.txt.bz2"),
    "dubrovnik-16": Instance(16, 83_718, "problem-16-22106-pre.txt.bz2"),
    "93": Instance(93, 287_451),
    "356": Instance(356, 1_250_000, peers=("ceres", "ceres-free")),
    "1000": Instance(1_000, 10_000_000, peers=("ceres",), iterations=3),
}
DEFAULT_INSTANCES = ("ladybug-49", "trafalgar-21", "dubrovnik-16", "93", "356", "1000")
ALL_PEERS = ("ceres", "ceres-free", "gtsam", "scipy")
STAGES = ("evaluate", "linearise", "assemble", "factorise", "solve")  # the first columns of the time split


@dataclass(frozen=True)
class Solver:
    """One row of a table: a script and its variants, of which the fastest is shown."""

    script: str
    variants: tuple[tuple[str, ...], ...] = ((),)
    peer: str | None = None
    """Name in `--peers`; None for asker itself, which always runs."""
    against: str = "asker irls"
    """Row to which the time is relative."""


FREE = "--free-intrinsics"
CERES = tuple(("--solver", s) for s in ("dense-lapack", "dense-eigen", "sparse"))
GTSAM = tuple(("--optimizer", o) for o in ("general", "sfm"))
SOLVERS = {
    "asker irls": Solver("asker_run.py", (("--method", "irls"),)),
    "asker": Solver("asker_run.py", (("--method", "asker"),)),
    "ceres": Solver("ceres.py", CERES, "ceres"),
    "gtsam": Solver("gtsam_run.py", GTSAM, "gtsam"),
    "scipy": Solver("scipy_run.py", peer="scipy"),
    "asker irls, free": Solver("asker_run.py", (("--method", "irls", FREE),), "ceres-free", "asker irls, free"),
    "ceres, free": Solver("ceres.py", tuple((*v, FREE) for v in CERES), "ceres-free", "asker irls, free"),
}


def peers_python() -> str:
    """Return the interpreter with the peers; create its environment if it is missing or out of date."""
    if python_from_user := os.environ.get("ASKER_PEERS_PYTHON"):
        return python_from_user
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    required, installed = PEERS / "requirements.txt", ENVIRONMENT / "requirements.txt"
    if not installed.exists() or installed.read_text() != required.read_text():
        print(f"creating {ENVIRONMENT.relative_to(HERE.parent)} from {required.relative_to(HERE.parent)}", flush=True)
        venv.create(ENVIRONMENT, clear=True, symlinks=os.name != "nt", with_pip=True)
        (ENVIRONMENT / ".gitignore").write_text("*\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", required], check=True)
        installed.write_text(required.read_text())
    return str(python)


def scene_file(instance: Instance, data: Path) -> Path | None:
    """Return the file of the scene's arrays, written on the first call; None if the BAL file does not exist."""
    source = data / "bal" / instance.file if instance.file else None
    if source and not source.exists():
        return None
    name = f"ring-{instance.n_cameras}-{instance.n_observations}" if source is None else source.name.split(".")[0]
    out = SCENES / f"{name}.npz"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        ring = ["--ring", str(instance.n_cameras), str(instance.n_observations)]
        options = ["--bal", str(source)] if source else ring
        # in a separate process: the peak memory of a child process includes that of its parent
        subprocess.run([sys.executable, PEERS / "scene.py", out, *options], check=True)
    return out


def run(
    solver: Solver, variant: tuple[str, ...], scene: Path, python: str, threads: int, iterations: int
) -> dict[str, Any]:
    """Run a solver's script; return its JSON report, or the error message under "error"."""
    command = [python, PEERS / solver.script, scene, "--threads", threads, "--iterations", iterations]
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(
        [*map(str, command), *variant], capture_output=True, text=True, env=os.environ | limits, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"variant": variant, "error": last}
    return {"variant": variant, **json.loads(done.stdout.splitlines()[-1])}


def variants(solver: Solver, instance: Instance) -> tuple[tuple[str, ...], ...]:
    """Return the variants of a solver to run on an instance."""
    if solver.script == "ceres.py" and instance.n_cameras > MAX_CAMERAS_ALL_SOLVERS:
        return tuple(v for v in solver.variants if "dense-lapack" in v)
    return solver.variants


def measure(instance: Instance, scene: Path, python: str, args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Return all runs of every solver."""
    asked = [p for p in args.peers if p in instance.peers]
    solvers = {name: s for name, s in SOLVERS.items() if s.peer is None or s.peer in asked}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in solvers}
    for _ in range(args.rounds):
        for name, solver in solvers.items():
            interpreter = sys.executable if solver.script == "asker_run.py" else python
            for variant in variants(solver, instance):
                iterations = min(args.iterations, instance.iterations or args.iterations)
                runs[name].append(run(solver, variant, scene, interpreter, args.threads, iterations))
    return runs


def fastest(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run with the shortest iterations; a failed run only if all failed."""
    return min(runs, key=lambda line: line.get("seconds_per_iteration", float("inf")))


def table(best: dict[str, dict[str, Any]]) -> str:
    """Return the Markdown table of the fastest run of each solver."""
    timed = dict.fromkeys(stage for line in best.values() for stage in line.get("split", {}))
    stages = [*(p for p in STAGES if p in timed), *(p for p in timed if p not in STAGES)]
    heads = ["solver", "ms / iteration", "× asker", *stages, "cores", "peak MB", "+ MB", "cost", "accepted", "notes"]
    rows = [heads, ["---"] * len(heads)]
    for name, line in best.items():
        if "error" in line:
            rows.append([name, *[""] * (len(heads) - 2), f"failed: {line['error']}"])
            continue
        reference = best[SOLVERS[name].against].get("seconds_per_iteration")
        ratio = f"{line['seconds_per_iteration'] / reference:.2f}" if reference else ""
        split = [f"{1e3 * line['split'][p]:.2f}" if p in line["split"] else "" for p in stages]
        cost = f"{line['initial_cost']:.6g} → {line['final_cost']:.6g}"
        memory = [f"{line['peak_mb']:.0f}", f"{line['increase_mb']:.0f}"]
        accepted = f"{line['accepted']} / {line['iterations']}"
        time = f"{1e3 * line['seconds_per_iteration']:.2f}"
        rows.append([name, time, ratio, *split, f"{line['cores']:.1f}", *memory, cost, accepted, line["notes"]])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cost_differences(best: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the relative differences of the initial costs from asker's, for the same kernel and for ½Σ‖r‖².

    Some peers ignore observations behind their camera, which asker does not; their costs may match either sum.
    """
    reference, differences = best["asker irls"], {}
    for name, line in best.items():
        if "error" in line or "error" in reference:
            continue
        keys = ["initial_quadratic"] + (["initial_cost"] if line["kernel"] == reference["kernel"] else [])
        costs = reference, reference["in_front"]
        differences[name] = max((min(abs(line[k] / c[k] - 1) for c in costs) for k in keys if k in line), default=0.0)
    return differences


def compare(name: str, python: str, args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Measure an instance and print its table; return the runs, and whether all succeeded with equal initial costs."""
    instance = INSTANCES[name]
    scene = scene_file(instance, args.data)
    if scene is None:
        print(f"\n{name}: skipped, {args.data / 'bal' / str(instance.file)} does not exist", flush=True)
        return {}, True
    runs = measure(instance, scene, python, args)
    best = {solver: fastest(lines) for solver, lines in runs.items()}
    size = f"{instance.n_cameras} cameras, {instance.n_observations} observations"
    print(f"\n## {name}: {size}, {args.threads} threads\n\n{table(best)}\n")
    differences = cost_differences(best)
    print(f"Costs at the start: the largest relative difference is {max(differences.values(), default=0):.1e}.")
    if behind := best["asker irls"].get("behind"):
        print(f"{behind} observations are behind their camera there; Ceres and GTSAM count them as zero.")
    apart = {solver: d for solver, d in differences.items() if not d <= COST_RTOL}
    for solver, d in apart.items():
        print(f"The initial cost of {solver} differs from that of asker: relative difference {d:.1e}")
    failed = [(s, line) for s, lines in runs.items() for line in lines if "error" in line]
    for solver, line in failed:
        print(f"{solver} {' '.join(line['variant'])} failed: {line['error']}")
    sys.stdout.flush()
    return {"scene": size, "runs": runs, "differences": differences}, not apart and not failed


def names(known: tuple[str, ...]) -> Any:
    """Return an argparse type for a comma-separated list of known names."""

    def listed(text: str) -> list[str]:
        listed_names = text.split(",")
        if unknown := [n for n in listed_names if n not in known]:
            raise argparse.ArgumentTypeError(f"unknown name {unknown[0]!r}; the names are {', '.join(known)}")
        return listed_names

    return listed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = HERE.parents[1] / "shared" / "data"
    parser.add_argument("--instances", type=names(tuple(INSTANCES)), default=list(DEFAULT_INSTANCES))
    parser.add_argument("--peers", type=names(ALL_PEERS), default=list(ALL_PEERS))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASKER_DATA") or here))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file to which all runs are written")
    parser.add_argument("--quick", action="store_true", help="self-check on a tiny scene; fails if a peer fails")
    add_record_option(parser)
    args = parser.parse_args()
    if args.iterations < 3:
        parser.error(f"--iterations is {args.iterations}; it must be at least 3, since the first is not timed")
    python = peers_python()
    results, succeeded = {}, True
    with recorded(args.record):
        for name in ["quick"] if args.quick else args.instances:
            results[name], ok = compare(name, python, args)
            succeeded &= ok
    if args.json:
        settings = {"threads": args.threads, "iterations": args.iterations, "rounds": args.rounds}
        args.json.write_text(json.dumps({"settings": settings, "instances": results}, indent=1) + "\n")
    return int(args.quick and not succeeded)


if __name__ == "__main__":
    sys.exit(main())
