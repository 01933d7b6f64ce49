"""What the observations within the noise leave open, where others that pull hide it.

Intervals come from the observations that count (`asker.uncertainty.information`).  Under a kernel that never gives an
observation up an outlier holds a variable, too, and a solve converges where the inliers alone do not determine it.
"""

from asker.problem.variables import ProblemError
from asker.solver.result import Result
from asker.solver.stationarity import has_few_unknowns
from asker.uncertainty.information import counted
from asker.uncertainty.observability import undetermined


def doubts_of_inliers(result: Result) -> tuple[str, ...]:
    """Return what the inliers of a problem with few unknowns do not determine, in words."""
    if result.problem is None or result.problem.portion is not None:
        return ()
    result = result.of_informative
    problem = result.problem
    assert problem is not None
    if all(f.kernel.convex for f in problem.factors):
        return ()
    if not has_few_unknowns(problem):
        return ()
    if not any(w.any() for w in result.weights):  # the solve has said so
        return ()
    try:
        masks = counted(result, [None] * len(problem.factors))
    except ProblemError as error:
        return (str(error),)
    if not any((w > 0)[~mask].any() for w, mask in zip(result.weights, masks, strict=True)):
        return ()
    from asker.engines.cpu.linearized_problem import LinearModel

    model = LinearModel(problem, tuple(v.at(x).rows for v, x in zip(problem.variables, result.values, strict=True)))
    if model.without_derivative() or undetermined(model, list(result.weights)):  # the solve has said so
        return ()
    told = undetermined(model, [mask.astype(float) for mask in masks], of_inliers=True)
    return (told,) if told else ()
