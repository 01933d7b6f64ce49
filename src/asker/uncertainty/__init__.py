"""Covariances, leverage, and detection of undetermined unknowns."""
