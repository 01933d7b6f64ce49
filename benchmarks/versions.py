"""Comparison of results and speed between versions of Python, JAX, NumPy and llvmlite.

    python benchmarks/versions.py run OUT.json              every method on the BAL files, with this interpreter
    python benchmarks/versions.py compare A.json B.json …   compare the others with the first

`run` reads ASKER_DATA or ../shared/data.  It compiles with an empty cache first, then times each method.  Times are
processor times over all threads, which other programs hardly affect; the time per iteration is a mean on the largest
file.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

from record import add_record_option, recorded

FILES = ("problem-21-11315-pre", "problem-49-7776-pre", "problem-16-22106-pre")
NAMES = ("jax", "numpy", "llvmlite", "scipy")
DATA = Path(os.environ.get("ASKER_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def run(iterations: int, methods: list[str] | None) -> dict:
    """Return the costs by file and method, the seconds of compilation and per iteration, and the versions."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ASKER_CACHE"] = cache  # before asker reads it
        import asker
        from asker.applications.bundle.bal import read_bal
        from asker.applications.bundle.problem import bundle_problem

        costs: dict[str, dict[str, float]] = {}
        compiling, each = 0.0, {}
        for name in FILES:
            made = bundle_problem(read_bal(DATA / "bal" / f"{name}.txt.bz2"), asker.SmoothTruncated(1.0))
            costs[name] = {}
            for method in methods or asker.METHODS:
                begin = time.process_time()
                asker.solve(made.problem, asker.METHODS[method](), max_iterations=1)
                compiling += time.process_time() - begin if name == FILES[0] else 0.0
                begin = time.process_time()
                result = asker.solve(made.problem, asker.METHODS[method](), max_iterations=iterations, tol=0)
                each[method] = (time.process_time() - begin) / iterations
                costs[name][method] = result.cost
                print(f"{name} {method:16} {result.cost:.10g}", flush=True)
    versions = {"python": sys.version.split()[0]} | {name: version(name) for name in NAMES}
    return {"versions": versions, "iterations": iterations, "compiling": compiling, "iteration": each, "costs": costs}


def compare(files: list[str]) -> None:
    """Print the relative differences of the costs and the time ratios of each file of results to the first."""
    first, *others = [json.loads(Path(f).read_text()) for f in files]
    print("beside", _named(first))
    for other in others:
        print("\n" + _named(other))
        far = {}
        for name, costs in first["costs"].items():
            for method in costs.keys() & other["costs"].get(name, {}).keys():
                far[name, method] = abs(other["costs"][name][method] / costs[method] - 1)
        same = [pair for pair, d in far.items() if d <= 1e-9]
        print(f"  {len(same)} of {len(far)} costs are the same to 1e-9")
        for (name, method), d in sorted(far.items(), key=lambda item: -item[1]):
            if d > 1e-9:
                print(f"  {name} {method}: {d:.1e}")
        print(f"  compilation: {other['compiling'] / first['compiling']:.2f} times the time")
        ratios = [other["iteration"][m] / t for m, t in first["iteration"].items() if m in other["iteration"]]
        print(f"  iteration: {min(ratios):.2f} to {max(ratios):.2f} times the time, median {median(ratios):.2f}")


def _named(record: dict) -> str:
    return ", ".join(f"{name} {v}" for name, v in record["versions"].items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "compare"))
    parser.add_argument("files", nargs="+", help="results")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--methods", help="comma-separated; default: all")
    add_record_option(parser)
    asked = parser.parse_args()
    if asked.what == "compare":
        with recorded(asked.record):
            return compare(asked.files)
    methods = asked.methods.split(",") if asked.methods else None
    Path(asked.files[0]).write_text(json.dumps(run(asked.iterations, methods), indent=1))


if __name__ == "__main__":
    main()
