"""Robust kernels and their registry."""
