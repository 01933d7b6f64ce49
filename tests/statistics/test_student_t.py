"""The tails of noise: Student's and Laplace's are told from Gaussian ones, with and without outliers."""

import numpy as np
import pytest

import asker
from asker.statistics.scale import Noise, estimate
from asker.statistics.student_t import DEGREES, _constant, _log_density, excess

DRAWN = {
    "gaussian": lambda rng, n: rng.normal(size=(n, 2)),
    "laplace": lambda rng, n: rng.laplace(size=(n, 2)) / np.sqrt(2),
    "student": lambda rng, n: rng.normal(size=(n, 2)) / np.sqrt(rng.chisquare(3, (n, 1))),
}


def explained(law, outliers, sigma=1.0, seed=0, n=4000):
    """The excess of residuals of one law around a known mean."""
    rng = np.random.default_rng([seed, 3])
    r = sigma * DRAWN[law](rng, n)
    r[: round(outliers * n)] = 100 * sigma * rng.uniform(-1, 1, (round(outliers * n), 2))
    x = asker.Variables(np.zeros((1, 2)), name="x")
    factors = [asker.Factors(lambda x, y: x - y, x[np.zeros(n, int)], data=r)]
    u, broad = [(r**2).sum(axis=1)], [(r**2).mean()]
    return excess(factors, u, estimate(factors, u, broad), broad)[0]


def test_where_nobody_votes_nothing_is_told():
    """Along a chain every edge is used up."""
    x = asker.Variables(np.zeros((10, 1)), name="x")
    chain = asker.Factors(lambda a, b, d: b - a - d, x[np.arange(9)], x[np.arange(1, 10)], data=np.ones((9, 1)))
    assert excess([chain], [np.ones(9)], [Noise(1.0, 0.9, 20.0)], [1.0]) == [-np.inf]


@pytest.mark.parametrize("outliers", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_heavy_tails_are_told_from_gaussian_ones(outliers, seed):
    assert explained("gaussian", outliers, seed=seed) < 0
    assert explained("laplace", outliers, seed=seed) > 0
    assert explained("student", outliers, seed=seed) > 10


@pytest.mark.parametrize("sigma", [1e-6, 1e6])
def test_the_unit_does_not_matter(sigma):
    assert explained("student", 0.2, sigma) == pytest.approx(explained("student", 0.2), abs=0.1)


@pytest.mark.parametrize("nu", [*DEGREES, np.inf])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_densities_are_normalised_alike(nu, k):
    """The integral over u of f u^(k/2−1)/Γ(k/2), 2^(k/2) taken out."""
    from scipy.integrate import quad
    from scipy.special import gamma

    ks = np.array([float(k)])
    constant = _constant(ks, nu)

    def density(root):  # u = root²
        f = np.exp(_log_density(np.array([root**2]), ks, 0.49, nu, constant))
        return float(f[0]) * 2 * root ** (k - 1) / gamma(k / 2) / 2 ** (k / 2)

    assert quad(density, 0, np.inf, limit=200)[0] == pytest.approx(1, rel=1e-5)


def test_exact_observations_have_no_tails():
    x = asker.Variables(np.zeros(1), name="x")
    factors = [asker.Factors(lambda x, y: x - y, x[np.zeros(50, int)], data=np.zeros(50))]
    u = [np.zeros(50)]
    assert excess(factors, u, estimate(factors, u), [1.0])[0] < 0


def test_the_end_of_a_scene_follows_its_tails():
    """Under a truncated kernel in Gaussian noise, under Cauchy's in Student's."""
    from dataclasses import replace

    from asker.applications import bundle

    scene = bundle.make_scene(10, 3000, noise=0.5, outlier_ratio=0.2, start_error=8.0, seed=2)
    exact = bundle.make_scene(10, 3000, noise=0.0, outlier_ratio=0.0, start_error=8.0, seed=2).truth.uv
    rng = np.random.default_rng(0)
    heavy = np.where(scene.outliers[:, None], scene.start.uv, exact + 0.5 * DRAWN["student"](rng, 3000))
    kernels = [
        asker.solve(bundle.bundle_problem(start, None).problem).problem.factors[0].kernel
        for start in (scene.start, replace(scene.start, uv=heavy))
    ]
    assert [type(kernel) for kernel in kernels] == [asker.SmoothTruncated, asker.Cauchy]
