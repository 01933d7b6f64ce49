"""Laws of a single result: its numbers agree with those computed by NumPy at the solution."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

import asker
from asker.solver.stationarity import MAX_DENSE_UNKNOWNS
from dense_jacobians import columns, jacobians, moved, undetermined_unknowns
from problem_trial import EPS, OPERATIONS, Trial, cost_of, largest_of, parts_of, weight_of
from random_problems import RandomProblem, gathered
from reference_kernels import omega

MARGIN = 10.0
"""Largest decrease of the cost in one more step, relative to the tolerance: convergence may be linear."""
LIKELIHOOD_TOL = 0.01
"""Tolerance of twice the log-likelihood if the noise is estimated."""
TOL = 1e-9
"""Default of `tol` in `asker.solve`."""
REJECTION_PROBABILITY = 1e-3
"""Probability that an inlier is classified as an outlier."""
ZERO_RESIDUAL = 1e-20
"""Squared residual, relative to the mean square, below which a residual counts as 0."""
NO_INTERVAL = (
    "there is no covariance",
    "the noise cannot be estimated",
    "no observation is within the noise",
)
"""Messages of errors for which no interval exists."""


def cost_is_not_above_the_start(trial: Trial) -> str | None:
    """The final cost is at most the initial cost.

    If the noise is estimated, solutions are compared by their likelihood, and a doubtful one may have a larger Ψ.
    """
    result = trial.result
    if trial.problem.estimates_noise and result.doubts:
        return None
    if not result.cost <= result.initial_cost:
        return f"the cost is {result.cost:.17g}, and the initial cost {result.initial_cost:.17g}"
    return None


def costs_are_those_of_the_residuals(trial: Trial) -> str | None:
    """Residuals, costs and weights agree with the reference at the solution.

    The tolerance of a residual is OPERATIONS·ε times the size of the data, that of Ψ the corresponding Σ w·ω·‖r‖.
    """
    result, problem = trial.result, trial.problem
    begun = [b.values for b in problem.blocks]
    for k, (f, r, unit) in enumerate(zip(result.problem.factors, result.residuals, trial.units, strict=True)):
        size = unit * max(1.0, largest_of(result.values), np.abs(trial.references[k]).max(initial=0.0) / unit)
        if not np.abs(r - trial.references[k]).max(initial=0.0) <= OPERATIONS * EPS * size:
            return f"the residuals of {f.name} differ from the reference at the solution"
        u = np.einsum("np,np->n", r, r)
        expected = np.where(weight_of(trial.problem.groups[k]) > 0, omega(f.kernel, u / np.asarray(f.tau) ** 2), 0.0)
        if not np.allclose(result.weights[k], expected, rtol=1e-9, atol=1e-12):
            return f"the weights of {f.name} do not agree with the residuals"
    for label, stated, values in (("cost", result.cost, result.values), ("initial cost", result.initial_cost, begun)):
        value, error = cost_of(trial, values)
        if not abs(stated - value) <= error:
            return f"the {label} is {stated:.17g}, and computed from the residuals {value:.17g} ± {error:.1g}"
    return None


def constraints_are_satisfied(trial: Trial) -> str | None:
    """Constant and unobserved variables are unchanged, bounds are satisfied, and values lie on their manifold.

    Constant variables are unchanged in every bit, unobserved ones up to the rounding of a step of 0.
    """
    for k, (block, x) in enumerate(zip(trial.problem.blocks, trial.result.values, strict=True)):
        observed = np.zeros(len(block), dtype=bool)
        for g in trial.problem.groups:
            for number, index in g.slots:
                if number == k:
                    observed[index] = True
        before = block.values if block.bounds else block.manifold.unpack(block.manifold.pack(block.values))
        for who, allowed in ((block.fixed, 0.0), (~observed, OPERATIONS * EPS)):
            pairs = zip(parts_of(gathered(before, who)), parts_of(gathered(x, who)), strict=True)
            if not all((abs(a - b) <= allowed * abs(a).max(initial=0.0)).all() for a, b in pairs):
                return f"constant or unobserved variables of block {k} changed"
        if block.bounds and ((x < block.bounds["lower"]) | (x > block.bounds["upper"])).any():
            return f"a value of block {k} violates its bounds"
        if not block.bounds:
            block.manifold.pack(x)  # raises an error for values off the manifold
    return None


def inlier_masks_agree_with_inlier_ratios(trial: Trial) -> str | None:
    """Inliers satisfy the definition in docs/how-to/evaluation.md, and all printed inlier ratios agree with the mask.

    If the noise σ is known, w‖r‖² is at most σ² times the χ² quantile with p degrees of freedom that inliers exceed
    with REJECTION_PROBABILITY; else no inlier has a larger residual than an outlier.  Observations that are impossible
    or have weight 0 are not inliers.
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
            return f"{g.name}: inliers are impossible or have weight 0"
        if noise.is_known and noise.sigma > 0:
            v = v / max(noise.sigma**2 * chi2.isf(REJECTION_PROBABILITY, r.shape[1]), ZERO_RESIDUAL * v[w > 0].mean())
            if (mask != may_be & (v <= 1))[abs(v - 1) > 1e-9].any():
                return f"{g.name}: the inliers do not agree with the noise {noise}"
        else:
            v = v if noise.is_known else np.einsum("np,np->n", r, r) / np.asarray(f.tau) ** 2
            if mask.any() and (v[may_be & ~mask] < (1 - 1e-9) * v[mask].max()).any():
                return f"{g.name}: an inlier has a larger residual than an outlier"
        share = n / n_informative if n_informative else noise.inlier_ratio
        if noise.inlier_ratio != share:
            return f"{g.name}: {n} of {n_informative} are inliers, and noise.inlier_ratio is {noise.inlier_ratio}"
        if n_informative and f"{g.name} {n} of {n_informative} ({share:.1%})" not in table:
            return f"{g.name}: the table differs from the mask, which has {n} of {n_informative}"
    return None if result.inlier_ratio == total / of else f"inlier_ratio is {result.inlier_ratio}, not {total / of}"


# ------------------------------------------------------------------ derivatives


def converged_results_are_stationary(trial: Trial) -> str | None:
    """At a converged result without doubts, no IRLS step decreases the cost by more than MARGIN·tol, relatively.

    The decrease is the smaller of the one predicted by the quadratic model, ½ gᵀH⁻¹g, and the actual one.

    If the noise σ was estimated, a solve also terminates at a decrease of LIKELIHOOD_TOL·σ², half as much in
    log-likelihood.  The law applies to few unknowns only, for which convergence is certified.  With more, the decrease
    may also be less than `tol` because λ dominates H (docs/explanation/limitations.md), or because one variable
    oscillates while all others have converged.

    The step is the minimum norm solution of the weighted linear least squares problem with the dense derivatives, over
    the free unknowns without active bounds.  Fractions of the step are tested, too.
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
    tolerance = TOL * result.cost
    if problem.estimates_noise:
        tolerance = max(tolerance, LIKELIHOOD_TOL * min(noise.sigma**2 for noise in result.noise))
    A, b = np.concatenate(A), np.concatenate(b)
    step = _step(problem, result.values, A, b)
    predicted = float(b @ b - (A @ step + b) @ (A @ step + b)) / 2
    cost, error = cost_of(trial, result.values)
    for part in (1.0, 0.5, 0.1, 0.01):
        there = [
            _within(block, moved(block, x, part * step[i]))
            for block, x, i in zip(problem.blocks, result.values, at, strict=True)
        ]
        gain = min(cost - cost_of(trial, there)[0], predicted)
        if gain > MARGIN * tolerance + 2 * error:
            return f"converged, but an IRLS step decreases the cost {cost:.6g} by the fraction {gain / cost:.2g}"
    return None


def _step(problem: RandomProblem, values: Sequence[Any], A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the minimum norm δ that minimises ‖Aδ + b‖, with constant unknowns and active bounds fixed."""
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
    """Return the values projected to the bounds."""
    return np.clip(x, block.bounds["lower"], block.bounds["upper"]) if block.bounds else x


def _at_bounds(problem: Any, result: Any) -> np.ndarray:
    """Return the mask of the unknowns at a bound, whose intervals are NaN."""
    masks = []
    for k, block in enumerate(problem.blocks):
        d, values = columns(problem)[k].shape[1], np.asarray(result.values[k], dtype=float)
        mask = np.zeros((len(block.fixed), d), dtype=bool)
        if block.bounds:
            low, high = (np.broadcast_to(block.bounds[name], values.shape) for name in ("lower", "upper"))
            mask = ((values <= low) | (values >= high)).reshape(mask.shape)
        masks.append((mask & ~np.asarray(block.fixed)[:, None]).ravel())
    return np.concatenate(masks)


def intervals_agree_with_doubts(trial: Trial) -> str | None:
    """An interval is NaN exactly for the unknowns that the counted observations with a weight ω do not determine.

    It is 0 for constant unknowns, and otherwise positive.  A doubt is reported if all observations with a weight do not
    determine an unknown; its interval is NaN, since fewer observations are counted.  The law does not apply if the
    dense Jacobian does not decide which unknowns are determined.
    """
    result, problem = trial.result, trial.problem
    J, J_start = (jacobians(problem, values) for values in (result.values, [b.values for b in problem.blocks]))
    constant = np.concatenate([np.repeat(b.fixed, columns(problem)[k].shape[1]) for k, b in enumerate(problem.blocks)])

    def undetermined(masks: Sequence[np.ndarray]) -> np.ndarray | None:
        here, elsewhere = (
            np.concatenate([Jk[mask].reshape(-1, Jk.shape[2]) for Jk, mask in zip(of, masks, strict=True)])[
                :, ~constant
            ]
            for of in (J, J_start)
        )
        result_here = undetermined_unknowns(here, elsewhere, max(trial.units))
        if result_here is None:
            return None
        every = np.zeros(len(constant), dtype=bool)
        every[~constant] = result_here.is_open
        return every

    pulls = [w * weight_of(g) > 0 for w, g in zip(result.weights, problem.groups, strict=True)]
    is_open = undetermined(pulls)
    has_doubt = any("the data do not determine" in doubt for doubt in result.doubts)
    if is_open is not None and (~constant).sum() <= MAX_DENSE_UNKNOWNS and has_doubt != is_open.any():
        return f"{is_open.sum()} unknowns are undetermined, and the doubts are {result.doubts}"
    try:
        widths = np.concatenate([result.interval(f"block {k}").ravel() for k in range(len(problem.blocks))])
    except asker.ProblemError as error:
        return None if any(text in str(error) for text in NO_INTERVAL) else f"interval: {error}"
    counted = [mask.copy() for mask in result.informative]
    for mask, part in zip(counted, result.uncertainty().information, strict=True):
        mask[mask] = part.counted
    expected = undetermined([a & b for a, b in zip(counted, pulls, strict=True)])
    if expected is not None:
        expected = expected | _at_bounds(problem, result)
    if expected is not None and (np.isnan(widths) != expected).any():
        wrong = np.isnan(widths) != expected
        text = f"{wrong.sum()} of {len(widths)} intervals are {widths[wrong][:3]}"
        return f"{text}, and {expected.sum()} unknowns are undetermined"
    if (widths[constant] != 0).any() or not (np.isnan(widths[~constant]) | (widths[~constant] > 0)).all():
        return "an interval of a constant unknown is not 0, or another one is not positive"
    return None


# ------------------------------------------------------------------ files


def saved_results_are_read_back(trial: Trial) -> str | None:
    """`Result.load` restores every number and the printed table of a saved result."""
    result = trial.result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        result.save(path)
        again = asker.Result.load(path)
    fault = difference(result, again)
    if fault is None and str(result) != str(again):
        fault = "the table"
    return f"{fault} of a saved and loaded result differs" if fault else None


def difference(a: asker.Result, b: asker.Result) -> str | None:
    """Return the name of the first field that differs in any bit between two results, except times; or None."""
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
