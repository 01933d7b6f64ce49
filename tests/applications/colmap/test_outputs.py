"""Other outputs of COLMAP models: transforms.json, triangulation, and removal of points with small angles."""

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


def test_transforms_project_points_to_their_pixels(tmp_path):
    """Cameras look along −z with y up."""
    model = some_model(("OPENCV",), n_images=4)
    colmap.write_transforms(tmp_path / "t.json", model)
    record = json.loads((tmp_path / "t.json").read_text())
    assert [frame["file_path"] for frame in record["frames"]] == list(model.images.names)
    assert (record["camera_model"], record["w"], record["h"]) == ("OPENCV", 1024, 768)
    params = [record[key] for key in ("fl_x", "fl_y", "cx", "cy", "k1", "k2", "p1", "p2")]
    o = model.observations()
    for k, frame in enumerate(record["frames"]):
        to_camera = np.linalg.inv(frame["transform_matrix"])
        of_image = o.image == k
        x, y, z = to_camera[:3, :3] @ model.points.xyz[o.point[of_image]].T + to_camera[:3, 3:]
        uv = np.stack(project("OPENCV", params, x, -y, -z), axis=1)
        np.testing.assert_allclose(uv, model.images.xys[o.feature[of_image]], atol=1e-9)


def test_transforms_of_several_cameras_are_in_the_frames():
    model = some_model(tuple(FORMS), n_images=len(FORMS))
    record = colmap.transforms(model)
    assert set(record) == {"frames"}
    for name, frame in zip(FORMS, record["frames"], strict=True):
        assert frame["camera_model"] == FORMS[name]
        assert ("fl_x" in frame) == (name != "EQUIRECTANGULAR")
        if "f" in colmap.CAMERA_MODELS[name].split():
            assert frame["fl_x"] == frame["fl_y"] == PARAMS[name][0]


def test_unsupported_cameras_are_rejected_before_the_solve(tmp_path, capsys, monkeypatch):
    import asker

    monkeypatch.setattr(asker, "solve", lambda *args, **settings: pytest.fail("solved nevertheless"))
    write_model(tmp_path / "m", some_model(("FOV",)))
    assert main(["solve", str(tmp_path / "m"), "--transforms", str(tmp_path / "t.json")]) == 2
    assert "transforms.json does not support FOV cameras" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_the_widest_angle_is_the_maximum_over_all_pairs():
    model = some_model(("PINHOLE",), n_images=5, n_points=12)
    mask = np.random.default_rng(0).random(model.n_observations) < 0.5
    o, centres = model.observations(), colmap.camera_centres(model)
    for j, widest in enumerate(colmap.widest_angles(model, mask)):
        rays = model.points.xyz[j] - centres[o.image[mask & (o.point == j)]]
        each = [np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in combinations(rays, 2)]
        assert widest == pytest.approx(np.degrees(max(each, default=0.0)), abs=1e-6)


@pytest.fixture(scope="module")
def scattered():
    """Return a model with perturbed points and with outliers, and the true points."""
    truth = some_model(("SIMPLE_PINHOLE",), n_images=10, n_points=60, noise=0.5)
    rng, xys = np.random.default_rng(0), truth.images.xys.copy()
    outliers = rng.random(len(xys)) < 0.3
    xys[outliers] = rng.uniform(0, 900, (outliers.sum(), 2))
    points = replace(truth.points, xyz=truth.points.xyz + 3 * rng.normal(size=truth.points.xyz.shape))
    return replace(truth, images=replace(truth.images, xys=xys), points=points), truth.points.xyz


def test_points_are_triangulated(scattered):
    model, truth = scattered
    triangulated = colmap.retriangulated(model)
    assert (np.linalg.norm(triangulated.points.xyz - truth, axis=1) < 0.02).all()
    np.testing.assert_array_equal(triangulated.images.tvecs, model.images.tvecs)
    constant = np.arange(60) < 5
    xyz = colmap.retriangulated(model, hold=constant).points.xyz
    np.testing.assert_array_equal(xyz[constant], model.points.xyz[constant])
    with pytest.raises(ValueError, match="cannot be retriangulated"):
        colmap.refine(model, hold=["points"], retriangulate=True)


def test_the_command_triangulates_points(tmp_path, scattered):
    write_model(tmp_path / "m", scattered[0])
    arguments = ["solve", tmp_path / "m", "--retriangulate", "--quiet", "--json", tmp_path / "run.json"]
    assert main([str(a) for a in arguments]) == 0
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["retriangulate"]
    assert record["inlier_ratio"] == pytest.approx(0.7, abs=0.05)


def test_points_with_small_angles_are_removed(tmp_path, capsys):
    model = disturbed(some_model(("SIMPLE_RADIAL",), n_images=6, noise=0.3))
    xyz = model.points.xyz.copy()
    all_observations = np.ones(model.n_observations, dtype=bool)
    far = replace(model, points=replace(model.points, xyz=np.where(np.arange(25)[:, None] == 4, xyz * 1e5, xyz)))
    clean = colmap.without_outliers(far, all_observations, min_angle=1.5)
    assert set(far.points.ids) - set(clean.points.ids) == {far.points.ids[4]}
    write_model(tmp_path / "m", model)
    options = ("--kernel", "cauchy", "--method", "irls", "--tau", "2", "--iterations", "30")
    assert main(["solve", str(tmp_path / "m"), *options, "--min-angle", "1"]) == 2
    assert "--min-angle requires --drop-outliers" in capsys.readouterr().err
    out = ("--drop-outliers", "--min-angle", "179", "--output", str(tmp_path / "out"))
    assert main(["solve", str(tmp_path / "m"), *options, *out]) == 0
    assert len(read_model(tmp_path / "out").points) < 25
