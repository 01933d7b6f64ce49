"""Refinement of a feed-forward prediction (VGGT, DUSt3R) in one call: poses, points and tracks as plain arrays.

Such models predict all cameras and points at once, with small errors everywhere and gross errors in some tracks.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from asker.applications import colmap
from asker.geometry.alignment import distances, similarity
from asker.geometry.rotations import matrix_from_angle_axis

K = np.array([[500.0, 0, 259], [0, 500.0, 259], [0, 0, 1]])  # images of 518 × 518 pixels


def simulate_prediction(seed=0, n_images=12, n_points=400):
    """Return poses (n, 3, 4), points (m, 3), tracks (n, m, 2) as a network predicts them, and the true centres."""
    rng = np.random.default_rng(seed)
    turn = np.linspace(-0.8, 0.8, n_images)
    R = matrix_from_angle_axis(np.stack([0.1 * np.sin(3 * turn), turn, 0 * turn], axis=1))
    t = np.tile([0.0, 0.0, 4.0], (n_images, 1))
    points = rng.uniform(-1, 1, (n_points, 3))
    P = (np.einsum("nij,mj->nmi", R, points) + t[:, None]) @ K.T
    tracks = P[:, :, :2] / P[:, :, 2:] + 0.7 * rng.normal(size=(n_images, n_points, 2))
    tracks[rng.random(tracks.shape[:2]) < 0.5] = np.nan  # not visible
    wrong = rng.random(tracks.shape[:2]) < 0.15
    tracks[wrong] += rng.uniform(-60, 60, (int(wrong.sum()), 2))
    R_off = matrix_from_angle_axis(0.02 * rng.normal(size=(n_images, 3))) @ R
    poses = np.concatenate([R_off, (t + 0.05 * rng.normal(size=t.shape))[:, :, None]], axis=2)
    return poses, points + 0.03 * rng.normal(size=points.shape), tracks, -np.einsum("nji,nj->ni", R, t)


def main(picture="feed_forward.png", seed=0):
    poses, points, tracks, truth = simulate_prediction(seed)
    model = colmap.from_arrays(poses, K, points, tracks, sizes=(518, 518))
    outcome = colmap.refine(model, refine="focal")
    errors = {}
    fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    ax.plot(truth[:, 0], truth[:, 2], "o", color="0.7", ms=9, label="truth")
    for name, one, colour in (("predicted", model, "#d55e00"), ("refined", outcome.refined, "#0072b2")):
        centres = colmap.camera_centres(one)
        s, Q, shift = fit = similarity(centres, truth)
        errors[name] = float(np.sqrt((distances(fit, centres, truth) ** 2).mean()))
        at = s * centres @ Q.T + shift
        ax.plot(at[:, 0], at[:, 2], ".-", color=colour, label=f"{name}: {errors[name]:.4f} off")
        print(f"{name:>9}: cameras {errors[name]:.4f} off")
    ax.set(xlabel="x", ylabel="z", title="Cameras from above")
    fig.legend(loc="outside upper center", ncols=3, frameon=False)
    fig.savefig(picture, dpi=150)
    return errors | {"noise": outcome.result.noise[0].sigma}


if __name__ == "__main__":
    main(*sys.argv[1:2])
