"""Geodetic positions (WGS 84) in Earth-centred and local frames."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RADIUS, FLATTENING = 6378137.0, 1 / 298.257223563
"""Semi-major axis of the ellipsoid in metres, and its flattening."""


def earth_centred(places: Floats) -> Floats:
    """Return Earth-centred positions in metres, (n, 3), from latitude and longitude in degrees and height in metres."""
    latitude, longitude = np.radians(places[:, 0]), np.radians(places[:, 1])
    e2 = FLATTENING * (2 - FLATTENING)
    normal = RADIUS / np.sqrt(1 - e2 * np.sin(latitude) ** 2)
    across = (normal + places[:, 2]) * np.cos(latitude)
    z = ((1 - e2) * normal + places[:, 2]) * np.sin(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), z], axis=1)


def east_north_up(places: Floats, origin: Floats) -> Floats:
    """Return positions in metres east, north and up of the origin, (n, 3); both in latitude, longitude and height."""
    (sin_lat, sin_lon), (cos_lat, cos_lon) = np.sin(np.radians(origin[:2])), np.cos(np.radians(origin[:2]))
    axes = np.array(
        [
            [-sin_lon, cos_lon, 0.0],
            [-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat],
            [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat],
        ]
    )
    return (earth_centred(places) - earth_centred(origin[None])) @ axes.T
