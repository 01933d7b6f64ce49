"""Tests of the readers of poses and of the assignment of poses to images: all formats describe the same cameras."""

import json

import numpy as np
import pytest
from PIL import Image

from asker.applications import colmap
from asker.applications.posed import assigned, list_images, parse_intrinsics, read_matches, read_poses
from asker.applications.posed.correspondences.tracks import Tracks
from asker.applications.posed.scene import model_of
from asker.applications.posed.synthetic import FOCAL, HEIGHT, WIDTH, make_scene
from asker.geometry.rotations import quaternion_from_matrix
from asker.io.files import FileError
from posed_scenes import write_database

MADE = make_scene(n=4, n_points=40)
TRUTH = MADE.truth
CAMERA = parse_intrinsics(f"{FOCAL},{FOCAL},{WIDTH / 2},{HEIGHT / 2}")


def camera_to_world():
    T = np.tile(np.eye(4), (len(TRUTH), 1, 1))
    T[:, :3] = TRUTH.poses
    return np.linalg.inv(T)


def write_colmap(folder, with_points):
    colmap.write_model(
        folder, model_of(TRUTH, MADE.matches, Tracks(np.zeros(0, int), np.zeros(0, int)), np.zeros((0, 3)))
    )
    if not with_points:
        (folder / "points3D.bin").unlink()
    return folder


def write_json_file(folder):
    matrices = camera_to_world() @ np.diag([1.0, -1, -1, 1])
    frames = [
        {"file_path": f"images/{n}", "transform_matrix": M.tolist()} for n, M in zip(TRUTH.names, matrices, strict=True)
    ]
    path = folder / "transforms.json"
    content = {"fl_x": FOCAL, "w": WIDTH, "h": HEIGHT, "aabb_scale": 4, "frames": frames}
    path.write_text(json.dumps(content))
    return path


def write_arrays(folder, to_world):
    K = np.array([[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]])
    poses = {"cam2world": camera_to_world()} if to_world else {"extrinsic": TRUTH.poses[None]}
    half, depth = np.diag([0.5, 0.5, 1]) @ K, np.ones((4, HEIGHT // 2, WIDTH // 2, 1))
    np.savez(
        folder / "poses.npz",
        intrinsic=np.tile(half, (1, 4, 1, 1)),
        depth=depth,
        **poses,
    )
    return folder / "poses.npz"


def write_trajectory(folder, tum):
    M = camera_to_world()
    q = np.roll(quaternion_from_matrix(M[:, :3, :3]), -1, axis=1)
    rows = np.column_stack([np.arange(len(M)), M[:, :3, 3], q]) if tum else M[:, :3].reshape(-1, 12)
    path = folder / "poses.txt"
    np.savetxt(path, rows)
    return path


WRITERS = {
    "colmap": lambda folder: write_colmap(folder / "model", True),
    "colmap without points": lambda folder: write_colmap(folder / "model", False),
    "transforms": write_json_file,
    "arrays": lambda folder: write_arrays(folder, False),
    "camera to world": lambda folder: write_arrays(folder, True),
    "tum": lambda folder: write_trajectory(folder, True),
    "kitti": lambda folder: write_trajectory(folder, False),
}


@pytest.fixture
def pictures(tmp_path):
    """A folder with an image for each pose and another file."""
    folder = tmp_path / "images"
    folder.mkdir()
    for k, name in enumerate(TRUTH.names):
        Image.fromarray(np.full((HEIGHT, WIDTH), 40 * k, np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_gives_the_same_cameras(kind, tmp_path, pictures):
    files = list_images(pictures)
    posed, messages = assigned(files, read_poses(WRITERS[kind](tmp_path), list(files.names), CAMERA))
    assert posed.names == TRUTH.names
    np.testing.assert_allclose(posed.poses, TRUTH.poses, atol=1e-6)
    assert posed.sizes.tolist() == [[WIDTH, HEIGHT]] * 4
    np.testing.assert_allclose(posed.cameras.params[0], [FOCAL, FOCAL, WIDTH / 2, HEIGHT / 2])
    resized = ["scaled to the size" in m for m in messages]
    assert resized == ([True] if "arrays" in kind or "world" in kind else [])


def test_images_and_poses_without_each_other_are_named(tmp_path, pictures):
    path = write_json_file(tmp_path)
    content = json.loads(path.read_text())
    content["frames"] += [content["frames"][0], content["frames"][1] | {"file_path": "images/absent.png"}]
    path.write_text(json.dumps(content))
    Image.new("L", (WIDTH, HEIGHT)).save(pictures / "spare.png")
    (pictures / "003.png").write_bytes(b"broken")
    files = list_images(pictures)
    posed, messages = assigned(files, read_poses(path, list(files.names)))
    assert posed.names == ("000.png", "001.png", "002.png")
    text = "\n".join(messages)
    for part in ("images/absent.png", "repeated poses", "images without a pose (1): spare.png", "003.png: this image"):
        assert part in text
    assert posed.given_names[0] == "images/000.png"
    assert posed.other == {"aabb_scale": 4}


def test_images_of_another_shape_are_rejected(tmp_path, pictures):
    path = write_json_file(tmp_path)
    Image.new("L", (HEIGHT, HEIGHT)).save(pictures / "002.png")
    files = list_images(pictures)
    with pytest.raises(FileError, match=r"002\.png has 480×480 pixels, but its intrinsics refer to 640×480"):
        assigned(files, read_poses(path, list(files.names)))


def test_equal_images_are_named(tmp_path, pictures):
    (pictures / "001.png").write_bytes((pictures / "000.png").read_bytes())
    files = list_images(pictures)
    _, messages = assigned(files, read_poses(write_json_file(tmp_path), list(files.names)))
    assert "images with equal content (1): 001.png = 000.png" in messages


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "1 2 3\n", r"a.txt:1: a pose has 8 \(TUM\) or 12 \(KITTI\) numbers, not 3"),
        ("a.txt", "# only\n", "has no poses"),
        ("a.txt", "0 0 0 0 0 0 0 1\nx\n", r"a.txt:2: expected numbers, got 'x'"),
        ("a.txt", "0 0 0 0 0 0 0 0\n", r"a.txt:1: .*quaternion is zero"),
        ("a.json", "{", "a.json:1: this is not a transforms.json"),
        ("a.json", "{}", 'no list "frames"'),
        ("a.json", '{"frames": [{"file_path": "x"}]}', r"frame 0 \(x\): .*transform_matrix"),
        ("a.npz", "nothing", "not an .npz file"),
        ("a.bin", "\0\0", "no file with poses"),
    ],
)
def test_damaged_poses_are_rejected_with_the_place(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(FileError, match=message):
        read_poses(tmp_path / name, ["0.png", "1.png"], CAMERA)


def test_arrays_are_named_in_errors(tmp_path):
    named = {"extrinsics": TRUTH.poses, "names": TRUTH.names}
    for arrays, message in (
        ({"a": np.zeros(3)}, "there are no poses; expected an array named extrinsics"),
        ({"extrinsics": np.zeros((2, 5))}, r"extrinsics has the shape \(2, 5\)"),
        ({"extrinsics": np.zeros((2, 3, 4))}, r"extrinsics\[0\] is no rotation"),
        ({"extrinsics": TRUTH.poses}, "4 poses without names, but 2 images"),
        (named, "no intrinsics"),
        (
            named | {"K": np.zeros((2, 2))},
            r"intrinsics have the shape \(2, 2\)",
        ),
        (named | {"K": np.zeros((3, 3))}, "intrinsics of image 0 are not"),
    ):
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(FileError, match=message):
            read_poses(tmp_path / "a.npz", ["0.png", "1.png"])


def test_folders_without_poses_or_images_are_rejected(tmp_path):
    with pytest.raises(FileError, match="this folder has no poses"):
        read_poses(tmp_path, [])
    with pytest.raises(FileError, match="there are no images"):
        list_images(tmp_path)
    with pytest.raises(FileError, match="no such folder"):
        list_images(tmp_path / "none")
    with pytest.raises(FileError, match="has no intrinsics: give --camera"):
        read_poses(write_trajectory(tmp_path, True), list(TRUTH.names))


def test_a_database_gives_the_matches_that_were_written(tmp_path):
    path = tmp_path / "database.db"
    write_database(path, TRUTH.names, MADE.matches)
    read = read_matches(path, TRUTH.names)
    np.testing.assert_allclose(read.xys, MADE.matches.xys, atol=1e-4)
    np.testing.assert_array_equal(read.features, MADE.matches.features)
    np.testing.assert_allclose(read.relative_poses, MADE.matches.relative_poses, atol=1e-9)
    some = read_matches(path, ("003.png", "unknown.png", "001.png"))
    assert np.diff(some.starts)[1] == 0
    with pytest.raises(FileError, match="none of the images"):
        read_matches(path, ("other.png",))
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(FileError, match="not a COLMAP database"):
        read_matches(tmp_path / "text.db", TRUTH.names)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(FileError):
        read_matches(path, TRUTH.names)
