"""Rotation averaging: orientations of 100 cameras on a ring from relative rotations of which 40 % are wrong.

The start goes along a spanning tree, so that one wrong rotation turns all that hang on it.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

import asker
from asker.manifolds import log_so3
from asker.rotations import angle_axis_from_matrix, matrix_from_angle_axis, matrix_from_quaternion


def difference(Ri, Rj, Rij):
    return log_so3(Rij.T @ Rj @ Ri.T)


def average(start, i, j, R_ij, strategy) -> np.ndarray:
    R = asker.Variables(start, asker.SO3, fixed=np.arange(len(start)) == 0)
    kernel = asker.SmoothTruncated(tau=np.radians(6))
    return asker.solve(asker.Problem(asker.Factors(difference, R[i], R[j], data=R_ij, kernel=kernel)), strategy)[R]


def made(seed: int = 0, n: int = 100, pairs: int = 1000, outliers: float = 0.4):
    rng = np.random.default_rng(seed)
    angle = np.arange(n) * 2 * np.pi / n
    truth = matrix_from_angle_axis(np.stack([0*angle, 0*angle, angle], axis=1)) @ matrix_from_angle_axis(rng.normal(0,.2,(n,3)))
    i, j = np.triu_indices(n, 1)
    chosen = rng.choice(len(i), pairs, replace=False)
    i, j = i[chosen], j[chosen]
    R_ij = truth[j] @ truth[i].transpose(0, 2, 1) @ matrix_from_angle_axis(rng.normal(0, np.radians(1.5), (pairs, 3)))
    wrong = int(outliers * pairs)
    R_ij[:wrong] = matrix_from_quaternion(rng.normal(size=(wrong, 4)))
    return truth, i, j, R_ij


def along_tree(n, i, j, R_ij):
    edge = coo_array((np.arange(1, len(i) + 1), (i, j)), shape=(n, n)).tocsr()
    order, parent = breadth_first_order(edge, 0, directed=False)
    R = np.tile(np.eye(3), (n, 1, 1))
    for k in order[1:]:
        m = parent[k]
        R[k] = R_ij[edge[m, k] - 1] @ R[m] if edge[m, k] else R_ij[edge[k, m] - 1].T @ R[m]
    return R
def err(R,T):
    D=R.transpose(0,2,1)@T   # R_k^T T_k = const G
    G=D[0]
    e=np.degrees(np.linalg.norm(angle_axis_from_matrix(D@G.T),axis=1)); return np.median(e), e.max()
