"""Derivatives of a solution with respect to the parameters of its problem.

Problem     θ*(p) = argmin Ψ(θ; p), for parameters p: data, weights, kernel widths, and values of fixed variables
Symbols     g(δ; p) = ∂Ψ/∂δ, the gradient for a step δ; H = ∂g/∂δ; T = derivative of values with respect to δ
Algorithm   g(0; p) = 0 at the solution for every p, so by the implicit function theorem ∂δ/∂p = −H⁻¹ ∂g/∂p.
            (1) The point is refined by Newton's method until g is 0 up to rounding: solves stop earlier.
            (2) vjp: λ = H⁻¹ Tᵀȳ, and p̄ = −∂(λᵀg)/∂p     (one linear system for all parameters)
            (3) jvp: δ̇ = −H⁻¹ (∂g/∂p) ṗ, and ẏ = T δ̇       (one linear system for all values)
Noise       Kernel widths are parameters.  A noise scale that the solve has estimated depends on the data as well; such
            results are rejected.
"""

from typing import Any

import numpy as np

from asker.derivatives.factor_derivatives import Floats, Steps
from asker.derivatives.gradients import Gradients, by_group, observed_gradient, observed_tangents
from asker.derivatives.newton_system import NEWTON_TOL, NewtonSystem, added, dot
from asker.derivatives.retraction import retracted
from asker.derivatives.tangents import ValueTangents, flat
from asker.io.log import log
from asker.problem.by_group import Groups
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError
from asker.solver.result import Result

MAX_NEWTON_STEPS = 6
STATIONARY_DECREASE = 1e-20
"""Expected decrease of a Newton step, relative to the cost, below which a point is stationary."""
STATIONARY_STEP = 1e-11
"""Largest coordinate of a Newton step, relative to the largest of the variables, below which a point is stationary."""
MAX_UNCONVERGED_DECREASE = 1e-3
"""Expected decrease relative to the cost above which a solve has not converged, and no Newton step is tried."""


class ImplicitDerivatives:
    """Derivatives of a result, with one factorisation for all of them."""

    def __init__(self, result: Result):
        """
        Raises
        ------
        ProblemError
            If the solution is not differentiable, or its derivatives are unknown; the message has the reason.
        """
        problem = _problem_of(result)
        self.problem = problem
        theta = tuple(v.at(x).rows for v, x in zip(problem.variables, result.values, strict=True))
        self.system = _at_minimum(NewtonSystem(result.engine, problem, theta), result)
        self.tangents = {v: ValueTangents(v, self.system.rows[v]) for v in problem.variables}
        names = [v.name for v in problem.variables]
        self.values = Groups([t.values for t in self.tangents.values()], names, problem.variables)
        """Values of the variables at the stationary point."""

    def vjp(self, cotangents: Any) -> Gradients:
        """Return the gradient of Σ cotangent · value with respect to all parameters of the problem."""
        variables = self.problem.variables
        given = by_group("cotangents", cotangents, variables)
        b = {
            v: np.zeros(self.system.free[v].shape) if y is None else self.tangents[v].step_cotangent(y)
            for v, y in zip(variables, given, strict=True)
        }
        direct = {v: np.where(v.fixed[:, None], b[v], 0.0) for v in variables}  # values that are parameters themselves
        b = self.system.only_free(b)
        self.system.check_determined(b, "the function")
        lam = self.system.solve(b)  # (2)
        steps, pulled = [], []
        for f in self.system.factors:
            step, observed = f.pullback({v: -x for v, x in lam.items()})
            steps.append(step)
            pulled.append(observed_gradient(f.factors, observed))
        of_fixed = added(self.system.of_variables(steps), 1.0, direct)
        fixed = [self.tangents[v].value_cotangent(np.where(v.fixed[:, None], of_fixed[v], 0.0)) for v in variables]
        factors, names = self.problem.factors, [f.name for f in self.problem.factors]
        return Gradients(
            Groups([f.data_layout.like_given(p.data) for f, p in zip(factors, pulled, strict=True)], names, factors),
            Groups([p.weight for p in pulled], names, factors),
            Groups([p.tau for p in pulled], names, factors),
            Groups(fixed, [v.name for v in variables], variables),
        )

    def jvp(self, data: Any = None, weight: Any = None, tau: Any = None, fixed: Any = None) -> Groups[Any]:
        """Return the change of all values for a change of the parameters of the problem."""
        variables, tangents = self.problem.variables, observed_tangents(self.problem, data, weight, tau)
        given = by_group("fixed", fixed, variables)
        step: Steps = {}
        for v, y in zip(variables, given, strict=True):
            step[v] = np.zeros(self.system.free[v].shape) if y is None else self.tangents[v].step(y)
            if not v.fixed.all() and np.any(step[v][~v.fixed]):
                raise ProblemError(f"{v.name}: the tangent of free variables must be 0: the solve determines them")
        pairs = zip(self.system.factors, tangents, strict=True)
        b = self.system.only_free(self.system.of_variables([f.pushforward(step, t) for f, t in pairs]))
        self.system.check_no_gauge()
        solved = self.system.solve({v: -x for v, x in b.items()})  # (3)
        open_ = self.system.undetermined()
        moved = [np.where(open_.get(v, False), np.nan, solved[v] + step[v]) for v in variables]
        values = [self.tangents[v].value_tangent(x) for v, x in zip(variables, moved, strict=True)]
        return Groups(values, [v.name for v in variables], variables)


def _problem_of(result: Result) -> Problem:
    """Return the problem of a result; raise an error if its solution has no derivatives."""
    problem = result.problem
    if problem is None:
        raise ProblemError("a loaded result has no problem, which derivatives need: result.attach(problem)")
    if problem.portion is not None:
        raise ProblemError("derivatives need the whole problem, and this process has only a portion of it")
    if result.estimated_noise is not None:
        raise ProblemError(
            "the noise scales were estimated together with the solution, and their own dependence on the data has no "
            "derivative here: solve again with them constant, asker.solve(result.problem, asker.IRLS(), start=result)"
        )
    return problem


def _at_minimum(system: NewtonSystem, result: Result) -> NewtonSystem:
    """Return the system at the stationary point that Newton's method reaches from the result (1)."""
    for _ in range(MAX_NEWTON_STEPS):
        g = system.only_free(system.gradient)
        expected = dot(g, system.preconditioned(g)) / 2
        if expected <= STATIONARY_DECREASE * system.cost:
            return system
        if expected > MAX_UNCONVERGED_DECREASE * max(system.cost, result.initial_cost * 1e-12):
            break
        step = system.solve({v: -x for v, x in g.items()}, NEWTON_TOL)
        moved = _moved(system, step)
        largest, length = _sizes(system, moved)
        if length <= STATIONARY_STEP * largest:
            return system
        log.debug("derivatives: Newton step of %.1e to the minimum", length)
        system = system.at(moved)
    raise ProblemError(
        f"the solution cannot be differentiated: its gradient is not 0 ({result.status.value}); a step is expected to "
        f"lower the cost {system.cost:.6g} by {expected:.2g}: solve again with start=result and tol=0"
    )


def _sizes(system: NewtonSystem, moved: tuple[Floats, ...]) -> tuple[float, float]:
    """Return the largest of all values of variables, and their largest change."""
    pairs = zip(system.problem.variables, system.theta, moved, strict=True)
    values = [(flat(v.manifold.unpack(x)), flat(v.manifold.unpack(y))) for v, x, y in pairs]
    largest = max(float(np.abs(x).max(initial=0.0)) for x, _ in values)
    return largest, max(float(np.abs(y - x).max(initial=0.0)) for x, y in values)


def _moved(system: NewtonSystem, step: Steps) -> tuple[Floats, ...]:
    """Return the rows of all variables after a step."""
    pairs = zip(system.problem.variables, system.theta, strict=True)
    return tuple(np.where(v.fixed[:, None], x, retracted(v, x, step[v])) if v.is_free else x for v, x in pairs)
