"""High-breakdown estimators: S, MM, LTS and τ, for any residual function with few unknowns.

m_scale, descent      scale of residuals; descent on an objective of the residuals
subsets               candidates from random minimal subsets
s_regression, lts_regression, tau_regression, small_samples     one paper each
estimate              the estimators by name
"""

from asker.estimators.estimate import ESTIMATORS, lts_estimate, mm_estimate, s_estimate, tau_estimate
from asker.estimators.robust_fit import RobustFit

__all__ = ["ESTIMATORS", "RobustFit", "lts_estimate", "mm_estimate", "s_estimate", "tau_estimate"]
