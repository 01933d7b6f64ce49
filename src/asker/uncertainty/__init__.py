"""Covariances, leverage, and what the data do not determine."""
