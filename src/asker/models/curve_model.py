"""A curve with names of its parameters and starting values of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asker.models.starting_values import starting_values
from asker.scipy_compat.curve_fit import curve_fit
from asker.scipy_compat.fitted_curve import CurveFit

Candidates = Callable[[Any, Any], dict[str, Any]]
"""Function of x and y that returns candidates for the parameters in which the curve is not linear."""


@dataclass(frozen=True)
class CurveModel:
    """A curve that can be called, fitted, and passed to `asker.curve_fit`."""

    name: str
    formula: str
    """The curve as text."""
    function: Callable[..., Any] = field(repr=False)
    """Function of x and of each parameter."""
    parameters: tuple[str, ...]
    """Names of the parameters."""
    candidates: Candidates = field(repr=False)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Bounds that belong to the model."""

    def __call__(self, x: Any, *parameters: Any) -> Any:
        """Return the values of the curve."""
        return self.function(x, *parameters)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, which `curve_fit` reads here instead of from a signature."""
        return self.parameters

    def guess(self, x: Any, y: Any, fixed: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return starting values for these data.

        Parameters
        ----------
        x, y
            Data.
        fixed
            Values of parameters that are not fitted, by names.

        Returns
        -------
        dict
            Values by names.
        """
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = x[finite], y[finite]
        return starting_values(
            self.function, x, y, self.parameters, bounds=self.bounds, known=fixed, candidates=self.candidates(x, y)
        )

    def fit(self, x: Any, y: Any, **options: Any) -> CurveFit:
        """Fit the curve, from starting values of its own.

        Parameters
        ----------
        x, y
            Data.
        **options
            Arguments of `asker.curve_fit`, such as `method="mm"`, `loss=None`, `sigma`, `fixed`.

        Returns
        -------
        CurveFit
        """
        options.setdefault("bounds", dict(self.bounds))
        if options.get("p0") is None:
            options["p0"] = self.guess(x, y, options.get("fixed"))
        return curve_fit(self, x, y, **options)
