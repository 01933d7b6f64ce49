"""Problems with unknown noise: circles with clutter, and lines from several groups of points."""

import jax.numpy as jnp
import numpy as np

import asker
from asker.statistics.scale_mixture import Outliers


def off_circle(circle, point):
    d = point - circle[:2]
    return jnp.sqrt(d @ d + 1e-12) - circle[2]


def circle_problem(sigma, outliers, seed, start=(20.0, 15.0, 8.0), kernel=None, n=200):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    points = np.column_stack([30 + 10 * np.cos(angle), 20 + 10 * np.sin(angle)]) + sigma * rng.normal(size=(n, 2))
    points[: round(outliers * n)] = rng.uniform(0, [60, 40], (round(outliers * n), 2))
    circle = asker.Variables(np.array([start]), name="circle")
    return asker.Problem(asker.Factors(off_circle, circle[np.zeros(n, int)], data=points, kernel=kernel))


def off_the_line(line, x, y):
    return line[0] * x + line[1] - y


def points_of_line(rng, n, noise, outliers=0.3):
    """Return the coordinates of points on a line, and the outlier mask."""
    x, is_out = rng.uniform(-5, 5, n), rng.random(n) < outliers
    y = 0.8 * x - 1.0 + noise * rng.normal(size=n)
    return x, np.where(is_out, rng.uniform(-8, 8, n), y), is_out


def problem_of_lines(*groups, unit=1.0):
    """Return the problem of a line fit to several groups (x, y); residuals of the second group have another unit."""
    line = asker.Variables([[-1.5, 5.0]], name="line")

    def off(line, x, y, scale):
        return scale * off_the_line(line, x, y)

    units = (1.0, unit, 1.0)
    return asker.Problem(
        *(
            asker.Factors(
                off, line[np.zeros(len(x), int)], data=(x, y, np.full(len(x), units[k])), name=f"group {k + 1}"
            )
            for k, (x, y) in enumerate(groups)
        )
    )


class Interrupted:
    """A generator during which the user interrupts the search."""

    name = "interrupted"
    hypotheses = (Outliers.CLUTTER,)

    def suits(self, context):
        return True

    def starts(self, context, state):
        raise KeyboardInterrupt
