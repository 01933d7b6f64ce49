"""Robust estimation at large scale."""

from asker.kernels import (
    Barron,
    Cauchy,
    GemanMcClure,
    Huber,
    Kernel,
    PseudoHuber,
    Quadratic,
    Scaled,
    SmoothTruncated,
    TruncatedQuadratic,
    Tukey,
    Welsch,
)
from asker.manifolds import SE3, SO3, Euclidean, Pose, Product, Sphere
from asker.problem import Factors, Problem, ProblemError, Variables
from asker.problems.dense import least_squares
from asker.result import Iteration, Result, Status
from asker.solve import set_threads, solve
from asker.strategies import METHODS
from asker.strategies.irls import IRLS

__version__ = "0.1.0"

__all__ = [
    "IRLS",
    "METHODS",
    "SE3",
    "SO3",
    "Barron",
    "Cauchy",
    "Euclidean",
    "Factors",
    "GemanMcClure",
    "Huber",
    "Iteration",
    "Kernel",
    "Pose",
    "Problem",
    "ProblemError",
    "Product",
    "PseudoHuber",
    "Quadratic",
    "Result",
    "Scaled",
    "SmoothTruncated",
    "Sphere",
    "Status",
    "TruncatedQuadratic",
    "Tukey",
    "Variables",
    "Welsch",
    "least_squares",
    "set_threads",
    "solve",
]
