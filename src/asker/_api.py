"""Public names of asker."""

from asker import estimators, models, plot  # noqa: F401  modules of the public interface
from asker._solve import solve
from asker.derivatives.gradients import Gradients
from asker.engines.cpu.threads import set_threads
from asker.geometry.manifolds import (
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
from asker.io.files import FileError
from asker.kernels.kernel import Kernel, Scaled
from asker.kernels.kernels import (
    LQQ,
    Barron,
    Cauchy,
    GemanMcClure,
    Huber,
    PseudoHuber,
    Quadratic,
    SmoothTruncated,
    TruncatedQuadratic,
    Tukey,
    Welsch,
)
from asker.kernels.registry import KERNELS, kernel_named
from asker.problem.by_group import Groups
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import ProblemError, Variables
from asker.scipy_compat.curve_fit import curve_fit
from asker.scipy_compat.fitted_curve import CurveFit
from asker.scipy_compat.least_squares import least_squares
from asker.search.driver import Search
from asker.search.settings import SearchSettings
from asker.solver.doubts import Alternative, Doubt, DoubtKind
from asker.solver.holdout import Judge, Prediction, holdout
from asker.solver.iteration import CurrentIteration
from asker.solver.result import Result
from asker.solver.status import Iteration, Status
from asker.statistics.noise import Noise
from asker.strategies import METHODS
from asker.strategies.asker import ASKER, Paced
from asker.strategies.composite.inlier_exchange import Exchanges
from asker.strategies.composite.phases import BestKept, FirstDescent, LastPhase
from asker.strategies.composite.with_block_moves import WithMoves
from asker.strategies.gnc import GNC
from asker.strategies.gnc_surrogate import SurrogateGNC
from asker.strategies.graduated_filter import FixedRate, GraduatedFilter
from asker.strategies.irls import IRLS
from asker.strategies.lm_moo import LMMOO
from asker.strategies.mhq import MHQ
from asker.strategies.regemm import ReGeMM
from asker.strategies.sqrt_psi import SqrtPsi
from asker.strategies.strategy import Strategy
from asker.strategies.triggs import Triggs
from asker.transforms.differentiable import differentiable
from asker.transforms.torch_function import torch_differentiable
from asker.uncertainty.covariance import Covariance, Uncertainty
from asker.uncertainty.leverage import Leverage
from asker.version import __version__

__all__ = [
    "ASKER",
    "GNC",
    "IRLS",
    "KERNELS",
    "LMMOO",
    "LQQ",
    "METHODS",
    "MHQ",
    "SE2",
    "SE3",
    "SO3",
    "Alternative",
    "Barron",
    "BestKept",
    "Cauchy",
    "Covariance",
    "CurrentIteration",
    "CurveFit",
    "Doubt",
    "DoubtKind",
    "Euclidean",
    "Exchanges",
    "Factors",
    "FileError",
    "FirstDescent",
    "FixedRate",
    "GemanMcClure",
    "Gradients",
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
    "Search",
    "SearchSettings",
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
    "differentiable",
    "holdout",
    "kernel_named",
    "least_squares",
    "set_threads",
    "solve",
    "torch_differentiable",
]
