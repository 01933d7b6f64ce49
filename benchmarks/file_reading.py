"""Time and memory to read a BAL file with several processes: each reads its own byte range, or the whole text.

    python benchmarks/file_reading.py [--observations 1000000] [--processes 1 2 4]

The table shows the largest processor time and peak memory of all processes; wall time would depend on free cores.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from asker.applications.bundle.bal import write_bal
from asker.applications.bundle.synthetic import make_scene
from record import add_record_option, recorded

PROGRAM = """
import json, resource, sys, time
from asker.applications.bundle.bal import read_bal_portion
from asker.applications.bundle.parallel_reader import read_bal_together
from asker.engines.xla import distributed as hosts

path, how, port, n, k = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
if n > 1:
    hosts.join(f"localhost:{port}", n, k)
hosts.all_sum(__import__("numpy").zeros(1))  # compiles
before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
part = read_bal_together(path, k, n, hosts.all_gather) if how == "own" else read_bal_portion(path, k, n)
seconds = time.process_time() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([seconds, (peak - before) / 1024, len(part.observations)]))
"""


def measured(path: Path, how: str, n: int) -> list[float]:
    """Return the largest seconds, MB and observations of all processes."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    arguments = [sys.executable, "-c", PROGRAM, str(path), how, str(port), str(n)]
    processes = [subprocess.Popen([*arguments, str(k)], stdout=subprocess.PIPE, text=True) for k in range(n)]
    reports = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return [max(column) for column in zip(*reports, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observations", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    add_record_option(parser)
    args = parser.parse_args()
    with recorded(args.record), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.txt"
        write_bal(path, make_scene(300, args.observations).start)
        size = f"{path.stat().st_size / 1e6:.0f} MB"
        print(f"A scene of {args.observations} observations, {size} of text.\n")
        print("| processes | own bytes, s | all text, s | own / all | own bytes, MB more | all text, MB more |")
        print("|---|---|---|---|---|---|")
        for n in args.processes:
            own, through = measured(path, "own", n), measured(path, "all", n)
            cells = [
                f"{own[0]:.2f}",
                f"{through[0]:.2f}",
                f"{own[0] / through[0]:.2f}",
                f"{own[1]:.0f}",
                f"{through[1]:.0f}",
            ]
            print(f"| {n} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
