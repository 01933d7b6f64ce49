"""Functions of residuals: scales, mixtures, tests."""
