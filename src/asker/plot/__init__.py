"""Diagnostic figures of fitted curves: `fit`, `residuals`, `leverage` and `weights`, into axes of matplotlib."""

from asker.plot.figures import fit, leverage, residuals, weights

__all__ = ["fit", "leverage", "residuals", "weights"]
