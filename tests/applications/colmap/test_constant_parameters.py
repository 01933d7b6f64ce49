"""Constant parameters of a COLMAP model: words, masks, and that constant parameters do not change."""

from dataclasses import replace

import numpy as np
import pytest

import asker
from asker.applications.colmap.constant_parameters import ConstantPositions, ConstantRotations, constant_parameters
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.model import camera_poses
from asker.applications.colmap.problem import colmap_problem
from asker.applications.colmap.reprojection_error import camera_centres
from asker.cli import main
from asker.io.files import FileError
from colmap_models import disturbed, rig_model, some_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    model = disturbed(some_model(("SIMPLE_RADIAL", "SIMPLE_RADIAL"), n_images=6, n_points=40, noise=0.3))
    names = ("a/1.jpg", "a/2.jpg", "a/[3].jpg", "b/1.jpg", "b/2.jpg", "b/3.jpg")
    return replace(model, images=replace(model.images, names=names))


@pytest.mark.parametrize(
    ("hold", "images"),
    [
        (["images=a/1.jpg"], [0]),
        (["images=a/*"], [0, 1, 2]),
        (["images=a/[3].jpg"], [2]),
        (["images=?/1.jpg", 13], [0, 3, 4]),
        (["images"], [0, 1, 2, 3, 4, 5]),
        (["rotations", "positions"], [0, 1, 2, 3, 4, 5]),
    ],
    ids=str,
)
def test_images_are_selected_by_name_pattern_or_id(model, hold, images):
    assert np.flatnonzero(constant_parameters(model, hold).images).tolist() == images


def test_names_are_read_from_a_file(model, tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("a/1.jpg\n\nb/*\n")
    assert np.flatnonzero(constant_parameters(model, [f"images=@{path}"]).images).tolist() == [0, 3, 4, 5]
    path.write_text("a/1.jpg\nc/*\n")
    with pytest.raises(FileError, match=r"names.txt:2: none of the images matches 'c/\*'"):
        constant_parameters(model, [f"images=@{path}"])
    with pytest.raises(FileError, match=r"none\.txt: "):
        constant_parameters(model, [f"images=@{tmp_path}/none.txt"])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("images=c*", r"none of the images matches 'c\*'"),
        ("cameras=3", "none of the cameras matches '3'"),
        ("image=a", "'image=a' is not known; expected images, cameras, points"),
        ("k9", "'k9' is not known"),
        ("rotations=a", "'rotations=a' is not known"),
        (7000, "there is no image 7000"),
    ],
)
def test_a_word_without_a_match_is_named_in_the_error(model, word, message):
    with pytest.raises(ValueError, match=message):
        colmap_problem(model, hold=[word])


def test_parameters_are_selected_by_name_and_by_camera(model):
    def free(hold, refine="all"):
        part = colmap_problem(model, refine=refine, hold=hold, principal_point=refine == "all").intrinsics
        return part["SIMPLE_RADIAL"].free.tolist()

    assert free([]) == [0, 1, 2, 3]
    assert free(["principal-point"]) == [0, 3]
    assert free(["k"]) == free(["distortion"]) == [0, 1, 2]
    assert free(["focal"]) == [1, 2, 3]
    assert free(["cameras"]) == []
    one = colmap_problem(model, refine="focal", hold=["cameras=5"]).intrinsics["SIMPLE_RADIAL"]
    assert one.free_variables.fixed.tolist() == [False, True]


def solved(model, **more):
    made = colmap_problem(model, asker.Cauchy(1.0), **more)
    return made.refined(asker.solve(made.problem, asker.IRLS(), max_iterations=5).values)


def test_rotations_or_positions_are_constant(model):
    turned = solved(model, hold=["positions"])
    np.testing.assert_allclose(camera_centres(turned), camera_centres(model), atol=1e-12)
    assert (turned.images.qvecs != model.images.qvecs).any(axis=1).all()
    shifted = solved(model, hold=["rotations"])
    np.testing.assert_allclose(camera_poses(shifted)[:, :, :3], camera_poses(model)[:, :, :3], atol=1e-15)
    assert (shifted.images.tvecs != model.images.tvecs).any(axis=1).all()


def test_steps_with_constant_rotations_and_with_constant_positions():
    row = np.concatenate([np.eye(3).ravel(), [1.0, 2.0, 3.0]])
    step = np.array([0.1, -0.2, 0.3])
    assert (ConstantRotations().retract(row, step) == [*row[:9], 1.1, 1.8, 3.3]).all()
    moved = ConstantPositions().retract(row, step)
    R, t = moved[:9].reshape(3, 3), moved[9:]
    np.testing.assert_allclose(R.T @ t, [1, 2, 3], atol=1e-15)


def test_constant_points_fix_the_frame(model):
    refined = solved(model, hold=["points"])
    assert (refined.points.xyz == model.points.xyz).all()
    assert (refined.images.tvecs != model.images.tvecs).all()


def test_a_constant_image_fixes_its_frame():
    made = colmap_problem(rig_model(), hold=["images=right/001.jpg"])
    assert np.flatnonzero(made.poses.fixed).tolist() == [1]


def test_the_command_keeps_parameters_constant(model, tmp_path, capsys):
    write_model(tmp_path / "m", model)
    hold = ("--hold", "images=a/*", "--hold", "k", "--refine", "all")
    options = ("--kernel", "cauchy", "--iterations", "5", "--output", str(tmp_path / "out"))
    assert main(["solve", str(tmp_path / "m"), *hold, *options]) == 0
    assert "constant: images=a/* k" in capsys.readouterr().out
    found = read_model(tmp_path / "out")
    unchanged = (found.images.tvecs == model.images.tvecs).all(axis=1)
    assert unchanged.tolist() == [True, True, True, False, False, False]
    params = np.array(found.cameras.params) != np.array(model.cameras.params)
    assert params.any(axis=0).tolist() == [True, False, False, False]
