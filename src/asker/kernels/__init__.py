"""Robust kernels, their registry, and their efficiency under Gaussian noise."""
