"""Ready models with starting values of their own.

Each model is a function of x and of its parameters, which `asker.curve_fit` accepts; `model.fit(x, y)` also computes
starting values.
"""

from asker.models.curve_model import CurveModel
from asker.models.curves import (
    MODELS,
    arrhenius,
    double_exponential_decay,
    exponential_decay,
    gaussian_peak,
    hill,
    logistic3,
    logistic4,
    logistic5,
    lorentzian_peak,
    michaelis_menten,
    polynomial,
    power_law,
    sinusoid,
)
from asker.models.errors_in_both import orthogonal_line
from asker.models.starting_values import starting_values

__all__ = [
    "MODELS",
    "CurveModel",
    "arrhenius",
    "double_exponential_decay",
    "exponential_decay",
    "gaussian_peak",
    "hill",
    "logistic3",
    "logistic4",
    "logistic5",
    "lorentzian_peak",
    "michaelis_menten",
    "orthogonal_line",
    "polynomial",
    "power_law",
    "sinusoid",
    "starting_values",
]
