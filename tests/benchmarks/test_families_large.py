"""Families with a known truth: bundle adjustment, pose graphs, rotation averaging, stereo."""

import sys
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import asker
from asker.applications.bundle.problem import camera_centres, camera_poses
from asker.applications.bundle.synthetic import make_scene
from asker.geometry.gauge import centres

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from families import bundle, graphs, rotations, stereo  # noqa: E402
from families.data_and_peers import data_folder  # noqa: E402
from families.factorial_design import balanced  # noqa: E402
from families.trimmed_error import trimmed  # noqa: E402

FAMILIES = [bundle.FAMILY, bundle.TAILS_FAMILY, rotations.FAMILY, *graphs.FAMILIES, stereo.FAMILY]
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)


def first_case(family):
    """A quick case; the test is skipped if the family has none because its data are missing."""
    cases = family.cases(quick=True)
    if not cases:
        pytest.skip(f"real data not found: {data_folder()} (set ASKER_DATA to its folder)")
    return cases[0]


def at_the_start(instance):
    return asker.solve(instance.problem(None), max_iterations=0)


@EVERY_FAMILY
def test_the_same_arguments_give_the_same_case(family):
    case = first_case(family)
    a, b = family.make(*case), family.make(*case)
    assert a.oracle == b.oracle
    assert a.number == b.number
    first, second = at_the_start(a), at_the_start(b)
    for x, y in zip((*first.values, *first.residuals), (*second.values, *second.residuals), strict=True):
        np.testing.assert_array_equal(x, y)


@EVERY_FAMILY
def test_the_oracle_is_better_than_the_start(family):
    instance = family.make(*first_case(family))
    assert 0 < instance.oracle < instance.error(at_the_start(instance))


@EVERY_FAMILY
def test_cases_differ_and_quick_ones_are_among_them(family):
    first_case(family)
    all_, quick = ([str(case) for case in family.cases(quick)] for quick in (False, True))
    assert len(set(all_)) == len(all_)
    assert set(quick) < set(all_)


def test_every_value_comes_equally_often_in_a_balanced_table():
    levels = {"a": (1, 2, 3), "b": "wxyz", "c": (True, False)}
    table = balanced(levels, 12)
    for name, values in levels.items():
        assert Counter(row[name] for row in table) == dict.fromkeys(values, 12 // len(values))
    assert table == balanced(levels, 12)
    pairs = {(row["a"], row["b"]) for row in table}
    assert len(pairs) > 0.7 * len(list(product(*list(levels.values())[:2])))


def test_one_outlier_in_twenty_does_not_change_the_trimmed_error():
    off = np.ones(20)
    off[3] = 100.0
    assert trimmed(off) == 1
    off[7] = 100.0
    assert trimmed(off) > 20


def test_the_camera_error_is_that_of_an_aligned_similarity():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(20, 3))
    turned = 3.0 * truth @ np.linalg.qr(rng.normal(size=(3, 3)))[0].T
    turned = turned if np.linalg.det(turned[:3]) * np.linalg.det(truth[:3]) > 0 else turned * [1, 1, -1]
    assert bundle.camera_error(turned + 5, truth) < 1e-12
    moved = turned + 0.03 * rng.normal(size=truth.shape)
    one_lost, two_lost = moved.copy(), moved.copy()
    one_lost[3] += 50
    two_lost[3:5] += 50
    few = bundle.camera_error(moved, truth)
    assert few < bundle.camera_error(one_lost, truth) < 1.5 * few
    assert bundle.camera_error(two_lost, truth) > 10 * few
    assert bundle.camera_error(np.full_like(truth, np.nan), truth) == np.inf


def test_a_scene_behind_its_cameras_is_as_good_as_one_in_front():
    scene = make_scene(20, 1000, kind="path", start_error=5.0)
    poses, truth = camera_poses(scene.start), camera_centres(scene.truth)
    turned = poses * [1, 1, 1, -1]
    found = [
        bundle.camera_error(bundle.centres_in_front(scene.start, *of), truth)
        for of in ((poses, scene.start.points), (turned, -scene.start.points))
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert bundle.camera_error(centres(turned), truth) > 10 * found[0]


def test_a_graph_within_the_extents_thousandth_is_solved(data_file):
    data_file("g2o/CSAIL.g2o.bz2")
    instance = graphs.SMALL_GRAPHS.make({"graph": "CSAIL", "kind": "none", "share": 0.0}, 1)
    assert instance.default is not None
    assert instance.default() <= 1.5 * instance.oracle
