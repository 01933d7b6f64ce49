"""Property tests ("laws") that every solve must satisfy.

A law is a function of a trial that returns the fault as a sentence, or None:

    for name, fault in trials(seed=0, count=200): ...

Laws of a single result are in `result_laws`, those of several solves in `equivalence_laws`.
"""

from collections.abc import Callable, Iterator, Sequence

from equivalence_laws import (
    engines_agree,
    order_does_not_matter,
    pickled_problems_solve_the_same,
    threads_do_not_matter,
    units_do_not_matter,
    units_of_residuals_do_not_matter,
    units_of_variables_do_not_matter,
    weight_0_is_left_out,
    weight_2_is_a_copy,
)
from problem_trial import Trial
from random_problems import random_problem
from result_laws import (
    constraints_are_satisfied,
    converged_results_are_stationary,
    cost_is_not_above_the_start,
    costs_are_those_of_the_residuals,
    inlier_masks_agree_with_inlier_ratios,
    intervals_agree_with_doubts,
    saved_results_are_read_back,
)

Law = Callable[[Trial], str | None]
EQUIVALENCE_PERIOD, ENGINE_PERIOD = 4, 19
"""Numbers of seeds after which the laws of several solves, and the comparison of engines, are repeated."""
OF_ONE_RESULT: tuple[Law, ...] = (
    cost_is_not_above_the_start, costs_are_those_of_the_residuals, constraints_are_satisfied,
    inlier_masks_agree_with_inlier_ratios, converged_results_are_stationary, intervals_agree_with_doubts,
    saved_results_are_read_back,
)  # fmt: skip
"""Laws that need no other solve."""
OF_SEVERAL: tuple[Law, ...] = (
    pickled_problems_solve_the_same, threads_do_not_matter, order_does_not_matter, weight_2_is_a_copy,
    weight_0_is_left_out, units_do_not_matter, units_of_residuals_do_not_matter, units_of_variables_do_not_matter,
)  # fmt: skip
LAWS = (*OF_ONE_RESULT, *OF_SEVERAL, engines_agree)


def fault_of(law: Law, trial: Trial) -> str | None:
    """Return the fault that a law reports; an exception is a fault, too."""
    try:
        return law(trial)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def rotated_laws(seed: int) -> tuple[Law, ...]:
    """Return the laws of one result, and the expensive ones in rotation.

    The comparison of the engines is the rarest, since XLA compiles for seconds.
    """
    of_engines = (engines_agree,) if seed % ENGINE_PERIOD == 0 else ()
    return (*OF_ONE_RESULT, *OF_SEVERAL[seed % EQUIVALENCE_PERIOD :: EQUIVALENCE_PERIOD], *of_engines)


def trials(
    seed: int, count: int, laws: Callable[[int], Sequence[Law]] = rotated_laws
) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each law and its fault or None, for `count` problems from `seed` on.

    The function `laws` selects the laws of a seed; `lambda seed: LAWS` tests all of them, which takes about ten times
    as long.
    """
    for number in range(seed, seed + count):
        trial = Trial(random_problem(number))
        for law in laws(number):
            fault = fault_of(law, trial)
            yield law.__name__.replace("_", " "), fault and f"{trial.problem}: {fault}"
