"""Laws of one result: its figures are those that NumPy finds at the solution."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

import asker
from asker.solver.stationarity import MAX_DENSE_UNKNOWNS
from dense_derivatives import columns, jacobians, moved, open_unknowns
from problem_trial import EPS, OPERATIONS, Trial, cost_of, largest_of, parts_of, weight_of
from random_problems import RandomProblem, gathered
from reference_kernels import omega

MARGIN = 10.0
"""What one more step may gain, over what the last one may have gained: steps become shorter by a factor."""
LIKELIHOOD = 0.01
TOL = 1e-9
"""`tol` of `asker.solve`."""
REJECTED = 1e-3
"""The part of the inliers that counts as outliers."""
ROUNDED = 1e-20
"""The part of the mean square below which a residual is 0 but for rounding."""
NO_INTERVAL = (
    "there is no covariance",
    "the noise cannot be estimated",
    "no observation is within the noise",
)
"""Refusals of an interval."""


def cost_is_not_above_the_start(trial: Trial) -> str | None:
    """The best point is returned, and the start is one.

    (Where the noise is estimated, solutions are compared by their likelihood; one that is doubted may have a larger Ψ.)
    """
    result = trial.result
    if trial.problem.is_sought and result.doubts:
        return None
    if not result.cost <= result.initial_cost:
        return f"the cost is {result.cost:.17g}, and {result.initial_cost:.17g} at the start"
    return None


def costs_are_those_of_the_residuals(trial: Trial) -> str | None:
    """The residuals are those of the reference at the solution, and both costs and all weights follow from it.

    A residual may be off by OPERATIONS·ε of the size of the data, which moves Ψ by Σ w·ω·‖r‖ of that.
    """
    result, problem = trial.result, trial.problem
    begun = [b.values for b in problem.blocks]
    for k, (f, r, unit) in enumerate(zip(result.problem.factors, result.residuals, trial.units, strict=True)):
        size = unit * max(1.0, largest_of(result.values), np.abs(trial.references[k]).max(initial=0.0) / unit)
        if not np.abs(r - trial.references[k]).max(initial=0.0) <= OPERATIONS * EPS * size:
            return f"the residuals of {f.name} are not those at the solution"
        u = np.einsum("np,np->n", r, r)
        expected = np.where(weight_of(trial.problem.groups[k]) > 0, omega(f.kernel, u / np.asarray(f.tau) ** 2), 0.0)
        if not np.allclose(result.weights[k], expected, rtol=1e-9, atol=1e-12):
            return f"the weights of {f.name} are not those of the residuals"
    for what, told, values in (("cost", result.cost, result.values), ("cost at the start", result.initial_cost, begun)):
        value, error = cost_of(trial, values)
        if not abs(told - value) <= error:
            return f"the {what} is {told:.17g}, and by the residuals {value:.17g} ± {error:.1g}"
    return None


def variables_stay_where_they_may_be(trial: Trial) -> str | None:
    """Held variables stay to the bit, and those that nothing touches but for the rounding of a step of 0; bounds are
    kept, and values are on their manifold."""
    for k, (block, x) in enumerate(zip(trial.problem.blocks, trial.result.values, strict=True)):
        touched = np.zeros(len(block), dtype=bool)
        for g in trial.problem.groups:
            for number, index in g.slots:
                if number == k:
                    touched[index] = True
        before = block.values if block.bounds else block.manifold.unpack(block.manifold.pack(block.values))
        for who, allowed in ((block.fixed, 0.0), (~touched, OPERATIONS * EPS)):
            pairs = zip(parts_of(gathered(before, who)), parts_of(gathered(x, who)), strict=True)
            if not all((abs(a - b) <= allowed * abs(a).max(initial=0.0)).all() for a, b in pairs):
                return f"held or untouched variables of block {k} moved"
        if block.bounds and ((x < block.bounds["lower"]) | (x > block.bounds["upper"])).any():
            return f"a number of block {k} is beyond its bounds"
        if not block.bounds:
            block.manifold.pack(x)  # refuses what is on no manifold
    return None


def masks_agree_with_shares(trial: Trial) -> str | None:
    """Inliers are those that docs/how-to/evaluation.md defines, and one share of them is told.

    Where the noise σ is known, w‖r‖² is at most σ² times the quantile of χ² with p degrees of freedom that REJECTED of
    the inliers exceed; where it is not, nearer residuals are inliers where farther ones are.  What is not possible or
    has weight 0 is none.
    """
    result, total, of = trial.result, 0, 0
    table = str(result)
    for g, f, mask, r, noise in zip(
        trial.problem.groups, result.problem.factors, result.inliers, result.residuals, result.noise, strict=True
    ):
        w, possible = weight_of(g), g.is_possible(result.values)
        may_be, v = possible & (w > 0), w * np.einsum("np,np->n", r, r)
        n, n_informative = int(mask.sum()), int((w > 0).sum())
        total, of = total + n, of + n_informative
        if (mask & ~may_be).any():
            return f"{g.name}: inliers are not possible, or have weight 0"
        if noise.is_known and noise.sigma > 0:
            v = v / max(noise.sigma**2 * chi2.isf(REJECTED, r.shape[1]), ROUNDED * v[w > 0].mean())
            if (mask != may_be & (v <= 1))[abs(v - 1) > 1e-9].any():
                return f"{g.name}: inliers are not those by the noise {noise}"
        else:
            v = v if noise.is_known else np.einsum("np,np->n", r, r) / np.asarray(f.tau) ** 2
            if mask.any() and (v[may_be & ~mask] < (1 - 1e-9) * v[mask].max()).any():
                return f"{g.name}: an inlier has a larger residual than one that is none"
        share = n / n_informative if n_informative else noise.inlier_ratio
        if noise.inlier_ratio != share:
            return f"{g.name}: {n} of {n_informative} are inliers, and the noise says {noise.inlier_ratio}"
        if n_informative and f"{g.name} {n} of {n_informative} ({share:.1%})" not in table:
            return f"{g.name}: the table has another count than the mask, {n} of {n_informative}"
    return None if result.inlier_ratio == total / of else f"inlier_ratio is {result.inlier_ratio}, not {total / of}"


# ------------------------------------------------------------------ derivatives


def converged_results_are_stationary(trial: Trial) -> str | None:
    """From a result that has converged without a doubt, no step of IRLS gains more than MARGIN·tol of the cost.

    A step counts with the decrease that its quadratic model promises, ½ gᵀH⁻¹g, or the true one where that is less.

    Where the noise σ was estimated, a descent also ends where it gains LIKELIHOOD·σ², half as much in log-likelihood.
    Convergence is certified with few unknowns alone.  With more, the cost falls by less than `tol` also where λ
    outweighs H (docs/explanation/limitations.md), or where one variable steps to and fro while all others are at rest.

    The step is the shortest solution of the weighted linear least squares problem, by the dense derivatives, of what
    may move: numbers at a bound that the step would cross stay.  It is tried whole and in parts.
    """
    result, problem = trial.result, trial.problem
    if result.status is not asker.Status.CONVERGED or result.doubts or result.cost == 0:
        return None
    at = columns(problem)
    if sum(x.size for x in at) > MAX_DENSE_UNKNOWNS:
        return None
    J = jacobians(problem, result.values)
    A, b = [], []
    for f, Jk, r, w in zip(result.problem.factors, J, trial.references, result.weights, strict=True):
        root = np.sqrt(w * (1.0 if f.weight is None else f.weight))
        A.append((root[:, None, None] * Jk).reshape(-1, Jk.shape[2]))
        b.append((root[:, None] * r).ravel())
    enough = TOL * result.cost
    if problem.is_sought:
        enough = max(enough, LIKELIHOOD * min(noise.sigma**2 for noise in result.noise))
    A, b = np.concatenate(A), np.concatenate(b)
    step = _step(problem, result.values, A, b)
    promised = float(b @ b - (A @ step + b) @ (A @ step + b)) / 2
    cost, error = cost_of(trial, result.values)
    for part in (1.0, 0.5, 0.1, 0.01):
        there = [
            _within(block, moved(block, x, part * step[i]))
            for block, x, i in zip(problem.blocks, result.values, at, strict=True)
        ]
        gain = min(cost - cost_of(trial, there)[0], promised)
        if gain > MARGIN * enough + 2 * error:
            return f"converged, and a step of IRLS lowers the cost {cost:.6g} by {gain / cost:.2g} of it"
    return None


def _step(problem: RandomProblem, values: Sequence[Any], A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The shortest δ with the least ‖Aδ + b‖, without what is held or barred."""
    free, at_bound = np.ones(A.shape[1], dtype=bool), np.zeros((2, A.shape[1]), dtype=bool)
    for block, x, at in zip(problem.blocks, values, columns(problem), strict=True):
        free[at[block.fixed]] = False
        if block.bounds:
            at_bound[0, at.ravel()] = (x <= block.bounds["lower"]).ravel()
            at_bound[1, at.ravel()] = (x >= block.bounds["upper"]).ravel()
    g = A.T @ b
    free &= ~((at_bound[0] & (g > 0)) | (at_bound[1] & (g < 0)))
    norms = np.linalg.norm(A, axis=0)
    free &= norms > 0
    step = np.zeros(A.shape[1])
    step[free] = -np.linalg.lstsq(A[:, free] / norms[free], b, rcond=1e-7)[0] / norms[free]
    return step


def _within(block: Any, x: Any) -> Any:
    return np.clip(x, block.bounds["lower"], block.bounds["upper"]) if block.bounds else x


def intervals_agree_with_doubts(trial: Trial) -> str | None:
    """An interval is NaN exactly where the observations that count and have a weight ω leave a number open.

    It is 0 where a number is held, and else positive.  There is a doubt where all that have a weight leave one open;
    that is NaN, since fewer count.  Where the dense Jacobian does not say clearly what is open, nothing is said.
    """
    result, problem = trial.result, trial.problem
    J, begun = (jacobians(problem, values) for values in (result.values, [b.values for b in problem.blocks]))
    held = np.concatenate([np.repeat(b.fixed, columns(problem)[k].shape[1]) for k, b in enumerate(problem.blocks)])

    def left_open(masks: Sequence[np.ndarray]) -> np.ndarray | None:
        here, elsewhere = (
            np.concatenate([Jk[mask].reshape(-1, Jk.shape[2]) for Jk, mask in zip(of, masks, strict=True)])[:, ~held]
            for of in (J, begun)
        )
        found = open_unknowns(here, elsewhere, max(trial.units))
        if found is None:
            return None
        every = np.zeros(len(held), dtype=bool)
        every[~held] = found.is_open
        return every

    pulls = [w * weight_of(g) > 0 for w, g in zip(result.weights, problem.groups, strict=True)]
    is_open = left_open(pulls)
    has_doubt = any("the data do not determine" in doubt for doubt in result.doubts)
    if is_open is not None and (~held).sum() <= MAX_DENSE_UNKNOWNS and has_doubt != is_open.any():
        return f"{is_open.sum()} numbers are open, and the doubts are {result.doubts}"
    try:
        told = np.concatenate([result.interval(f"block {k}").ravel() for k in range(len(problem.blocks))])
    except asker.ProblemError as error:
        return None if any(text in str(error) for text in NO_INTERVAL) else f"interval: {error}"
    counted = [mask.copy() for mask in result.informative]
    for mask, part in zip(counted, result.uncertainty().information, strict=True):
        mask[mask] = part.counted
    expected = left_open([a & b for a, b in zip(counted, pulls, strict=True)])
    if expected is not None and (np.isnan(told) != expected).any():
        wrong = np.isnan(told) != expected
        return f"{wrong.sum()} of {len(told)} intervals are {told[wrong][:3]}, and {expected.sum()} numbers are open"
    if (told[held] != 0).any() or not (np.isnan(told[~held]) | (told[~held] > 0)).all():
        return "an interval of a held number is not 0, or one of another number is not positive"
    return None


# ------------------------------------------------------------------ files


def saved_results_are_read_back(trial: Trial) -> str | None:
    """`Result.load` gives every number that `save` was given, and the same table."""
    result = trial.result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        result.save(path)
        again = asker.Result.load(path)
    fault = difference(result, again)
    if fault is None and str(result) != str(again):
        fault = "the table"
    return f"{fault} of a result that was read back is another" if fault else None


def difference(a: asker.Result, b: asker.Result) -> str | None:
    """What is not the same to the bit in two results; times aside."""
    for name in ("cost", "initial_cost", "status", "doubts", "engine", "linear_solver", "estimated_noise"):
        x, y = getattr(a, name), getattr(b, name)
        if x != y and repr(x) != repr(y):  # NaN
            return name
    for name in ("residuals", "weights", "inliers", "values"):
        for x, y in zip(getattr(a, name), getattr(b, name), strict=True):
            if not all(np.array_equal(p, q) for p, q in zip(parts_of(x), parts_of(y), strict=True)):
                return name
    lines = [[replace(line, seconds=0.0) for line in x.history] for x in (a, b)]
    return None if repr(lines[0]) == repr(lines[1]) else "history"
