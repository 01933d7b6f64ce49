"""Robust estimation at large scale."""
