"""The choice of the device on which a problem is linearised for covariances, leverages and derivatives."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from asker.problem.problem import Problem

if TYPE_CHECKING:
    from asker.engines.cpu.linearized_problem import LinearModel
    from asker.engines.xla.linearized_problem import DeviceModel


def linear_model(engine: str, problem: Problem, theta: tuple[NDArray[np.float64], ...]) -> "LinearModel | DeviceModel":
    """Return the linearised problem: on the device if the solve ran there and a dense matrix fits, else on the CPU."""
    if engine == "xla":
        from asker.engines.xla.linearized_problem import DeviceModel

        if DeviceModel.suits(problem):
            return DeviceModel(problem, theta)
    from asker.engines.cpu.linearized_problem import LinearModel

    return LinearModel(problem, theta)
