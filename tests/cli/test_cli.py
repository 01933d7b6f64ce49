"""The command line: printed text, files and exit codes."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import asker
from asker.applications import point_cloud_plots
from asker.applications.bundle.bal import read_bal, write_bal
from asker.applications.bundle.options import CAMERAS
from asker.applications.bundle.problem import bundle_problem, camera_centres, reprojection_norms
from asker.applications.bundle.synthetic import make_scene
from asker.applications.outcome import compilations
from asker.cli import app, checks
from asker.cli.options import LINEAR_SOLVERS
from asker.cli.terminal import ProgressLine
from asker.engines.cpu.code_cache import on_compile
from asker.io.files import FileError
from asker.io.json import plain
from asker.io.ply import VERTEX

KEYS = {
    "file", "n_cameras", "n_points", "n_observations", "method", "engine", "camera", "dof", "tau",
    "initial_cost", "cost", "inlier_ratio", "iterations", "seconds", "status", "history",
}  # fmt: skip
small_scene = partial(make_scene, 8, 400)


@pytest.fixture(scope="module")
def scene():
    return small_scene()


@pytest.fixture
def scene_file(tmp_path, scene):
    """A start with lens distortion, so that the two camera models differ."""
    cameras = scene.start.cameras.copy()
    cameras[:, 7:] = 1e-7, 1e-14
    write_bal(tmp_path / "scene.txt", replace(scene.start, cameras=cameras))
    return tmp_path / "scene.txt"


def read_strict(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def evaluated(bundle, **settings):
    """The cost of a bundle as the library has it."""
    return asker.solve(bundle_problem(bundle, **settings).problem, asker.IRLS(), max_iterations=0).cost


def assert_refused(answer, *said):
    code, out, err = answer
    assert code == 2
    assert out == ""
    assert re.fullmatch(r"asker: .+\n", err), err
    for words in said:
        assert words in err


# ---- solve


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".txt.bz2"])
@pytest.mark.parametrize(("camera", "dof"), [("pixel", 6), ("bal", 9)])
def test_the_refined_file_has_the_cost_that_is_printed(asks, tmp_path, scene_file, suffix, camera, dof):
    out, told = tmp_path / f"refined{suffix}", tmp_path / "run.json"
    settings = ("--camera", camera, "--dof", dof, "--tau", 2, "--iterations", 5)
    code, text, err = asks("solve", scene_file, *settings, "--json", told, "--output", out)
    assert (code, err) == (0, "")
    run = read_strict(told)
    kernel = asker.SmoothTruncated(2.0)
    assert run["cost"] == pytest.approx(evaluated(read_bal(out), kernel=kernel, camera=camera), rel=1e-9)
    assert run["initial_cost"] == pytest.approx(evaluated(read_bal(scene_file), kernel=kernel, camera=camera))
    assert run["cost"] < run["initial_cost"]
    moved = np.any(read_bal(out).cameras != read_bal(scene_file).cameras, axis=0)
    assert moved.tolist() == [k < dof for k in range(9)]
    for words in (f"{run['cost']:.7g}", f"{run['initial_cost']:.7g}", run["message"], f"wrote {out}"):
        assert words in text


def test_json_is_strict_and_complete(asks, tmp_path, scene_file):
    told = tmp_path / "run.json"
    assert asks("solve", scene_file, "--tau", 1, "--iterations", 4, "--tol", 0, "--json", told)[0] == 0
    run = read_strict(told)
    assert run.keys() >= KEYS
    assert (run["n_cameras"], run["n_observations"], run["method"], run["engine"]) == (8, 400, "asker", "cpu")
    assert (run["status"], run["iterations"]) == ("max_iterations", 4)
    assert [line["iteration"] for line in run["history"]] == [0, 1, 2, 3, 4]
    assert run["history"][-1].keys() >= {"cost", "best_cost", "seconds", "damping", "accepted"}
    assert run["history"][0]["cost"] == run["initial_cost"]
    assert min(line["cost"] for line in run["history"]) == run["cost"] == run["history"][-1]["best_cost"]


def test_what_is_not_finite_becomes_null():
    value = {
        "a": float("nan"),
        "b": [np.float64("inf"), np.int32(3)],
        "c": np.array([1.5, np.nan]),
        "d": True,
    }
    assert plain(value) == {"a": None, "b": [None, 3], "c": [1.5, None], "d": True}
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.parametrize("kernel", asker.KERNELS)
def test_every_kernel_can_be_named(asks, tmp_path, scene_file, kernel):
    told = tmp_path / "run.json"
    assert asks("solve", scene_file, "--kernel", kernel, "--tau", 3, "--iterations", 0, "--json", told)[0] == 0
    norms, _ = reprojection_norms(read_bal(scene_file), "pixel")
    assert read_strict(told)["cost"] == pytest.approx(asker.KERNELS[kernel](tau=3.0).psi(norms**2).sum())


def test_a_kernel_has_its_parameters(asks, tmp_path, scene_file):
    told, text = tmp_path / "run.json", "barron:alpha=-2"
    assert asks("solve", scene_file, "--kernel", text, "--tau", 3, "--iterations", 0, "--json", told)[0] == 0
    norms, _ = reprojection_norms(read_bal(scene_file), "pixel")
    record = read_strict(told)
    assert record["kernel"] == text
    assert record["cost"] == pytest.approx(asker.Barron(3.0, alpha=-2.0).psi(norms**2).sum())


@pytest.mark.parametrize("solver", LINEAR_SOLVERS)
def test_every_linear_solver_can_be_named(asks, tmp_path, scene_file, solver):
    told = tmp_path / "run.json"
    assert asks("solve", scene_file, "--linear-solver", solver, "--iterations", 3, "--json", told)[0] == 0
    assert read_strict(told)["cost"] < read_strict(told)["initial_cost"]


def test_the_cloud_holds_points_and_cameras(asks, tmp_path, scene_file):
    cloud, out, record = tmp_path / "cloud.ply", tmp_path / "refined.txt", tmp_path / "a.json"
    asked = "--tau", 1, "--iterations", 2, "--ply", cloud, "--output", out, "--json", record
    assert asks("solve", scene_file, *asked)[0] == 0
    refined = read_bal(out)
    vertices = np.frombuffer(cloud.read_bytes().split(b"end_header\n", 1)[1], VERTEX)
    np.testing.assert_allclose(vertices["xyz"], np.concatenate([refined.points, camera_centres(refined)]))
    inliers = reprojection_norms(refined, "pixel")[0] <= json.loads(record.read_text())["inlier_radius"]
    support = np.bincount(refined.point_index[inliers], minlength=refined.n_points)
    grey = (vertices["rgb"][: refined.n_points] == point_cloud_plots.GREY).all(axis=1)
    np.testing.assert_array_equal(grey, support >= 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "terminated"])
def test_ctrl_c_keeps_the_best_so_far(asks, tmp_path, scene_file, monkeypatch, number):
    def iteration(self, line):
        if line.iteration == 3:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(ProgressLine, "iteration", iteration)
    told, out = tmp_path / "run.json", tmp_path / "refined.txt"
    code, text, err = asks("solve", scene_file, "--tau", 1, "--json", told, "--output", out)
    assert (code, err) == (0, "")
    assert asker.Status.INTERRUPTED.value in text
    run = read_strict(told)
    assert run["status"] == "interrupted"
    assert run["cost"] == pytest.approx(evaluated(read_bal(out)), rel=1e-9)
    assert run["cost"] < run["initial_cost"]


def test_ctrl_c_before_there_is_a_result(asks, scene_file, monkeypatch):
    monkeypatch.setattr(
        "asker.applications.bundle.application.read_bal", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    assert asks("solve", scene_file) == (130, "", "asker: interrupted before there was a result\n")


@pytest.mark.parametrize(
    ("status", "gain", "code"),
    [
        ("STALLED", 0, 1),
        ("STALLED", 1, 0),
        ("MAX_ITERATIONS", 0, 1),
        ("MAX_ITERATIONS", 1, 0),
        ("TIME_LIMIT", 0, 1),
        ("CONVERGED", 0, 0),
    ],
)
def test_the_exit_code_is_the_status(asks, scene_file, monkeypatch, status, gain, code):
    def solve(*args, **settings):
        result = true_solve(*args, **settings | {"max_iterations": 0})
        return replace(result, status=asker.Status[status], cost=result.initial_cost - gain)

    true_solve = asker.solve
    monkeypatch.setattr(asker, "solve", solve)
    told, text, err = asks("solve", scene_file)
    assert told == code
    assert asker.Status[status].value in text
    assert err == (
        "" if code == 0 else f"asker: {scene_file}: the cost did not decrease: {asker.Status[status].value}\n"
    )


def test_progress_is_for_terminals_and_not_for_quiet_ones(asks, scene_file, monkeypatch):
    arguments = ("solve", scene_file, "--iterations", 3)
    assert asks(*arguments)[2] == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich take stderr for a terminal
    monkeypatch.setenv("TERM", "xterm")
    _, out, err = asks(*arguments)
    assert re.search(r"iteration 3 +cost [\d.]+ +best [\d.]+ +damping", err)
    assert "damping" not in out
    assert asks(*arguments, "--quiet")[2] == ""


def test_compilation_is_told_and_counted():
    before = list(on_compile)
    with ProgressLine(quiet=True), compilations() as names:
        for listener in on_compile:
            listener("squared")
    assert names == ["squared"]
    assert on_compile == before


# ---- bad input


def spoiled(text):
    lines = text.splitlines()
    yield "truncated", "\n".join(lines[:50]), "ends too early"
    yield "empty", "", "empty"
    yield "garbled", "\x00\x01 hello", "header"
    yield "not a number", "\n".join([*lines[:4], "0 1 two 3", *lines[5:]]), ":5: expected a finite number"
    yield "NaN", "\n".join([*lines[:4], "0 1 nan 3", *lines[5:]]), ":5: expected a finite number"
    yield "index too large", "\n".join([*lines[:4], "8 1 2 3", *lines[5:]]), ":5: the camera index"
    yield "negative index", "\n".join([*lines[:4], "0 -1 2 3", *lines[5:]]), ":5: the point index"
    yield "a number too many", text + "1\n", "unexpected data"


@pytest.mark.parametrize("command", ["solve", "info"])
def test_a_bad_file_is_refused_in_one_line(asks, tmp_path, scene_file, command):
    for name, text, said in spoiled(scene_file.read_text()):
        path = tmp_path / f"{name}.txt"
        path.write_text(text)
        assert_refused(asks(command, path), f"asker: {path}", said)
    assert_refused(asks(command, tmp_path / "missing.txt"), "there is no such file")
    assert_refused(asks(command, tmp_path), "folder")


def test_a_start_without_finite_residuals_is_refused(asks, tmp_path, scene):
    points, cameras = scene.start.points.copy(), scene.start.cameras.copy()
    cameras[:, :6], points[:, 2] = 0, 0  # every point in the plane of the camera
    write_bal(tmp_path / "flat.txt", replace(scene.start, cameras=cameras, points=points))
    assert_refused(asks("solve", tmp_path / "flat.txt"), "not finite at the start")
    code, out, err = asks("info", tmp_path / "flat.txt")
    assert (code, err) == (0, "")
    assert "not finite initially: 400 observations" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "irsl"], ["--method", *asker.METHODS, "did you mean irls?"]),
        (["--kernel", "hubber"], ["--kernel", *asker.KERNELS, "did you mean huber?"]),
        (["--kernel", "barron:alhpa=1"], ["--kernel", "barron takes alpha", "did you mean alpha?"]),
        (["--camera", "fisheye"], ["--camera", "pixel, bal"]),
        (["--dof", "8"], ["--dof", "6, 7, 9"]),
        (["--linear-solver", "dense"], ["--linear-solver", "did you mean dense-cholesky?"]),
        (["--tau", "0"], ["--tau", "positive"]),
        (["--tau", "-1"], ["--tau", "positive"]),
        (["--tau", "nan"], ["--tau", "positive"]),
        (["--tau", "inf"], ["--tau", "finite"]),
        (["--tau", "wide"], ["--tau"]),
        (["--tol", "-1"], ["--tol"]),
        (["--time-limit", "nan"], ["--time-limit"]),
        (["--iterations", "-1"], ["--iterations"]),
        (["--threads", "0"], ["--threads"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["another.txt"], ["another.txt"]),
    ],
    ids=" ".join,
)
def test_a_bad_argument_is_refused_in_one_line(asks, scene_file, arguments, said):
    assert_refused(asks("solve", scene_file, *arguments), *said)


@pytest.mark.parametrize(
    "arguments", [["solve"], ["solv"], ["--fast"], ["info"], ["generate"], ["report"]], ids=" ".join
)
def test_a_bad_command_line_is_refused_in_one_line(asks, arguments):
    assert_refused(asks(*arguments))


# ---- files


@pytest.mark.parametrize("option", ["--json", "--output", "--ply"])
def test_outputs_are_checked_before_the_work(asks, tmp_path, scene_file, monkeypatch, option):
    monkeypatch.setattr(asker, "solve", lambda *args, **settings: pytest.fail("solved all the same"))
    ask = partial(asks, "solve", scene_file, option)
    assert_refused(ask(tmp_path / "none" / "out"), "there is no folder")
    assert_refused(ask(tmp_path), "not a regular file")
    assert_refused(ask(tmp_path / ("long" * 80)), "cannot be written")
    assert_refused(ask(scene_file), "named twice")
    assert_refused(asks("solve", scene_file, "--json", tmp_path / "a", "--output", tmp_path / "a"), "named twice")
    assert os.listdir(tmp_path) == [scene_file.name]


def test_a_check_leaves_an_existing_file_as_it_is(tmp_path):
    (tmp_path / "out").write_text("old")
    checks.check_outputs(None, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_leaves_nothing_half_written(asks, tmp_path, scene_file, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    names = ("run.json", "refined.txt", "cloud.ply")
    outputs = [x for pair in zip(("--json", "--output", "--ply"), names, strict=True) for x in pair]
    monkeypatch.chdir(tmp_path)
    code, out, err = asks("solve", scene_file, "--iterations", 1, *outputs)
    assert code == 2
    assert re.fullmatch(r"asker: .+\n", err)
    assert all(f"{name}: cannot be written: {os.strerror(errno.ENOSPC)}" in err for name in names)
    assert asker.Status.MAX_ITERATIONS.value in out  # the numbers are not lost
    assert os.listdir(tmp_path) == [scene_file.name]


def test_one_bad_output_does_not_cost_the_others(asks, tmp_path, scene_file, monkeypatch):
    def vanished(path, record):
        raise FileError(path, "cannot be written: the folder is gone")

    monkeypatch.setattr("asker.cli.solve.write_json", vanished)
    out = tmp_path / "refined.txt"
    code, _, err = asks("solve", scene_file, "--iterations", 1, "--json", tmp_path / "a.json", "--output", out)
    assert (code, err) == (2, f"asker: {tmp_path / 'a.json'}: cannot be written: the folder is gone\n")
    assert read_bal(out).n_observations == 400


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_standard_output_on_a_full_disk_does_not_cost_the_files(tmp_path, scene_file):
    code = "import sys; from asker.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "solve", scene_file, "--iterations", "1", "--json", tmp_path / "run.json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "asker: standard output: No space left on device\n")
    assert read_strict(tmp_path / "run.json")["iterations"] == 1


# ---- generate, info


def test_generate_writes_the_scene(asks, tmp_path):
    start, truth = tmp_path / "start.txt.gz", tmp_path / "truth.txt"
    options = [
        "--noise",
        "0.2",
        "--outliers",
        "0.1",
        "--outlier-size",
        "90",
        "--start-error",
        "3",
        "--seed",
        "7",
    ]
    sizes = ["--cameras", "9", "--observations", "450"]
    code, text, err = asks("generate", start, *sizes, *options, "--truth", truth)
    assert (code, err) == (0, "")
    scene = make_scene(9, 450, noise=0.2, outlier_ratio=0.1, outlier_size=90.0, start_error=3.0, seed=7)
    for path, bundle in ((start, scene.start), (truth, scene.truth)):
        for name in ("cameras", "points", "camera_index", "point_index", "uv"):
            np.testing.assert_array_equal(getattr(read_bal(path), name), getattr(bundle, name))
        assert f"wrote {path}" in text
    assert "9 cameras" in text
    assert "45 of them outliers" in text


def test_generate_refuses_what_it_cannot_make(asks, tmp_path):
    target = tmp_path / "start.txt"
    assert_refused(asks("generate", target, "--kind", "rnig"), "did you mean ring?")
    assert_refused(asks("generate", target, "--cameras", 1), "at least 2")
    assert_refused(asks("generate", target, "--outliers", "nan"), "outlier_ratio")
    assert_refused(asks("generate", target, "--seed", -1), "--seed")
    assert_refused(asks("generate", tmp_path / "none" / "start.txt"), "there is no folder")
    assert_refused(asks("generate", target, "--truth", target), "named twice")
    assert os.listdir(tmp_path) == []


def test_info_tells_counts_and_the_start(asks, scene_file):
    code, text, err = asks("info", scene_file, "--tau", 2)
    assert (code, err) == (0, "")
    bundle = read_bal(scene_file)
    assert f"8 cameras, {bundle.n_points} points, 400 observations" in text
    for what, index in (("camera", bundle.camera_index), ("point", bundle.point_index)):
        n = np.bincount(index)
        numbers = [f"{n.min()}", f"{np.median(n):g}", f"{n.mean():.1f}", f"{n.max()}"]
        assert re.search(rf"observations per {what} +" + " +".join(map(re.escape, numbers)), text)
    costs = [f"{evaluated(bundle, kernel=asker.SmoothTruncated(2.0), camera=c):.7g}" for c in CAMERAS]
    assert costs[0] != costs[1]
    for camera, cost in zip(CAMERAS, costs, strict=True):
        assert re.search(rf"{camera} camera +{re.escape(cost)} ", text)
    assert "behind their camera initially: 0 observations of 0 points" in text


def test_info_counts_what_is_behind_its_camera(asks, tmp_path, scene):
    points = scene.start.points.copy()
    k = scene.start.point_index[0]
    i = scene.start.camera_index[0]
    away = points[k] - camera_centres(scene.start)[i]
    points[k] -= 2 * away  # to the other side of its first camera
    write_bal(tmp_path / "a.txt", replace(scene.start, points=points))
    _, text, _ = asks("info", tmp_path / "a.txt")
    n = int(re.search(r"behind their camera initially: (\d+) observations of 1 points", text)[1])
    assert 1 <= n <= np.count_nonzero(scene.start.point_index == k)


@pytest.mark.parametrize("camera", CAMERAS)
def test_the_projection_is_the_one_that_is_solved(scene_file, camera):
    bundle = read_bal(scene_file)
    result = asker.solve(bundle_problem(bundle, camera=camera).problem, max_iterations=0)
    norms, _ = reprojection_norms(bundle, camera)
    np.testing.assert_allclose(norms, np.linalg.norm(result.residuals[0], axis=1), rtol=1e-9)


# ---- the whole program


def test_version_and_help(asks):
    assert asks("--version") == (0, f"asker {asker.__version__}\n", "")
    for arguments in ([], ["--help"]):
        code, text, err = asks(*arguments)
        assert (code, err) == (0, "")
        assert all(command in text for command in ("solve", "generate", "info", "compare", "reproduce"))
    for command in app.COMMANDS:
        code, out, _ = asks(command, "--help")
        assert code == 0
        assert "bool" not in out


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["solve", "--help"]], ids=" ".join)
def test_help_is_quick_to_import(arguments):
    code = "import sys; from asker.cli import main; assert main(sys.argv[1:]) == 0; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert not {"jax", "llvmlite", "scipy", "matplotlib", "requests"} & imported
    assert "solve" in arguments or not {"numpy", "asker._api", "asker.applications"} & imported


def test_an_interruption_while_a_class_is_made_is_one(asks, scene_file, monkeypatch):
    class Interrupts:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    monkeypatch.setattr(
        "asker.applications.bundle.application.read_bal", lambda *_: type("Made", (), {"x": Interrupts()})
    )
    code, _, err = asks("solve", scene_file)
    assert (code, "interrupted" in err) == (130, True)


def test_the_program_itself_ends_with_the_exit_code(tmp_path):
    code = "import sys; from asker.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "info", tmp_path], capture_output=True, text=True)
    assert_refused((done.returncode, done.stdout, done.stderr), "folder")


def test_a_fixed_gauge_holds_the_first_camera(asks, tmp_path, scene_file):
    start = read_bal(scene_file)
    for gauge in ("fixed", "free"):
        out = tmp_path / f"{gauge}.txt"
        code, _, err = asks("solve", scene_file, "--iterations", 2, "--gauge", gauge, "--output", out)
        assert (code, err) == (0, "")
        moved = (np.abs(read_bal(out).cameras - start.cameras) > 1e-12).any(axis=1)
        assert moved.tolist() == [gauge == "free"] + [True] * 7
    assert_refused(asks("solve", scene_file, "--gauge", "fixed", "--dof", 7), "dof 6")
    assert_refused(asks("solve", scene_file, "--gauge", "loose"), "--gauge")


def test_a_run_that_continues_says_so_and_one_with_another_tau_says_what_differs(asks, tmp_path, scene_file):
    file = tmp_path / "run.npz"
    first = ("solve", scene_file, "--checkpoint", file, "--tau", "1", "--iterations")
    assert "Continued" not in asks(*first, "2")[1]
    assert f"Continued from iteration 2 of {file}" in asks(*first, "3")[1]
    assert "another kernel or τ" in asks("solve", scene_file, "--checkpoint", file, "--tau", "2")[2]
