"""The frame in which a reconstruction is returned.

Position, orientation and scale of the whole change no reprojection.  Nothing holds them while a problem is solved, so
they drift: a scene may come out many times smaller, or behind its cameras, which a camera that divides by the depth
does not see either (a negative scale).  What is returned is put back to where the cameras were before.
"""

import numpy as np


def put_back(
    before: np.ndarray, after: np.ndarray, points: np.ndarray, held: np.ndarray, sees_behind: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Poses [R | t] (n, 3, 4) and points (m, 3), moved as a whole so that the cameras are near `before`.

    held         which cameras were held: with one of them only the scale is free, with more nothing is
    sees_behind  whether a projection changes when a point and its camera change sides: then the scale stays positive
    """
    n_held = np.count_nonzero(held)
    if n_held > 1 or np.array_equal(before, after):
        return after, points
    Q = np.eye(3) if n_held else _rotation(np.einsum("nji,njk->ik", before[:, :, :3], after[:, :, :3]))
    target, source = _centres(before), _centres(after) @ Q.T
    b, a = (target[held][0], source[held][0]) if n_held else (target.mean(axis=0), source.mean(axis=0))
    square = ((source - a) ** 2).sum()
    s = ((target - b) * (source - a)).sum() / square if square > 0 else 1.0
    if not np.isfinite(s) or s == 0 or (s < 0 and sees_behind):
        s = 1.0
    shift = b - s * a  # X -> s Q X + shift
    R = after[:, :, :3] @ Q.T
    t = s * after[:, :, 3] - R @ shift
    moved = np.concatenate([R, t[:, :, None]], axis=2)
    moved[held] = before[held]
    return moved, s * points @ Q.T + shift


def _centres(poses: np.ndarray) -> np.ndarray:
    return -np.einsum("nji,nj->ni", poses[:, :, :3], poses[:, :, 3])


def _rotation(M: np.ndarray) -> np.ndarray:
    """The rotation nearest to a sum of rotations."""
    U, _, Vt = np.linalg.svd(M)
    return U * [1.0, 1.0, np.linalg.det(U @ Vt)] @ Vt
