"""Laws that every solve obeys: each is a function of a trial that returns a fault in a sentence, or None.

    for name, fault in trials(seed=0, count=200): ...

Laws of one result are in `result_laws`, those of several solves in `equivalence_laws`.
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
    converged_results_are_stationary,
    cost_is_not_above_the_start,
    costs_are_those_of_the_residuals,
    intervals_agree_with_doubts,
    masks_agree_with_shares,
    saved_results_are_read_back,
    variables_stay_where_they_may_be,
)

Law = Callable[[Trial], str | None]
N_TURNS, N_TURNS_OF_ENGINES = 4, 19
OF_ONE_RESULT: tuple[Law, ...] = (
    cost_is_not_above_the_start, costs_are_those_of_the_residuals, variables_stay_where_they_may_be,
    masks_agree_with_shares, converged_results_are_stationary, intervals_agree_with_doubts,
    saved_results_are_read_back,
)  # fmt: skip
"""Laws that ask for no other solve."""
OF_SEVERAL: tuple[Law, ...] = (
    pickled_problems_solve_the_same, threads_do_not_matter, order_does_not_matter, weight_2_is_a_copy,
    weight_0_is_left_out, units_do_not_matter, units_of_residuals_do_not_matter, units_of_variables_do_not_matter,
)  # fmt: skip
LAWS = (*OF_ONE_RESULT, *OF_SEVERAL, engines_agree)


def fault_of(law: Law, trial: Trial) -> str | None:
    """What the law says; an exception is a fault, too."""
    try:
        return law(trial)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def in_turn(seed: int) -> tuple[Law, ...]:
    """The laws of one result, and each of the others in turn: they take many solves.

    The other engine compiles for seconds, and is asked least.
    """
    of_engines = (engines_agree,) if seed % N_TURNS_OF_ENGINES == 0 else ()
    return (*OF_ONE_RESULT, *OF_SEVERAL[seed % N_TURNS :: N_TURNS], *of_engines)


def trials(seed: int, count: int, laws: Callable[[int], Sequence[Law]] = in_turn) -> Iterator[tuple[str, str | None]]:
    """The names of laws, and what each says of `count` problems from `seed` on; the problem stands in every fault.

    `laws`: those of a seed.  `lambda seed: LAWS` asks all of them, which takes about ten times as long.
    """
    for number in range(seed, seed + count):
        trial = Trial(random_problem(number))
        for law in laws(number):
            fault = fault_of(law, trial)
            yield law.__name__.replace("_", " "), fault and f"{trial.problem}: {fault}"
