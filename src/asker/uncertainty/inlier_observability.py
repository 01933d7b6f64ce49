"""Unknowns that the inliers alone do not determine, although inliers and outliers together do.

Confidence intervals come from the inliers (`asker.uncertainty.information`).  Under a kernel with weights that never
reach 0, outliers also constrain the variables, and a solve converges even if the inliers alone do not determine them.
"""

from asker.problem.variables import ProblemError
from asker.solver.doubts import Doubt
from asker.solver.result import Result
from asker.solver.stationarity import has_few_unknowns
from asker.uncertainty.information import inlier_masks
from asker.uncertainty.observability import undetermined


def doubts_of_inliers(result: Result) -> tuple[Doubt, ...]:
    """Return a doubt about the unknowns that the inliers do not determine, for a problem with few unknowns."""
    if result.problem is None or result.problem.portion is not None:
        return ()
    result = result.of_informative
    problem = result.problem
    assert problem is not None
    if all(f.kernel.convex for f in problem.factors):
        return ()
    if not has_few_unknowns(problem):
        return ()
    if not any(w.any() for w in result.weights):  # the solve reports this
        return ()
    try:
        masks = inlier_masks(result, [None] * len(problem.factors))
    except ProblemError as error:
        return (Doubt(str(error), Doubt.UNDETERMINED, n_inliers=0),)
    if not any((w > 0)[~mask].any() for w, mask in zip(result.weights, masks, strict=True)):
        return ()
    from asker.engines.cpu.linearized_problem import LinearModel

    model = LinearModel(problem, tuple(v.at(x).rows for v, x in zip(problem.variables, result.values, strict=True)))
    if model.nonfinite_derivative() or undetermined(model, list(result.weights)):  # the solve reports this
        return ()
    doubt = undetermined(model, [mask.astype(float) for mask in masks], of_inliers=True)
    return () if doubt is None else (doubt,)
