"""Rotation averaging: files, the problem, errors with respect to true rotations, and the commands."""

import json

import numpy as np
import pytest

import asker
from asker.applications import application_of, rotation_averaging
from asker.applications.rotation_averaging.problem import residual_norms
from asker.cli import main
from asker.geometry.rotations import angle_axis_from_matrix, matrix_from_angle_axis
from asker.io.files import FileError, write_whole

TURN = matrix_from_angle_axis(np.array([[0.0, 0.0, 0.3]]))[0]


@pytest.fixture(scope="module")
def made():
    return rotation_averaging.make_rotations(20, 150, noise=1.0, outlier_ratio=0.2, seed=2)


def write_pairs(path, data, weight=""):
    with write_whole(path) as file:
        file.write(b"# a b R\n\n")
        for i, j, R in zip(data.i, data.j, data.matrices, strict=True):
            entries = " ".join(map(repr, R.ravel().tolist()))
            file.write(f"cam{data.names[i]} cam{data.names[j]} {entries} {weight} # pair\n".encode())
    return path


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".txt.bz2"])
def test_files_are_read(tmp_path, made, suffix):
    path = write_pairs(tmp_path / f"a{suffix}", made, weight="2.5")
    read = rotation_averaging.read_rotations(path)
    np.testing.assert_allclose(read.matrices, made.matrices, atol=1e-12)
    assert [read.names[k] for k in read.i] == [f"cam{k}" for k in made.i]
    assert (read.weights == 2.5).all()
    assert application_of(path).name == "rotation_averaging"


def line(a="a", b="b", R=TURN, more=""):
    return f"{a} {b} {' '.join(map(str, np.ravel(R)))} {more}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no relative rotation"),
        ("# nothing\n", "there is no relative rotation"),
        (line() + "a b 1 2 3\n", ":2: a pair needs two names"),
        (line() + line(more="x"), ":2: a pair needs two names"),
        (line() + line(more="1_0"), ":2: a pair needs two names"),
        (line() + line(more="٣"), ":2: a pair needs two names"),
        (line() + line(R=2 * TURN), ":2: these nine numbers are not a rotation"),
        (line() + line(R=-TURN), ":2: these nine numbers are not a rotation"),
        (line() + line(R=np.full(9, np.nan)), ":2: these nine numbers are not a rotation"),
        (line() + line("c", "c"), ":2: a rotation from a frame to itself"),
        (line() + line(more="0"), ":2: a weight must be positive"),
        (line() + line("c", "d"), "2 connected components: none lead from 'a' to 'c'"),
    ],
)
def test_invalid_files_are_rejected_with_the_line(tmp_path, text, said):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        rotation_averaging.read_rotations(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_names_that_are_not_utf8_stay_different(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(line(b="B").encode().replace(b"B", b"\xff") + line(b="B").encode().replace(b"B", b"\xfe"))
    assert len(rotation_averaging.read_rotations(path).names) == 3


def test_an_invalid_rotation_in_the_first_line_is_reported(asks, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(line(R=1.01 * TURN) + line("b", "c"))
    assert asks("info", path)[::2] == (2, f"asker: {path}:1: these nine numbers are not a rotation\n")


def test_a_file_of_integers_is_not_detected_as_bundle(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 1 0 0 0 1 0 0 0 1\n")
    assert application_of(tmp_path / "a.txt").name == "rotation_averaging"


def test_the_residual_is_the_angle(made):
    data = rotation_averaging.RelativeRotations(("a", "b"), np.array([0]), np.array([1]), TURN[None], np.ones(1))
    result = asker.solve(rotation_averaging.averaging_problem(data).problem, max_iterations=0)
    assert result.cost == pytest.approx(0, abs=1e-20)  # composed from this pair
    small = matrix_from_angle_axis(np.radians([[0.0, 0.5, 0.0]]))
    both = rotation_averaging.RelativeRotations(
        ("a", "b"), np.zeros(2, int), np.ones(2, int), np.stack([TURN, small[0] @ TURN]), np.ones(2)
    )
    result = asker.solve(rotation_averaging.averaging_problem(both).problem, max_iterations=0)
    assert np.linalg.norm(result.residuals[0], axis=1).max() == pytest.approx(0.5, rel=1e-4)


def test_rotations_are_estimated_despite_outliers(made):
    errors = {"start": rotation_averaging.angle_errors(made.start(), made.truth)}
    outcome = rotation_averaging.refine(made)
    errors["asker"] = rotation_averaging.angle_errors(outcome.refined.matrices, made.truth)
    assert errors["asker"].max() < 1.5 < errors["start"].max()
    assert outcome.record["cost"] < outcome.record["initial_cost"]
    np.testing.assert_array_equal(outcome.refined.matrices[0], np.eye(3))  # the first one is constant


def test_the_noise_is_per_axis_and_intervals_cover_the_truth():
    data = rotation_averaging.make_rotations(60, 400, noise=1.5, outlier_ratio=0.2, seed=3)
    outcome = rotation_averaging.refine(data)
    assert outcome.result.noise[0].sigma == pytest.approx(1.5, rel=0.05)
    R = outcome.refined.matrices
    truth = data.truth @ data.truth[0].T @ R[0]
    errors = angle_axis_from_matrix(truth @ R.transpose(0, 2, 1))[1:]
    assert np.mean(np.abs(errors) <= outcome.result.interval("rotations")[1:]) == pytest.approx(0.95, abs=0.05)
    assert outcome.covariances.arrays["rotation_covariances"].shape == (60, 3, 3)
    assert outcome.covariances.facts()["names"] == data.names


def test_the_residual_norm_is_that_of_the_difference_at_any_angle():
    data = rotation_averaging.make_rotations(20, 150, outlier_ratio=0.9, seed=0)
    result = asker.solve(rotation_averaging.averaging_problem(data, asker.Quadratic()).problem, max_iterations=0)
    norms = residual_norms(data, data.start())
    assert norms.max() > 110  # 2 sin(θ/2), in degrees
    np.testing.assert_allclose(np.linalg.norm(result.residuals[0], axis=1), norms, rtol=1e-6, atol=1e-9)


def test_errors_do_not_depend_on_the_frame(made):
    turned = made.truth @ TURN
    assert rotation_averaging.angle_errors(turned, made.truth).max() < 1e-5


def test_invalid_settings_of_synthetic_rotations_are_rejected():
    for bad in ({"n": 1}, {"n": 5, "n_pairs": 3}, {"n": 5, "n_pairs": 11}, {"outlier_ratio": 1.0}):
        with pytest.raises(ValueError, match="must satisfy"):
            rotation_averaging.make_rotations(**bad)


@pytest.mark.slow
def test_the_commands_support_rotation_averaging(tmp_path, made, capsys, runs_here):
    file, out, json_file = write_pairs(tmp_path / "a.txt", made), tmp_path / "out.txt", tmp_path / "run.json"
    assert main(["info", str(file)]) == 0
    assert "20 rotations, 150 pairs" in capsys.readouterr().out
    assert main(["solve", str(file), "--output", str(out), "--json", str(json_file)]) == 0
    run = json.loads(json_file.read_text())
    outcome = rotation_averaging.refine(rotation_averaging.read_rotations(file))
    assert run["cost"] == pytest.approx(outcome.result.cost, rel=1e-12)
    names, numbers = zip(*(words.split(None, 1) for words in out.read_text().splitlines()), strict=True)
    assert names == outcome.refined.names
    written = np.array([text.split() for text in numbers], float).reshape(-1, 3, 3)
    np.testing.assert_allclose(written, outcome.refined.matrices, atol=1e-9)
    best = tmp_path / "best.txt"
    arguments = ["--methods", "irls,asker", "--iterations", "30", "--processes", "1", "--figures", "--best", str(best)]
    assert main(["compare", str(file), "--output", str(tmp_path / "cmp"), *arguments]) == 0
    assert "Rotation averaging" in capsys.readouterr().out
    assert len(best.read_text().splitlines()) == 20
    assert main(["solve", str(file), "--robust", "all"]) == 2
    assert "--robust is an option for pose graphs, not for relative rotations" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_can_generate_rotations(tmp_path, runs_here):
    plan = '[instances.r]\nkind = "made rotations"\nn = 12\npairs = 50\n'
    plan += '[[groups]]\ninstances = ["r"]\nmethods = ["irls"]\niterations = 4\n'
    (tmp_path / "plan.toml").write_text(plan)
    assert main(["reproduce", "--plan", str(tmp_path / "plan.toml"), "--output", str(tmp_path / "out")]) == 0
    (result,) = (tmp_path / "out" / "runs").glob("*/result.json")
    assert json.loads(result.read_text())["median_error"] > 0
