"""Similarities as logarithms, the format of g2o and ORB-SLAM.

    VERTEX_SIM3:EXPMAP id ω₁ ω₂ ω₃ υ₁ υ₂ υ₃ σ  fx fy cx cy
    EDGE_SIM3:EXPMAP i j ω₁ ω₂ ω₃ υ₁ υ₂ υ₃ σ  Ω

The seven numbers are the logarithm of a similarity, rotation first (Strasdat, Montiel, Davison, RSS 2010).  That of a
vertex maps from the camera to the world, and that of an edge is j relative to i.  Ω has the same order.  The camera
parameters at the end, whose number varies in ORB-SLAM, are ignored.
"""

import numpy as np

from asker.applications.pose_graph.formats.g2o_tags import TAGS
from asker.applications.pose_graph.formats.tagged_lines import Lines, parse
from asker.geometry.rotations import matrix_from_angle_axis, quaternion_from_matrix
from asker.io.files import FileError, FilePath

LOGARITHM_TAGS = {
    "VERTEX_SIM3:EXPMAP": ("VERTEX_SIM3:QUAT", "vertex"),
    "EDGE_SIM3:EXPMAP": ("EDGE_SIM3:QUAT", "edge"),
}
"""Tag of the quaternion form and name of the line ("vertex" or "edge"), by tag."""
N_LOG = 7
TRANSLATION_FIRST = [3, 4, 5, 0, 1, 2, 6]


def convert_logarithms(path: FilePath, by_tag: dict[str, Lines]) -> dict[str, Lines]:
    """Return parsed lines with logarithms converted to quaternion form; other lines are unchanged."""
    out = {tag: lines for tag, lines in by_tag.items() if tag not in LOGARITHM_TAGS}
    for tag, (target, name) in LOGARITHM_TAGS.items():
        if tag not in by_tag:
            continue
        n_ids, n_upper = TAGS[target].n_ids, len(_upper_triangle(TAGS[target].n_dof))
        lines, n = by_tag[tag], n_ids + N_LOG + n_upper
        if not n_upper:
            lines.text = [b" ".join(text.split()[:n]) for text in lines.text]
        parse(path, [(name, lines, n)])
        names, log, upper = np.split(lines.numbers, [n_ids, n_ids + N_LOG], axis=1)
        with np.errstate(all="ignore"):
            rows = similarities(log)
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if bad.size:
            raise FileError(path, "the logarithm of a similarity has too large numbers", lines.line[bad[0]])
        numbers = np.concatenate([names, rows, upper[:, _upper_triangle(TAGS[target].n_dof)]], axis=1)
        other = out.setdefault(target, Lines([], [], numbers[:0]))
        other.line += lines.line
        other.numbers = np.concatenate([other.numbers, numbers])
    return out


def similarities(log: np.ndarray) -> np.ndarray:
    """Return the rows x y z qx qy qz qw s, (n, 8), of logarithms ω υ σ, (n, 7).

    t = Vυ, where V is the integral of exp(xσ) exp(x[ω]×) over 0 … 1.  With g(z) = (eᶻ − 1)/z and the axis K = [ω]×/θ

        V = g(σ) + Im g(σ + iθ) K + (g(σ) − Re g(σ + iθ)) K²
    """
    omega, upsilon, sigma = log[:, :3], log[:, 3:6], log[:, 6]
    theta = np.linalg.norm(omega, axis=1)
    axis = omega / np.where(theta > 0, theta, 1.0)[:, None]
    straight, turned = _mean_exp(sigma + 0j).real, _mean_exp(sigma + 1j * theta)
    once = np.cross(axis, upsilon)
    t = straight[:, None] * upsilon + turned.imag[:, None] * once
    t += (straight - turned.real)[:, None] * np.cross(axis, once)
    q = np.roll(quaternion_from_matrix(matrix_from_angle_axis(omega)), -1, axis=1)
    return np.column_stack([t, q, np.exp(sigma)])


def _mean_exp(z: np.ndarray) -> np.ndarray:
    """Return (eᶻ − 1)/z."""
    return np.where(z == 0, 1.0, np.expm1(z) / np.where(z == 0, 1.0, z))


def _upper_triangle(d: int) -> np.ndarray:
    """Return the permutation of an upper triangle's entries from rotation first to translation first; (0,) if d = 0."""
    place = np.zeros((d, d), np.intp)
    rows, columns = np.triu_indices(d)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    order = TRANSLATION_FIRST[:d]
    return place[np.ix_(order, order)][rows, columns]
