"""The functions that analyse a result, passed to the solver so that it need not import them."""

from asker.derivatives.implicit import ImplicitDerivatives
from asker.solver.doubts import Doubt
from asker.solver.result import Result
from asker.solver.status import Analysis, register_analysis
from asker.uncertainty.active_bounds import doubts_of_bounds
from asker.uncertainty.covariance import Uncertainty
from asker.uncertainty.inlier_observability import doubts_of_inliers
from asker.uncertainty.leverage import leverage
from asker.uncertainty.observability import undetermined


def doubts(result: Result) -> tuple[Doubt, ...]:
    """Return the reasons not to rely on a result that its inliers and its bounds give."""
    return doubts_of_inliers(result) + doubts_of_bounds(result)


ANALYSIS = Analysis(Uncertainty, leverage, doubts, undetermined, ImplicitDerivatives)
register_analysis(ANALYSIS)
