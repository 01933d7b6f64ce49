"""Text of progress lines."""

from math import inf

from asker.solver.result import Iteration


class ProgressText:
    """Formatter of iterations, which keeps track of the lowest cost.

    While a noise scale is estimated, stages differ in kernel and cost, and `Iteration.best_cost` starts again with each
    of them; the best cost of a progress line is the lowest over all stages, and therefore never rises.
    """

    def __init__(self) -> None:
        self.best_cost = inf

    def __call__(self, line: Iteration) -> str:
        """Return the costs and the damping of an iteration."""
        self.best_cost = min(self.best_cost, line.best_cost)
        rejected = "" if line.accepted else "  rejected"
        return f"cost {line.cost:.7g}  best {self.best_cost:.7g}  damping {line.damping:.0e}{rejected}"
