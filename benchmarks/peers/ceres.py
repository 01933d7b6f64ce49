"""Run Ceres on one scene, through COLMAP's bundle adjuster.

The camera model is COLMAP's RADIAL, one camera per image, so that the residuals equal those of BAL.  The gauge is free.
The time per iteration is the one that Ceres prints; the split is Ceres's summary, per call.  COLMAP has separate
parameter blocks for pose and intrinsics, and the residual of an observation behind its camera is zero.
"""

import io
import statistics
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pycolmap
from common import Scene, forward_pixels, forward_poses, load, memory_mb, parser, report, with_cores
from pycolmap import pyceres

SOLVERS = {
    "dense-lapack": ("DENSE_SCHUR", "LAPACK"),
    "dense-eigen": ("DENSE_SCHUR", "EIGEN"),
    "sparse": ("SPARSE_SCHUR", "EIGEN"),
}
LOSS = "HUBER" if hasattr(pycolmap.LossFunctionType, "HUBER") else "SOFT_L1"


def reconstruction(scene: Scene) -> pycolmap.Reconstruction:
    model = pycolmap.Reconstruction()
    place = add_images(model, scene)
    order = np.argsort(scene.point_index, kind="stable")
    ends = np.cumsum(np.bincount(scene.point_index, minlength=len(scene.points)))[:-1]
    images = np.split(scene.camera_index[order] + 1, ends)
    places = np.split(place[order], ends)
    for xyz, i, k in zip(scene.points, images, places, strict=True):
        elements = list(map(pycolmap.TrackElement, i.tolist(), k.tolist()))
        model.add_point3D(xyz, pycolmap.Track(elements))
    return model


def add_images(model: pycolmap.Reconstruction, scene: Scene) -> np.ndarray:
    """Add cameras and images; return the index of every observation within its image."""
    R, t = forward_poses(scene.cameras)
    pixels = forward_pixels(scene.uv)
    order = np.argsort(scene.camera_index, kind="stable")
    ends = np.cumsum(np.bincount(scene.camera_index, minlength=len(scene.cameras)))[:-1]
    place = np.empty(len(pixels), dtype=np.int64)
    for i, rows in enumerate(np.split(order, ends)):
        place[rows] = np.arange(len(rows))
        f, k1, k2 = scene.cameras[i, 6:]
        camera = pycolmap.Camera(model="RADIAL", width=1, height=1, params=[f, 0, 0, k1, k2], camera_id=i + 1)
        model.add_camera_with_trivial_rig(camera)
        image = pycolmap.Image(name=str(i), keypoints=pixels[rows], camera_id=i + 1, image_id=i + 1)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(pycolmap.Rotation3d(R[i]), t[i]))
    return place


def options(args: Any, loss: str, iterations: int) -> pycolmap.BundleAdjustmentOptions:
    linear_solver, dense_library = SOLVERS[args.solver]
    o = pycolmap.BundleAdjustmentOptions()
    o.refine_focal_length = o.refine_extra_params = args.free_intrinsics
    o.print_summary = False
    o.ceres.loss_function_type = getattr(pycolmap.LossFunctionType, loss)
    o.ceres.loss_function_scale = 1.0
    o.ceres.auto_select_solver_type = False
    o.ceres.min_num_residuals_for_cpu_multi_threading = 0
    s = o.ceres.solver_options
    s.num_threads = args.threads
    s.max_num_iterations = iterations
    s.function_tolerance = s.gradient_tolerance = s.parameter_tolerance = 0
    s.linear_solver_type = getattr(pyceres.LinearSolverType, linear_solver)
    s.dense_linear_algebra_library_type = getattr(pyceres.DenseLinearAlgebraLibraryType, dense_library)
    s.logging_type = pyceres.LoggingType.PER_MINIMIZER_ITERATION
    s.minimizer_progress_to_stdout = True
    valid, why = s.IsValid()
    if not valid:
        raise SystemExit(why)
    return o


def solve(model: pycolmap.Reconstruction, o: pycolmap.BundleAdjustmentOptions) -> tuple[Any, list[float], float]:
    """Return the summary, the seconds of each accepted iteration (the first only evaluates), and the cores in use."""
    config = pycolmap.BundleAdjustmentConfig()
    for i in model.images:
        config.add_image(i)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(o, config, model)
    with redirect_stdout(io.StringIO()) as text, pycolmap.ostream():
        summary, cores = with_cores(adjuster.solve)
    rows = [line.split() for line in text.getvalue().splitlines()]
    heads = next(row for row in rows if row[:1] == ["iter"])
    steps = [dict(zip(heads, row, strict=True)) for row in rows if row and row[0].isdigit()]
    least = o.ceres.solver_options.min_relative_decrease
    times = [float(s["iter_time"]) for s in steps if s["iter"] == "0" or float(s["tr_ratio"]) > least]
    return summary.ceres_summary, times, cores


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--solver", choices=SOLVERS, default="dense-lapack")
    p.add_argument("--free-intrinsics", action="store_true")
    args = p.parse_args()
    scene = load(args.scene)
    before = memory_mb()
    model = reconstruction(scene)
    quadratic, _, _ = solve(model, options(args, "TRIVIAL", 0))
    s, times, cores = solve(model, options(args, LOSS, args.iterations))
    split = {
        "evaluate": s.residual_evaluation_time_in_seconds / s.num_residual_evaluations,
        "linearise": s.jacobian_evaluation_time_in_seconds / s.num_jacobian_evaluations,
        "solve": s.linear_solver_time_in_seconds / s.num_linear_solves,
    }
    free = ", free intrinsics" if args.free_intrinsics else ""
    report(
        before,
        name=f"ceres{free}",
        version=f"{pycolmap.__ceres_version__} in pycolmap {pycolmap.__version__}",
        kernel=LOSS.lower(),
        iterations=s.num_linear_solves,
        accepted=s.num_successful_steps - 1,  # Ceres counts the start as one
        seconds_per_iteration=statistics.median(times[2:] or times[1:]),
        split=split,
        cores=cores,
        initial_cost=s.initial_cost,
        final_cost=s.final_cost,
        initial_quadratic=quadratic.initial_cost,
        notes=f"{args.solver}, {s.num_threads_used} threads, blocks {s.schur_structure_used}",
    )


if __name__ == "__main__":
    main()
