"""Tests of `asker refine-poses`."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from asker.applications import colmap
from asker.applications.posed import join, read_poses, with_cameras
from asker.applications.posed.correspondences.tracks import Tracks
from asker.applications.posed.reports.outputs import write_nerfstudio
from asker.applications.posed.scene import model_of
from asker.applications.posed.synthetic import HEIGHT, WIDTH, centre_error, disturbed, make_scene
from posed_scenes import write_database


@pytest.fixture(scope="module")
def made():
    return make_scene(n=6, n_points=150)


@pytest.fixture
def files(made, tmp_path):
    """Images, poses with errors and a database with matches."""
    images = tmp_path / "images"
    images.mkdir()
    rng = np.random.default_rng(0)
    for name in made.truth.names:
        Image.fromarray(rng.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)).save(images / name)
    start = disturbed(made.truth)
    empty = Tracks(np.zeros(0, int), np.zeros(0, int))
    write_nerfstudio(tmp_path / "transforms.json", start, model_of(start, made.matches, empty, np.zeros((0, 3))))
    write_database(tmp_path / "matches.db", made.truth.names, made.matches)
    return images, tmp_path / "transforms.json", tmp_path / "matches.db"


def test_the_command_writes_better_poses(asks, files, made, tmp_path):
    images, poses, matches = files
    out = tmp_path / "out"
    code, text, err = asks("refine-poses", images, poses, "--output", out, "--matches", matches, "--quiet")
    assert (code, err) == (0, "")
    assert "Accepted:" in text
    names = list(made.truth.names)
    for path in (out / "sparse" / "0", out / "transforms.json"):
        assert centre_error(read_poses(path, names), made.truth) < 0.3
    record = json.loads((out / "report.json").read_text())
    assert record["accepted"]
    assert record["images"]["name"] == names
    model = colmap.read_model(out / "sparse" / "0")
    assert model.points.rgb.std() > 5  # colours of the pixels
    page = (out / "index.html").read_text()
    data = json.loads(page.partition('<script id="data" type="application/json">')[2].partition("</script>")[0])
    assert len(data["pictures"]) == 6
    assert data["table"]["name"] == names
    assert (out / "points.ply").read_bytes().startswith(b"ply")


def test_a_result_that_is_no_better_is_refused(asks, files, made, tmp_path):
    images, _, matches = files
    model = colmap.refine(triangulated_model(made)).model
    colmap.write_model(tmp_path / "best", model)
    out = tmp_path / "out"
    asked = "--output", out, "--matches", matches, "--intrinsics", "fixed", "--quiet"
    code, text, err = asks("refine-poses", images, tmp_path / "best", *asked)
    assert code == 1
    assert "REFUSED" in text
    assert "no model was written" in err
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "report.json"]


def triangulated_model(made):
    from asker.applications.posed.scene import triangulated

    return triangulated(made.truth, made.matches, join(made.matches))[0]


def test_errors_are_one_line(asks, files, tmp_path, monkeypatch):
    images, poses, matches = files
    out = tmp_path / "out"
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, message in (
        ((images, poses), "features and matches need pycolmap: pip install 'asker-solver[features]'"),
        ((empty, poses), "there are no images in this folder"),
        ((images, images), "this folder has no poses"),
        ((images, poses, "--matches", poses), "this is not a COLMAP database"),
        ((images, poses, "--matches", matches, "--camera", "x"), "--camera: "),
        ((images, poses, "--matches", matches, "--intrinsics", "some"), "--intrinsics is 'some'"),
    ):
        code, _, err = asks("refine-poses", *arguments, "--output", out)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert asks("refine-poses", images, poses, "--output", images)[0] == 2


def view(texture, R, t, f=400.0):
    """An image of a textured square with the side 2, 320×240 pixels."""
    K, unit = np.array([[f, 0, 160], [0, f, 120], [0, 0, 1]]), 2 / len(texture)
    H = K @ np.column_stack([R[:, 0], R[:, 1], t]) @ np.array([[unit, 0, -1], [0, unit, -1], [0, 0, 1]])
    inverse = np.linalg.inv(H)
    coefficients = (inverse / inverse[2, 2]).ravel()[:8]
    how = Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BICUBIC
    return Image.fromarray(texture).transform((320, 240), *how)


@pytest.mark.slow
def test_features_of_pycolmap_refine_textured_images(asks, tmp_path):
    pytest.importorskip("pycolmap")
    texture = np.kron(np.random.default_rng(0).integers(0, 255, (40, 40)), np.ones((12, 12))).astype(np.uint8)
    images, poses, n = tmp_path / "images", [], 4
    images.mkdir()
    for k in range(n):
        a = np.radians(-18 + 12 * k)
        R = np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])
        poses.append(np.column_stack([R, [0.0, 0.03 * k, 2.0]]))
        view(texture, R, poses[-1][:, 3]).save(images / f"{k}.png")

    def posed(poses):
        params = [np.array([400.0, 400.0, 160.0, 120.0])] * n
        return with_cameras([f"{k}.png" for k in range(n)], poses, ["PINHOLE"] * n, np.tile([320, 240], (n, 1)), params)

    true = posed(np.array(poses))
    begin = posed(disturbed(true, 3.0, 20.0).poses)
    empty, none = Tracks(np.zeros(0, int), np.zeros(0, int)), make_scene(n=n, n_points=40).matches
    write_nerfstudio(tmp_path / "transforms.json", begin, model_of(begin, none, empty, np.zeros((0, 3))))
    code, _, _ = asks("refine-poses", images, tmp_path / "transforms.json", "--output", tmp_path / "out", "--quiet")
    assert code == 0
    refined = read_poses(tmp_path / "out" / "transforms.json", list(true.names))
    assert centre_error(refined, true) < 0.1 * centre_error(begin, true)
    assert (tmp_path / "out" / "database.db").is_file()


def test_solve_names_the_command_for_poses(asks, files):
    for path in (files[1], files[1].parent):
        code, _, err = asks("solve", path)
        assert code == 2
        assert "asker refine-poses IMAGES POSES" in err
