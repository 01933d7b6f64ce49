"""A circle through 40 % of the points, from a poor initial guess, with unknown noise and no settings."""

import sys

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares

import asker

TRUTH, START = np.array([30.0, 20.0, 10.0]), np.array([0.0, 0.0, 1.0])
NOISES = (0.01, 0.1, 1.0)


def off_circle(circle, point):
    d = point - circle[:2]
    return jnp.sqrt(d @ d + 1e-12) - circle[2]


def simulate(noise, seed, n=300):
    """Return the points and the mask of those on the circle; all others are uniform in a rectangle."""
    rng = np.random.default_rng(seed)
    angle, is_inlier = rng.uniform(0, 2 * np.pi, n), np.arange(n) < 0.4 * n
    on = TRUTH[:2] + TRUTH[2] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + noise * rng.normal(size=(n, 2))
    return np.where(is_inlier[:, None], on, rng.uniform((0, 0), (60, 40), (n, 2))), is_inlier


def by_asker(points):
    circle = asker.Variables([START], name="circle")
    factors = asker.Factors(off_circle, circle[np.zeros(len(points), dtype=int)], data=points)
    return asker.solve(asker.Problem(factors)).x  # no kernel, no scale, no method


def by_scipy(points, loss, start=START):
    return least_squares(lambda c: np.linalg.norm(points - c[:2], axis=1) - c[2], start, loss=loss).x


def main(picture="unknown_noise.png", seeds=5):
    errors = {}
    for noise, (points, is_inlier) in ((noise, simulate(noise, seed)) for noise in NOISES for seed in range(seeds)):
        circles = {"oracle": by_scipy(points[is_inlier], "linear", TRUTH), "asker, no settings": by_asker(points)}
        circles |= {f"SciPy {loss}": by_scipy(points, loss) for loss in ("cauchy", "soft_l1")}
        for name, circle in circles.items():
            errors.setdefault(name, {}).setdefault(noise, []).append(np.linalg.norm((circle - TRUTH)[:2]))
    medians = {name: [float(np.median(each[noise])) for noise in NOISES] for name, each in errors.items()}
    print(f"error of the centre, median of {seeds}\n{'noise':24}" + "".join(f"{noise:>10}" for noise in NOISES))
    for (name, row), colour in zip(medians.items(), ("grey", "C0", "C1", "C2"), strict=True):
        print(f"{name:24}" + "".join(f"{x:10.2g}" for x in row))
        plt.loglog(NOISES, row, "o-", label=name, color=colour)
    plt.xlabel("noise")
    plt.ylabel("error of the centre")
    plt.legend()
    plt.savefig(picture)
    return medians


if __name__ == "__main__":
    main(*sys.argv[1:2])
