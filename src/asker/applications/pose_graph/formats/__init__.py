"""File formats of pose graphs and trajectories."""
