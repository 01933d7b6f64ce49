"""A loaded result with its problem."""

import jax.numpy as jnp
import numpy as np
import pytest

import asker

RNG = np.random.default_rng(0)
D = RNG.normal(3, 0.1, 60) + 5 * (np.arange(60) < 6)
E = RNG.normal(3, 0.4, 30)


def off(x, d):
    return x["level"] + 0.1 * jnp.sin(x["level"]) - d


def problem(d=D, e=E, start=0.0, names=("a", "b"), **options):
    x = asker.Variables({"level": np.zeros(1) + start}, name="x")
    groups = [asker.Factors(off, x[np.zeros(len(y), int)], data=y, name=name, **options)
              for y, name in zip((d, e), names, strict=True)]  # fmt: skip
    return asker.Problem(*groups)


@pytest.fixture(params=[{}, {"kernel": asker.Cauchy(0.2)}], ids=["unknown noise", "kernel"])
def options(request):
    return request.param


def loaded(result, path):
    result.save(path)
    return asker.Result.load(path)


def test_a_loaded_result_has_intervals_after_its_problem_is_attached(options, tmp_path):
    result = asker.solve(problem(**options))
    other = loaded(result, tmp_path / "r.npz")
    with pytest.raises(asker.ProblemError, match=r"result\.attach\(problem\)"):
        other.interval("x")
    with pytest.raises(asker.ProblemError, match=r"result\.attach\(problem\)"):
        other.vjp({"x": {"level": np.ones(1)}})
    attached = other.attach(problem(start=1.0, **options))
    for what in ({}, {"sandwich": True}):
        np.testing.assert_allclose(attached.interval("x", **what), result.interval("x", **what), rtol=1e-9)
    np.testing.assert_allclose(attached.leverage[1].studentised, result.leverage[1].studentised, rtol=1e-9)
    assert attached.doubts == result.doubts
    assert attached["x"] == result["x"]
    twice = loaded(other, tmp_path / "again.npz").attach(problem(**options))
    np.testing.assert_allclose(twice.interval("x"), result.interval("x"), rtol=1e-9)


def test_an_attached_result_has_derivatives(tmp_path):
    result = asker.solve(problem(kernel=asker.Cauchy(0.2)))
    attached = loaded(result, tmp_path / "r.npz").attach(problem(kernel=asker.Cauchy(0.2)))
    cotangent = {"x": {"level": np.ones(1)}}
    np.testing.assert_allclose(attached.vjp(cotangent).data["a"][0], result.vjp(cotangent).data["a"][0], rtol=1e-12)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: problem(d=D + (np.arange(60) == 7)), "a: the residual of observation 7 is"),
        (lambda: problem(d=D[:50]), r"a: the result has residuals \(60, 1\), the problem \(50, 1\)"),
        (lambda: problem(names=("a", "c")), "the result has the factors a, b, and the problem has a, c"),
        (lambda: problem(weight=None).factors, "attach expects the asker.Problem"),
    ],
)
def test_another_problem_is_rejected(other, message, tmp_path):
    saved = loaded(asker.solve(problem()), tmp_path / "r.npz")
    with pytest.raises(asker.ProblemError, match=message):
        saved.attach(other())
