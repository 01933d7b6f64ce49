"""Repair of invalid information matrices in pose-graph files."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from asker.io.file_issues import FileIssues
from asker.io.files import FileError

Information = Literal["nearest", "diagonal", "skip", "strict"]
INFORMATION: tuple[Information, ...] = get_args(Information)
REPAIRS = {"nearest": "set to 0", "diagonal": "reduced to the diagonal", "skip": "dropped"}
NEGATIVE_TOL = 1e-5
"""An eigenvalue of Ω below −NEGATIVE_TOL times its largest entry is an issue of the file."""
ROUNDING_TOL = 1e-12
"""An eigenvalue of Ω below −ROUNDING_TOL times its largest entry is set to 0."""


def semidefinite(
    matrices: NDArray[np.float64], lines: list[int], issues: FileIssues, information: Information
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return positive semidefinite information matrices, and a mask of the edges to keep.

    Negative eigenvalues due to rounding are set to 0.

    Parameters
    ----------
    matrices
        Symmetric matrices, (n, d, d).
    lines
        Line number of each.
    issues
        Report of the issues of the file.
    information
        Treatment of other negative eigenvalues: "nearest" sets them to 0, "diagonal" keeps only the diagonal, "skip"
        drops the edge, "strict" raises an error.

    Returns
    -------
    matrices : ndarray, (m, d, d)
        Repaired matrices of the edges to keep.
    kept : ndarray, (n,)
        Mask of these edges.

    Raises
    ------
    FileError
        If `information` is "strict" and a matrix has negative eigenvalues, or if no edge remains.
    """
    size = np.abs(matrices).max(axis=(1, 2))
    size = np.where(size > 0, size, 1.0)[:, None, None]
    scaled = matrices / size
    all_kept = np.ones(len(matrices), dtype=bool)
    try:
        np.linalg.cholesky(scaled)
        return matrices, all_kept
    except np.linalg.LinAlgError:  # at least one is not positive definite
        values, vectors = np.linalg.eigh(scaled)
    bad = values[:, 0] < -NEGATIVE_TOL
    k = int(np.argmax(bad))
    error = f"the information matrix has a negative eigenvalue, {values[k, 0] * size[k, 0, 0]:.3g}"
    if information == "strict" and bad.any():
        raise FileError(issues.path, error, lines[k])
    repair = REPAIRS.get(information)
    issues.add(bad, f"edge{{s}} with negative eigenvalues in the information matrix: {repair}", error, lines[k])
    negative = values[:, 0] < -ROUNDING_TOL
    V, clipped = vectors[negative], np.maximum(values[negative], 0)
    nearest = np.einsum("nik,nk,njk->nij", V, clipped, V)
    repaired = matrices.copy()
    repaired[negative] = size[negative] * (nearest + np.swapaxes(nearest, 1, 2)) / 2
    if information == "diagonal":
        repaired[bad] = np.maximum(np.einsum("nii->ni", matrices[bad]), 0)[:, :, None] * np.eye(matrices.shape[1])
    if information != "skip":
        return repaired, all_kept
    if bad.all():
        raise FileError(issues.path, "no edge remains: every information matrix has a negative eigenvalue")
    return repaired[~bad], ~bad
