"""Whether two problems are the same, number by number."""

import hashlib
from typing import Any

import numpy as np

from asker.problem import Problem


def fingerprint(problem: Problem) -> bytes:
    """The same for the same numbers, at the start."""
    digest = hashlib.sha256()

    def add(*things: Any) -> None:
        for x in things:
            digest.update(np.ascontiguousarray(x).tobytes() if isinstance(x, np.ndarray) else repr(x).encode())

    for v in problem.variables:
        add(v.name, v.rows.shape, repr(v.manifold), v.rows, v.fixed)
    for f in problem.factors:
        add(f.name, f.n, f.residual_size, f.kernel, f.weight, f.tau, *[s.index for s in f.slots], *f.data)
    return digest.digest()
