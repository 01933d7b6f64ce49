"""A problem linearised at a point, for covariances, leverages and observability."""

from functools import cached_property

import numpy as np

from asker.engines.cpu.array_pool import Pool
from asker.engines.cpu.factor_loops import FactorCode
from asker.engines.cpu.system import (
    Inverse,
    Weights,
    choose_solver,
    compressed,
    diagonal_hessian_blocks,
    prediction_variances,
)
from asker.engines.inverse_blocks import Regularisation, RegularisedInverse
from asker.engines.null_space import regularised
from asker.engines.sparsity import Structure
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables


class LinearModel:
    """The Jacobians of all residuals at one point.  Arrays of numbers per observation are in the user's order."""

    def __init__(self, problem: Problem, theta: tuple[np.ndarray, ...]):
        self.problem, self.structure = problem, Structure(problem)
        pool, rows = Pool(), dict(zip(problem.variables, theta, strict=True))
        self.linear = [FactorCode(f, pool).linearise(rows) for f in self.structure.factors]

    @cached_property
    def dense(self) -> bool:
        """True if the reduced matrix is factorised as a dense one."""
        solver = choose_solver(self.structure)
        if solver == "cg":
            raise ProblemError(
                f"covariances need a factorisation of the reduced matrix, which has {self.structure.n_kept} unknowns "
                "and is too dense for that: fix some of the variables"
            )
        return solver != "sparse-cholesky"

    def diagonal_blocks(self, a: list[np.ndarray]) -> dict[Variables, np.ndarray]:
        """Return the diagonal block Σ a JᵀJ of every variable, (n, d, d) for each free group."""
        model = [Weights(x, x, x, False) for x in self._sorted(a)]
        return diagonal_hessian_blocks(self.structure, self.linear, model)

    def gradients(self, c: list[np.ndarray]) -> dict[Variables, np.ndarray]:
        """Return the gradient Σ c Jᵀr of every variable, (n, d) for each free group."""
        G = {v: np.zeros((len(v), v.manifold.tangent)) for v in self.problem.variables if v.is_free}
        for f, linear, w in zip(self.structure.factors, self.linear, self._sorted(c), strict=True):
            Jr = np.einsum("npd,np->nd", linear.J.reshape(f.n, f.p, f.width), w[:, None] * linear.r)
            for slot, first in zip(f.free, f.offsets, strict=True):
                v = f.factors.slots[slot].variables
                for q in range(v.manifold.tangent):
                    G[v][:, q] += np.bincount(f.indices[slot], Jr[:, first + q], minlength=len(v))
        return G

    def derivatives_by(self, v: Variables) -> list[tuple[np.ndarray, np.ndarray, np.ndarray] | None]:
        """Return J (n, p, d) with respect to one variable group, r (n, p) and the index of each observation's variable.

        The entry of a factor group that does not depend on these variables is None.  A factor must not depend on more
        than one of them.
        """
        out: list[tuple[np.ndarray, np.ndarray, np.ndarray] | None] = []
        for f, linear in zip(self.structure.factors, self.linear, strict=True):
            J, derivatives = linear.J.reshape(f.n, f.p, f.width), None
            for slot, first in zip(f.free, f.offsets, strict=True):
                if f.factors.slots[slot].variables is v:
                    block = J[:, :, first : first + v.manifold.tangent]
                    derivatives = f.unsorted(block), f.unsorted(linear.r), f.factors.slots[slot].index
            out.append(derivatives)
        return out

    def predicted_alone(self, a: list[np.ndarray], without: Variables | None = None) -> list[np.ndarray]:
        """Return tr(J B⁻¹ Jᵀ) of every observation, summed over its variables, with the diagonal blocks B = Σ a JᵀJ.

        It is the variance of the predicted residual due to each variable, if all other variables are known.  The
        variable group `without` is excluded.
        """
        inverses = {
            v: np.linalg.inv(B + regularised(v, B).K) for v, B in self.diagonal_blocks(a).items() if v is not without
        }
        out = []
        for f, linear in zip(self.structure.factors, self.linear, strict=True):
            J, total = linear.J.reshape(f.n, f.p, f.width), np.zeros(f.n)
            for slot, first in zip(f.free, f.offsets, strict=True):
                v = f.factors.slots[slot].variables
                if v is without:
                    continue
                block = J[:, :, first : first + v.manifold.tangent]
                total += np.einsum("npq,npq->n", block @ inverses[v][f.indices[slot]], block)
            out.append(f.unsorted(total))
        return out

    def inverse(
        self, a: list[np.ndarray], b: list[np.ndarray] | None = None, regularisation: Regularisation | None = None
    ) -> Inverse:
        """Return the inverse of Σ Jᵀ(aI + b rrᵀ)J."""
        linear = [compressed(f, lin) for f, lin in zip(self.structure.factors, self.linear, strict=True)]
        return Inverse(
            self.structure, linear, self._sorted(a), None if b is None else self._sorted(b), self.dense, regularisation
        )

    def predicted(self, inverse: RegularisedInverse) -> list[np.ndarray]:
        """Return the prediction variance tr(J M Jᵀ) of every observation."""
        assert isinstance(inverse, Inverse)
        return [f.unsorted(x) for f, x in zip(self.structure.factors, prediction_variances(inverse), strict=True)]

    def nonfinite_derivative(self) -> str:
        """Return a message about the first observation whose derivatives are not finite, or "" if there is none."""
        for f, linear in zip(self.structure.factors, self.linear, strict=True):
            is_bad = ~np.isfinite(linear.J.reshape(f.n, f.p, f.width))  # (n, p, D)
            rows = f.unsorted(is_bad.any(axis=1))  # (n, D)
            for row in np.flatnonzero(rows.any(axis=1))[:1]:
                k = max(k for k, first in zip(f.free, f.offsets, strict=True) if first <= int(rows[row].argmax()))
                slot = f.factors.slots[k]
                count, variable = int(rows.any(axis=1).sum()), f"{slot.variables.name}[{slot.index[row]}]"
                at = f"observation {f.factors.numbers[row]}" + (f" and {count - 1} more" if count > 1 else "")
                return f"{f.factors.name}: the derivative of {at} with respect to {variable} is not finite"
        return ""

    def _sorted(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return numbers per observation in the engine's order."""
        sorted_ = (f.sorted(x) for f, x in zip(self.structure.factors, arrays, strict=True))
        return [np.ascontiguousarray(x, dtype=float) for x in sorted_]
