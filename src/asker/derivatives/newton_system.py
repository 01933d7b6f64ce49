"""Linear systems with the Hessian of the cost at a solution.

Problem     Hx = b with H = ∂²Ψ/∂δ², the Hessian with respect to a step δ of every variable on its manifold
Symbols     H = Σ w (ω JᵀJ + 2ω′ Jᵀr rᵀJ + ω Σ r ∂²r), with ω and its derivative ω′ at ‖r‖²
            M = (Σ w (ω JᵀJ + 2ω′ Jᵀr rᵀJ))⁻¹, factorised as for covariances
Algorithm   conjugate gradients preconditioned by M.  They need one iteration if the residuals are linear in the
            variables, and few if the curvature of the residuals is small.  Products with H are exact (JAX).
Indefinite  If the robust matrix is not positive definite, M is that of Σ w ω JᵀJ, which only preconditions.  If the
            curvature of H along a search direction is not positive, the point is no strict minimum: an error.
Constant    Fixed variables, and coordinates at active bounds, are excluded.  A bound is active if the gradient points
            out of the feasible set; if the gradient is 0 there, the solution has one-sided derivatives only: an error.
"""

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asker.derivatives.factor_derivatives import FactorDerivatives, Floats, Steps
from asker.engines.linearised import linear_model
from asker.io.log import log
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables

RELATIVE_TOL = 1e-18
"""Squared error in the norm of M, relative to that of the start, at which conjugate gradients end."""
NEWTON_TOL = 1e-10
"""The same for Newton steps, whose error the next step corrects."""
ACCEPTED_TOL = 1e-14
"""Largest such error that is accepted when the iteration has come to its rounding errors or to its limit."""
MAX_ITERATIONS, MAX_STAGNANT_ITERATIONS = 500, 20
MIN_CURVATURE = 1e-10
"""Curvature of H relative to that of M⁻¹ below which a direction is not determined."""
MIN_BOUND_GRADIENT = 1e-7
"""Gradient at an active bound, relative to the root of its curvature and of the cost, below which it counts as 0."""
NOT_DETERMINED = 1e-9
"""Relative component of a right-hand side along undetermined directions above which there is no solution."""


class NewtonSystem:
    """Gradient and Hessian of the cost at a point, with respect to steps of all variables."""

    def __init__(self, engine: str, problem: Problem, theta: tuple[Floats, ...]):
        """
        Parameters
        ----------
        engine
            Name of the engine that solved the problem.
        theta
            Rows of all variables.
        """
        self.engine, self.problem = engine, problem
        self.free = {v: np.repeat(~v.fixed[:, None], v.manifold.tangent, axis=1) for v in problem.variables}
        """Mask (n, tangent) of the coordinates that are neither fixed nor at an active bound."""
        self._evaluate(theta)
        self.inverse = self._factorised()
        self._exclude_active_bounds()

    def _evaluate(self, theta: tuple[Floats, ...]) -> None:
        self.theta = theta
        self.rows = dict(zip(self.problem.variables, theta, strict=True))
        self.factors = [FactorDerivatives(f, self.rows) for f in self.problem.factors]
        self.cost = sum(f.cost for f in self.factors)
        self.gradient = self.of_variables([f.gradient for f in self.factors])

    def at(self, theta: tuple[Floats, ...]) -> "NewtonSystem":
        """Return the system at a near point, with the same active bounds; the same factorisation preconditions it."""
        other = copy(self)
        other._evaluate(theta)
        return other

    # ------------------------------------------------------------ vectors

    def of_variables(self, parts: list[list[Floats]]) -> Steps:
        """Return sums over all observations of each variable, from numbers for each slot of each factor group."""
        return {
            v: np.asarray(sum(f.sums(v, part) for f, part in zip(self.factors, parts, strict=True)))
            for v in self.problem.variables
        }

    def only_free(self, x: Steps) -> Steps:
        """Return a vector with 0 for constant coordinates."""
        return {v: np.where(self.free[v], x[v], 0.0) for v in self.problem.variables}

    def product(self, x: Steps) -> Steps:
        """Return H x."""
        return self.only_free(self.of_variables([f.product(x) for f in self.factors]))

    def preconditioned(self, x: Steps) -> Steps:
        """Return M x."""
        solved = self.inverse.solve({v: x[v][:, :, None] for v in self.inverse.regularisation.single})
        return self.only_free({v: solved[v][:, :, 0] if v in solved else np.zeros_like(x[v]) for v in x})

    # ------------------------------------------------------------ factorisation

    def _factorised(self) -> Any:
        """Return the factorised robust matrix, or that without the curvature of the kernels if it is indefinite."""
        from asker.engines.inverse_blocks import SingularError

        problem = self.problem.informative
        model = linear_model(self.engine, problem, self.theta)
        a, b = ([x[f.factors.is_informative] for f, x in zip(self.factors, each, strict=True)]
                for each in ([f.a for f in self.factors], [f.b for f in self.factors]))  # fmt: skip
        if any(v.bounds for v in problem.variables):
            self._blocks = model.diagonal_blocks(a)
        try:
            return model.inverse(a, b)
        except SingularError:
            log.debug("derivatives: the robust matrix is not positive definite; its Gauss-Newton part preconditions")
        try:
            return model.inverse(a)
        except SingularError as error:
            raise ProblemError(f"the solution cannot be differentiated: {error}") from None

    def _exclude_active_bounds(self) -> None:
        """Exclude the coordinates at active bounds; raise an error where the gradient at a bound is 0."""
        for v in self.problem.variables:
            if v.bounds is None or not v.is_free:
                continue
            start, low, high, _ = v.bounds.parts(self.rows[v])
            at_bound = ((start <= low) | (start >= high)) & self.free[v]
            scale = np.sqrt(np.einsum("nqq->nq", self._blocks[v]) * max(self.cost, np.finfo(float).tiny))
            weak = at_bound & (np.abs(self.gradient[v]) <= MIN_BOUND_GRADIENT * scale)
            for k in np.flatnonzero(weak.any(axis=1))[:1]:
                raise ProblemError(
                    f"{v.name}[{k}] is at its bound with a gradient of 0: its derivatives exist on one side only"
                )
            self.free[v] &= ~(at_bound & v.bounds.is_active(self.rows[v], self.gradient[v]))

    # ------------------------------------------------------------ undetermined directions

    @property
    def has_active_bounds(self) -> bool:
        """True if a coordinate of a free variable is constant because of its bound."""
        return any(bool((~self.free[v] & ~v.fixed[:, None]).any()) for v in self.problem.variables)

    def undetermined(self) -> dict[Variables, NDArray[np.bool_]]:
        """Return the mask (n, tangent) of the numbers of single variables that the data do not determine."""
        return {v: s.is_open & self.free[v] for v, s in self.inverse.regularisation.single.items()}

    def check_determined(self, b: Steps, what: str) -> None:
        """Raise an error if a right-hand side has a component along an undetermined direction."""
        if self.has_active_bounds:
            return
        for v, s in self.inverse.regularisation.single.items():
            along = np.abs(np.einsum("nde,ne->nd", s.K, b[v])) * ~v.fixed[:, None]
            limit = NOT_DETERMINED * np.abs(b[v]).max(initial=0.0) * np.abs(s.K).max(initial=0.0)
            for k in np.flatnonzero((along > limit).any(axis=1) & (s.free > 0))[:1]:
                raise ProblemError(f"the data do not determine {v.name}[{k}], on which {what} depends")
        if self.inverse.nullity:
            N = self.inverse.null_space
            along = np.abs(sum(np.einsum("ndq,nd->q", N[v], b[v]) for v in N))
            size = sum(np.einsum("ndq,nd->q", np.abs(N[v]), np.abs(b[v])) for v in N)
            if (along > NOT_DETERMINED * size).any():
                self._raise_gauge(what)

    def check_no_gauge(self) -> None:
        """Raise an error if directions in which many variables move together are undetermined."""
        if self.inverse.nullity and not self.has_active_bounds:
            self._raise_gauge("the solution")

    def _raise_gauge(self, what: str) -> None:
        N, n = self.inverse.null_space, self.inverse.nullity
        names = " and ".join(v.name for v in N if np.abs(N[v]).max(initial=0.0) > NOT_DETERMINED)
        direction = "1 direction" if n == 1 else f"{n} directions"
        raise ProblemError(
            f"the data do not determine {direction} in which {names} move together (the gauge), on which {what} "
            "depends: fix a variable, or add a prior"
        )

    # ------------------------------------------------------------ solution

    def solve(self, b: Steps, tol: float = RELATIVE_TOL) -> Steps:
        """Return H⁻¹ b by preconditioned conjugate gradients."""
        r = self.only_free(b)
        x = {v: np.zeros_like(part) for v, part in r.items()}
        z = self.preconditioned(r)
        p, size = z, dot(r, z)
        first = best = length = size
        stagnant = n_iterations = 0
        while size > tol * first and stagnant < MAX_STAGNANT_ITERATIONS and n_iterations < MAX_ITERATIONS:
            Hp = self.product(p)
            curvature = dot(p, Hp)
            if not curvature > MIN_CURVATURE * length:
                raise ProblemError(
                    "the solution cannot be differentiated: it is no strict minimum, since the curvature of the cost "
                    f"along a direction is {curvature / length:.2g} times that of a Gauss-Newton step"
                )
            x, r = added(x, size / curvature, p), added(r, -size / curvature, Hp)
            z = self.preconditioned(r)
            size, before = dot(r, z), size
            stagnant = 0 if size < 0.5 * best else stagnant + 1
            best = min(best, size)
            p = added(z, size / before, p)
            length = size + (size / before) ** 2 * length  # pᵀM⁻¹p, since rᵀp = 0
            n_iterations += 1
        log.debug("derivatives: %d iterations of conjugate gradients, error %.1e", n_iterations, best / (first or 1.0))
        if best > max(tol, ACCEPTED_TOL) * first:
            raise ProblemError(
                f"the solution cannot be differentiated: after {n_iterations} iterations of conjugate gradients the "
                f"relative error is {np.sqrt(best / first):.1e}; the Hessian is too ill-conditioned"
            )
        return x


def dot(x: Steps, y: Steps) -> float:
    """Return the inner product of two vectors."""
    return float(sum(np.einsum("nd,nd->", x[v], y[v]) for v in x))


def added(x: Steps, factor: float, y: Steps) -> Steps:
    """Return x + factor y."""
    return {v: x[v] + factor * y[v] for v in x}
