"""Rigs of COLMAP models: files, problems and bundle adjustment, compared with pycolmap if it is installed."""

import json
from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.model import ColmapModel, camera_poses
from asker.applications.colmap.problem import colmap_problem
from asker.applications.colmap.reprojection_error import camera_centres, reprojection_norms
from asker.applications.colmap.rigs import composed, frame_poses, members, rigs_of, sensor_poses
from asker.cli import main
from asker.io.files import FileError
from asker.problem.problem import ProblemError
from colmap_models import disturbed_frames, rig_model, some_model

pytestmark = pytest.mark.slow


@pytest.fixture
def pycolmap():
    return pytest.importorskip("pycolmap")


@pytest.fixture(scope="module")
def start() -> ColmapModel:
    return disturbed_frames(rig_model(noise=0.5, camera_models=("SIMPLE_PINHOLE",) * 2), baseline=0.01)


def assert_same_rigs(a: ColmapModel, b: ColmapModel, atol: float = 0.0) -> None:
    left, right = rigs_of(a), rigs_of(b)
    for one, other in ((left, right), (left.frames, right.frames)):
        for name, value in vars(one).items():
            if name != "frames":
                np.testing.assert_allclose(value, getattr(other, name), rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("binary", [True, False])
def test_rigs_read_back_bit_for_bit(tmp_path, start, binary):
    write_model(tmp_path / "m", start, binary)
    found = read_model(tmp_path / "m")
    assert_same_rigs(found, start)
    np.testing.assert_array_equal(found.images.qvecs, start.images.qvecs)
    write_model(tmp_path / "n", found, binary)
    for path in (tmp_path / "m").iterdir():
        assert path.read_bytes() == (tmp_path / "n" / path.name).read_bytes()


@pytest.mark.parametrize("binary", [True, False])
def test_pycolmap_reads_our_rigs_and_we_read_its(tmp_path, pycolmap, start, binary):
    write_model(tmp_path / "ours", start, binary)
    r = pycolmap.Reconstruction(tmp_path / "ours")
    assert r.is_valid()
    assert (r.num_rigs(), r.num_frames(), r.num_reg_images()) == (2, 6, 11)
    for id, pose in zip(start.images.ids, camera_poses(start), strict=True):
        np.testing.assert_allclose(r.image(id).cam_from_world().matrix(), pose, atol=1e-13)
    (tmp_path / "theirs").mkdir()
    (r.write_binary if binary else r.write_text)(tmp_path / "theirs")
    assert_same_rigs(sorted_rigs(read_model(tmp_path / "theirs")), start, 1e-13)


def sorted_rigs(model: ColmapModel) -> ColmapModel:
    """Return the model with its rigs sorted by id; pycolmap writes them in any order."""
    assert model.rigs is not None
    rigs = model.rigs
    if rigs.ids.tolist() == [31, 32]:
        return model
    order = np.array([1, 2, 3, 0])  # the last rig has one sensor
    each = {name: getattr(rigs, name)[order] for name in ("kinds", "sensor_ids", "has_pose", "qvecs", "tvecs")}
    return replace(model, rigs=replace(rigs, ids=rigs.ids[::-1], starts=np.array([0, 3, 4]), **each))


def test_a_synthetic_rig_of_pycolmap_is_read_and_solved(tmp_path, pycolmap):
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 2, 3, 2, 20
    reconstruction = pycolmap.synthesize_dataset(options)
    for write in (reconstruction.write_text, reconstruction.write_binary):
        write(tmp_path)
        model = read_model(tmp_path)
        assert (len(model.rigs), len(model.rigs.frames), len(model.images)) == (2, 4, 12)
        assert np.median(reprojection_norms(model)) < 1e-6
        assert len(colmap_problem(model).poses) == 4


@pytest.mark.parametrize("binary", [True, False])
def test_an_image_with_a_pose_outside_its_rig_is_named(tmp_path, start, binary):
    tvecs = start.images.tvecs.copy()
    tvecs[7] += 0.01
    moved = replace(start, images=replace(start.images, tvecs=tvecs))
    message = "the pose of image 101 disagrees with those of frame 201 and its sensor"
    with pytest.raises(ValueError, match=message):
        write_model(tmp_path / "m", moved, binary)
    with pytest.raises(ProblemError, match=message):
        colmap_problem(moved)
    write_model(tmp_path / "m", start, binary)
    write_model(tmp_path / "n", replace(moved, rigs=None), binary)
    name = f"images.{'bin' if binary else 'txt'}"
    (tmp_path / "m" / name).write_bytes((tmp_path / "n" / name).read_bytes())
    with pytest.raises(FileError, match=message):
        read_model(tmp_path / "m")


BAD_RIGS = {
    "no such camera": ({"sensor_ids": [2, 8, 5, 2]}, {}, "there is no camera 8"),
    "a sensor twice": ({"sensor_ids": [2, 2, 5, 2]}, {}, "sensor 2 is repeated"),
    "a turned reference": (
        {"qvecs": [[0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]},
        {},
        "reference sensor 2 is not the identity",
    ),
    "an unknown pose": (
        {"has_pose": [True, False, False, True]},
        {},
        "image 100 belongs to sensor 9, whose pose in rig 31",
    ),
    "an unknown rig": ({}, {"rig_ids": [31, 31, 31, 31, 31, 33]}, "there is no rig 33"),
    "an image twice": ({}, {"data_ids": [5, 100, 7, 101, 9, 102, 11, 103, 13, 100, 15]}, "is in 2 frames"),
    "another camera": ({}, {"sensor_ids": [9, 2, *[2, 9] * 4, 2]}, "image 5 has another camera than its frame"),
    "a frame without images": ({}, {"kinds": [0] * 10 + [1]}, "rig 32 has no sensor 2"),
}


@pytest.mark.parametrize(("rigs", "frames", "message"), BAD_RIGS.values(), ids=BAD_RIGS)
def test_invalid_rigs_are_not_written(tmp_path, start, rigs, frames, message):
    arrays = {name: np.array(value) for name, value in rigs.items()}
    entries = {name: np.array(value) for name, value in frames.items()}
    bad = replace(start.rigs, **arrays, frames=replace(start.rigs.frames, **entries))
    with pytest.raises(ValueError, match=message):
        write_model(tmp_path / "m", replace(start, rigs=bad))
    assert list(tmp_path.iterdir()) == []


def test_image_poses_are_products_of_sensor_and_frame_poses():
    model = rig_model()
    where, poses = members(model), camera_poses(model)
    products = composed(sensor_poses(model.rigs)[where.sensor], frame_poses(model, poses)[where.frame])
    np.testing.assert_allclose(products, poses, atol=1e-15)
    assert where.frame.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]
    assert where.sensor.tolist() == [0, 0, 0, 0, 0, 3, 1, 1, 1, 1, 1]
    assert reprojection_norms(model).max() < 1e-9


@pytest.fixture(scope="module")
def solutions(start):
    """Return results and refined models with constant and with free sensor poses."""
    results = {}
    for refine_rigs in (False, True):
        made = colmap_problem(start, asker.Quadratic(1.0), refine_rigs=refine_rigs)
        result = asker.solve(made.problem, asker.IRLS(), tol=1e-12)
        results[refine_rigs] = result, made.refined(result.values)
    return results


@pytest.mark.parametrize("refine_rigs", [False, True])
def test_bundle_adjustment_of_a_rig_has_the_cost_of_pycolmap(tmp_path, pycolmap, start, solutions, refine_rigs):
    write_model(tmp_path / "m", start)
    r = pycolmap.Reconstruction(tmp_path / "m")
    config = pycolmap.BundleAdjustmentConfig()
    for id in r.images:
        config.add_image(id)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = options.refine_focal_length = options.refine_extra_params = False
    options.refine_sensor_from_rig = refine_rigs
    options.ceres.solver_options.max_num_iterations = 300
    theirs = pycolmap.create_default_bundle_adjuster(options, config, r).solve().ceres_summary
    result, refined = solutions[refine_rigs]
    assert result.initial_cost == pytest.approx(theirs.initial_cost, rel=1e-9)
    assert result.cost == pytest.approx(theirs.final_cost, rel=1e-6)
    write_model(tmp_path / "refined", refined)
    again = pycolmap.Reconstruction(tmp_path / "refined")
    again.update_point_3d_errors()
    np.testing.assert_allclose([again.point3D(id).error for id in refined.points.ids], refined.points.errors, atol=1e-9)


@pytest.mark.parametrize("refine_rigs", [False, True])
def test_a_refined_rig_is_consistent(solutions, start, refine_rigs):
    """Alignment changes no reprojection, and image poses agree with those of frames and sensors."""
    result, refined = solutions[refine_rigs]
    norms = reprojection_norms(refined)
    assert (norms**2).sum() / 2 == pytest.approx(result.cost, rel=1e-9)
    made = colmap_problem(refined)  # rejects images with poses outside their rig
    assert len(made.poses) == 6
    assert (refined.rigs.tvecs != start.rigs.tvecs).any() == refine_rigs
    assert (refined.rigs.qvecs[[0, 2, 3]] == start.rigs.qvecs[[0, 2, 3]]).all()


def test_free_sensor_poses_approach_the_truth(solutions):
    """The initial sensor position has an error of 0.01; the refined one is closer, up to scale."""
    truth = rig_model().rigs.tvecs[1]
    _, refined = solutions[True]
    centres, true = camera_centres(refined), camera_centres(rig_model())
    scale = np.linalg.norm(true[0] - true[3]) / np.linalg.norm(centres[0] - centres[3])
    assert np.linalg.norm(scale * refined.rigs.tvecs[1] - truth) < 0.003


def test_models_without_rigs_have_a_frame_for_each_image():
    model = some_model(("PINHOLE",))
    made = colmap_problem(model)
    assert made.sensors is None
    np.testing.assert_array_equal(made.members.frame, np.arange(len(model.images)))
    with pytest.raises(ProblemError, match="no sensor poses to refine"):
        colmap_problem(model, refine_rigs=True)


def test_solve_reads_a_rig(tmp_path, capsys, start):
    write_model(tmp_path / "m", start)
    out, record_file = tmp_path / "out", tmp_path / "run.json"
    options = ("--refine-rigs", "--kernel", "quadratic", "--output", str(out), "--json", str(record_file))
    assert main(["solve", str(tmp_path / "m"), *options]) == 0
    text = capsys.readouterr().out
    assert "6 frames of 2 rigs" in text
    assert "refine poses and rigs" in text
    record = json.loads(record_file.read_text())
    assert (record["refine_rigs"], record["n_frames"], record["n_images"]) == (True, 6, 11)
    assert len(read_model(out).rigs.frames) == 6
