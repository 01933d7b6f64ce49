"""Files of pose graphs and trajectories."""
