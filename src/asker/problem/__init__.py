"""Problem statement of the user: variables, factors, and the problem composed of them."""
