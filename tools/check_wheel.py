"""Install the wheel of a folder in a clean virtual environment and test it there; `make package` runs this script.

python tools/check_wheel.py dist
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SMALL_SOLVE = """
import sys, pathlib
from importlib import metadata, resources
import numpy as np, asker
assert pathlib.Path(sys.prefix) in pathlib.Path(asker.__file__).parents, asker.__file__
assert metadata.version("asker-solver") == asker.__version__
data = ["py.typed", "experiments/page.html", "experiments/plans/quick.toml", "experiments/plans/paper.toml"]
assert all(resources.files("asker").joinpath(name).is_file() for name in data), "package data is missing"
rng = np.random.default_rng(0)
x = rng.uniform(-5, 5, 200)
y = np.where(rng.random(200) < 0.6, rng.uniform(-8, 8, 200), 0.8 * x - 1)
line = asker.Variables([[-1.5, 5.0]], name="line")
fit = asker.Factors(lambda l, x, y: l[0] * x + l[1] - y, line[np.zeros(200, int)], data=(x, y),
                    kernel=asker.SmoothTruncated(0.2), name="fit")
result = asker.solve(asker.Problem(fit))
np.testing.assert_allclose(result["line"], [[0.8, -1.0]], atol=1e-3)
result.save("result.npz")
assert asker.Result.load("result.npz").cost == result.cost
print(result)
"""


def main(folder: Path) -> None:
    (wheel,) = folder.resolve().glob("*.whl")
    (source,) = folder.resolve().glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place) / "env", with_pip=True)
        programs = Path(place) / "env" / ("Scripts" if os.name == "nt" else "bin")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def run(program: str, *arguments: object) -> str:
            command = [str(programs / program), *map(str, arguments)]
            done = subprocess.run(command, cwd=place, env=environment, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command[:4])} ... failed with exit code {done.returncode}")
            return done.stdout

        run("python", "-m", "pip", "install", "--quiet", wheel)
        version = run("asker", "--version").split()[1]
        if not wheel.name.startswith(f"asker_solver-{version}-") or source.name != f"asker_solver-{version}.tar.gz":
            sys.exit(f"{wheel.name} and {source.name} have version {version}, unlike their names")
        print(run("python", "-c", SMALL_SOLVE), end="")
        run("asker", "generate", "scene.txt", "--cameras", 4, "--observations", 200)
        run("asker", "solve", "scene.txt", "--iterations", 5)
        print(f"{wheel.name} works from a clean environment")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
