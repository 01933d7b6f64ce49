"""Models from pycolmap and from arrays."""

import numpy as np
import pytest

from asker.applications import colmap
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.rigs import rigs_of
from colmap_models import disturbed, disturbed_frames, rig_model, some_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    return some_model(("PINHOLE",), n_images=4, n_points=20, noise=0.3)


def arrays_of(model):
    """Return poses, K, points and tracks (n_images, n_points, 2)."""
    fx, fy, cx, cy = model.cameras.params[0]
    o = model.observations()
    tracks = np.full((len(model.images), len(model.points), 2), np.nan)
    tracks[o.image, o.point] = model.images.xys[o.feature]
    K = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    return colmap.camera_poses(model), K, model.points.xyz, tracks


def test_the_model_from_the_arrays_of_a_model_is_equal(model, tmp_path):
    poses, K, points, tracks = arrays_of(model)
    model_again = colmap.from_arrays(poses, K, points, tracks, sizes=(1024, 768))
    expected = np.sort(colmap.reprojection_norms(model))
    np.testing.assert_allclose(np.sort(colmap.reprojection_norms(model_again)), expected, atol=1e-9)
    assert (len(model_again.cameras), model_again.n_observations) == (1, model.n_observations)
    assert model_again.cameras.sizes.tolist() == [[1024, 768]]
    write_model(tmp_path / "m", model_again)
    assert read_model(tmp_path / "m").n_observations == model.n_observations
    np.testing.assert_allclose(model_again.points.errors.mean(), expected.mean(), rtol=1e-9)


def test_arrays_may_be_lists_of_observations_and_many_cameras(model):
    poses, K, points, tracks = arrays_of(model)
    four = np.concatenate([poses, np.tile([[[0.0, 0, 0, 1]]], (4, 1, 1))], axis=1)
    image, point = np.nonzero(np.isfinite(tracks[:, :, 0]))
    order = np.random.default_rng(0).permutation(len(image))
    listed = image[order], point[order], tracks[image, point][order]
    listed_model = colmap.from_arrays(four, np.tile(K, (4, 1, 1)), points, listed, names=list("abcd"))
    assert (len(listed_model.cameras), listed_model.images.names) == (4, ("a", "b", "c", "d"))
    again = colmap.from_arrays(
        poses, [900, 910, 512, 384, 0, 0, 0, 0], points, tracks, camera_model="OPENCV", rgb=np.full((20, 3), 7)
    )
    for one in (listed_model, again):
        expected = np.sort(colmap.reprojection_norms(model))
        np.testing.assert_allclose(np.sort(colmap.reprojection_norms(one)), expected, atol=1e-9)
    assert again.points.rgb.max() == 7
    assert again.cameras.sizes.tolist() == [[1024, 768]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"poses": np.zeros((4, 4, 3))}, r"poses has shape \(4, 4, 3\), expected \(n, 3, 4\) or \(n, 4, 4\)"),
        ({"points": np.zeros((3, 2))}, r"points has shape \(3, 2\), expected \(n, 3\)"),
        ({"points": np.full((20, 3), np.nan)}, r"points holds NaN or infinity at index \[0, 0\]"),
        ({"intrinsics": np.eye(4)}, r"intrinsics has shape \(4, 4\), expected \(3, 3\)"),
        ({"intrinsics": np.eye(3) + np.eye(3, k=1)}, "intrinsics have a skew"),
        ({"camera_model": "PERFECT"}, "camera_model must be one of SIMPLE_PINHOLE"),
        ({"tracks": np.zeros((4, 3, 2))}, r"tracks has shape \(4, 3, 2\), expected \(4, 20, 2\)"),
        ({"tracks": ([0], [20], [[1, 2]])}, r"tracks\[1\] has indices from 20 to 20, expected 0 to 19"),
        ({"tracks": ([0.5], [2], [[1, 2]])}, r"tracks\[0\] is float64 \(1,\), expected indices"),
        ({"names": ["a"]}, "names has 1 entries, expected 4"),
        ({"sizes": (3, 4, 5)}, r"sizes has shape \(3,\)"),
    ],
    ids=str,
)
def test_invalid_arrays_are_named_in_the_error(model, change, message):
    given = dict(zip(("poses", "intrinsics", "points", "tracks"), arrays_of(model), strict=True)) | change
    with pytest.raises(ValueError, match=message):
        colmap.from_arrays(**given)


def test_a_reconstruction_is_refined_as_a_reconstruction(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    start = disturbed(some_model(("SIMPLE_PINHOLE",), n_images=6, noise=0.3))
    write_model(tmp_path / "m", start)
    outcome = colmap.refine(pycolmap.Reconstruction(tmp_path / "m"))
    same = colmap.refine(start)
    assert isinstance(outcome.refined, pycolmap.Reconstruction)
    assert outcome.record["cost"] == pytest.approx(same.record["cost"], rel=1e-6)
    assert outcome.refined.compute_num_observations() == start.n_observations
    assert outcome.clean.compute_num_observations() == same.clean.n_observations < start.n_observations
    assert outcome.refined.compute_mean_reprojection_error() == pytest.approx(
        same.refined.points.errors.mean(), rel=0.01
    )


def test_rigs_are_preserved_by_conversion_to_pycolmap():
    pytest.importorskip("pycolmap")
    model = disturbed_frames(rig_model())
    back = colmap.from_pycolmap(colmap.to_pycolmap(model))
    assert rigs_of(back).frames.ids.tolist() == rigs_of(model).frames.ids.tolist()
    for id, pose in zip(
        model.images.ids, colmap.camera_poses(model), strict=True
    ):  # pycolmap orders images differently
        np.testing.assert_allclose(colmap.camera_poses(back)[back.images.ids == id], pose[None], atol=1e-13)
