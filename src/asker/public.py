"""The public names of asker."""

from asker.covariance import Covariance, Uncertainty
from asker.current import CurrentIteration
from asker.curve_fitting import curve_fit
from asker.engines.cpu.threads import set_threads
from asker.factors import Factors
from asker.groups import Groups
from asker.holding_out import Judge, Prediction, holdout
from asker.io.files import FileError
from asker.kernel_names import KERNELS, kernel_named
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
from asker.leverage import Leverage
from asker.manifolds import (
    SE2,
    SE3,
    SO3,
    Euclidean,
    Manifold,
    PlanePose,
    Pose,
    Product,
    Sim3,
    Similarity,
    Sphere,
)
from asker.noise import Noise
from asker.problem import Problem
from asker.result import Iteration, Result, Status
from asker.scipy_like import least_squares
from asker.solving import solve
from asker.strategies import METHODS
from asker.strategies.asker import FixedRate, GraduatedFilter
from asker.strategies.default import ASKER, Paced
from asker.strategies.exchanges import Exchanges
from asker.strategies.gnc import GNC
from asker.strategies.gnc_yang import SurrogateGNC
from asker.strategies.irls import IRLS
from asker.strategies.mhq import MHQ
from asker.strategies.moo import LMMOO
from asker.strategies.phases import BestKept, FirstDescent, LastPhase
from asker.strategies.regemm import ReGeMM
from asker.strategies.sqrt_psi import SqrtPsi
from asker.strategies.strategy import Strategy
from asker.strategies.triggs import Triggs
from asker.strategies.with_moves import WithMoves
from asker.variables import ProblemError, Variables
from asker.version import __version__

__all__ = [
    "ASKER",
    "GNC",
    "IRLS",
    "KERNELS",
    "LMMOO",
    "METHODS",
    "MHQ",
    "SE2",
    "SE3",
    "SO3",
    "Barron",
    "BestKept",
    "Cauchy",
    "Covariance",
    "CurrentIteration",
    "Euclidean",
    "Exchanges",
    "Factors",
    "FileError",
    "FirstDescent",
    "FixedRate",
    "GemanMcClure",
    "GraduatedFilter",
    "Groups",
    "Huber",
    "Iteration",
    "Judge",
    "Kernel",
    "LastPhase",
    "Leverage",
    "Manifold",
    "Noise",
    "Paced",
    "PlanePose",
    "Pose",
    "Prediction",
    "Problem",
    "ProblemError",
    "Product",
    "PseudoHuber",
    "Quadratic",
    "ReGeMM",
    "Result",
    "Scaled",
    "Sim3",
    "Similarity",
    "SmoothTruncated",
    "Sphere",
    "SqrtPsi",
    "Status",
    "Strategy",
    "SurrogateGNC",
    "Triggs",
    "TruncatedQuadratic",
    "Tukey",
    "Uncertainty",
    "Variables",
    "Welsch",
    "WithMoves",
    "__version__",
    "curve_fit",
    "holdout",
    "kernel_named",
    "least_squares",
    "set_threads",
    "solve",
]
