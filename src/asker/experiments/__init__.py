"""Experiments as data: plans, recorded runs, and what is drawn from them."""

SHIPPED = ("quick", "paper")
"""The plans that come with asker."""
