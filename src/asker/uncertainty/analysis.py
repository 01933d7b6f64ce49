"""The functions that analyse a result, passed to the solver so that it need not import them."""

from asker.derivatives.implicit import ImplicitDerivatives
from asker.solver.status import Analysis, register_analysis
from asker.uncertainty.covariance import Uncertainty
from asker.uncertainty.inlier_observability import doubts_of_inliers
from asker.uncertainty.leverage import leverage
from asker.uncertainty.observability import undetermined

ANALYSIS = Analysis(Uncertainty, leverage, doubts_of_inliers, undetermined, ImplicitDerivatives)
register_analysis(ANALYSIS)
