"""Compile time as a function of the dimension p of a residual.

    python benchmarks/compile_time.py [--sizes 2,20,200] [--shapes curves,vectors] [--limit 300]

Each solve runs in a new process with an empty cache folder.  *Curves*: 40 exponentials with two unknowns each, sampled
at p times.  *Vectors*: 5 unknown vectors of length p, each observed 8 times.  The compile time is the difference of the
processor times of a first and a second solve.  The problems are solved with a kernel of specified width, and with
nothing specified, where the noise is estimated.  To measure another version, set PYTHONPATH to its src.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

from record import add_record_option, recorded

SIZES = (2, 20, 60, 120, 200, 500, 1500, 5000, 20_000)
SHAPES = ("curves", "vectors")
LARGEST_VECTORS = 500


def problem(shape: str, p: int, kernel: bool):
    """Return a synthetic problem with residuals of dimension p."""
    import jax.numpy as jnp

    import asker

    rng = np.random.default_rng(p)
    options = {"kernel": asker.Huber(tau=1.0)} if kernel else {}
    if shape == "vectors":
        index = np.arange(40) % 5
        true = rng.normal(size=(5, p))
        v = asker.Variables(np.zeros((5, p)), name="vectors")
        y = true[index] + 0.1 * rng.normal(size=(40, p))
        return asker.Problem(asker.Factors(lambda x, y: x - y, v[index], data=y, **options))
    t, true = np.linspace(0.0, 3.0, p), rng.uniform(0.5, 1.5, (40, 2))
    y = true[:, :1] * np.exp(-true[:, 1:] * t) + 0.01 * rng.normal(size=(40, p))
    v = asker.Variables(true + 0.1, name="curves")
    return asker.Problem(asker.Factors(lambda x, y: x[0] * jnp.exp(-x[1] * t) - y, v[np.arange(40)], data=y, **options))


def measured(shape: str, p: int, kernel: bool) -> list[float]:
    """Return the seconds of the first and the second solve, and the peak memory in MB."""
    import asker

    warnings.simplefilter("ignore")
    seconds = []
    for _ in range(2):
        unsolved = problem(shape, p, kernel)
        begin = time.process_time()
        asker.solve(unsolved)
        seconds.append(time.process_time() - begin)
    return [*seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]


def of_process(shape: str, p: int, kernel: bool, limit: float) -> str:
    """Return a cell of the table, measured in a new process."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--one", shape, str(p), str(int(kernel))]
        try:
            environment = os.environ | {"ASKER_CACHE": cache}
            finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return f"more than {limit:.0f} s"
    if finished.returncode:
        return finished.stderr.strip().splitlines()[-1].split(":")[0]
    first, second, megabytes = json.loads(finished.stdout)
    return f"{first - second:.1f} s, then {second:.2f} s, {megabytes:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--limit", type=float, default=300.0, help="time limit of each process in seconds")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    add_record_option(parser)
    options = parser.parse_args()
    if options.one:
        shape, p, kernel = options.one
        print(json.dumps(measured(shape, int(p), kernel == "1")))
        return
    with recorded(options.record):
        for shape in options.shapes.split(","):
            print(f"| {shape}: p | width specified | nothing specified |\n|---|---|---|", flush=True)
            for p in map(int, options.sizes.split(",")):
                if shape == "vectors" and p > LARGEST_VECTORS:
                    continue
                cells = [of_process(shape, p, kernel, options.limit) for kernel in (True, False)]
                print(f"| {p} | {' | '.join(cells)} |", flush=True)
            print(flush=True)


if __name__ == "__main__":
    main()
