"""Laws of several solves: what must not matter, such as the order of the observations, does not.

Of the same problem every bit is the same.  Equivalent problems (another order, weight 2 in place of a copy, other
units, another engine) may differ by what rounding does, which is measured: the problem is solved NUDGES times with data
that differ by NUDGE of their size, far more than rounding does, and an equivalent problem must not differ by more than
REACH times the largest difference among these.  A problem that ends elsewhere after a nudge says nothing here
(`Trial.is_stable`); the test counts them.
"""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np

import asker
from problem_trial import REACH, Trial, weight_of
from random_problems import strategy_named
from result_laws import difference

UNIT = 2.0**12
"""A power of two: not even rounding differs."""
STEPS = 2


def pickled_problems_solve_the_same(trial: Trial) -> str | None:
    """A problem that came through pickle has the same result, and so has a result that did."""
    problem = pickle.loads(pickle.dumps(trial.problem.build()))
    p = trial.problem
    strategy = None if p.strategy is None else strategy_named(p.strategy)
    again = trial.solver(problem, strategy, **({"engine": "cpu"} | p.options))
    for what, other in (("problem", again), ("result", pickle.loads(pickle.dumps(trial.result)))):
        if fault := difference(trial.result, other):
            return f"{fault} of a pickled {what} is another"
    return None


def threads_do_not_matter(trial: Trial) -> str | None:
    """One thread and two give the same bits."""
    results = [trial.solve(trial.problem, threads=n) for n in (1, 2)]
    fault = difference(*results)
    return f"{fault} differs between one thread and two" if fault else None


# ------------------------------------------------------------------ laws of equivalent problems


def order_does_not_matter(trial: Trial) -> str | None:
    """Observations in another order."""
    if trial.problem.is_sought or not trial.is_stable:
        return None
    orders = [trial.rng.permutation(g.n) for g in trial.problem.groups]
    groups = [g.taken(order) for g, order in zip(trial.problem.groups, orders, strict=True)]
    result = trial.solve(trial.problem.with_groups(groups))
    return trial.differs([r[np.argsort(order)] for r, order in zip(result.residuals, orders, strict=True)])


def weight_2_is_a_copy(trial: Trial) -> str | None:
    """Under kernels that are given, a second copy of an observation is the same as twice its weight.

    (ASKER is left out, which has a scale for each observation, and so are exchanges of single observations.)
    """
    problem = trial.problem
    if problem.is_sought or _counts_observations(trial.result.strategy):
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
    method = strategy.method if isinstance(strategy, asker.WithMoves) else strategy
    return isinstance(method, asker.Exchanges | asker.ASKER)


def weight_0_is_left_out(trial: Trial) -> str | None:
    """Under kernels that are given, observations of weight 0 change nothing that a result says of the others."""
    problem = trial.problem
    if problem.is_sought:
        return None
    kept = [trial.rng.random(g.n) < 0.7 if g.n > 4 else np.ones(g.n, dtype=bool) for g in problem.groups]
    without, light = [], []
    for g, mask in zip(problem.groups, kept, strict=True):
        weight = np.where(weight_of(g) > 0, weight_of(g), 1.0)
        without.append(replace(g, weight=weight).taken(mask))
        light.append(replace(g, weight=np.where(mask, weight, 0.0)))
    base = Trial(problem.with_groups(without), trial.solver)
    if not base.is_stable:
        return None
    result = base.solve(problem.with_groups(light))
    if fault := base.differs([r[mask] for r, mask in zip(result.residuals, kept, strict=True)]):
        return fault
    if abs(result.cost - base.result.cost) > base.cost_tolerance:
        return f"the cost is {result.cost:.10g}, and {base.result.cost:.10g} without them"
    return _other_statistics(base, result)


def _other_statistics(base: Trial, result: asker.Result) -> str | None:
    """Whether noise, doubts or intervals are not those of `base`."""
    if result.doubts != base.result.doubts:
        return f"the doubts are {result.doubts}, and {base.result.doubts} without them"
    close = {"rtol": 1e-6 + REACH * base.sensitivity, "equal_nan": True}
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
    return None if all(map(lambda a, b: np.allclose(a, b, **close), *ends)) else "the intervals are others without them"


def units_do_not_matter(trial: Trial) -> str | None:
    """Variables, data and kernels that are UNIT times as large, or as small, where functions are homogeneous.

    Derivatives stay as they are.
    """
    if not all(g.kind.is_homogeneous for g in trial.problem.groups):
        return None
    unit = UNIT ** trial.rng.choice([-1.0, 1.0])
    return _in_units(trial, of_variables=unit, of_data=unit, of_residuals=unit)


def units_of_residuals_do_not_matter(trial: Trial) -> str | None:
    """With damping relative to the diagonal, residuals and kernels that are UNIT times as large, or as small."""
    problem = replace(trial.problem, options=trial.problem.options | {"relative_damping": True})
    return _in_units(Trial(problem, trial.solver), of_residuals=UNIT ** trial.rng.choice([-1.0, 1.0]))


def units_of_variables_do_not_matter(trial: Trial) -> str | None:
    """The same for variables and data of homogeneous functions; residuals stay as they are."""
    if not all(g.kind.is_homogeneous for g in trial.problem.groups):
        return None
    problem = replace(trial.problem, options=trial.problem.options | {"relative_damping": True})
    unit = UNIT ** trial.rng.choice([-1.0, 1.0])
    return _in_units(Trial(problem, trial.solver), of_variables=unit, of_data=unit)


def _in_units(base: Trial, of_variables: float = 1.0, of_data: float = 1.0, of_residuals: float = 1.0) -> str | None:
    """What is wrong with the solution of the same problem in other units.

    Nothing is said where a number is in the user's unit: the kernel that a strategy takes by default is as wide as 1,
    and beside a noise that is estimated a group with a kernel counts in units of its own.
    """
    problem = base.problem
    unknown = [g.kernel is None for g in problem.groups]
    if any(unknown) and not (problem.is_sought and all(unknown)):
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
    if problem.is_sought and (result.doubts or base.result.doubts):
        return None  # refused, and not wrong
    return base.differs(result.residuals, of_residuals)


def _wider(kernel: Any, unit: float) -> Any:
    if isinstance(kernel, asker.Scaled):
        return replace(kernel, kernel=_wider(kernel.kernel, unit))
    return replace(kernel, tau=kernel.tau * unit)


def _block_in(block: Any, unit: float) -> Any:
    bounds = {name: x if name == "unit" else x * unit for name, x in block.bounds.items()}
    return replace(block, values=block.values * unit, bounds=bounds)


def engines_agree(trial: Trial) -> str | None:
    """The CPU engine and XLA give the same residuals at the start and after STEPS steps, kernels given."""
    problem = trial.problem
    if problem.is_sought or any(g.kind.jacobian for g in problem.groups):
        return None
    few = {"max_iterations": STEPS, "linear_solver": "dense-cholesky"}
    base = Trial(replace(problem, options=problem.options | few), trial.solver)
    return base.differs(base.solve(base.problem, engine="xla").residuals) if base.is_stable else None
