"""The sets of observations that may be the inliers of a variable."""

import numpy as np
import pytest
from scipy.integrate import quad

import asker
from asker.applications import bundle
from asker.search.latent_inliers import InlierSets
from asker.statistics.inlier_enumeration import VARIED, Scales
from asker.statistics.scale import Noise


def places(n, m, rng, noise=0.1, others=0.6, ratio=0.7):
    """n places on a line, each seen m times from an unknown origin; one more is seen once."""
    truth, is_in = rng.uniform(-3, 3, n), rng.random((n, m)) < ratio
    y = truth[:, None] + np.where(is_in, noise, others) * rng.normal(size=(n, m))
    origin = asker.Variables([0.0], name="origin")
    where = asker.Variables(np.zeros((n + 1, 1)), name="places")
    index = np.append(np.repeat(np.arange(n), m), n)
    seen = asker.Factors(
        lambda o, x, y: x[0] + o - y, origin[0 * index], where[index], data=np.append(y.ravel(), 9.0), name="seen"
    )
    return asker.Problem(seen), where, y, is_in


def test_the_evidence_is_the_integral_over_the_variable():
    """Of the product of two Gaussians for each observation, by quadrature."""
    problem, where, y, _ = places(4, 3, np.random.default_rng(0))
    scales = (Scales(0.02, 0.5, 0.6),)
    sets = InlierSets(problem, where, [1.0])
    theta = tuple(v.rows for v in problem.variables)
    found = sets.seen(sets._entries(theta), scales, where.rows).evidence

    def density(x, y):
        each = [
            share / np.sqrt(s) * np.exp(-((x - y) ** 2) / (2 * s)) for share, s in ((0.6, 0.02), (0.4, 0.5))
        ]  # without √2π
        return np.prod(np.sum(each, axis=0))

    integrals = [quad(density, -8, 8, args=(row,), points=sorted(row), limit=200)[0] for row in y]
    assert found == pytest.approx(np.log(integrals).sum() - 4 * np.log(2 * np.pi) / 2, abs=1e-5)


@pytest.mark.parametrize("m", [3, VARIED + 3])
def test_steps_explain_more_and_more_and_find_both_noises(m):
    rng = np.random.default_rng(1)
    problem, where, _, is_in = places(1500 // m, m, rng)
    sets = InlierSets(problem, where, [0.3])
    theta, scales = tuple(v.rows for v in problem.variables), (Scales(0.003, 0.6, 0.5),)
    evidence = []
    for _ in range(40):
        seen = sets.seen(sets._entries(theta), scales, theta[1])
        theta, scales = sets.step(theta, seen), seen.scales
        evidence.append(seen.evidence)
    if m <= VARIED:
        assert (np.diff(evidence) > -1e-6 * np.abs(evidence[-1])).all()
    assert np.sqrt(scales[0][:2]) == pytest.approx([0.1, 0.6], rel=0.2)
    assert scales[0].ratio == pytest.approx(0.7, abs=0.07)
    likely = sets.odds[:-1].reshape(is_in.shape) > 0
    assert (likely == is_in).mean() > 0.8


def test_one_noise_stays_one():
    problem, where, *_ = places(300, 4, np.random.default_rng(2), others=0.1)
    sets = InlierSets(problem, where, [0.01])
    result = asker.solve(problem.with_kernel(asker.Quadratic()))
    theta = tuple(v.manifold.pack(x) for v, x in zip(problem.variables, result.values, strict=True))
    assert np.sqrt(np.mean(result.residuals[0] ** 2)) < 0.1
    assert sets.averaged(theta, [Noise(0.1, 1.0, 900.0)], lambda: True) is None


def test_a_scene_of_near_outliers_is_not_one_noise():
    """Least squares leave residuals there that look like one noise, four times as large."""
    scene = bundle.make_scene(20, 5000, noise=0.5, outlier_ratio=0.6, outlier_kind="near", seed=8, kind="path")
    made = bundle.bundle_problem(scene.start, None)
    plain = asker.solve(made.problem.with_kernel(asker.Quadratic()), asker.IRLS())
    result = asker.solve(made.problem)
    off, before = (bundle.errors(made.refined(r.values), scene.truth).cameras for r in (result, plain))
    assert off < 0.9 * before
    assert result.noise[0].sigma == pytest.approx(0.5, rel=0.35)
    assert result.noise[0].inlier_ratio < 0.7  # two in five of the near outliers are within the noise


@pytest.mark.parametrize("kind", ["few see more", "every other once"])
def test_groups_and_variables_that_the_first_ones_do_not_show(kind):
    """A second group on places that have many observations; places of which every second one is seen once."""
    rng = np.random.default_rng(0)
    truth, every = rng.uniform(-3, 3, 600), np.arange(600)
    index = np.repeat(every, 4) if kind == "few see more" else np.append(np.repeat(every[1::2], 4), every[::2])
    index = np.append(index, np.repeat(np.arange(40), 4)) if kind == "few see more" else index
    y = truth[index] + np.where(rng.random(len(index)) < 0.5, 0.1, 0.4) * rng.normal(size=len(index))
    where = asker.Variables(np.zeros((600, 1)), name="places")
    groups = [asker.Factors(lambda x, y: x[0] - y, where[index], data=y, name="seen")]
    if kind == "few see more":
        known = truth[:40] + 0.1 * rng.normal(size=40)
        groups.append(asker.Factors(lambda x, y: x[0] - y, where[every[:40]], data=known, name="survey"))
    result = asker.solve(asker.Problem(*groups))
    assert np.median(np.abs(result["places"][:, 0] - truth)) < 0.2


def test_a_search_with_sets_is_read_again_from_its_file(tmp_path):
    scene = bundle.make_scene(20, 2000, noise=0.5, outlier_ratio=0.5, outlier_kind="near", seed=8, kind="path")
    problem, file = bundle.bundle_problem(scene.start, None).problem, tmp_path / "run.npz"
    first, again = (asker.solve(problem, checkpoint=file) for _ in range(2))
    assert first.noise[0].inlier_ratio < 1
    np.testing.assert_array_equal(first["cameras"], again["cameras"])
    assert first.noise[0] == again.noise[0]


def test_a_variable_of_which_nothing_is_possible_stays():
    problem, where, *_ = places(200, 4, np.random.default_rng(3))
    n, theta = problem.factors[0].n, tuple(v.rows for v in problem.variables)
    possible = np.ones(n)
    possible[:4] = 0.0
    sets = InlierSets(problem, where, [0.3], [possible])
    found = sets.averaged(theta, [Noise(0.1, 0.7, 500.0)], lambda: True)
    assert found is not None
    assert np.isfinite(found[0][1]).all()
