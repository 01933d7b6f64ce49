"""The examples run, draw their figure, and estimate the truth; IRLS does not."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import asker
from asker.geometry.rotations import angle_axis_from_matrix

pytestmark = pytest.mark.slow

matplotlib.use("Agg")
EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path):
    """Return a function that runs an example and returns its module and the return value of its `main`."""

    def call(name, *arguments):
        example, picture = load(name), tmp_path / "picture.png"
        estimates = example.main(picture, *arguments)
        assert picture.stat().st_size > 10_000
        plt.close("all")
        return example, estimates

    return call


def degrees(R, S):
    """Largest angle between corresponding rotations, in degrees."""
    R, S = (np.reshape(A, (-1, 3, 3)) for A in (R, S))
    return np.degrees(np.linalg.norm(angle_axis_from_matrix(R @ S.transpose(0, 2, 1)), axis=1).max())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_short_and_listed(path):
    assert len(path.read_text().splitlines()) < 60
    assert f"`{path.name}`" in (EXAMPLES / "README.md").read_text()


def test_unknown_noise(run):
    _, errors = run("unknown_noise", 2)
    oracle, ours = errors["oracle"], errors["asker, no settings"]
    assert all(b < 2.5 * a for a, b in zip(oracle, ours, strict=True))
    assert errors["SciPy soft_l1"][0] > 100 * oracle[0]


def test_robust_mean(run):
    _, estimates = run("robust_mean")
    assert abs(estimates["asker"] - 3) < 0.1
    assert abs(estimates["irls"] - 3) > 1


def test_line_with_seventy_percent_outliers(run):
    example, estimates = run("line_fitting")
    assert np.abs(estimates["asker"] - example.TRUTH).max() < 0.05
    assert np.abs(estimates["irls"] - example.TRUTH).max() > 0.5
    for seed in range(1, 6):
        assert np.abs(example.fit(*example.data(seed), asker.ASKER()).x - example.TRUTH).max() < 0.05


def test_curve(run):
    example, estimates = run("curve_fitting")
    assert np.abs(estimates["asker"] - example.TRUTH).max() < 0.1
    assert np.abs(estimates["irls"] - example.TRUTH).max() > 0.3
    assert np.abs(estimates["scipy (soft_l1)"] - example.TRUTH).max() > 0.3


def test_surface(run):
    example, estimates = run("surface_fitting")
    assert np.abs(estimates["asker"] - example.TRUTH).max() < 0.2
    assert np.abs(estimates["irls"] - example.TRUTH).max() > 2


def test_registration(run):
    example, estimates = run("registration")
    assert np.abs(estimates["asker"] - estimates["truth"]).max() < 0.02
    assert degrees(estimates["irls"][:, :3], estimates["truth"][:, :3]) > 5
    for seed in range(1, 6):
        pairs, truth = example.simulate(seed)
        assert np.abs(example.register(pairs, 0.05, asker.ASKER()) - truth).max() < 0.03


@pytest.mark.data
def test_registration_of_real_correspondences(run, data_file):
    files = [data_file(f"registration/rigid_pose_example_{name}.txt") for name in ("points", "gt")]
    _, estimates = run("registration", *files)
    assert degrees(estimates["asker"][:, :3], estimates["truth"][:, :3]) < 1
    assert np.linalg.norm((estimates["asker"] - estimates["truth"])[:, 3]) < 0.15
    assert degrees(estimates["irls"][:, :3], estimates["truth"][:, :3]) > 30


def test_similarity(run):
    example, estimates = run("similarity")
    assert np.abs(estimates["asker"] - estimates["truth"]).max() < 0.03
    assert np.abs(estimates["irls"] - estimates["truth"]).max() > 0.5
    for seed in range(5):
        source, target, truth = example.simulate(seed)
        assert np.abs(example.register(source, target, asker.ASKER()) - truth).max() < 0.05


def test_essential_matrix(run):
    _, estimates = run("essential_matrix")
    (R, t), (R_asker, t_asker), (R_irls, _) = estimates["truth"], estimates["asker"], estimates["irls"]
    assert degrees(R_asker, R) < 0.5
    assert abs(t[0] @ t_asker[0]) > np.cos(np.radians(2))
    assert degrees(R_irls, R) > 2


def test_feed_forward(run):
    _, errors = run("feed_forward")
    assert errors["refined"] < errors["predicted"] / 10
    assert errors["noise"] == pytest.approx(0.7, rel=0.05)


def test_rotation_averaging(run):
    example, estimates = run("rotation_averaging")
    truth = example.simulate()[0]
    assert degrees(estimates["asker"], truth) < 3
    assert degrees(estimates["irls"], truth) > 90


def test_the_live_view_shows_points_and_cameras(monkeypatch):
    drawn = []

    class Server:
        scene = SimpleNamespace(add_point_cloud=lambda name, points, colors, **_: drawn.append((name, points, colors)))

    monkeypatch.setitem(sys.modules, "viser", SimpleNamespace(ViserServer=Server))
    result = load("live_view").main(stays=False)
    names, points, colours = zip(*drawn, strict=True)
    assert set(names) == {"/points", "/cameras"}
    assert len(drawn) == 2 * (result.iterations // 10 + 1)
    assert all(len(x) == len(c) and c.dtype == np.uint8 for x, c in zip(points, colours, strict=True))
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(SystemExit, match="pip install viser"):
        load("live_view").main()
