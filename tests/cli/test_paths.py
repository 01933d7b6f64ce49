"""Paths of commands: an output is neither an input nor another output, and no path causes a traceback."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import asker
from application_data import write_data
from asker.applications import applications
from asker.applications.colmap.formats.folder import FILES, read_model, write_model
from asker.applications.pose_graph import read_g2o, write_g2o
from asker.io.files import FileError
from colmap_models import some_model

EVERY = pytest.mark.parametrize("application", applications(), ids=lambda a: a.name)
LONG = "x" * 300
PLAN = """
[instances.line]
kind = "mean"
[[groups]]
instances = ["line"]
methods = ["irls"]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def refused(asks, monkeypatch):
    """A command that ends with one line before anything is solved; returns that line."""

    def ask(*arguments):
        monkeypatch.setattr(asker, "solve", lambda *args, **settings: pytest.fail("solved all the same"))
        code, out, err = asks(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (arguments, out, err)
        assert err.startswith("asker: ")
        return err

    return ask


# ---- outputs that are inputs or other outputs


def output_of(application, folder):
    endings = {"pose_graph": ".g2o", "stereo": ".pfm"}
    return folder / f"out{endings.get(application.name, '')}"


@EVERY
@pytest.mark.parametrize("option", ["--json", "--checkpoint"])
def test_an_input_is_not_an_output(application, data, refused, option):
    path = data[application.name]
    for file in {path, *application.reads(path)}:
        assert "named twice" in refused("solve", path, option, file)
    assert application.load(path) is not None


@EVERY
def test_two_outputs_are_not_one_file(application, data, refused, tmp_path):
    path, out = data[application.name], output_of(application, tmp_path)
    assert "named twice" in refused("solve", path, "--checkpoint", tmp_path / "x", "--json", tmp_path / "x")
    for option in ("--json", "--checkpoint"):
        assert "named twice" in refused("solve", path, "--output", out, option, out)
    (tmp_path / "link").symlink_to("x")
    assert "named twice" in refused("solve", path, "--checkpoint", tmp_path / "x", "--json", tmp_path / "link")
    assert os.listdir(tmp_path) == ["link"]


def test_what_a_written_model_holds_is_no_other_output(data, refused, tmp_path):
    write_model(tmp_path / "out", some_model(n_images=2))
    for name in FILES:
        line = refused("solve", data["colmap"], "--output", tmp_path / "out", "--json", tmp_path / "out" / name)
        assert "named twice" in line
    shutil.copytree(data["colmap"], tmp_path / "linked")
    (tmp_path / "linked" / "images.bin").unlink()
    (tmp_path / "linked" / "images.bin").symlink_to(tmp_path / "out" / "images.bin")
    assert "named twice" in refused("solve", tmp_path / "linked", "--output", tmp_path / "out")


def test_files_that_options_name_are_inputs_too(data, refused, tmp_path):
    graph, truth = data["pose_graph"], tmp_path / "truth.g2o"
    write_g2o(truth, read_g2o(graph))
    assert "named twice" in refused("solve", graph, "--truth", truth, "--output", truth)
    assert "named twice" in refused("solve", graph, "--false-loops", truth, "--json", truth)
    assert read_g2o(truth).n_poses


def test_a_comparison_does_not_write_over_its_data(data, refused, tmp_path):
    for name in ("colmap", "stereo"):
        folder = tmp_path / name
        shutil.copytree(data[name], folder)
        before = sorted(os.listdir(folder))
        assert "named twice" in refused("compare", folder, "--output", folder)
        assert sorted(os.listdir(folder)) == before
    file = tmp_path / "out" / "plan.json"
    file.parent.mkdir()
    shutil.copy(data["bundle"], file)
    assert "named twice" in refused("compare", file, "--output", tmp_path / "out")
    assert file.read_bytes() == data["bundle"].read_bytes()
    for best in (data["bundle"], tmp_path / "new" / "plan.json"):
        assert "named twice" in refused("compare", data["bundle"], "--output", tmp_path / "new", "--best", best)
    assert not (tmp_path / "new").exists()


# ---- a model is written whole


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch):
    """Whichever of the files is the one that does not fit."""
    old, new = (some_model(("PINHOLE",), n_images=3, seed=seed) for seed in (0, 1))
    write_model(tmp_path / "m", old)
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}
    true = os.fsync
    for at in range(5):
        calls = [0]

        def full(handle, at=at, calls=calls):
            calls[0] += 1
            if calls[0] > at:
                raise OSError(28, "No space left on device")
            true(handle)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match="No space left"):
            write_model(tmp_path / "m", new)
        assert {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()} == before
        assert os.listdir(tmp_path) == ["m"]
    monkeypatch.setattr(os, "fsync", true)
    write_model(tmp_path / "m", new)
    assert (read_model(tmp_path / "m").points.xyz == new.points.xyz).all()


# ---- paths that cannot be


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_an_output_that_is_not_possible_is_reported(data, refused, plan_file, tmp_path):
    (tmp_path / "file").write_text("mine")
    commands = (
        ["compare", data["bundle"], "--output"],
        ["reproduce", "--plan", plan_file, "--output"],
        ["stereo-compare", data["stereo"], "--output"],
        ["stereo-generate"],
    )
    for command in commands:
        for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / LONG, Path("/proc/out")):
            assert f"asker: {place}" in refused(*command, place)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_input_that_is_not_possible_is_reported(refused, plan_file, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "below", tmp_path / LONG, tmp_path / "none"):
        for command in (["info"], ["solve"], ["compare"], ["report"], ["stereo-compare"], ["reproduce", "--plan"]):
            assert f"asker: {place}" in refused(*command, place)
    for name in (LONG, "file/below", "a\\u0000b"):
        plan_file.write_text(PLAN.replace('kind = "mean"', f'kind = "bal"\nfile = "{name}"'))
        assert "there is no file" in refused("reproduce", "--plan", plan_file, "--output", tmp_path / "out")


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs users")
def test_missing_permissions_are_reported(data, refused, plan_file, tmp_path):
    closed = tmp_path / "closed"
    shutil.copytree(data["colmap"], closed / "model")
    shutil.copy(data["bundle"], closed / "file.txt")
    plan_file.write_text(PLAN.replace('kind = "mean"', f'kind = "bal"\nfile = "{tmp_path / "secret.txt"}"'))
    for name in ("secret.txt", "open.txt"):
        shutil.copy(data["bundle"], tmp_path / name)
    (tmp_path / "secret.txt").chmod(0)
    closed.chmod(0)
    for folder in [tmp_path, *tmp_path.parents][:4]:
        folder.chmod(0o755)
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        for place in (closed / "model", closed / "file.txt"):
            for command in ("info", "solve", "compare", "report"):
                assert f"asker: {closed}" in refused(command, place)
        for command in (["compare", tmp_path / "open.txt", "--output"], ["stereo-generate"]):
            assert f"asker: {closed}" in refused(*command, closed / "out")
        assert "secret.txt: " in refused("reproduce", "--plan", plan_file, "--output", closed / "out")
    finally:
        os.seteuid(user)
        closed.chmod(0o755)


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/zero")
def test_a_device_is_no_file(refused, tmp_path):
    (tmp_path / "link.txt").symlink_to("/dev/zero")
    for command in ("info", "solve", "compare"):
        assert "a device or a pipe" in refused(command, tmp_path / "link.txt")
