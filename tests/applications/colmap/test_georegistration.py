"""Known positions of images and of control points: files, frames and solves."""

import json
import re

import numpy as np
import pytest

import asker
from asker.applications import colmap
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.georegistration.alignment import in_frame
from asker.applications.colmap.georegistration.control_points import triangulated, with_control, without_control
from asker.applications.colmap.georegistration.position_priors import Control, Positions, read_control, read_positions
from asker.applications.colmap.reprojection_error import camera_centres, reprojection_norms
from asker.cli import main
from asker.geometry.geodesy import earth_centred, east_north_up
from asker.geometry.rotations import matrix_from_angle_axis
from asker.io.files import FileError
from colmap_models import disturbed, disturbed_frames, rig_model, some_model

pytestmark = pytest.mark.slow
N, OUTLIERS, SD = 20, [3, 11, 16], 0.05
TURN = matrix_from_angle_axis(np.array([[0.3, -1.0, 0.5]]))[0]
FIT = (3.0, TURN, np.array([100.0, -50.0, 20.0]))


@pytest.fixture(scope="module")
def truth():
    return some_model(("SIMPLE_PINHOLE",), n_images=N, n_points=40, noise=0.3)


@pytest.fixture(scope="module")
def centres(truth):
    """Return the camera centres in the frame of the known positions."""
    return camera_centres(in_frame(truth, FIT))


def noisy_priors(truth, centres, sd=np.nan):
    rng = np.random.default_rng(0)
    xyz = centres + SD * rng.normal(size=centres.shape)
    xyz[OUTLIERS] += rng.uniform(2, 4, (len(OUTLIERS), 3))
    return Positions(truth.images.names, xyz, np.full(xyz.shape, sd))


def written(path, positions, titles=""):
    rows = [",".join(map(str, (name, *xyz))) for name, xyz in zip(positions.names, positions.xyz.tolist(), strict=True)]
    path.write_text("\n".join([titles, *rows, ""]))
    return path


# ---- files


def test_positions_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("# known\nname, x, y, z, sd\na.jpg, 1, 2, 3, 0.5\n\nb.jpg,4,5,6e1\nc.jpg,7,8,9,1,2,3\n")
    positions = read_positions(path)
    assert positions.names == ("a.jpg", "b.jpg", "c.jpg")
    assert positions.xyz.tolist() == [[1, 2, 3], [4, 5, 60], [7, 8, 9]]
    np.testing.assert_array_equal(positions.sds, [[0.5] * 3, [np.nan] * 3, [1, 2, 3]])
    assert positions.origin is None
    path.write_text("a.jpg,1,2,3\n")
    assert read_positions(path).xyz.tolist() == [[1, 2, 3]]


def test_geodetic_positions_are_converted_to_metres(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("image,lat,lon,alt\na,47,8,400\nb,47.001,8,400\nc,47,8.001,410\n")
    positions = read_positions(path)
    assert positions.origin == (47, 8, 400)
    np.testing.assert_allclose(positions.xyz[0], 0, atol=1e-6)
    np.testing.assert_allclose(positions.xyz[1], [0, 111.17, 0], atol=0.1)
    np.testing.assert_allclose(positions.xyz[2], [76.06, 0, 10], atol=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,1,2\n", ":1: a position is name,x,y,z"),
        ("a,1,2,3\nb,1,two,3\n", ":2: b: expected a finite number, got 'two'"),
        ("a,1,2,nan\n", ":1: a: expected a finite number, got 'nan'"),
        ("a,1,2,1_0\n", ":1: a: expected a finite number, got '1_0'"),
        ("a,1,2,٣\n", ":1: a: expected a finite number, got '٣'"),
        ("a,1,2,3\na,1,2,3\n", ":2: 'a' was already in line 1"),
        ("a,1,2,3,0\n", ":1: a standard deviation must be positive"),
        ("name,latitude,longitude,height\na,91,0,0\n", ":2: a latitude must be between"),
        ("# nothing\n", ": there are no positions"),
    ],
)
def test_invalid_positions_are_rejected_with_their_line(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(FileError, match="a.csv" + message):
        read_positions(path)


def test_control_points_are_read(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("7,1,2,3,0.1\n8,4,5,6\ni.jpg,7,10,20\nj.jpg,8,30,40.5\ni.jpg,8,1,2\n")
    control = read_control(path, ["i.jpg", "j.jpg"])
    assert (control.points.names, control.images) == (("7", "8"), ("i.jpg", "j.jpg", "i.jpg"))
    assert control.index.tolist() == [0, 1, 1]
    assert control.uv.tolist() == [[10, 20], [30, 40.5], [1, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A,1,2,3\ni.jpg,B,1,2\n", ":2: there is no position of control point 'B'"),
        (
            "A,1,2,3\nk.jpg,A,1,2\n",
            ":2: not an image name, hence a control point: k.jpg: expected a finite number, got 'A'",
        ),
        ("A,1,2,3\ni.jpg,A,1\n", ":2: an observation is image,name,u,v"),
        ("A,1,2,3\n", ": no line begins with the name of an image"),
        ("A,1,2,3\ni.jpg,A,1,x\n", ":2: A: expected a finite number, got 'x'"),
    ],
)
def test_invalid_control_points_are_rejected_with_their_line(tmp_path, text, message):
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(FileError, match="c.csv" + message):
        read_control(path, ["i.jpg", "j.jpg"])


def test_a_local_frame_keeps_distances():
    rng = np.random.default_rng(0)
    places = np.stack([rng.uniform(-90, 90, 50), rng.uniform(-180, 180, 50), rng.uniform(0, 9000, 50)], axis=1)
    metres, local = earth_centred(places), east_north_up(places, places[0])
    np.testing.assert_allclose(np.linalg.norm(local, axis=1), np.linalg.norm(metres - metres[0], axis=1), rtol=1e-12)
    np.testing.assert_allclose(east_north_up(places[:1] + np.array([0, 0, 10]), places[0]), [[0, 0, 10]], atol=1e-8)


def test_local_frames_agree_with_pycolmap():
    pycolmap = pytest.importorskip("pycolmap")
    places = np.array([[47.1, 8.2, 400.0], [47.2, 8.1, 500.0], [46.9, 8.3, -5.0]])
    theirs = pycolmap.GPSTransform().ellipsoid_to_enu(places, 47.0, 8.0, 300.0)
    np.testing.assert_allclose(east_north_up(places, np.array([47.0, 8.0, 300.0])), theirs, atol=1e-6)


def test_the_pose_priors_of_a_database_are_read(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    path = tmp_path / "a.db"
    database = pycolmap.Database.open(path)
    camera = database.write_camera(pycolmap.Camera.create_from_model_name(1, "PINHOLE", 500.0, 640, 480))
    for k in range(3):
        image = database.write_image(pycolmap.Image(name=f"{k}.jpg", camera_id=camera))
        prior = pycolmap.PosePrior()
        prior.position = np.array([47.0 + k / 1000, 8.0, 400.0])
        prior.position_covariance = np.diag([1.0, 4.0, 9.0])
        prior.coordinate_system = pycolmap.PosePriorCoordinateSystem.WGS84
        prior.corr_data_id = pycolmap.data_t(pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera), image)
        database.write_pose_prior(prior)
    database.close()
    positions = read_positions(path)
    assert positions.names == ("0.jpg", "1.jpg", "2.jpg")
    assert positions.sds.tolist() == [[1, 2, 3]] * 3
    np.testing.assert_allclose(positions.origin, (47.001, 8, 400))
    np.testing.assert_allclose(positions.xyz[2], [0, 111.17, 0], atol=0.1)


def test_a_file_that_is_not_a_database_is_rejected(tmp_path):
    path = tmp_path / "a.db"
    path.write_text("nothing")
    with pytest.raises(FileError, match=r"a.db: no pose priors can be read"):
        read_positions(path)


# ---- solves


@pytest.fixture(scope="module")
def outcome(truth, centres):
    """Refine with position priors without standard deviations, three of them outliers."""
    return colmap.refine(disturbed(truth), priors=noisy_priors(truth, centres))


def test_a_model_is_georegistered(outcome, truth, centres):
    known = outcome.record["known_positions"]["priors"]
    assert known["refused"] == [truth.images.names[k] for k in OUTLIERS]
    assert known["sd"] == pytest.approx(SD, rel=0.3)
    error = np.linalg.norm(camera_centres(outcome.refined) - centres, axis=1)
    assert error.max() < 2 * SD
    assert outcome.record["n_observations"] == len(outcome.inliers) == truth.n_observations
    assert outcome.record["inlier_ratio"] == pytest.approx(0.9, abs=0.02)


def test_known_standard_deviations_give_the_same_result(outcome, truth, centres):
    fixed = noisy_priors(truth, centres, SD)
    same = colmap.refine(disturbed(truth), priors=fixed)
    np.testing.assert_allclose(camera_centres(same.refined), camera_centres(outcome.refined), atol=0.02)
    assert same.record["known_positions"]["priors"]["noise"] == pytest.approx(1, rel=0.4)


def test_a_rig_keeps_its_scale_when_georegistered():
    model = rig_model(n_frames=8, noise=0.3, camera_models=("SIMPLE_PINHOLE",) * 2)
    fit = (1.0, TURN, np.array([10.0, 0.0, -5.0]))
    target = camera_centres(in_frame(model, fit))
    xyz = target + 0.01 * np.random.default_rng(1).normal(size=target.shape)
    start = disturbed_frames(model)
    refined = colmap.refine(start, priors=Positions(model.images.names, xyz, np.full(xyz.shape, 0.01))).refined
    np.testing.assert_allclose(camera_centres(refined), target, atol=0.02)
    np.testing.assert_array_equal(refined.rigs.tvecs, start.rigs.tvecs)


def some_control(truth, n=6, sd=np.nan, wrong=()):
    xyz = in_frame(truth, FIT).points.xyz[:n].copy()
    xyz[list(wrong)] += 5.0
    o = truth.observations()
    used = (o.point < n) & (o.image % 4 == 0)
    images = tuple(truth.images.names[i] for i in o.image[used])
    points = Positions(tuple("ABCDEFGH"[:n]), xyz, np.full((n, 3), sd))
    return Control(points, images, o.point[used], truth.images.xys[o.feature[used]])


def test_control_points_are_added_and_removed(truth):
    control = some_control(truth)
    model, added = with_control(truth, control)
    assert model.n_observations == truth.n_observations + len(control.images)
    o = model.observations()
    is_control = added.observations(model)
    np.testing.assert_array_equal(model.images.xys[o.feature[is_control]], model.images.xys[added.features])
    assert np.bincount(o.point[is_control])[added.n_points :].tolist() == [5] * 6
    triangulated_xyz = triangulated(model, added).points.xyz
    np.testing.assert_allclose(triangulated_xyz[added.n_points :], truth.points.xyz[:6], atol=0.02)
    back = without_control(model, added)
    for name in ("starts", "xys", "point_ids"):
        np.testing.assert_array_equal(getattr(back.images, name), getattr(truth.images, name))
    np.testing.assert_array_equal(back.points.ids, truth.points.ids)


@pytest.mark.parametrize("sd", [np.nan, 0.01])
def test_control_points_determine_the_frame(truth, centres, sd):
    outcome = colmap.refine(disturbed(truth), control=some_control(truth, sd=sd, wrong=[2]))
    assert np.linalg.norm(camera_centres(outcome.refined) - centres, axis=1).max() < 0.1
    known = outcome.record["known_positions"]
    lost = [p["name"] for p in known["control_points"] if p["n_refused"] == p["n_observations"]]
    assert (lost if np.isnan(sd) else known["control"]["refused"]) == ["C"]
    assert len(outcome.refined.points) == len(outcome.covariances.arrays["point_covariances"]) == len(truth.points)
    assert (reprojection_norms(outcome.refined) <= 1.5).mean() > 0.85


def test_the_command_reads_positions(tmp_path, capsys, truth, centres):
    write_model(tmp_path / "m", disturbed(truth))
    table = written(tmp_path / "gps.csv", noisy_priors(truth, centres))
    out, record_file = tmp_path / "out", tmp_path / "run.json"
    arguments = ["solve", tmp_path / "m", "--priors", table, "--output", out, "--json", record_file]
    assert main([str(a) for a in arguments]) == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "Positions of images: 17 of 20 are inliers, 3 are outliers." in text
    assert f"Outliers: {', '.join(truth.images.names[k] for k in OUTLIERS)}." in text
    known = json.loads(record_file.read_text())["known_positions"]
    assert len(known["priors"]["refused"]) == 3
    assert known["similarity"]["scale"] == pytest.approx(3, rel=0.02)
    assert np.linalg.norm(camera_centres(read_model(out)) - centres, axis=1).max() < 2 * SD


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--hold", "points"], "cannot be combined with hold points"),
        (["--gauge", "fixed"], "cannot be combined with gauge fixed"),
        (["--checkpoint", "c.npz"], "cannot be combined with a checkpoint"),
    ],
)
def test_contradictory_options_are_rejected(tmp_path, capsys, monkeypatch, truth, centres, more, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(asker, "solve", lambda *args, **settings: pytest.fail("solved nevertheless"))
    write_model(tmp_path / "m", truth)
    written(tmp_path / "gps.csv", noisy_priors(truth, centres))
    assert main(["solve", "m", "--priors", "gps.csv", *more]) == 2
    assert message in capsys.readouterr().err


def test_positions_of_other_images_are_rejected(truth, centres, outcome):
    fixed = noisy_priors(truth, centres)
    with pytest.raises(ValueError, match=r"of the model is 'séq/000.jpg', that of the positions 'x0'"):
        colmap.refine(disturbed(truth), priors=Positions(tuple(f"x{k}" for k in range(N)), fixed.xyz, fixed.sds))
    with pytest.raises(ValueError, match="2 known positions belong to this model"):
        colmap.refine(disturbed(truth), priors=fixed.taken(np.arange(2)))
