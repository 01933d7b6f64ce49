"""Invariance laws: equivalent problems, such as with another order of the observations, have the same solution.

Repeated solves of the same problem agree in every bit.  Equivalent problems (another order, weight 2 instead of a copy,
other units, another engine) may differ by the effect of rounding, which is measured: the problem is solved
N_PERTURBATIONS times with data perturbed by the fraction PERTURBATION, far more than rounding errors, and an equivalent
problem must not differ by more than SENSITIVITY_FACTOR times the largest difference among these.  The laws do not apply
to a problem that converges to another solution after a perturbation (`Trial.is_stable`); the test counts such problems.
"""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np

import asker
from problem_trial import SENSITIVITY_FACTOR, Trial, weight_of
from random_problems import strategy_named
from result_laws import difference

UNIT = 2.0**12
"""Factor of the unit; a power of two does not change rounding errors."""
ENGINE_ITERATIONS = 2
"""Number of iterations after which two engines are compared."""


def pickled_problems_solve_the_same(trial: Trial) -> str | None:
    """A pickled problem has the same result, and a pickled result is unchanged."""
    problem = pickle.loads(pickle.dumps(trial.problem.build()))
    p = trial.problem
    strategy = None if p.strategy is None else strategy_named(p.strategy)
    again = trial.solver(problem, strategy, **({"engine": "cpu"} | p.options))
    for what, other in (("problem", again), ("result", pickle.loads(pickle.dumps(trial.result)))):
        if fault := difference(trial.result, other):
            return f"{fault} of a pickled {what} differs"
    return None


def threads_do_not_matter(trial: Trial) -> str | None:
    """Results with one thread and with two agree in every bit."""
    results = [trial.solve(trial.problem, threads=n) for n in (1, 2)]
    fault = difference(*results)
    return f"{fault} differs between one thread and two" if fault else None


# ------------------------------------------------------------------ laws of equivalent problems


def order_does_not_matter(trial: Trial) -> str | None:
    """The order of the observations does not change the solution.

    Moves draw observations at random by their number, so that before convergence another order has another result.
    """
    if trial.problem.estimates_noise or not trial.is_stable:
        return None
    if isinstance(trial.result.strategy, asker.WithMoves) and trial.result.status is asker.Status.MAX_ITERATIONS:
        return None
    orders = [trial.rng.permutation(g.n) for g in trial.problem.groups]
    groups = [g.taken(order) for g, order in zip(trial.problem.groups, orders, strict=True)]
    result = trial.solve(trial.problem.with_groups(groups))
    return trial.differs([r[np.argsort(order)] for r, order in zip(result.residuals, orders, strict=True)])


def weight_2_is_a_copy(trial: Trial) -> str | None:
    """With specified kernels, a copy of an observation is equivalent to twice its weight.

    This does not apply to ASKER, which has a scale for each observation, nor to exchanges of single observations.
    """
    problem = trial.problem
    if problem.estimates_noise or _counts_observations(trial.result.strategy):
        return None
    chosen = [np.flatnonzero(trial.rng.random(g.n) < 0.3) for g in problem.groups]
    heavy, copied = [], []
    for g, some in zip(problem.groups, chosen, strict=True):
        weight = weight_of(g).copy()
        copied.append(replace(g, weight=weight).taken(np.concatenate([np.arange(g.n), some])))
        twice = weight.copy()
        twice[some] *= 2
        heavy.append(replace(g, weight=twice))
    base = Trial(problem.with_groups(heavy), trial.solver)
    if not base.is_stable:
        return None
    result = base.solve(problem.with_groups(copied))
    if fault := base.differs([r[: g.n] for r, g in zip(result.residuals, heavy, strict=True)]):
        return fault
    off = abs(result.cost - base.result.cost)
    return None if off <= base.cost_tolerance else f"the costs differ by {off:.2g} of {result.cost:.6g}"


def _counts_observations(strategy: Any) -> bool:
    """Return whether a strategy treats a copy of an observation unlike twice its weight."""
    method = strategy.method if isinstance(strategy, asker.WithMoves) else strategy
    return isinstance(method, asker.Exchanges | asker.ASKER)


def weight_0_is_left_out(trial: Trial) -> str | None:
    """With specified kernels, observations of weight 0 do not change the result for the others."""
    problem = trial.problem
    if problem.estimates_noise:
        return None
    light_mask = [trial.rng.random(g.n) < 0.7 if g.n > 4 else np.ones(g.n, dtype=bool) for g in problem.groups]
    without, light = [], []
    for g, mask in zip(problem.groups, light_mask, strict=True):
        weight = np.where(weight_of(g) > 0, weight_of(g), 1.0)
        without.append(replace(g, weight=weight).taken(mask))
        light.append(replace(g, weight=np.where(mask, weight, 0.0)))
    base = Trial(problem.with_groups(without), trial.solver)
    if not base.is_stable:
        return None
    result = base.solve(problem.with_groups(light))
    if fault := base.differs([r[mask] for r, mask in zip(result.residuals, light_mask, strict=True)]):
        return fault
    if abs(result.cost - base.result.cost) > base.cost_tolerance:
        return f"the cost is {result.cost:.10g}, and {base.result.cost:.10g} without them"
    return _other_statistics(base, result)


def _other_statistics(base: Trial, result: asker.Result) -> str | None:
    """Return the first difference in noise, doubts or intervals from `base`, or None."""
    if result.doubts != base.result.doubts:
        return f"the doubts are {result.doubts}, and {base.result.doubts} without them"
    close = {"rtol": 1e-6 + SENSITIVITY_FACTOR * base.sensitivity, "equal_nan": True}
    for a, b in zip(result.noise, base.result.noise, strict=True):
        if not np.allclose([a.sigma, a.inlier_ratio, a.n_spare], [b.sigma, b.inlier_ratio, b.n_spare], **close):
            return f"the noise is {a}, and {b} without them"
    ends = []
    for other in (result, base.result):
        try:
            ends.append([other.interval(f"block {k}") for k in range(len(base.problem.blocks))])
        except asker.ProblemError as error:
            ends.append(str(error))
    if isinstance(ends[0], str) or isinstance(ends[1], str):
        return None if isinstance(ends[0], str) and isinstance(ends[1], str) else f"intervals: {ends}"
    return None if all(map(lambda a, b: np.allclose(a, b, **close), *ends)) else "the intervals differ without them"


def units_do_not_matter(trial: Trial) -> str | None:
    """Scaling variables, data and kernels by UNIT or 1/UNIT scales the solution, for homogeneous functions.

    The derivatives are unchanged.  ASKER's restoration compares gradients in the variables and in the scales, whose
    angle depends on the unit of the variables, so that its iterates before convergence do.
    """
    if not all(g.kind.is_homogeneous for g in trial.problem.groups):
        return None
    if isinstance(trial.result.strategy, asker.ASKER) and trial.result.status is asker.Status.MAX_ITERATIONS:
        return None
    unit = UNIT ** trial.rng.choice([-1.0, 1.0])
    return _in_units(trial, of_variables=unit, of_data=unit, of_residuals=unit)


def units_of_residuals_do_not_matter(trial: Trial) -> str | None:
    """With relative damping, scaling residuals and kernels by UNIT or 1/UNIT does not change the solution."""
    problem = replace(trial.problem, options=trial.problem.options | {"relative_damping": True})
    return _in_units(Trial(problem, trial.solver), of_residuals=UNIT ** trial.rng.choice([-1.0, 1.0]))


def units_of_variables_do_not_matter(trial: Trial) -> str | None:
    """With relative damping, scaling variables and data scales the solution, for homogeneous functions."""
    if not all(g.kind.is_homogeneous for g in trial.problem.groups):
        return None
    problem = replace(trial.problem, options=trial.problem.options | {"relative_damping": True})
    unit = UNIT ** trial.rng.choice([-1.0, 1.0])
    return _in_units(Trial(problem, trial.solver), of_variables=unit, of_data=unit)


def _in_units(base: Trial, of_variables: float = 1.0, of_data: float = 1.0, of_residuals: float = 1.0) -> str | None:
    """Return the fault of the solution of the same problem in other units, or None.

    The law does not apply if a number has a fixed unit: the default kernel of a strategy has width 1, and groups with a
    kernel are scaled separately if the noise of other groups is estimated.
    """
    problem = base.problem
    unknown = [g.kernel is None for g in problem.groups]
    if any(unknown) and not (problem.estimates_noise and all(unknown)):
        return None
    if not base.is_stable:
        return None
    groups = [
        replace(
            g,
            data=(*g.data[:-2], g.y * of_data, g.data[-1] * (of_residuals / of_data)),
            kernel=None if g.kernel is None else _wider(g.kernel, of_residuals),
            tau=None if g.tau is None else g.tau * of_residuals,
        )
        for g in problem.groups
    ]
    blocks = [_block_in(block, of_variables) for block in problem.blocks] if of_variables != 1 else problem.blocks
    result = base.solve(replace(problem, groups=tuple(groups), blocks=tuple(blocks)))
    if problem.estimates_noise and (result.doubts or base.result.doubts):
        return None  # the result is marked as doubtful
    return base.differs(result.residuals, of_residuals)


def _wider(kernel: Any, unit: float) -> Any:
    if isinstance(kernel, asker.Scaled):
        return replace(kernel, kernel=_wider(kernel.kernel, unit))
    return replace(kernel, tau=kernel.tau * unit)


def _block_in(block: Any, unit: float) -> Any:
    bounds = {name: x if name == "unit" else x * unit for name, x in block.bounds.items()}
    return replace(block, values=block.values * unit, bounds=bounds)


def engines_agree(trial: Trial) -> str | None:
    """The CPU and XLA engines agree in the residuals after ENGINE_ITERATIONS iterations, with specified kernels."""
    problem = trial.problem
    if problem.estimates_noise or any(g.kind.jacobian for g in problem.groups):
        return None
    few = {"max_iterations": ENGINE_ITERATIONS, "linear_solver": "dense-cholesky"}
    base = Trial(replace(problem, options=problem.options | few), trial.solver)
    return base.differs(base.solve(base.problem, engine="xla").residuals) if base.is_stable else None
