"""Parallel reading of a BAL file: the portions of all processes make up the bundle."""

from dataclasses import replace

import numpy as np
import pytest

from asker.applications.bundle import parallel_reader
from asker.applications.bundle.bal import read_bal, read_bal_portion, write_bal
from asker.applications.bundle.parallel_reader import is_seekable, read_bal_together
from asker.applications.bundle.synthetic import make_scene
from asker.io.files import FileError
from simulated_processes import Together

SCENE = make_scene(5, 300).start


def by_point():
    order = np.argsort(SCENE.point_index, kind="stable")
    return replace(SCENE, **{name: getattr(SCENE, name)[order] for name in ("camera_index", "point_index", "uv")})


def shuffled():
    order = np.random.default_rng(0).permutation(SCENE.n_observations)
    return replace(SCENE, **{name: getattr(SCENE, name)[order] for name in ("camera_index", "point_index", "uv")})


def read(path, n):
    return Together(n).run(lambda k, all_gather: read_bal_together(path, k, n, all_gather))


@pytest.mark.parametrize("piece", [50, 333, 1 << 20])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("make", [by_point, shuffled])
def test_the_portions_make_up_the_bundle(make, n, piece, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_reader, "CHUNK_BYTES", piece)
    monkeypatch.setattr(parallel_reader, "EXCHANGE_ROWS", 20)
    file, bundle = tmp_path / "a.txt", make()
    write_bal(file, bundle)
    parts = read(file, n)
    assert len({part.checksum for part in parts}) == 1
    points, uv = np.full_like(bundle.points, np.nan), np.full_like(bundle.uv, np.nan)
    index = np.full((2, bundle.n_observations), -1)
    for part in parts:
        np.testing.assert_array_equal(part.bundle.cameras, bundle.cameras)
        assert (np.diff(part.observations) > 0).all()
        points[part.points], uv[part.observations] = part.bundle.points, part.bundle.uv
        index[:, part.observations] = part.bundle.camera_index, part.points[part.bundle.point_index]
        assert (part.n_points, part.n_observations) == (bundle.n_points, bundle.n_observations)
    np.testing.assert_array_equal(points, bundle.points)
    np.testing.assert_array_equal(uv, bundle.uv)
    np.testing.assert_array_equal(index, [bundle.camera_index, bundle.point_index])
    if make is by_point:  # the observations are distributed like the bytes
        assert max(len(part.observations) for part in parts) < 1.3 * bundle.n_observations / n + 10


@pytest.mark.parametrize("space", [b" ", b"\r\n", b"\n\n  "], ids=repr)
def test_any_white_space_separates_numbers(space, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_reader, "CHUNK_BYTES", 64)
    write_bal(tmp_path / "a.txt", SCENE)
    (tmp_path / "b.txt").write_bytes(space + space.join((tmp_path / "a.txt").read_bytes().split()))
    uv = np.zeros_like(SCENE.uv)
    for part in read(tmp_path / "b.txt", 3):
        uv[part.observations] = part.bundle.uv
    np.testing.assert_array_equal(uv, SCENE.uv)


@pytest.mark.parametrize("at", [10, 700, 1230, 1400])
@pytest.mark.parametrize("token", [b"nan", b"x", b"1 2", b""])
def test_errors_are_those_of_one_process(at, token, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_reader, "CHUNK_BYTES", 200)
    write_bal(tmp_path / "a.txt", SCENE)
    numbers = (tmp_path / "a.txt").read_bytes().split()
    numbers[at] = token
    (tmp_path / "b.txt").write_bytes(b"\n".join(numbers))
    with pytest.raises(FileError) as alone:
        read_bal(tmp_path / "b.txt")
    with pytest.raises(FileError) as together:
        read(tmp_path / "b.txt", 3)
    assert str(together.value) == str(alone.value)


def test_an_index_out_of_range(tmp_path):
    write_bal(tmp_path / "a.txt", SCENE)
    lines = (tmp_path / "a.txt").read_bytes().splitlines()
    lines[200] = b"99 " + lines[200].split(b" ", 1)[1]
    (tmp_path / "b.txt").write_bytes(b"\n".join(lines))
    with pytest.raises(FileError, match=r"b\.txt:201: the camera index must be an integer from 0 to 4, got '99'"):
        read(tmp_path / "b.txt", 2)
    with pytest.raises(FileError, match="points cannot be distributed to 999 processes"):
        read_bal_together(tmp_path / "a.txt", 0, 999, lambda x: np.zeros((999, *x.shape), dtype=x.dtype))


def test_compressed_files_are_not_seekable(tmp_path):
    assert is_seekable("a.txt")
    assert not is_seekable("a.txt.BZ2")
    write_bal(tmp_path / "a.txt.gz", SCENE)
    assert read_bal_portion(tmp_path / "a.txt.gz", 0, 2).n_observations == SCENE.n_observations
