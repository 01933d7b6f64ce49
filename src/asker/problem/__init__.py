"""What a user states: variables, factors, and the problem that they make."""
