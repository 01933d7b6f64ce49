"""Ready models: decays, kinetics, dose response, peaks, oscillations, polynomials."""

from typing import Any

import numpy as np

from asker._arguments import check_number
from asker.models.curve_model import CurveModel
from asker.problem.variables import ProblemError

GAS_CONSTANT = 8.31446261815324
"""R in J/(mol K)."""
N_RATES, N_CENTRES, N_FREQUENCIES = 60, 80, 2000
MAX_EXPONENT = 700.0
"""Largest argument of exp that does not overflow."""


def _exp(x: Any) -> Any:
    return np.exp(np.clip(x, -MAX_EXPONENT, MAX_EXPONENT))


def _rates(x: Any, y: Any) -> Any:
    """Return rates from a tenth of the inverse range of x up to the inverse of its finest spacing."""
    steps = np.diff(np.unique(x))
    span = float(np.ptp(x)) or 1.0
    return np.geomspace(0.1 / span, 3 / (float(steps.min()) if steps.size else span), N_RATES)


def _widths(x: Any) -> Any:
    return 1 / _rates(x, x)


def _positive(x: Any) -> Any:
    """Return values over the range of positive x, and beyond."""
    size = np.abs(x[x != 0])
    low, high = (float(size.min()), float(size.max())) if size.size else (1.0, 1.0)
    return np.geomspace(0.1 * low, 10 * high, N_RATES)


def _centres(x: Any) -> Any:
    return np.quantile(x, np.linspace(0, 1, N_CENTRES))


def _frequencies(x: Any, y: Any) -> dict[str, Any]:
    """Return the frequencies with the largest power in the periodogram of Lomb and Scargle, of ranks for robustness."""
    from scipy.signal import lombscargle

    span, steps = float(np.ptp(x)) or 1.0, np.diff(np.unique(x))
    finest = float(np.median(steps)) if steps.size else span
    frequencies = np.linspace(0.25 / span, 0.5 / finest, N_FREQUENCIES)
    ranks = np.argsort(np.argsort(y)).astype(float)
    power = lombscargle(x, ranks - ranks.mean(), 2 * np.pi * frequencies)
    return {"frequency": frequencies[np.argsort(-power)[:10]]}


exponential_decay = CurveModel(
    "exponential_decay",
    "amplitude*exp(-rate*x) + offset",
    lambda x, amplitude, rate, offset: amplitude * _exp(-rate * x) + offset,
    ("amplitude", "rate", "offset"),
    lambda x, y: {"rate": _rates(x, y)},
)
double_exponential_decay = CurveModel(
    "double_exponential_decay",
    "amplitude1*exp(-rate1*x) + amplitude2*exp(-rate2*x) + offset",
    lambda x, amplitude1, rate1, amplitude2, rate2, offset: (
        amplitude1 * _exp(-rate1 * x) + amplitude2 * _exp(-rate2 * x) + offset
    ),
    ("amplitude1", "rate1", "amplitude2", "rate2", "offset"),
    lambda x, y: {"rate1": _rates(x, y), "rate2": _rates(x, y)},
)
michaelis_menten = CurveModel(
    "michaelis_menten",
    "vmax*x/(km + x)",
    lambda x, vmax, km: vmax * x / (km + x),
    ("vmax", "km"),
    lambda x, y: {"km": _positive(x)},
)
hill = CurveModel(
    "hill",
    "top*x**n/(k**n + x**n)",
    lambda x, top, k, n: top / (1 + _exp(n * (np.log(np.abs(k)) - np.log(np.maximum(x, 1e-300))))),
    ("top", "k", "n"),
    lambda x, y: {"k": _positive(x), "n": np.geomspace(0.3, 8, 20)},
)
logistic3 = CurveModel(
    "logistic3",
    "top/(1 + exp(-rate*(x - midpoint)))",
    lambda x, top, rate, midpoint: top / (1 + _exp(-rate * (x - midpoint))),
    ("top", "rate", "midpoint"),
    lambda x, y: {"rate": np.concatenate([_rates(x, y), -_rates(x, y)]), "midpoint": _centres(x)},
)
logistic4 = CurveModel(
    "logistic4",
    "bottom + (top - bottom)/(1 + exp(-rate*(x - midpoint)))",
    lambda x, bottom, top, rate, midpoint: bottom + (top - bottom) / (1 + _exp(-rate * (x - midpoint))),
    ("bottom", "top", "rate", "midpoint"),
    lambda x, y: {"rate": _rates(x, y), "midpoint": _centres(x)},
)
logistic5 = CurveModel(
    "logistic5",
    "bottom + (top - bottom)/(1 + exp(-rate*(x - midpoint)))**asymmetry",
    lambda x, bottom, top, rate, midpoint, asymmetry: (
        bottom + (top - bottom) * _exp(-asymmetry * np.logaddexp(0, -rate * (x - midpoint)))
    ),
    ("bottom", "top", "rate", "midpoint", "asymmetry"),
    lambda x, y: {"rate": _rates(x, y), "midpoint": _centres(x), "asymmetry": np.geomspace(0.3, 3, 7)},
    {"asymmetry": (1e-3, 1e3)},
)
gaussian_peak = CurveModel(
    "gaussian_peak",
    "height*exp(-((x - centre)/width)**2/2) + offset + slope*x",
    lambda x, height, centre, width, offset, slope: (
        height * np.exp(-np.minimum(((x - centre) / width) ** 2 / 2, MAX_EXPONENT)) + offset + slope * x
    ),
    ("height", "centre", "width", "offset", "slope"),
    lambda x, y: {"centre": _centres(x), "width": _widths(x)},
    {"width": (1e-300, np.inf)},
)
lorentzian_peak = CurveModel(
    "lorentzian_peak",
    "height/(1 + ((x - centre)/width)**2) + offset + slope*x",
    lambda x, height, centre, width, offset, slope: height / (1 + ((x - centre) / width) ** 2) + offset + slope * x,
    ("height", "centre", "width", "offset", "slope"),
    lambda x, y: {"centre": _centres(x), "width": _widths(x)},
    {"width": (1e-300, np.inf)},
)
power_law = CurveModel(
    "power_law",
    "factor*x**exponent",
    lambda x, factor, exponent: factor * np.abs(x) ** exponent,
    ("factor", "exponent"),
    lambda x, y: {"exponent": np.linspace(-6, 6, 121)},
)
sinusoid = CurveModel(
    "sinusoid",
    "sine*sin(2*pi*frequency*x) + cosine*cos(2*pi*frequency*x) + offset",
    lambda x, sine, cosine, frequency, offset: (
        sine * np.sin(2 * np.pi * frequency * x) + cosine * np.cos(2 * np.pi * frequency * x) + offset
    ),
    ("sine", "cosine", "frequency", "offset"),
    _frequencies,
    {"frequency": (0.0, np.inf)},
)
arrhenius = CurveModel(
    "arrhenius",
    "exp(log_prefactor - energy/(8.314462618*x))",
    lambda x, log_prefactor, energy: _exp(log_prefactor - energy / (GAS_CONSTANT * x)),
    ("log_prefactor", "energy"),
    lambda x, y: _arrhenius_candidates(x, y),
)


def _arrhenius_candidates(x: Any, y: Any) -> dict[str, Any]:
    """Return candidates from lines through pairs of points (1/x, log y)."""
    positive = y > 0
    u, v = 1 / x[positive], np.log(y[positive])
    i, j = np.triu_indices(len(u), 1)
    slope = np.median((v[j] - v[i])[u[i] != u[j]] / (u[j] - u[i])[u[i] != u[j]]) if len(u) > 1 else 0.0
    return {"energy": [-GAS_CONSTANT * slope], "log_prefactor": [float(np.median(v - slope * u)) if len(u) else 0.0]}


def polynomial(degree: int) -> CurveModel:
    """Return the polynomial c0 + c1 x + … of a degree.

    Parameters
    ----------
    degree
        Degree, from 0 to 20.

    Returns
    -------
    CurveModel
    """
    check_number("degree", degree, whole=True)
    if degree > 20:
        raise ProblemError(
            f"degree is {degree}, expected at most 20: higher powers are not determined by double precision"
        )
    names = tuple(f"c{k}" for k in range(int(degree) + 1))
    return CurveModel(
        f"polynomial{int(degree)}",
        " + ".join(["c0", *(f"c{k}*x**{k}" for k in range(1, int(degree) + 1))]),
        lambda x, *c: sum((ck * x**k for k, ck in enumerate(c)), np.zeros_like(x)),
        names,
        lambda x, y: {},
    )


MODELS: dict[str, CurveModel] = {
    model.name: model
    for model in (
        exponential_decay,
        double_exponential_decay,
        michaelis_menten,
        hill,
        logistic3,
        logistic4,
        logistic5,
        gaussian_peak,
        lorentzian_peak,
        power_law,
        sinusoid,
        arrhenius,
    )
}
"""Ready models by name."""
