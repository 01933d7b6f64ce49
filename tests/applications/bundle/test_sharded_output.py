"""The output of a distributed solve, joined, equals that of one process."""

from dataclasses import replace

import numpy as np
import pytest

from asker.applications.bundle.bal import read_bal, read_bal_portion, write_bal
from asker.applications.bundle.sharded_output import join, part_path, write_part
from asker.applications.bundle.synthetic import make_scene
from asker.io.files import FileError
from asker.io.npz import read_npz, write_npz

SCENE = make_scene(5, 300)


@pytest.fixture
def solved(tmp_path):
    """Write a BAL file and three parts of its refined bundle, which is the ground truth; return the paths."""
    file, output = tmp_path / "a.txt", tmp_path / "out.txt"
    write_bal(file, SCENE.start)
    for k in range(3):
        part = read_bal_portion(file, k, 3)
        refined = replace(part.bundle, cameras=SCENE.truth.cameras, points=SCENE.truth.points[part.points])
        write_part(part_path(output, k, 3), replace(part, bundle=refined), k, 3)
    return file, output


def test_parts_are_joined(solved, tmp_path, asks):
    file, output = solved
    code, out, err = asks("join", file, output)
    assert (code, err) == (0, "")
    assert out.count("joined /") == 3
    write_bal(tmp_path / "whole.txt", replace(SCENE.start, cameras=SCENE.truth.cameras, points=SCENE.truth.points))
    assert output.read_bytes() == (tmp_path / "whole.txt").read_bytes()
    np.testing.assert_array_equal(read_bal(output).uv, SCENE.start.uv)


def test_parts_that_do_not_match_are_rejected(solved, tmp_path):
    file, output = solved
    other = part_path(output, 1, 3)
    content = other.read_bytes()
    part = read_bal_portion(file, 1, 3)
    write_part(other, part, 1, 3)
    with pytest.raises(FileError, match="come from different solves"):
        join(file, output)
    other.unlink()
    with pytest.raises(FileError, match=r"out\.txt\.1of3\.npz: there is no such file"):
        join(file, output)
    other.write_bytes(part_path(output, 0, 3).read_bytes())
    with pytest.raises(FileError, match="this is part 0, expected part 1"):
        join(file, output)
    other.write_bytes(content)
    tree, arrays = read_npz(other, "part")
    write_npz(other, tree, arrays | {"numbers": 0 * arrays["numbers"]})
    with pytest.raises(FileError, match="some points are missing from all parts or are in two parts"):
        join(file, output)
    other.write_bytes(content[:200])
    with pytest.raises(FileError, match="no part of asker, or a broken one"):
        join(file, output)
    write_bal(tmp_path / "b.txt", make_scene(5, 350).start)
    other.write_bytes(content)
    with pytest.raises(FileError, match="belongs to another bundle"):
        join(tmp_path / "b.txt", output)
    with pytest.raises(FileError, match=r"0 files none\.txt\.0of….npz are in its folder"):
        join(file, tmp_path / "none.txt")
    assert not output.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--parts"], "--parts requires --output"),
        (["--parts", "--output", "out.txt", "--ply", "a.ply"], "only --json can be written"),
        (["--parts", "--output", "out.txt"], "--parts requires several processes"),
    ],
)
def test_options_that_contradict_parts_are_rejected(given, message, tmp_path, asks, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_bal("a.txt", SCENE.start)
    code, _, err = asks("solve", "a.txt", *given)
    assert code == 2
    assert message in err
