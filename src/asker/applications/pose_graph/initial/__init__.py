"""Initial values of pose graphs."""
