"""Every number of the search for unknown noise, with its unit and its reason."""

from dataclasses import dataclass
from math import inf

from asker._arguments import check_number
from asker.statistics.scale_mixture import MINORITY_NATS


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search that `asker.solve` runs if a noise scale is unknown."""

    alternative_nats: float = MINORITY_NATS
    """Difference of evidence, in nats, below which a solution is not excluded: odds of 150, "very strong" evidence
    (Kass and Raftery: Bayes Factors, JASA 1995).  A minority of inliers must gain as much over all others."""
    gain_nats: float = 0.005
    """Gain of evidence for each unknown, in nats, that is worth another round: a step of 0.1 standard errors."""
    tail_dofs: tuple[float, ...] = (inf, 4.0)
    """Degrees of freedom of inliers: Gaussian, or Student's t with ν = 4 (Lange, Little and Taylor, JASA 1989)."""
    background_dofs: tuple[float, ...] = (inf, 4.0, 1.0)
    """Degrees of freedom of the background, the density of outliers."""
    initial_quantiles: tuple[float, ...] = (0.1, 0.25, 0.5, 0.8)
    """Quantiles of ‖r‖²/p at which the initial variances of EM are placed, one for each range of inlier ratios."""
    initial_inlier_ratio: float = 0.7
    """Inlier ratio at which EM starts; its fixed point hardly depends on it."""
    fit_rtol: float = 1e-4
    """Relative change of the parameters of a mixture at which EM ends: 1 % of the standard error for n = 10⁴."""
    max_first_fit_steps: int = 12
    """Maximum number of EM steps from each initial variance, of which the best goes on."""
    max_fit_steps: int = 300
    """Maximum number of EM steps of one fit."""
    fit_sample: int = 2**15
    """Number of observations from which the initial scale is chosen; the fit itself uses all."""
    scale_rtol: float = 0.01
    """Relative change of a variance at which scale and leverage agree."""
    max_agreement_rounds: int = 8
    """Maximum number of rounds of scale and leverage; a stale leverage would let minorities win."""
    max_refinement_rounds: int = 20
    """Maximum number of rounds of descent and fit for one candidate."""
    max_descent_iterations: int = 30
    """Maximum number of iterations of a descent between two fits."""
    max_first_iterations: int = 60
    """Maximum number of iterations of a first descent under a scale-free kernel."""
    max_background_iterations: int = 10
    """Number of iterations of least squares with many unknowns: the background is a density, not an estimate."""
    max_variance_rounds: int = 10
    """Maximum number of rounds of variance components (Förstner 1979) if several groups have unknown scales."""
    narrow_width: float = 0.5
    """Width of the Cauchy kernel of a first descent, in median residual norms: its weights hardly depend on it."""
    lead_factor: float = 100.0
    """Weight of the observations of a group that leads, relative to all others."""
    max_subset_unknowns: int = 12
    """Number of unknowns up to which minimal subsets are drawn: with more, a subset of inliers is too rare."""
    n_subset_solutions: int = 4
    """Number of distinct solutions from minimal subsets that are refined."""
    max_exact_leverage_unknowns: int = 2000
    """Number of unknowns up to which the leverage is exact; with more it is computed by variable."""
    max_small_unknowns: int = 200
    """Number of unknowns up to which iterations are so cheap that all generators are tried."""
    max_move_trials: int = 64
    """Number of subsets for each variable in a block move of a small problem; an eighth of it in larger ones."""
    max_enumerated_observations: int = 30_000
    """Number of observations up to which inlier sets are enumerated; copies take about six times the memory."""
    enumeration_sample: int = 150
    """Number of independent variables on which the evidence of near outliers is tested first."""
    max_varied: int = 6
    """Maximum number of observations of a variable in the enumeration: 2⁶ sets."""
    least_set_ratio: float = 0.02
    """Probability of a set relative to the likeliest one, below which it is omitted."""
    max_enumeration_steps: int = 30
    """Maximum number of EM steps with enumerated inlier sets."""
    max_move_rounds: int = 5
    """Maximum number of rounds of block moves."""
    exact_ratio: float = 1e-12
    """Variance over that of least squares below which residuals are exact, but for rounding in double precision."""

    def __post_init__(self) -> None:
        for name in ("alternative_nats", "gain_nats", "fit_rtol", "scale_rtol", "narrow_width"):
            check_number(f"SearchSettings.{name}", getattr(self, name))
        for name in ("tail_dofs", "background_dofs", "initial_quantiles"):
            if not getattr(self, name):
                raise ValueError(f"SearchSettings.{name} is empty")
