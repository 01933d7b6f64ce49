"""Doubts of results: their kinds, their numbers, and their copies in files, pickles and JSON."""

import json
import pickle
from copy import deepcopy

import numpy as np
import pytest

import asker
from asker.io.npz import read_npz, signed, write_npz

X = np.linspace(-1.0, 1.0, 30)
Y = 2 * X + 1 + 0.1 * np.sin(37 * X)
AT = np.zeros(30, dtype=int)
KERNEL = asker.Quadratic()


def solved(residual, start, strategy=None, kernel=KERNEL, data=(X, Y), **options):
    p = asker.Variables(np.array([start]), name="p")
    factors = asker.Factors(residual, p[np.zeros(len(data[-1]), int)], data=data, kernel=kernel)
    return asker.solve(asker.Problem(factors), strategy, **options)


def cubic(p, x, y):
    """p[1] and p[2] occur only as their sum, p[3] not at all."""
    return p[0] + (p[1] + p[2]) * x - y


def mean(p, y):
    return p[0] - y


def undetermined():
    return solved(cubic, [0.0, 1.0, 0.0, 7.0], asker.IRLS())


def undetermined_by_inliers():
    """Two outliers alone depend on p[1], with small weights of Cauchy's kernel."""
    x = np.r_[np.zeros(20), 1.0, 1.0]
    y = np.r_[0.01 * np.sin(np.arange(20)), 50.0, -60.0]
    return solved(
        lambda p, x, y: p[0] + p[1] * x - y, [0.0, 0.0], strategy=asker.IRLS(), kernel=asker.Cauchy(200.0), data=(x, y)
    )


def above_best():
    """Graduated kernels leave the cluster at the start, whose cost is lower than that of the final one."""
    data = np.concatenate([np.zeros(10), 2.5 + np.linspace(-0.4, 0.4, 9), np.full(3, 5.0)])
    return solved(mean, [0.0], asker.GNC(), asker.TruncatedQuadratic(1.0), (data,))


def at_border():
    import jax.numpy as jnp

    data = (np.linspace(-2, -1, 9),)
    return solved(lambda p, y: jnp.sqrt(p[0]) - y, [4.0], asker.IRLS(), asker.Cauchy(5.0), data, max_iterations=200)


def without_weight():
    return solved(mean, [0.0], asker.IRLS(), asker.SmoothTruncated(1e-3), (100 + X,))


def at_bound():
    p = asker.Variables(np.array([[0.5, 0.0]]), lower=0.0, upper=1.5, name="p")
    factors = asker.Factors(lambda p, x, y: p[0] * x + p[1] - y, p[AT], data=(X, Y), kernel=KERNEL)
    return asker.solve(asker.Problem(factors), asker.IRLS())


def minority():
    data = np.r_[np.linspace(0, 0.01, 12), np.linspace(-40, 50, 30)]
    return solved(mean, [0.0], kernel=None, data=(data,))


def duplicates():
    return solved(lambda p, x, y: p[0] * x + p[1] - y, [0.0, 0.0], kernel=None, data=(np.r_[X, X], np.r_[Y, Y]))


KINDS = {
    undetermined: "UNDETERMINED",
    undetermined_by_inliers: "UNDETERMINED",
    above_best: "NOT_CONVERGED",
    at_border: "NOT_CONVERGED",
    without_weight: "NOT_CONVERGED",
    at_bound: "AT_BOUND",
    minority: "MINORITY",
    duplicates: "DUPLICATES",
}


@pytest.fixture(scope="module", params=KINDS, ids=lambda make: make.__name__)
def case(request):
    return request.param(), asker.DoubtKind[KINDS[request.param]]


def as_data(doubts):
    return [(str(doubt), doubt.kind, dict(doubt.numbers)) for doubt in doubts]


def test_every_doubt_has_a_kind(case):
    result, expected = case
    assert all(type(doubt) is asker.Doubt for doubt in result.doubts)
    assert expected in {doubt.kind for doubt in result.doubts}
    assert asker.Doubt.OTHER not in {doubt.kind for doubt in result.doubts}


def test_copies_of_a_result_have_the_same_doubts(case, tmp_path):
    result, _ = case
    expected = as_data(result.doubts)
    result.save(tmp_path / "r.npz")
    assert as_data(asker.Result.load(tmp_path / "r.npz").doubts) == expected
    for copied in (pickle.loads(pickle.dumps(result.doubts)), deepcopy(result.doubts)):
        assert as_data(copied) == expected
    assert as_data(pickle.loads(pickle.dumps(asker.Result.load(tmp_path / "r.npz"))).doubts) == expected


def test_doubts_are_strings_in_json(case):
    result, _ = case
    assert json.loads(json.dumps(list(result.doubts))) == [str(doubt) for doubt in result.doubts]


def test_the_numbers_of_undetermined_unknowns_are_those_of_the_null_space():
    (doubt,) = undetermined().doubts
    J = np.stack([np.ones(30), X, X, 0 * X], axis=1)
    _, s, Vt = np.linalg.svd(J)
    null = Vt[s < 1e-12 * s[0]]
    n_moved = np.count_nonzero(np.abs(null).max(axis=0) > 1e-9)
    assert doubt.numbers == {"n_parameters": n_moved, "n_directions": len(null)}


def test_the_numbers_of_a_doubt_above_the_best_cost_are_those_of_the_history():
    result = above_best()
    (doubt,) = result.doubts
    assert doubt.numbers["best_cost"] == result.cost < doubt.numbers["cost"] == result.history[-1].cost


def test_an_exhausted_search_has_not_converged(monkeypatch):
    from asker import _solve

    limits = _solve._Limits(max_iterations=5, has_default_iterations=True, tol=1e-9, time_limit=None)
    monkeypatch.setattr(_solve, "_limits_of", lambda *args: limits)
    doubts = solved(lambda p, x, y: p[0] * x + p[1] - y, [0.0, 0.0], kernel=None).doubts
    (doubt,) = (doubt for doubt in doubts if doubt.kind is asker.Doubt.NOT_CONVERGED)
    assert doubt.numbers == {"max_iterations": 5}


# ------------------------------------------------------------------ files


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "r.npz"
    undetermined().save(path)
    return path


def test_a_file_without_kinds_is_read(saved, tmp_path):
    """Files of asker 0.6 have the same format, with sentences alone."""
    tree, arrays = read_npz(saved, "result")
    del tree["doubt_kinds"]
    write_npz(tmp_path / "r.npz", signed(tree, arrays), arrays)
    (doubt,) = asker.Result.load(tmp_path / "r.npz").doubts
    assert doubt == asker.Result.load(saved).doubts[0]
    assert (doubt.kind, dict(doubt.numbers)) == (asker.Doubt.OTHER, {})


@pytest.mark.parametrize(
    "kinds", [[], [["UNDETERMINED"]], [["HAPPY", {}]], [[3, {}]], [["OTHER", []]], [["OTHER", {}]] * 2, {}, None]
)
def test_invalid_kinds_are_rejected(saved, tmp_path, kinds):
    tree, arrays = read_npz(saved, "result")
    write_npz(tmp_path / "r.npz", signed(tree | {"doubt_kinds": kinds}, arrays), arrays)
    with pytest.raises(asker.FileError, match="a broken result"):
        asker.Result.load(tmp_path / "r.npz")
