"""Results: access by group, printing, saving and loading."""

import json
import os
import re
import zipfile
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pytest

import asker
from asker.applications.bundle.problem import bundle_problem
from asker.applications.bundle.synthetic import make_scene
from asker.io.npz import read_npz, signed, write_npz
from file_damage import edits, replaced

N = 30


def line(x, a, y):
    return x[0] * a + x[1] - y


def prior(x, y):
    return x - y


def near(parts, y):
    place, (size,) = parts
    return size * place - y


def problem(*, names=("fit", "prior"), product=False):
    rng = np.random.default_rng(1)
    a, y = rng.normal(size=(2, N))
    x = asker.Variables([[1.0, 0.0]], name="line <b>")
    zeros = np.zeros(N, int)
    groups = [
        asker.Factors(line, x[zeros], data=(a, 2 * a + 0.1 * y + 5 * (y > 1)), name=names[0]),
        asker.Factors(prior, x[zeros[:2]], data=np.zeros((2, 2)), kernel=asker.Huber(3.0), name=names[1]),
    ]
    if product:
        parts = (np.ones((3, 2)), np.ones((3, 1)))
        both = asker.Variables(parts, asker.Product(asker.Euclidean(2), asker.Euclidean(1)), name="both")
        groups.append(asker.Factors(near, both[np.arange(3)], data=rng.normal(size=(3, 2))))
    return asker.Problem(*groups)


@pytest.fixture(scope="module")
def solved():
    return asker.solve(problem(product=True), max_iterations=7)


def same(a, b):
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return a.dtype == b.dtype and np.array_equal(a, b)


# ------------------------------------------------------------------ access by group


def test_groups_are_indexed_by_position_by_name_and_by_themselves(solved):
    x, both = solved.problem.variables
    fit = solved.problem.factors[0]
    assert solved[x] is solved["line <b>"] is solved[0] is solved.values[x]
    assert solved["both"] is solved[both]
    for groups in (solved.weights, solved.inliers, solved.residuals):
        assert groups.names == ("fit", "prior", "near")
        assert groups["fit"] is groups[0] is groups[fit] is next(iter(groups))
        assert groups["near"] is groups[-1]
        assert [len(item) for _, item in groups.items()] == [N, 2, 3] == [len(item) for item in groups]
        assert groups[1:] == (groups[1], groups[2])
        assert "prior" in groups
        assert fit in groups
        assert x not in groups
    np.testing.assert_array_equal(np.linalg.norm(solved.residuals["prior"], axis=1) <= 3.0, solved.inliers["prior"])


def test_a_missing_group_raises_an_error_with_the_known_names(solved):
    with pytest.raises(KeyError, match="no group is called 'loops'; there are 'fit', 'prior', 'near'"):
        solved.weights["loops"]
    with pytest.raises(KeyError, match="not part of the problem"):
        solved[asker.Variables([[0.0]], name="both")]
    with pytest.raises(KeyError, match="not part of the problem"):
        solved.weights[problem().factors[0]]
    with pytest.raises(TypeError, match="not by float"):
        solved.weights[0.5]
    with pytest.raises(IndexError):
        solved.weights[3]


def test_groups_that_share_a_name_are_indexed_by_position_and_by_themselves(tmp_path):
    result = asker.solve(problem(names=("fit", "fit")), max_iterations=2)
    with pytest.raises(KeyError, match="2 groups are called 'fit'"):
        result.weights["fit"]
    assert result.weights[result.problem.factors[1]] is result.weights[1]
    result.save(tmp_path / "r.npz")
    loaded = asker.Result.load(tmp_path / "r.npz")
    assert [len(w) for w in loaded.weights] == [N, 2]
    with pytest.raises(KeyError, match="2 groups are called 'fit'"):
        loaded.weights["fit"]


# ------------------------------------------------------------------ saved and loaded


@pytest.fixture(scope="module")
def saved(solved, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "result.npz"
    solved.save(path)
    return path


def test_a_loaded_result_equals_the_saved_one(solved, saved):
    loaded = asker.Result.load(saved)
    assert loaded.problem is None
    assert loaded.strategy == repr(solved.strategy)
    for name in ("values", "residuals", "weights", "inliers", "informative"):
        a, b = getattr(solved, name), getattr(loaded, name)
        assert a.names == b.names
        assert all(map(same, a, b)), name
    rest = {f.name for f in fields(asker.Result)} - {"problem", "strategy", "values", "residuals", "weights"}
    rest -= {"informative", "unwritten", "continued_from", "analysis", "possible"}  # not saved
    rest -= {"known_inliers", "alternatives"}
    assert repr(loaded.classified._replace(inliers=())) == repr(solved.classified._replace(inliers=()))
    assert len(rest) == 10
    for name in rest:
        assert repr(getattr(solved, name)) == repr(getattr(loaded, name)), name  # NaN differs from itself
    assert (repr(loaded), loaded.iterations) == (repr(solved), solved.iterations)
    assert str(loaded) == str(solved)
    assert loaded.inlier_ratio == solved.inlier_ratio


def test_a_loaded_result_is_saved_to_the_same_bytes(saved, tmp_path):
    asker.Result.load(saved).save(tmp_path / "again.npz")
    with zipfile.ZipFile(saved) as a, zipfile.ZipFile(tmp_path / "again.npz") as b:
        assert a.namelist() == b.namelist()
        assert all(a.read(name) == b.read(name) for name in a.namelist())


def test_groups_of_a_newly_built_problem_index_a_loaded_result(solved, saved):
    loaded, again = asker.Result.load(saved), problem(product=True)
    assert same(loaded[again.variables[1]], solved["both"])
    assert same(loaded.weights[again.factors[0]], solved.weights["fit"])
    with pytest.raises(KeyError, match="'both' had 3 rows when this result was saved, and now has 2"):
        loaded[asker.Variables(np.zeros((2, 1)), name="both")]


@pytest.mark.parametrize("dof", [6, 7])
def test_a_reconstruction_is_refined_from_a_loaded_result(tmp_path, dof):
    scene = make_scene(3, 150).start
    made = bundle_problem(scene, asker.Huber(), dof=dof)
    result = asker.solve(made.problem, max_iterations=3)
    result.save(tmp_path / "r.npz")
    again = bundle_problem(scene, asker.Huber(), dof=dof).refined(asker.Result.load(tmp_path / "r.npz").values)
    refined = made.refined(result.values)
    assert not np.array_equal(refined.points, scene.points)
    np.testing.assert_array_equal(again.points, refined.points)
    np.testing.assert_array_equal(again.cameras, refined.cameras)


def test_x_of_a_loaded_result(tmp_path):
    result = asker.solve(problem(), max_iterations=3)
    result.save(tmp_path / "r.npz")
    np.testing.assert_array_equal(asker.Result.load(tmp_path / "r.npz").x, result.x)


def test_nothing_in_the_file_is_pickled_or_compressed(saved):
    with zipfile.ZipFile(saved) as archive:
        assert {m.compress_type for m in archive.infolist()} == {zipfile.ZIP_STORED}
    with np.load(saved, allow_pickle=False) as file:
        assert all(file[name].dtype.kind in "fiub" for name in file)
        assert json.loads(file["tree"].tobytes())["version"] == asker.__version__


def test_a_failed_save_leaves_no_file(solved, tmp_path):
    strange = replace(solved.history[0], details={"why": object()})
    with pytest.raises(TypeError, match="object in its details"):
        replace(solved, history=[strange]).save(tmp_path / "r.npz")
    with pytest.raises(asker.FileError, match="cannot be written"):
        solved.save(tmp_path / "nowhere" / "r.npz")
    assert os.listdir(tmp_path) == []


def changed(saved, path, **entries):
    tree, arrays = read_npz(saved, "result")
    write_npz(path, signed(tree | entries, arrays), arrays)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda saved, path: None, "there is no such file"),
        (lambda saved, path: path.write_bytes(b""), "no result of asker"),
        (lambda saved, path: path.write_text("1 2 3"), "no result of asker"),
        (lambda saved, path: path.write_bytes(saved.read_bytes()[:-30]), "no result of asker, or a broken one"),
        (lambda saved, path: np.savez(path, a=np.zeros(3)), "no result of asker"),
        (lambda saved, path: np.savez(path, a=np.array([{}], object)), "no result of asker"),
        (lambda saved, path: np.savez_compressed(path, tree=np.zeros(10**6)), "compressed"),
        (lambda saved, path: changed(saved, path, kind="checkpoint"), "this is no result of asker"),
        (lambda saved, path: changed(saved, path, format=2, version="9.0"), "format 2 (asker 9.0), but asker 0."),
        (lambda saved, path: changed(saved, path, status="HAPPY"), "a broken result of asker ('HAPPY')"),
        (lambda saved, path: changed(saved, path, history=[]), "a broken result"),
        (lambda saved, path: changed(saved, path, cost="low"), "cost is 'low'"),
        (lambda saved, path: changed(saved, path, factors=[["fit", "a0", "a1", "a2"]]), "do not fit together"),
    ],
)
def test_an_invalid_file_is_rejected_by_name(saved, tmp_path, spoil, message):
    path = tmp_path / "r.npz"
    spoil(saved, path)
    with pytest.raises(asker.FileError) as error:
        asker.Result.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # about a mean that is NaN
def test_a_result_of_a_modified_file_is_rejected_or_usable(saved, tmp_path):
    """Each entry of the tree is replaced in turn."""
    tree, arrays = read_npz(saved, "result")
    path = tmp_path / "edited.npz"
    every = [*edits(tree), *((("noise", 0), noise) for noise in NOISES)]
    for k in [*np.random.default_rng(0).permutation(len(every))[:200], *range(-len(NOISES), 0)]:
        edited = replaced(tree, *every[k])
        write_npz(path, signed(edited, arrays) if isinstance(edited, dict) else edited, arrays)
        with suppress(asker.FileError):
            assert_usable(asker.Result.load(path))


SIGMA = {"sigma": 0.1, "inlier_ratio": 0.5}
NOISES = [
    SIGMA | {"n_spare": 0, "chance": 0.01},
    SIGMA | {"n_spare": -20.0, "chance": 0.01},
    SIGMA | {"n_spare": True},
    SIGMA | {"n_spare": 10**400},
    SIGMA | {"n_spare": 20.0, "more": 1.0},
    {"sigma": "0.1", "inlier_ratio": 0.5, "n_spare": 20.0},
    {"sigma": -1.0, "inlier_ratio": 0.5, "n_spare": 20.0},
    {},
]
"""Invalid noise estimates of a factor group."""


def assert_usable(result):
    """Evaluate all properties of a loaded result."""
    for text in (repr(result), str(result), result._repr_html_(), result.message):
        text.encode()
    assert 0 <= result.inlier_ratio <= 1
    assert result.iterations == len(result.history) - 1
    for noise in result.noise if result.estimated_noise else ():
        assert noise.uncertainty > 0
    for line in result.history:
        line.as_dict()
    for groups in (result.values, result.residuals, result.weights, result.inliers):
        assert len(dict(groups.items())) <= len(groups)


@pytest.mark.parametrize("noise", NOISES)
def test_an_invalid_noise_estimate_is_rejected(saved, tmp_path, noise):
    """Printing it would raise a ZeroDivisionError."""
    tree, _ = read_npz(saved, "result")
    changed(saved, tmp_path / "r.npz", noise=[noise, *tree["noise"][1:]])
    with pytest.raises(asker.FileError, match="a broken result"):
        asker.Result.load(tmp_path / "r.npz")


def test_a_damaged_result_is_rejected_by_its_digest(saved, tmp_path):
    tree, arrays = read_npz(saved, "result")
    path = tmp_path / "r.npz"
    for other in (tree | {"cost": tree["cost"] + 1.0}, tree | {"doubts": []}, tree | {"digest": ""}):
        write_npz(path, other, arrays)
        with pytest.raises(asker.FileError, match="its digest does not match"):
            asker.Result.load(path)
    write_npz(path, tree, {name: array.astype(array.dtype) + (array.dtype == float) for name, array in arrays.items()})
    with pytest.raises(asker.FileError, match="its digest does not match"):
        asker.Result.load(path)


def test_a_result_of_an_older_version_without_a_digest_is_accepted(saved, tmp_path):
    tree, arrays = read_npz(saved, "result")
    write_npz(tmp_path / "r.npz", {name: item for name, item in tree.items() if name != "digest"}, arrays)
    assert str(asker.Result.load(tmp_path / "r.npz")) == str(asker.Result.load(saved))


def test_a_checkpoint_is_no_result(tmp_path):
    asker.solve(problem(), asker.IRLS(), max_iterations=1, checkpoint=tmp_path / "run.npz")
    with pytest.raises(asker.FileError, match="this is no result of asker"):
        asker.Result.load(tmp_path / "run.npz")


# ------------------------------------------------------------------ printing


def test_the_text_of_a_result_is_a_table(solved):
    rows = dict(row.split(maxsplit=1) for row in str(solved).splitlines())
    assert list(rows) == ["method", "cost", "inliers", "noise", "variables", "iterations", "status", "doubt"]
    assert rows["method"].startswith("estimation of the noise scale, cpu engine, ")
    assert rows["cost"] == f"{solved.initial_cost:.7g} -> {solved.cost:.7g}"
    assert f"fit {np.count_nonzero(solved.inliers['fit'])} of {N} (" in rows["inliers"]
    assert rows["noise"].startswith(f"fit {solved.noise['fit']}; ")
    assert rows["variables"] == "line <b> 1×2, both 3×2 and 3×1"
    assert rows["iterations"].startswith(f"{solved.iterations} in ")
    assert rows["status"].endswith(solved.message)
    assert rows["doubt"] == solved.doubts[-1]
    assert "%" not in solved.message  # costs under different kernels are not comparable
    few = asker.solve(problem(), asker.IRLS(), max_iterations=2)
    assert str(few).startswith("method      IRLS, cpu engine, ")
    assert re.search(r"\(the last 2 steps lowered the cost by [\d.e+-]+ %\)$", few.message)


def test_the_repr_is_one_line(solved):
    assert "\n" not in repr(solved)
    assert repr(solved).startswith("Result(cost ")


def test_the_html_of_a_result_escapes_names(solved):
    shown = solved._repr_html_()
    assert shown.startswith("<table>")
    assert "line &lt;b&gt;" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == shown.count("</tr>") == len(str(solved).splitlines())


def test_control_characters_of_names_are_escaped():
    result = asker.solve(problem(names=("fit\n\x1b[31m", "prior")), max_iterations=1)
    assert len(str(result).splitlines()) == 7
    assert "\x1b" not in str(result)
    assert r"fit\n\x1b[31m" in str(result)


def test_a_group_without_observations_prints(tmp_path):
    x = asker.Variables([[1.0, 0.0]])
    some, none = np.zeros(4, int), np.zeros(0, int)
    groups = [asker.Factors(prior, x[k], data=np.zeros((len(k), 2)), name=f"of {len(k)}") for k in (some, none)]
    result = asker.solve(asker.Problem(*groups), max_iterations=1)
    assert "of 0 none" in str(result)
    result.save(tmp_path / "r.npz")
    assert asker.Result.load(tmp_path / "r.npz").residuals["of 0"].shape == (0, 2)


def test_x_of_one_variable_on_a_product_manifold():
    pair = asker.Variables((np.zeros((1, 2)), np.zeros(1)), asker.Product(asker.Euclidean(2), asker.Euclidean(())))
    factors = asker.Factors(lambda ab, y: ab[0] + ab[1] - y, pair[np.zeros(3, int)], data=np.ones((3, 2)))
    a, b = asker.solve(asker.Problem(factors), max_iterations=3).x
    assert (a.shape, np.shape(b)) == ((2,), ())


def test_contains_agrees_with_indexing(solved, tmp_path):
    solved.save(tmp_path / "r.npz")
    loaded = asker.Result.load(tmp_path / "r.npz")
    for v in solved.problem.variables:
        assert v in solved.values
        assert v in loaded.values
    assert "unknown" not in solved.values
