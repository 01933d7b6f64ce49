"""What is written of a COLMAP model beside itself: transforms.json, and points that are seen under small angles."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from asker.applications import colmap
from asker.applications.colmap.cameras import project
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.formats.nerfstudio import FORMS
from asker.cli import main
from colmap_models import PARAMS, disturbed, some_model

pytestmark = pytest.mark.slow


def test_transforms_see_what_the_model_sees(tmp_path):
    """A camera that looks along −z with y up shows every point at its pixel."""
    model = some_model(("OPENCV",), n_images=4)
    colmap.write_transforms(tmp_path / "t.json", model)
    record = json.loads((tmp_path / "t.json").read_text())
    assert [frame["file_path"] for frame in record["frames"]] == list(model.images.names)
    assert (record["camera_model"], record["w"], record["h"]) == ("OPENCV", 1024, 768)
    params = [record[key] for key in ("fl_x", "fl_y", "cx", "cy", "k1", "k2", "p1", "p2")]
    seen = model.observations()
    for k, frame in enumerate(record["frames"]):
        to_camera = np.linalg.inv(frame["transform_matrix"])
        own = seen.image == k
        x, y, z = to_camera[:3, :3] @ model.points.xyz[seen.point[own]].T + to_camera[:3, 3:]
        uv = np.stack(project("OPENCV", params, x, -y, -z), axis=1)
        np.testing.assert_allclose(uv, model.images.xys[seen.feature[own]], atol=1e-9)


def test_transforms_of_several_cameras_stand_in_the_frames():
    model = some_model(tuple(FORMS), n_images=len(FORMS))
    record = colmap.transforms(model)
    assert set(record) == {"frames"}
    for name, frame in zip(FORMS, record["frames"], strict=True):
        assert frame["camera_model"] == FORMS[name]
        assert ("fl_x" in frame) == (name != "EQUIRECTANGULAR")
        if "f" in colmap.CAMERA_MODELS[name].split():
            assert frame["fl_x"] == frame["fl_y"] == PARAMS[name][0]


def test_transforms_of_other_cameras_are_refused_before_the_work(tmp_path, capsys, monkeypatch):
    import asker

    monkeypatch.setattr(asker, "solve", lambda *args, **settings: pytest.fail("solved all the same"))
    write_model(tmp_path / "m", some_model(("FOV",)))
    assert main(["solve", str(tmp_path / "m"), "--transforms", str(tmp_path / "t.json")]) == 2
    assert "transforms.json has no FOV cameras" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_angles_are_those_of_all_pairs():
    model = some_model(("PINHOLE",), n_images=5, n_points=12)
    chosen = np.random.default_rng(0).random(model.n_observations) < 0.5
    seen, centres = model.observations(), colmap.camera_centres(model)
    for j, widest in enumerate(colmap.widest_angles(model, chosen)):
        rays = model.points.xyz[j] - centres[seen.image[chosen & (seen.point == j)]]
        each = [np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in combinations(rays, 2)]
        assert widest == pytest.approx(np.degrees(max(each, default=0.0)), abs=1e-6)


@pytest.fixture(scope="module")
def scattered():
    """A model whose points were thrown away, with wrong observations; and the true points."""
    truth = some_model(("SIMPLE_PINHOLE",), n_images=10, n_points=60, noise=0.5)
    rng, xys = np.random.default_rng(0), truth.images.xys.copy()
    wrong = rng.random(len(xys)) < 0.3
    xys[wrong] = rng.uniform(0, 900, (wrong.sum(), 2))
    points = replace(truth.points, xyz=truth.points.xyz + 3 * rng.normal(size=truth.points.xyz.shape))
    return replace(truth, images=replace(truth.images, xys=xys), points=points), truth.points.xyz


def test_points_are_found_again(scattered):
    model, truth = scattered
    found = colmap.retriangulated(model)
    assert (np.linalg.norm(found.points.xyz - truth, axis=1) < 0.02).all()
    np.testing.assert_array_equal(found.images.tvecs, model.images.tvecs)
    held = np.arange(60) < 5
    kept = colmap.retriangulated(model, hold=held).points.xyz
    np.testing.assert_array_equal(kept[held], model.points.xyz[held])
    with pytest.raises(ValueError, match="cannot be triangulated again"):
        colmap.refine(model, hold=["points"], retriangulate=True)


def test_the_command_finds_points_again(tmp_path, scattered):
    write_model(tmp_path / "m", scattered[0])
    arguments = ["solve", tmp_path / "m", "--retriangulate", "--quiet", "--json", tmp_path / "run.json"]
    assert main([str(a) for a in arguments]) == 0
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["retriangulate"]
    assert record["inlier_ratio"] == pytest.approx(0.7, abs=0.05)


def test_points_of_small_angles_are_dropped(tmp_path, capsys):
    model = disturbed(some_model(("SIMPLE_RADIAL",), n_images=6, noise=0.3))
    xyz = model.points.xyz.copy()
    every = np.ones(model.n_observations, dtype=bool)
    far = replace(model, points=replace(model.points, xyz=np.where(np.arange(25)[:, None] == 4, xyz * 1e5, xyz)))
    left = colmap.without_outliers(far, every, min_angle=1.5)
    assert set(far.points.ids) - set(left.points.ids) == {far.points.ids[4]}
    write_model(tmp_path / "m", model)
    options = ("--kernel", "cauchy", "--method", "irls", "--tau", "2", "--iterations", "30")
    assert main(["solve", str(tmp_path / "m"), *options, "--min-angle", "1"]) == 2
    assert "--min-angle goes with --drop-outliers" in capsys.readouterr().err
    out = ("--drop-outliers", "--min-angle", "179", "--output", str(tmp_path / "out"))
    assert main(["solve", str(tmp_path / "m"), *options, *out]) == 0
    assert len(read_model(tmp_path / "out").points) < 25
