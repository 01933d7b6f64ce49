"""Random bundle adjustment scenes for the tests of readers and writers."""

import numpy as np

from asker.applications.bundle.bal import Bundle


def some_bundle(n_cameras=2, n_points=3, n_observations=5, seed=0) -> Bundle:
    """Return a bundle of random numbers over many orders of magnitude."""
    rng = np.random.default_rng(seed)
    return Bundle(
        cameras=rng.normal(size=(n_cameras, 9)) * 10.0 ** rng.integers(-200, 200, (n_cameras, 9)),
        points=rng.normal(size=(n_points, 3)),
        camera_index=rng.integers(0, n_cameras, n_observations, np.int32),
        point_index=rng.integers(0, n_points, n_observations, np.int32),
        uv=rng.normal(size=(n_observations, 2)),
    )
