"""Experiments as data: plans, recorded runs, and their tables and figures."""

SHIPPED = ("quick", "paper")
"""The plans that come with asker."""
