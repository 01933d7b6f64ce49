"""Experiments as data: plans, recorded runs, and what is drawn from them."""
