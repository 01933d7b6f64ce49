"""Dirt in files of pose graphs: what is repaired, and told."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from asker.io.file_issues import Dirt
from asker.io.files import FileError

Information = Literal["nearest", "diagonal", "skip", "strict"]
INFORMATION: tuple[Information, ...] = get_args(Information)
DONE = {"nearest": "set to 0", "diagonal": "the diagonal kept alone", "skip": "left out"}
NEGATIVE, ROUNDED = 1e-5, 1e-12
"""An eigenvalue of Ω below −NEGATIVE times its largest entry is dirt; below −ROUNDED it is set to 0."""


def semidefinite(
    matrices: NDArray[np.float64], lines: list[int], dirt: Dirt, information: Information
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Information matrices without negative eigenvalues, and which of them are kept.

    Eigenvalues that rounding made negative become 0; of others: nearest sets them to 0, diagonal keeps the diagonal
    alone, skip leaves the edge out, strict is an error.
    """
    size = np.abs(matrices).max(axis=(1, 2))
    size = np.where(size > 0, size, 1.0)[:, None, None]
    scaled = matrices / size
    every = np.ones(len(matrices), dtype=bool)
    try:
        np.linalg.cholesky(scaled)
        return matrices, every
    except np.linalg.LinAlgError:  # at least one is not positive definite
        values, vectors = np.linalg.eigh(scaled)
    bad = values[:, 0] < -NEGATIVE
    k = int(np.argmax(bad))
    error = f"the information matrix has a negative eigenvalue, {values[k, 0] * size[k, 0, 0]:.3g}"
    if information == "strict" and bad.any():
        raise FileError(dirt.path, error, lines[k])
    dirt.found(
        bad, f"edge{{s}} with negative eigenvalues in the information matrix: {DONE.get(information)}", error, lines[k]
    )
    off = values[:, 0] < -ROUNDED
    V, least = vectors[off], np.maximum(values[off], 0)
    nearest = np.einsum("nik,nk,njk->nij", V, least, V)
    repaired = matrices.copy()
    repaired[off] = size[off] * (nearest + np.swapaxes(nearest, 1, 2)) / 2
    if information == "diagonal":
        repaired[bad] = np.maximum(np.einsum("nii->ni", matrices[bad]), 0)[:, :, None] * np.eye(matrices.shape[1])
    if information != "skip":
        return repaired, every
    if bad.all():
        raise FileError(dirt.path, "no edge is left: every information matrix has a negative eigenvalue")
    return repaired[~bad], ~bad
