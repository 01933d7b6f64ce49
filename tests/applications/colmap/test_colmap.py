"""COLMAP models: files, projections and bundle adjustment, compared with pycolmap if it is installed."""

import json
import re
import resource
import struct
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asker
from asker.applications.colmap.cameras import depth, project, reprojection
from asker.applications.colmap.formats.folder import read_model, write_model
from asker.applications.colmap.inliers import inlier_tables, without_outliers
from asker.applications.colmap.model import CAMERA_MODELS, NO_POINT, ColmapModel, Images, Points, camera_poses
from asker.applications.colmap.problem import colmap_problem
from asker.applications.colmap.reprojection_error import camera_centres, reprojection_norms
from asker.cli import main
from asker.geometry.rotations import matrix_from_quaternion, quaternion_from_matrix
from asker.io.files import FileError
from asker.problem.problem import ProblemError
from asker.tracing.array_namespace import float64
from colmap_models import PARAMS, disturbed, some_model

pytestmark = pytest.mark.slow

PARTS = ("cameras", "images", "points3D", "rigs", "frames")


@pytest.fixture
def pycolmap():
    # imported after asker: the wheel breaks Python's zlib if it is loaded first
    return pytest.importorskip("pycolmap")


def assert_same(a: ColmapModel, b: ColmapModel) -> None:
    for part in ("cameras", "images", "points"):
        for name, left in vars(getattr(a, part)).items():
            right = getattr(getattr(b, part), name)
            for x, y in zip(left, right, strict=True):
                np.testing.assert_array_equal(x, y, err_msg=f"{part}.{name}")
    for name, left, right in zip(a.tracks()._fields, a.tracks(), b.tracks(), strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


def theirs(pycolmap, model: ColmapModel, folder):
    """Return the model read by pycolmap."""
    write_model(folder, model)
    return pycolmap.Reconstruction(folder)


# ---- files


@pytest.mark.parametrize("binary", [True, False])
def test_a_written_model_reads_back_bit_for_bit(tmp_path, binary):
    model = some_model()
    model.points.xyz[0] = -0.0, 5e-324, np.finfo(float).max
    write_model(tmp_path / "m", model, binary)
    assert_same(read_model(tmp_path / "m"), model)
    for part in ("rigs", "frames"):  # models of older versions have none
        (tmp_path / "m" / f"{part}.{'bin' if binary else 'txt'}").unlink()
    assert_same(read_model(tmp_path / "m"), model)


@pytest.mark.parametrize("binary", [True, False])
def test_a_model_without_images_or_points_survives(tmp_path, binary):
    model = some_model()
    none = slice(0, 0)
    images = {name: value[none] for name, value in vars(model.images).items()} | {"starts": np.zeros(1, int)}
    points = {name: value[none] for name, value in vars(model.points).items()}
    empty = ColmapModel(model.cameras, Images(**images), Points(**points))
    write_model(tmp_path / "m", empty, binary)
    assert_same(read_model(tmp_path / "m"), empty)
    no_features = replace(
        model.images, starts=0 * model.images.starts, xys=np.empty((0, 2)), point_ids=np.empty(0, int)
    )
    write_model(tmp_path / "n", ColmapModel(model.cameras, no_features, Points(**points)), binary)
    assert len(read_model(tmp_path / "n").images) == len(model.images)


def test_tracks_are_the_inverse_of_the_point_ids():
    model = some_model()
    tracks = model.tracks()
    for j in range(len(model.points)):
        for i, k in zip(*(x[tracks.starts[j] : tracks.starts[j + 1]] for x in tracks[1:]), strict=True):
            image = model.images.ids.tolist().index(i)
            assert model.images.point_ids[model.images.starts[image] + k] == model.points.ids[j]
    assert len(tracks.features) == model.n_observations


@pytest.mark.parametrize("binary", [True, False])
def test_a_model_that_pycolmap_writes_is_read(tmp_path, pycolmap, binary):
    model = some_model()
    (tmp_path / "theirs").mkdir()
    reconstruction = theirs(pycolmap, model, tmp_path / "ours")
    (reconstruction.write_binary if binary else reconstruction.write_text)(tmp_path / "theirs")
    theirs_read = read_model(tmp_path / "theirs")
    np.testing.assert_allclose(theirs_read.images.qvecs, model.images.qvecs, atol=1e-15)  # pycolmap normalises them
    assert_same(replace(theirs_read, images=replace(theirs_read.images, qvecs=model.images.qvecs)), model)


@pytest.mark.parametrize("binary", [True, False])
def test_a_model_that_we_write_is_read_by_pycolmap(tmp_path, pycolmap, binary):
    model = some_model()
    write_model(tmp_path / "m", model, binary)
    r = pycolmap.Reconstruction(tmp_path / "m")
    assert r.is_valid()
    for k, id in enumerate(model.cameras.ids):
        camera = r.camera(id)
        assert (camera.model.name, camera.width, camera.height) == (model.cameras.models[k], 1024, 768)
        np.testing.assert_array_equal(camera.params, model.cameras.params[k])
    poses = camera_poses(model)
    for k, id in enumerate(model.images.ids):
        image = r.image(id)
        own = slice(*model.images.starts[k : k + 2])
        assert (image.name, image.camera_id) == (model.images.names[k], model.images.camera_ids[k])
        np.testing.assert_allclose(image.cam_from_world().matrix(), poses[k], atol=1e-14)
        np.testing.assert_array_equal([p.xy for p in image.points2D], model.images.xys[own])
        assert [p.has_point3D() for p in image.points2D] == (model.images.point_ids[own] != NO_POINT).tolist()
    tracks = model.tracks()
    for k, id in enumerate(model.points.ids):
        point = r.point3D(id)
        np.testing.assert_array_equal(point.xyz, model.points.xyz[k])
        np.testing.assert_array_equal(point.color, model.points.rgb[k])
        assert point.error == model.points.errors[k]
        assert point.track.length() == np.diff(tracks.starts)[k]


def test_the_camera_models_are_those_of_pycolmap(pycolmap):
    for number, (name, params) in enumerate(CAMERA_MODELS.items()):
        model = getattr(pycolmap.CameraModelId, name)
        assert model.value == number
        camera = pycolmap.Camera.create_from_model_id(1, model, 500.0, 640, 480)
        assert re.findall(r"\w+", camera.params_info) == params.split()


# ---- bad files


def put(part, at, bytes_):
    def mutate(data):
        return data[:at] + bytes_ + data[at + len(bytes_) :]

    return part, mutate


def edit(part, old, new):
    def mutate(data):
        assert re.search(old, data)
        return re.sub(old, new, data, count=1)

    return part, mutate


u8, f8, u4 = (lambda x, kind=kind: struct.pack(f"<{kind}", x) for kind in ("Q", "d", "I"))
NAN, HUGE = f8(float("nan")), u8(1 << 60)
BAD_BINARY = {  # the model has one SIMPLE_RADIAL camera, two images and three points
    "empty": ("cameras", lambda data: b"", "at byte 0: the file ends too early"),
    "many cameras": (*put("cameras", 0, HUGE), r"at byte 0: .* 1152921504606846976 cameras announced"),
    "many images": (*put("images", 0, HUGE), r"at byte 0: .* images announced"),
    "many points": (*put("points3D", 0, HUGE), r"at byte 0: .* points announced"),
    "many rigs": (*put("rigs", 0, HUGE), r"at byte 0: .* rigs announced"),
    "many frames": (*put("frames", 0, HUGE), r"at byte 0: .* frames announced"),
    "many features": (*put("images", 8 + 64 + 13, HUGE), r"at byte 85: .* features announced"),
    "a long track": (*put("points3D", 8 + 43, HUGE), r"at byte 8: .* track of 1152921504606846976"),
    "truncated cameras": ("cameras", lambda data: data[:-1], "at byte 32: .* the parameters: 32 bytes expected, 31"),
    "truncated images": ("images", lambda data: data[:-1], "too early: 6 features"),
    "truncated points": ("points3D", lambda data: data[:-1], "too early: a point with a track of 2"),
    "truncated frames": ("frames", lambda data: data[:-1], "too early: a frame of 1 announced, 15 bytes remain"),
    "more cameras": ("cameras", lambda data: data + b"x", "at byte 64: expected the end of the file, 1 bytes"),
    "no end of a name": ("images", lambda data: data.replace(b"\0", b"\1"), "announced"),
    "unknown camera model": (*put("cameras", 12, u4(99)), "at byte 8: there is no camera model 99"),
    "negative camera model": (*put("cameras", 12, u4(2**32 - 1)), "there is no camera model -1"),
    "negative width": (*put("cameras", 16, u8(2**64 - 1)), "at byte 8: the width or height"),
    "NaN in a camera": (*put("cameras", 32, NAN), "at byte 8: a parameter of this SIMPLE_RADIAL camera is not finite"),
    "NaN in a pose": (*put("images", 12, NAN), "at byte 8: the pose is not finite"),
    "NaN in a feature": (*put("images", 8 + 64 + 13 + 8, NAN), "at byte 8: feature 0 is not finite"),
    "NaN in a point": (*put("points3D", 16, NAN), "at byte 8: the position or the error"),
    "a quaternion of zeros": (*put("images", 12, bytes(32)), "at byte 8: the rotation"),
    "no such camera": (*put("images", 8 + 60, u4(77)), "at byte 8: there is no camera 77"),
    "no such point": (*put("images", 8 + 64 + 13 + 24, u8(78)), "at byte 8: feature 0 refers to point 78, which"),
    "a negative point": (*put("images", 8 + 64 + 13 + 24, u8(2**64 - 5)), "refers to point -5, which"),
    "no such image": (*put("points3D", 8 + 51, u4(79)), "at byte 8: the track refers to feature . of image 79, which"),
    "no such feature": (*put("points3D", 8 + 55, u4(80)), "feature 80 of image 5, which does not exist"),
    "another feature": (*put("points3D", 8 + 55, u4(5)), "which has another point or none"),
    "an id of none": (*put("cameras", 8, u4(2**32 - 1)), "the camera id 4294967295 is out of range"),
    "a rig of two": (*put("rigs", 12, u4(2)), "at byte 16: .*too early: 2 sensors announced, 8 bytes remain"),
    "a rig without": (*put("rigs", 12, u4(0)), "at byte 16: expected the end of the file"),
    "a rig of another sensor": (*put("rigs", 16, u4(1)), "at byte 8: rig 2 has no sensor 2"),
    "a rig of an unknown sensor": (*put("rigs", 16, u4(7)), "at byte 8: a sensor has an unknown kind"),
    "a rig of no camera": (*put("rigs", 20, u4(9)), "at byte 8: there is no camera 9"),
    "a frame of no rig": (*put("frames", 12, u4(9)), "at byte 8: there is no rig 9"),
    "a frame of no image": (*put("frames", 8 + 76, u8(9)), "at byte 8: there is no image 9"),
    "a frame of another camera": (*put("frames", 8 + 72, u4(9)), "image 5 has another camera than its frame"),
    "a frame with another pose": (
        *put("frames", 16, f8(0.25)),
        "the pose of image 5 disagrees with those of frame 5 and its",
    ),
    "NaN in a frame": (*put("frames", 16, NAN), "at byte 8: the pose is not finite"),
    "a frame twice": (*put("frames", 8 + 84 + 76, u8(5)), "image 5 is in 2 frames, expected one"),
    "a frame with another id twice": (*put("frames", 8 + 84, u4(5)), "the frame id 5 is repeated"),
}
BAD_TEXT = {
    "unknown camera model": (*edit("cameras", b"SIMPLE_RADIAL", b"PERFECT"), r":2: there is no camera model 'PERFECT'"),
    "a parameter too few": (*edit("cameras", rb" 0.05", b""), r":2: a SIMPLE_RADIAL camera has 4 parameters, got 3"),
    "a word": (*edit("cameras", b"1024", b"wide"), r":2: expected an integer, got 'wide'"),
    "an underscore": (*edit("cameras", b"1024", b"1_024"), r":2: expected an integer, got '1_024'"),
    "NaN": (*edit("cameras", rb"0\.05", b"nan"), r":2: expected a finite number, got 'nan'"),
    "overflow": (*edit("cameras", rb"0\.05", b"1e999"), r":2: expected a finite number, got '1e999'"),
    "past all integers": (*edit("cameras", b"1024", b"9" * 30), r":2: expected an integer, got '9{30}'"),
    "a short image": (*edit("images", rb"(\n5) .*", rb"\1 1 0"), r":3: an image has 3 words, expected 9 or more"),
    "features cut": (*edit("images", rb" -1\n", b"\n"), r":4: features have three words each"),
    "no features": ("images", lambda data: data.split(b"\n", 3)[0] + b"\n5 1 0 0 0 0 0 0 2 a", r":2: .*too early"),
    "an image twice": (*edit("images", rb"\n7 ", rb"\n5 "), r":5: the image id 5 is repeated"),
    "a short point": (*edit("points3D", rb"(\n10) .*", rb"\1 1 0"), r":2: a point has 3 words, expected 8 or more"),
    "half an entry": (*edit("points3D", rb" \d+\n", b"\n"), r":1: a track has two|:2: a track has two"),
    "a colour": (*edit("points3D", rb"(\n10 \S+ \S+ \S+) \d+", rb"\1 256"), r":2: a colour must be"),
    "a short track": (*edit("points3D", rb"(\n10( \S+){7}) \d+ \d+", rb"\1"), r":2: the track has 1 entries, but 2"),
    "a track twice": (
        *edit("points3D", rb"(\n10( \S+){7})( \d+ \d+)", rb"\1\3\3"),
        r":2: the track refers to a feature tw",
    ),
    "a rig of two": (*edit("rigs", b"2 1 CAMERA 2", b"2 2 CAMERA 2 CAMERA 3 0"), r":2: there is no camera 3"),
    "a rig cut": (*edit("rigs", b"2 1 CAMERA 2", b"2 2 CAMERA 2 CAMERA 3 1 1 0"), r":2: .*ends before sensor 2"),
    "an IMU": (*edit("rigs", b"2 1 CAMERA", b"2 1 IMU"), r"frames.txt:2: rig 2 has no sensor 2"),
    "a radar": (*edit("rigs", b"2 1 CAMERA", b"2 1 RADAR"), r":2: there is no kind of sensor 'RADAR'"),
    "a long rig": (*edit("rigs", b"2 1 CAMERA 2", b"2 1 CAMERA 2 9"), r":2: rig 2 has 1 sensors, but 1 words follow"),
    "a long frame": (
        *edit("frames", rb" 1 CAMERA 2 5\n", b" 2 CAMERA 2 5\n"),
        r":2: a frame with 2 entries has 13 words",
    ),
    "a negative frame": (*edit("frames", rb"\n5 ", b"\n-5 "), r":2: an id is out of range"),
}
BAD = [(".bin", *row) for row in BAD_BINARY.values()] + [(".txt", *row) for row in BAD_TEXT.values()]
IDS = [f"binary: {name}" for name in BAD_BINARY] + [f"text: {name}" for name in BAD_TEXT]


def tiny_model() -> ColmapModel:
    model = some_model(("SIMPLE_RADIAL",), n_images=2, n_points=3)
    return replace(model, images=replace(model.images, names=("images/a.jpg", "images/b.jpg")))


@pytest.mark.parametrize(("suffix", "part", "mutate", "message"), BAD, ids=IDS)
def test_an_invalid_file_is_rejected_with_its_location(tmp_path, suffix, part, mutate, message):
    write_model(tmp_path / "m", tiny_model(), suffix == ".bin")
    path = tmp_path / "m" / (part + suffix)
    path.write_bytes(mutate(path.read_bytes()))
    with pytest.raises(FileError, match=message) as caught:
        read_model(tmp_path / "m")
    assert str(caught.value).startswith(str(tmp_path / "m"))
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_rejected(tmp_path):
    with pytest.raises(FileError, match=r"no such folder"):
        read_model(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"a file, not a folder"):
        read_model(tmp_path / "file")
    with pytest.raises(FileError, match=r"no COLMAP model: missing cameras.bin, images.bin, points3D.bin"):
        read_model(tmp_path)
    write_model(tmp_path / "m", tiny_model(), binary=False)
    (tmp_path / "m" / "images.txt").unlink()
    with pytest.raises(FileError, match=r"no COLMAP model: missing images.txt"):
        read_model(tmp_path / "m")


BAD_MODELS = [
    ("images", "camera_ids", np.array([2, 3]), "there is no camera 3"),
    ("images", "qvecs", np.zeros((2, 4)), "quaternion of zeros"),
    ("images", "qvecs", np.ones((2, 3)), r"images.qvecs is float64 \(2, 3\)"),
    ("images", "starts", np.array([0, 9, 6]), "must increase"),
    ("images", "names", ("a",), "every image a name"),
    ("images", "names", ("a", "b\0"), "cannot be written"),
    ("cameras", "models", ("PERFECT",), "PERFECT"),
    ("cameras", "ids", np.array([-1]), "out of range"),
    ("points", "ids", np.array([10, 17, 17]), "point id 17 is repeated|does not exist"),
    ("points", "xyz", np.full((3, 3), np.inf), "not finite"),
]


@pytest.mark.parametrize(("part", "name", "value", "message"), BAD_MODELS)
def test_an_invalid_model_is_not_written(tmp_path, part, name, value, message):
    model = tiny_model()
    model = replace(model, **{part: replace(getattr(model, part), **{name: value})})
    with pytest.raises(ValueError, match=message):
        write_model(tmp_path / "m", model)
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_not_written_into_an_unsuitable_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="a model is a folder"):
        write_model(tmp_path / "file", tiny_model())
    with pytest.raises(FileError, match="there is no folder"):
        write_model(tmp_path / "none" / "m", tiny_model())
    write_model(tmp_path / "m", tiny_model())
    with pytest.raises(FileError, match=r"contains cameras\.bin, from a model in the other format"):
        write_model(tmp_path / "m", tiny_model(), binary=False)
    model = tiny_model()
    spaced = replace(model, images=replace(model.images, names=("a b.jpg", "c.jpg")))
    with pytest.raises(ValueError, match=r"'a b\.jpg' cannot be written"):
        write_model(tmp_path / "n", spaced, binary=False)
    write_model(tmp_path / "n", spaced)
    assert read_model(tmp_path / "n").images.names == ("a b.jpg", "c.jpg")


def test_large_counts_allocate_no_memory(tmp_path):
    """Counts are set to 2⁴⁰ one by one; the reading process is limited to 1 GiB."""
    write_model(tmp_path / "m", tiny_model())
    code = (
        "import sys\nfrom asker.applications.colmap.formats.folder import read_model\n"
        "from asker.io.files import FileError\n"
        "try:\n    read_model(sys.argv[1])\nexcept FileError as e:\n    print('rejected')\n"
    )
    for part, at in (("points3D", 0), ("points3D", 51), ("images", 0), ("images", 85), ("frames", 0)):
        path = tmp_path / "m" / f"{part}.bin"
        good = path.read_bytes()
        path.write_bytes(good[:at] + u8(1 << 40) + good[at + 8 :])
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "m"],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)),
        )
        assert done.stdout == "rejected\n", done.stderr
        path.write_bytes(good)


def mutations(draw, data: bytes) -> bytes:
    """Return the data with a few bytes changed, deleted or inserted."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        end = at + draw(st.sampled_from([0, 1, 4, 8, 24, 1000]))
        new = draw(
            st.one_of(st.binary(max_size=9), st.sampled_from([u8(2**64 - 1), NAN, HUGE, b" 1", b"\n", b"#", b"-1"]))
        )
        data = data[:at] + new + data[end:]
    return data


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    files = {}
    for binary, suffix in ((True, ".bin"), (False, ".txt")):
        write_model(folder / suffix, tiny_model(), binary)
        files |= {path: path.read_bytes() for path in sorted((folder / suffix).iterdir())}
    return files


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_rejected_or_read(fuzzed, data):
    path = data.draw(st.sampled_from(list(fuzzed)))
    path.write_bytes(mutations(data.draw, fuzzed[path]))
    message = ""
    try:
        model = read_model(path.parent)
    except FileError as e:
        message = str(e)
    finally:
        path.write_bytes(fuzzed[path])
    if message:
        assert message.startswith(str(path.parent))
    else:
        assert model.n_observations == len(model.tracks().features)
        assert np.isfinite(camera_poses(model)).all()


# ---- projections


def test_quaternions_and_matrices_agree():
    q = np.random.default_rng(0).normal(size=(50, 4))
    q[:4] = np.eye(4)
    R = matrix_from_quaternion(q)
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.broadcast_to(np.eye(3), R.shape), atol=1e-14)
    unit = q / np.linalg.norm(q, axis=1, keepdims=True)
    unit = np.where(unit[:, :1] < 0, -unit, unit)
    np.testing.assert_allclose(quaternion_from_matrix(R), unit, atol=1e-14)
    np.testing.assert_allclose(matrix_from_quaternion(q * 1e-200), R, atol=1e-14)


@pytest.mark.parametrize("name", CAMERA_MODELS)
def test_projections_agree_with_pycolmap(tmp_path, pycolmap, name):
    rng = np.random.default_rng(3)
    far = np.array([0.0, 0.0, 4.0])
    P = np.concatenate([rng.uniform(-2, 2, (200, 3)) + far, [[0, 0, 1], [1e-7, 0, 1], [1e-5, -1e-5, 2]]])
    params = np.array(PARAMS[name], float)
    camera = pycolmap.Camera(model=name, width=1024, height=768, params=params)
    ours = np.stack(project(name, params, *P.T), axis=1)
    np.testing.assert_allclose(ours, camera.img_from_cam(P), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CAMERA_MODELS)
def test_reprojection_errors_agree_with_pycolmap(tmp_path, pycolmap, name):
    """The residuals of NumPy and of the problem agree with pycolmap for whole models."""
    model = disturbed(some_model((name, name)))
    r = theirs(pycolmap, model, tmp_path / "m")
    seen = model.observations()
    expected = [
        r.image(model.images.ids[i]).project_point(model.points.xyz[j]) - model.images.xys[k]
        for i, j, k in zip(seen.image, seen.point, seen.feature, strict=True)
    ]
    atol = 1e-8 if name == "FOV" else 1e-9  # near the axis pycolmap uses a series of two terms
    np.testing.assert_allclose(reprojection_norms(model), np.linalg.norm(expected, axis=1), rtol=0, atol=atol)
    for refine in ("poses", "focal", "all"):
        made = colmap_problem(model, refine=refine)
        np.testing.assert_allclose(residuals(made), expected, rtol=0, atol=atol)


def residuals(made):
    """Return the initial residuals of the only factor group, computed by JAX."""
    import jax

    (f,) = made.problem.factors
    with float64():
        rows = [jax.vmap(s.variables.manifold.view)(s.variables.rows[s.index]) for s in f.slots]
        return np.asarray(jax.vmap(f.residual)(*rows, *f.data))


@pytest.mark.parametrize("name", CAMERA_MODELS)
def test_projections_are_smooth_at_the_axis(name):
    """Fisheye formulas divide by a radius of 0 at the axis."""
    import jax

    def pixel(x):
        return project(name, PARAMS[name], x, 0.0, 1.0)[0]

    with float64():
        slopes = [float(jax.grad(pixel)(x)) for x in (0.0, 0.9e-6, 1.1e-6)]
        far = (float(pixel(1e-4)) - float(pixel(-1e-4))) / 2e-4
    np.testing.assert_allclose(slopes, far, rtol=1e-6)


@pytest.mark.parametrize("x", [0.3e-3, 1e-3, 1.0001e-3, 0.3, 4.0])
def test_the_ratio_of_an_angle_to_its_tangent_is_continuous(x):
    exact = np.arctan(np.longdouble(x)) / np.longdouble(x)
    u, _ = project("SIMPLE_FISHEYE", [1.0, 0.0, 0.0], x, 0.0, 1.0)
    assert u == pytest.approx(float(exact * x), rel=1e-14)


PINHOLES = {
    "FOV": (900, 910, 512, 384, 1e-5),
    "SIMPLE_DIVISION": (900, 512, 384, 0),
    "DIVISION": (900, 910, 512, 384, 0),
    "EUCM": (900, 910, 512, 384, 0, 1),
    "FULL_OPENCV": (900, 910, 512, 384, *[0] * 8),
}


@pytest.mark.parametrize("name", PINHOLES)
def test_without_distortion_a_camera_is_a_pinhole(name):
    P = np.random.default_rng(0).uniform([[-1], [-1], [1]], [[1], [1], [3]], (3, 50))
    params = np.array(PINHOLES[name], float)
    n = 3 if name == "SIMPLE_DIVISION" else 4
    expected = project("PINHOLE" if n == 4 else "SIMPLE_PINHOLE", params[:n], *P)
    np.testing.assert_allclose(project(name, params, *P), expected, atol=1e-6)


def test_a_fisheye_without_distortion_is_equidistant():
    P = np.random.default_rng(0).uniform([[-1], [-1], [1]], [[1], [1], [3]], (3, 50))
    for name in ("OPENCV_FISHEYE", "THIN_PRISM_FISHEYE", "RAD_TAN_THIN_PRISM_FISHEYE", "FISHEYE"):
        params = np.zeros(len(CAMERA_MODELS[name].split()))
        params[:4] = 900, 910, 512, 384
        u, v = project(name, params, *P)
        r = np.hypot((u - 512) / 900, (v - 384) / 910)
        np.testing.assert_allclose(np.tan(r), np.hypot(P[0], P[1]) / P[2], atol=1e-12)


def test_a_spherical_camera_sees_behind_and_across_its_seam():
    params = np.array([1024.0, 512.0])
    behind = np.array([[0.01, 0.0, -1.0], [-0.01, 0.0, -1.0]]).T
    (right, left), v = project("EQUIRECTANGULAR", params, *behind)
    assert (right > 1022) & (left < 2)
    np.testing.assert_allclose(v, 256)
    du, _ = reprojection("EQUIRECTANGULAR", params, np.array([left, 256.0]), *behind[:, 0])
    assert abs(du) == pytest.approx(2 * 1024 * np.arctan(0.01) / (2 * np.pi))
    assert depth("EQUIRECTANGULAR", params, *behind).min() > 0


def test_a_division_model_sees_points_with_a_root():
    for k in (-0.1, 0.1):
        P = np.random.default_rng(0).uniform(-1, 1, (3, 500))
        seen = depth("SIMPLE_DIVISION", [1, 0, 0, k], *P) > 0
        u, v = project("SIMPLE_DIVISION", [1, 0, 0, k], *P[:, seen])
        back = 1 + k * (u * u + v * v)  # d/(1 + k‖d‖²) = (x, y)/z, without a division by z
        np.testing.assert_allclose(u * P[2, seen], P[0, seen] * back, atol=1e-9)
        assert seen.all() == (k < 0)


def test_points_behind_a_camera_are_no_inliers():
    model = some_model(("PINHOLE",))
    assert np.isfinite(reprojection_norms(model)).all()
    behind = replace(model, images=replace(model.images, tvecs=model.images.tvecs - (0, 0, 10)))
    assert np.isinf(reprojection_norms(behind)).all()


# ---- problems


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"refine": "some"}, "refine"),
        ({"gauge": "loose"}, "gauge"),
        ({"hold": [99]}, "no image 99"),
        ({"principal_point": True}, "requires refine='all'"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        colmap_problem(tiny_model(), **arguments)


def test_a_model_without_observations_is_rejected():
    model = tiny_model()
    images = replace(model.images, point_ids=np.full(len(model.images.xys), NO_POINT))
    with pytest.raises(ProblemError, match="no observations"):
        colmap_problem(replace(model, images=images))


def ceres_cost(pycolmap, folder, loss, tau, refine):
    """Return the initial and the final cost of pycolmap's bundle adjustment."""
    r = pycolmap.Reconstruction(folder)
    config = pycolmap.BundleAdjustmentConfig()
    for id in r.images:
        config.add_image(id)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    options.refine_focal_length = refine in ("focal", "all")
    options.refine_extra_params = refine == "all"
    options.refine_principal_point = False
    options.ceres.loss_function_type = loss
    options.ceres.loss_function_scale = tau
    options.ceres.solver_options.max_num_iterations = 300
    summary = pycolmap.create_default_bundle_adjuster(options, config, r).solve()
    return summary.ceres_summary.initial_cost, summary.ceres_summary.final_cost


@pytest.mark.parametrize(
    ("kernel", "loss", "refine"),
    [
        (asker.Quadratic(2.0), "TRIVIAL", "poses"),
        (asker.Cauchy(2.0), "CAUCHY", "poses"),
        (asker.Cauchy(2.0), "CAUCHY", "all"),
    ],
    ids=str,
)
def test_bundle_adjustment_has_the_cost_of_pycolmap(tmp_path, pycolmap, kernel, loss, refine):
    model = disturbed(some_model(("SIMPLE_RADIAL", "SIMPLE_RADIAL"), n_images=10, n_points=80, noise=0.7))
    write_model(tmp_path / "m", model)
    start, end = ceres_cost(pycolmap, tmp_path / "m", getattr(pycolmap.LossFunctionType, loss), 2.0, refine)
    made = colmap_problem(model, kernel, refine)
    result = asker.solve(made.problem, asker.IRLS(), tol=1e-9, relative_damping=made.relative_damping)
    assert result.initial_cost == pytest.approx(start, rel=1e-9)
    assert result.cost == pytest.approx(end, rel=1e-3)
    assert result.cost < 0.7 * start
    refined = made.refined(result.values)
    assert kernel.psi(reprojection_norms(refined) ** 2).sum() == pytest.approx(result.cost, rel=1e-9)
    moved = np.any(np.array(refined.cameras.params) != np.array(model.cameras.params), axis=0)
    assert moved.tolist() == ([True, False, False, True] if refine == "all" else [False] * 4)
    r = theirs(pycolmap, refined, tmp_path / "refined")
    before = [r.point3D(id).error for id in refined.points.ids]
    r.update_point_3d_errors()
    np.testing.assert_allclose(before, [r.point3D(id).error for id in refined.points.ids], atol=1e-9)


def test_several_camera_models_and_constant_poses():
    model = disturbed(some_model(("SIMPLE_RADIAL", "OPENCV_FISHEYE"), n_images=6))
    made = colmap_problem(model, asker.Cauchy(1.0), gauge="fixed", hold=[model.images.ids[3]])
    assert [f.name for f in made.problem.factors] == ["SIMPLE_RADIAL", "OPENCV_FISHEYE"]
    assert sorted(np.concatenate(made.observations)) == list(range(model.n_observations))
    result = asker.solve(made.problem, asker.IRLS(), max_iterations=20)
    assert result.cost < 0.5 * result.initial_cost
    refined = made.refined(result.values)
    still = (refined.images.qvecs == model.images.qvecs).all(axis=1) & (refined.images.tvecs == model.images.tvecs).all(
        axis=1
    )
    assert still.tolist() == [True, False, False, True, False, False]
    assert (refined.points.xyz != model.points.xyz).all()


def test_dropping_outliers_keeps_a_valid_model(tmp_path):
    model = some_model(("PINHOLE",), n_images=3, n_points=6)
    seen = model.observations()
    inliers = np.ones(model.n_observations, dtype=bool)
    inliers[np.flatnonzero(seen.point == 2)[:2]] = False  # one of three remains: the point is removed
    inliers[np.flatnonzero(seen.point == 4)[:1]] = False  # two remain: the point is kept
    left = without_outliers(model, inliers)
    assert left.points.ids.tolist() == [10, 17, 31, 38, 45]
    assert np.diff(left.tracks().starts).tolist() == [3, 3, 3, 2, 3]
    assert len(left.images.xys) == len(model.images.xys)
    write_model(tmp_path / "m", left)
    assert_same(read_model(tmp_path / "m"), left)
    with pytest.raises(ValueError, match="mask"):
        without_outliers(model, inliers[1:])
    images, points = inlier_tables(model, inliers, ~inliers)
    assert points.before.tolist() == [3, 3, 1, 3, 2, 3]
    assert images.n_observations.tolist() == [6, 6, 6]
    assert (images.before + images.after).tolist() == [6, 6, 6]
    assert points.worst(2).tolist() == [0, 1]


# ---- the command


def ask(capsys, *arguments):
    code = main([str(a) for a in arguments])
    return code, *capsys.readouterr()


def test_solve_reads_a_model(tmp_path, capsys):
    model = disturbed(some_model(("SIMPLE_RADIAL",), n_images=6, noise=0.3))
    write_model(tmp_path / "m", model)
    out, record_file, report, cloud = (tmp_path / name for name in ("refined", "run.json", "report.json", "cloud.ply"))
    method = ("--kernel", "cauchy", "--method", "irls", "--tau", 2, "--iterations", 30)
    options = ("--output", out, "--json", record_file, "--report", report, "--ply", cloud, "--drop-outliers")
    code, text, err = ask(capsys, "solve", tmp_path / "m", *method, *options)
    assert (code, err) == (0, "")
    run, tables = json.loads(record_file.read_text()), json.loads(report.read_text())
    refined = read_model(out)
    assert run["cost"] < run["initial_cost"]
    assert run["inlier_ratio"] > run["initial_inlier_ratio"]
    assert (run["n_images"], run["refine"], run["n_observations"]) == (6, "poses", model.n_observations)
    assert tables["images"]["name"] == list(model.images.names)
    assert sum(tables["images"]["inliers_after"]) == sum(tables["points"]["inliers_after"])
    kept = [n for n in tables["points"]["inliers_after"] if n >= 2]
    assert refined.n_observations == sum(kept) < model.n_observations
    assert (reprojection_norms(refined) <= 2 / np.sqrt(3)).all()
    worst = np.argmin(tables["images"]["inliers_after"])
    for words in (model.images.names[worst], f"{run['cost']:.7g}", f"wrote {out}", "6 images, 1 camera, 25 points"):
        assert words in text
    assert f"element vertex {len(refined.points) + len(camera_centres(refined))}" in cloud.read_bytes().decode(
        "latin-1"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--refine", "fokal"], "did you mean focal?"),
        (["--dof", "9"], "--dof is an option for BAL files"),
        (["--camera", "bal"], "--camera is an option for BAL files"),
        (["--drop-outliers"], "give --output"),
        (["--output", "m"], "named twice"),
        (["--output", "none/m"], "there is no folder"),
        (["--output", "m/images.bin"], "a model is a folder"),
        (["--report", "m"], "named twice"),
        (["--report", "a", "--json", "a"], "named twice"),
    ],
    ids=" ".join,
)
def test_invalid_options_of_a_model_are_rejected_in_one_line(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(asker, "solve", lambda *args, **settings: pytest.fail("solved nevertheless"))
    write_model("m", tiny_model())
    code, out, err = ask(capsys, "solve", "m", *arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"asker: .+\n", err)
    assert message in err


def test_options_of_a_model_are_rejected_for_a_file(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("1 1 1\n")
    for options in (["--refine", "all"], ["--drop-outliers"], ["--transforms", tmp_path / "a"]):
        code, _, err = ask(capsys, "solve", tmp_path / "a.txt", *options)
        assert code == 2
        assert f"{options[0]} is an option for COLMAP models, not for BAL files" in err


@pytest.mark.parametrize("gauge", ["fixed", "free"])
def test_the_gauge_is_fixed_or_free(tmp_path, capsys, gauge):
    model = disturbed(some_model(("PINHOLE",), n_images=4))
    write_model(tmp_path / "m", model)
    options = ("--gauge", gauge, "--iterations", 3, "--output", tmp_path / "out", "--json", tmp_path / "run.json")
    code, text, _ = ask(capsys, "solve", tmp_path / "m", *options)
    assert code == 0
    assert f"gauge {gauge}" in text
    assert json.loads((tmp_path / "run.json").read_text())["gauge"] == gauge
    moved = (read_model(tmp_path / "out").images.tvecs != model.images.tvecs).any(axis=1)
    assert moved.tolist() == [gauge == "free", True, True, True]


def test_info_reports_counts_tracks_and_initial_errors(tmp_path, capsys):
    model = disturbed(some_model(("SIMPLE_RADIAL", "OPENCV"), n_images=5))
    xyz = model.points.xyz.copy()
    xyz[3] = 100.0  # in front of some images, behind others
    model = replace(model, points=replace(model.points, xyz=xyz))
    write_model(tmp_path / "m", model)
    code, text, err = ask(capsys, "info", tmp_path / "m", "--tau", 2)
    assert (code, err) == (0, "")
    r = reprojection_norms(model)
    lost = np.isinf(r)
    assert 0 < lost.sum() < 5
    cost = asker.SmoothTruncated(2.0).psi(r[~lost] ** 2).sum() + lost.sum()  # τ²/4 each
    for words in (
        f"5 images, 2 cameras, 25 points, {model.n_observations} observations",
        "camera models: 1 SIMPLE_RADIAL, 1 OPENCV",
        f"{cost:.7g}",
        f"{np.median(r):.3g} px",
        f"{lost.sum()} observations of 1 points",
    ):
        assert words in text
    assert re.search(r"observations per image +25 +25 +25.0 +25", text)
    assert re.search(r"observations per point +5 +5 +5.0 +5", text)


def test_info_of_a_model_without_observations(tmp_path, capsys):
    model = some_model(("PINHOLE",))
    nothing = replace(model.images, point_ids=np.full_like(model.images.point_ids, NO_POINT))
    write_model(tmp_path / "nothing", replace(model, images=nothing))
    assert "no observations" in ask(capsys, "info", tmp_path / "nothing")[1]
