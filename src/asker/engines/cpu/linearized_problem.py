"""A problem at a point, linearised: what says how well the data determine it."""

from functools import cached_property

import numpy as np

from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.factor_loops import FactorCode
from asker.engines.cpu.system import Inverse, Weights, choose_solver, own_blocks, predicted, shortened
from asker.engines.inverse_blocks import HeldInverse, Stiffening
from asker.engines.null_space import held
from asker.engines.sparsity import Structure
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables


class LinearModel:
    """Derivatives of all residuals at one point; numbers per observation come and go in the user's order."""

    def __init__(self, problem: Problem, theta: tuple[np.ndarray, ...]):
        self.problem, self.structure = problem, Structure(problem)
        pool, rows = Pool(), dict(zip(problem.variables, theta, strict=True))
        self.linear = [FactorCode(f, pool).linearise(rows) for f in self.structure.factors]

    @cached_property
    def dense(self) -> bool:
        """Whether the matrix of the kept variables is factorised as a dense one."""
        solver = choose_solver(self.structure)
        if solver == "cg":
            raise ProblemError(
                f"the matrix of {self.structure.n_kept} unknowns that covariances need is too full to be factorised, "
                "as conjugate gradients need not: fix some of the variables"
            )
        return solver != "sparse-cholesky"

    def own_blocks(self, a: list[np.ndarray]) -> dict[Variables, np.ndarray]:
        """Σ a JᵀJ of every variable, (n, d, d) for each free group."""
        model = [Weights(x, x, x, False) for x in self._own(a)]
        return own_blocks(self.structure, self.linear, model)

    def gradients(self, c: list[np.ndarray]) -> dict[Variables, np.ndarray]:
        """Return Σ c Jᵀr of every variable, (n, d) for each free group."""
        G = {v: np.zeros((len(v), v.manifold.tangent)) for v in self.problem.variables if v.is_free}
        for f, linear, w in zip(self.structure.factors, self.linear, self._own(c), strict=True):
            Jr = np.einsum("npd,np->nd", linear.J.reshape(f.n, f.p, f.width), w[:, None] * linear.r)
            for slot, first in zip(f.free, f.offsets, strict=True):
                v = f.factors.slots[slot].variables
                for q in range(v.manifold.tangent):
                    G[v][:, q] += np.bincount(f.indices[slot], Jr[:, first + q], minlength=len(v))
        return G

    def derivatives_by(self, v: Variables) -> list[tuple[np.ndarray, np.ndarray, np.ndarray] | None]:
        """J (n, p, d) with respect to the variables of a group, r (n, p), and which of them each observation touches;
        None for factors that do not touch them.  A factor touches one at most."""
        out: list[tuple[np.ndarray, np.ndarray, np.ndarray] | None] = []
        for f, linear in zip(self.structure.factors, self.linear, strict=True):
            J, own = linear.J.reshape(f.n, f.p, f.width), None
            for slot, first in zip(f.free, f.offsets, strict=True):
                if f.factors.slots[slot].variables is v:
                    those = J[:, :, first : first + v.manifold.tangent]
                    own = f.unsorted(those), f.unsorted(linear.r), f.factors.slots[slot].index
            out.append(own)
        return out

    def predicted_alone(self, a: list[np.ndarray], without: Variables | None = None) -> list[np.ndarray]:
        """tr(J B⁻¹ Jᵀ) of every observation, summed over its variables, with their own blocks B = Σ a JᵀJ: how far each
        of them, with all others known, may move it; `without` a group of variables."""
        inverses = {v: np.linalg.inv(B + held(v, B).K) for v, B in self.own_blocks(a).items() if v is not without}
        out = []
        for f, linear in zip(self.structure.factors, self.linear, strict=True):
            J, total = linear.J.reshape(f.n, f.p, f.width), np.zeros(f.n)
            for slot, first in zip(f.free, f.offsets, strict=True):
                v = f.factors.slots[slot].variables
                if v is without:
                    continue
                own = J[:, :, first : first + v.manifold.tangent]
                total += np.einsum("npq,npq->n", own @ inverses[v][f.indices[slot]], own)
            out.append(f.unsorted(total))
        return out

    def inverse(
        self, a: list[np.ndarray], b: list[np.ndarray] | None = None, stiffening: Stiffening | None = None
    ) -> Inverse:
        """That of Σ Jᵀ(aI + b rrᵀ)J."""
        linear = [shortened(f, lin) for f, lin in zip(self.structure.factors, self.linear, strict=True)]
        return Inverse(
            self.structure, linear, self._own(a), None if b is None else self._own(b), self.dense, stiffening
        )

    def predicted(self, inverse: HeldInverse) -> list[np.ndarray]:
        """tr(J M Jᵀ) of every observation."""
        assert isinstance(inverse, Inverse)
        return [f.unsorted(x) for f, x in zip(self.structure.factors, predicted(inverse), strict=True)]

    def without_derivative(self) -> str:
        """The first observation whose derivatives are not finite, told in words; "" where there is none."""
        for f, linear in zip(self.structure.factors, self.linear, strict=True):
            is_bad = ~np.isfinite(linear.J.reshape(f.n, f.p, f.width))  # (n, p, D)
            rows = f.unsorted(is_bad.any(axis=1))  # (n, D)
            for row in np.flatnonzero(rows.any(axis=1))[:1]:
                slot = max(k for k, first in zip(f.free, f.offsets, strict=True) if first <= int(rows[row].argmax()))
                of = f.factors.slots[slot]
                count, where = int(rows.any(axis=1).sum()), f"{of.variables.name}[{of.index[row]}]"
                at = f"observation {f.factors.numbers[row]}" + (f" and {count - 1} more" if count > 1 else "")
                return f"{f.factors.name}: the derivative of {at} with respect to {where} is not finite"
        return ""

    def _own(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        sorted_ = (f.sorted(x) for f, x in zip(self.structure.factors, arrays, strict=True))
        return [np.ascontiguousarray(x, dtype=float) for x in sorted_]
