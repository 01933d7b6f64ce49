"""Live view of a bundle adjustment in a browser: points and cameras move, and outliers are red.

    pip install viser && python examples/live_view.py

Then open the printed address; tested with viser 1.1.  `on_iteration` requests values and weights in every tenth
iteration only; they are not computed in the others.
"""

import sys
import time

import numpy as np

import asker
from asker.applications.bundle import bundle_problem, make_scene


def server():
    """Return the server of viser; exit with one line if viser is not installed."""
    try:
        import viser
    except ImportError:
        raise SystemExit("this example draws with viser: pip install viser") from None
    return viser.ViserServer()


def show(scene, bundle, line: asker.CurrentIteration) -> None:
    """Draw the camera centres, and the points in grey or red by the mean weight of their observations."""
    points, poses = line.values[bundle.points], line.values[bundle.cameras]
    index = bundle.problem.factors[0].slots[-1].index
    weight = np.bincount(index, line.weights[0], len(points)) / np.maximum(np.bincount(index, minlength=len(points)), 1)
    colours = np.where(weight[:, None] > 0.5, [90, 90, 90], [213, 94, 0])
    centres = -np.einsum("nji,nj->ni", poses[:, :, :3], poses[:, :, 3])
    scene.add_point_cloud("/points", points, colours.astype(np.uint8), point_size=0.02)
    scene.add_point_cloud("/cameras", centres, np.tile(np.uint8([0, 114, 178]), (len(centres), 1)), point_size=0.1)


def main(stays: bool = True) -> asker.Result:
    view = server()
    bundle = bundle_problem(make_scene(n_cameras=20, seed=0).start, asker.SmoothTruncated(1.0))

    def look(line: asker.CurrentIteration) -> None:
        if line.iteration % 10 == 0:
            show(view.scene, bundle, line)

    result = asker.solve(bundle.problem, asker.ASKER(), on_iteration=look)
    print(result)
    while stays:
        time.sleep(1)
    return result


if __name__ == "__main__":
    main("--once" not in sys.argv)
