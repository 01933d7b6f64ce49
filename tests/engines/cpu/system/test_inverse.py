"""Blocks of the inverse of H equal those of the dense inverse, for every problem structure."""

import numpy as np
import pytest

import asker
from asker.engines import null_space
from asker.engines.cpu.linearized_problem import LinearModel
from linear_problems import EVERY_STRUCTURE, close, make_setup

DENSE = pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])


def dense_matrices(setup):
    """H, and J of each observation, over all free variables."""
    rows = list(setup.rows())
    H = sum(J.T @ (a * np.eye(len(r)) + b * np.outer(r, r)) @ J for r, J, a, b, _ in rows)
    return H, [J for _, J, *_ in rows]


def first_columns(problem):
    free = [v for v in problem.variables if v.is_free]
    return dict(zip(free, np.cumsum([0, *[len(v) * v.manifold.tangent for v in free]]).tolist(), strict=False))


def regularised_matrix(setup, inverse):
    """H with the regularisation of undetermined directions."""
    H, _ = dense_matrices(setup)
    first = first_columns(setup.problem)
    for v, held in inverse.regularisation.single.items():
        d = v.manifold.tangent
        for k, K in enumerate(held.K):
            at = slice(first[v] + k * d, first[v] + (k + 1) * d)
            H[at, at] += K
    kept = np.concatenate(
        [first[v] + np.arange(len(v) * v.manifold.tangent) for v in inverse.structure.kept] or [np.zeros(0, int)]
    )
    E = kept[inverse.regularisation.unknowns]
    H[E, E] += inverse.regularisation.weights
    return H


def model_of(setup, dense):
    model = LinearModel(setup.problem, tuple(v.rows for v in setup.problem.variables))
    model.dense = dense
    return model


@DENSE
@EVERY_STRUCTURE
@pytest.mark.parametrize("radial", [True, False])
def test_blocks_are_those_of_the_dense_inverse(structure, dense, radial):
    setup = make_setup(structure, radial=radial)
    inverse = model_of(setup, dense).inverse(setup.a, setup.b)
    M = np.linalg.inv(regularised_matrix(setup, inverse))
    first = first_columns(setup.problem)

    def expected(v, i, w, j):
        d, e = v.manifold.tangent, w.manifold.tangent
        return M[first[v] + i * d : first[v] + (i + 1) * d, first[w] + j * e : first[w] + (j + 1) * e]

    for v in first:
        assert close(inverse.blocks(v), np.array([expected(v, k, v, k) for k in range(len(v))]))
        for w in first:
            i, j = np.array([0, len(v) - 1, 0]), np.array([len(w) - 1, 0, 0])
            blocks = [expected(v, a, w, b) for a, b in zip(i, j, strict=True)]
            assert np.abs(inverse.pairs(v, i, w, j) - np.array(blocks)).max() <= 1e-8 * np.abs(M).max()


@DENSE
@EVERY_STRUCTURE
def test_the_null_space_is_detected(structure, dense):
    setup = make_setup(structure, radial=False)
    H, Js = dense_matrices(setup)
    inverse = model_of(setup, dense).inverse(setup.a)
    n_fixed = sum(int(v.fixed.sum()) * v.manifold.tangent for v in inverse.regularisation.single)
    n_single = sum(int(held.free.sum()) for held in inverse.regularisation.single.values())
    rank = np.linalg.matrix_rank(H, hermitian=True, tol=1e-11 * np.abs(H).max())
    assert n_fixed + n_single + inverse.nullity == len(H) - rank
    if inverse.nullity:
        first = first_columns(setup.problem)
        N = np.concatenate([inverse.null_space[v].reshape(-1, inverse.nullity) for v in first])
        assert np.abs(np.concatenate(Js) @ N).max() < 1e-9 * np.abs(N).max()


@DENSE
@EVERY_STRUCTURE
def test_prediction_variances(structure, dense):
    setup = make_setup(structure, radial=False)
    H, Js = dense_matrices(setup)
    model = model_of(setup, dense)
    ours = np.concatenate(model.predicted(model.inverse(setup.a)))
    pinv = np.linalg.pinv(H, hermitian=True, rcond=1e-11)
    assert close(ours, np.array([np.trace(J @ pinv @ J.T) for J in Js]))


def test_rank_deficient_blocks_are_detected_despite_rounding():
    """Two nearly parallel columns of J amplify the rounding of the last pivot."""
    rng = np.random.default_rng(0)
    for nearly in (1.0, 1e-2, 1e-3, 1e-4, 1e-5):
        J = rng.normal(size=(2000, 2, 3))
        J[:, :, 1] = 0.5 * J[:, :, 0] + nearly * J[:, :, 1]
        fixed = null_space.regularised(asker.Variables(np.zeros((2000, 3))), np.einsum("npi,npj->nij", J, J))
        assert (fixed.free == 1).all()
