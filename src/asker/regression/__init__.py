"""Inference for a fitted curve: the report, profiles, bands and tests.

fit         the fitted curve with its parameters, observations and scale
summary     the report as text and as HTML
profile     profile-likelihood intervals
inference   confidence and prediction bands, Wald test, robust R²
"""
