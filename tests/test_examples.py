"""The examples run, draw their picture, and find the truth where IRLS does not."""

import importlib.util
from pathlib import Path

import matplotlib
import numpy as np
import pytest

import asker

matplotlib.use("Agg")
EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_robust_mean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = load("robust_mean").main()
    assert abs(found["asker"] - 3) < 0.1
    assert abs(found["irls"] - 3) > 1
    assert (tmp_path / "robust_mean.png").stat().st_size > 1000


def test_line_with_seventy_percent_outliers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = load("line_fitting")
    found = example.main()
    assert np.abs(found["asker"] - example.TRUTH).max() < 0.05
    assert np.abs(found["irls"] - example.TRUTH).max() > 0.5
    for seed in range(1, 6):
        assert np.abs(example.fit(*example.data(seed), asker.ASKER()).x - example.TRUTH).max() < 0.05


def test_registration():
    found = load("registration").main([])
    assert found["asker"][0] < 1
    assert found["irls"][0] > 5


@pytest.mark.data
def test_registration_of_real_correspondences(data_file):
    files = [str(data_file(f"registration/rigid_pose_example_{name}.txt")) for name in ("points", "gt")]
    found = load("registration").main(files)
    assert found["asker"][0] < 3
    assert found["asker"][1] < 0.15
    assert found["irls"][0] > 30
